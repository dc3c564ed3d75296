"""What a checkpoint costs: the fingerprint of the data, one file, and a run that writes one after every epoch.

python benchmarks/checkpoints.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import trsvr

ROWS, COLUMNS = 500_000, 50
SOLVERS = [
    trsvr.TRSVR(),
    trsvr.SVRG(batch_size=8),
    trsvr.SAGA(batch_size=8),
    trsvr.LBFGS(),
]


def main() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, COLUMNS))
    y = X @ random.normal(size=COLUMNS) + random.logistic(size=ROWS) > 0
    problem = trsvr.problems.logistic(X, y)
    begun = time.perf_counter()
    problem.fingerprint()
    seconds = time.perf_counter() - begun
    print(f"{ROWS} x {COLUMNS}: fingerprint {seconds:.3f} s, {X.nbytes / seconds / 1e9:.2f} GB/s")
    print("solver   epochs   run   kept run   file")
    for solver in SOLVERS:
        options = {"max_epochs": 6, "tol": None}
        trsvr.minimize(problem, solver, **options)  # compiles
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.ckpt"
            begun = time.perf_counter()
            trsvr.minimize(problem, solver, **options)
            plain = time.perf_counter() - begun
            begun = time.perf_counter()
            trsvr.minimize(problem, solver, checkpoint=path, checkpoint_every=1, **options)
            kept = time.perf_counter() - begun
            size = path.stat().st_size / 2**20
        print(
            f"{type(solver).__name__:8} {options['max_epochs']:3}  {plain:6.2f} s  {kept:6.2f} s  {size:6.2f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
