"""covtype.binary.scale on one GPU: ``python benchmarks/gpu/covtype_scale.py [--file FILE] --out FOLDER``.

Without the file a stand-in of the same shape and kind is made: 581 012 × 54, ten columns of numbers in [0, 1] and
one-hot columns of uneven frequency, some of them very rare. The report says which it was.
"""

from __future__ import annotations

import argparse

import numpy as np
from common import DEVICE, about, compare, show, write

from trsvr import problems
from trsvr.torch import LinearModel


def stand_in(seed: int = 0):
    """Rows of the shape of covtype.binary.scale."""
    rng = np.random.default_rng(seed)
    n = 581_012
    X = np.zeros((n, 54), dtype=np.float32)
    X[:, :10] = rng.beta(2.0, 2.0, size=(n, 10))
    X[np.arange(n), 10 + rng.choice(4, n, p=[0.45, 0.05, 0.436, 0.064])] = 1.0
    frequency = np.logspace(0, -5, 40)
    X[np.arange(n), 14 + rng.choice(40, n, p=frequency / frequency.sum())] = 1.0
    score = X @ rng.normal(size=54) * 2.0
    y = np.where(score - np.median(score) + rng.logistic(size=n) > 0, 1, -1)
    return X, y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", help="NPZ with X (or data, indices, indptr) and y")
    parser.add_argument("--l2", type=float, default=1e-6)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--out", help="folder for the JSON and the figure")
    arguments = parser.parse_args()
    print(about())
    if arguments.file:
        stored = np.load(arguments.file)
        X, y, source = stored["X"].astype(np.float32), stored["y"], "covtype.binary.scale"
    else:
        (X, y), source = stand_in(), "stand-in of the same shape"
    problem = LinearModel(X, y, problems.Logistic(), problems.L2(arguments.l2), device=DEVICE)
    found = {"source": source, "rows": len(y), "columns": X.shape[1], **compare(problem, arguments.runs)}
    show(found, f"{source}, {len(y)} × {X.shape[1]}")
    write(found, arguments.out, "covtype_scale")


if __name__ == "__main__":
    main()
