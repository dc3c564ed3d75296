"""What the first fits on a machine cost: compiling.

    python benchmarks/cold_start.py [--repetitions 3]

Every case is a process of its own with a cache folder of its own: empty, or with the code of the case before it where
the table says so. The seconds are processor time (all threads) from after the imports to the end of the fit, so other
work on the machine disturbs them little; the smallest of the repetitions counts. Writes a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numba

IMPORTS = """
import sys, time
import numpy as np, scipy.sparse
from sklearn.datasets import load_breast_cancer
import trsvr
from trsvr.sklearn import TRSVRClassifier, TRSVRRegressor

random = np.random.default_rng(0)
X = random.normal(size=(50_000, 50))
score = X[:, 0] + random.normal(size=50_000)
y = score > 0
sparse = scipy.sparse.random(50_000, 50, density=0.2, format="csr", random_state=0)
small, labels = load_breast_cancer(return_X_y=True)
begun = time.process_time()
"""
FITS = {
    "breast_cancer": "TRSVRClassifier().fit(small, labels)",
    "50 000 × 50, dense float64, logistic": "TRSVRClassifier().fit(X, y)",
    "softmax, three classes": "TRSVRClassifier().fit(X, np.digitize(score, [-1.0, 1.0]))",
    "CSR": "TRSVRClassifier().fit(sparse, y)",
    "float32": "TRSVRClassifier().fit(X.astype(np.float32), y)",
    "squared loss": "TRSVRRegressor().fit(X, score)",
    "pseudo-Huber loss": "TRSVRRegressor(loss='pseudo_huber').fit(X, score)",
}
FIRST = "50 000 × 50, dense float64, logistic"
OWN_LOSS = '''
import math
from typing import NamedTuple


class LogCosh(NamedTuple):
    """log cosh((z − y) / width)."""

    width: float = 2.0

    def value(self, margin, label):
        r = abs(margin - label) / self.width
        return r + math.log1p(math.exp(-2.0 * r)) - math.log(2.0)

    def slope(self, margin, label):
        return math.tanh((margin - label) / self.width) / self.width

    def curvature(self, margin, label):
        t = math.tanh((margin - label) / self.width)
        return (1.0 - t * t) / self.width**2
'''
USE_OWN_LOSS = "trsvr.minimize(trsvr.problems.LinearModel(X, score, LogCosh(), trsvr.problems.L2(1e-4)))"


def seconds(fit: str, cache: Path, before: str = "") -> float:
    """Processor time of one fit in a new process."""
    (cache.parent / "own_loss.py").write_text(OWN_LOSS, encoding="utf-8")
    script = f"{before}{IMPORTS}{fit}\nprint(time.process_time() - begun)"
    environment = {**os.environ, "TRSVR_CACHE_DIR": str(cache), "TRSVR_QUIET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=cache.parent, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout.split()[-1])


def once() -> dict[tuple[str, str], float]:
    """Every case once: seconds by its name and what was in the cache."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:

        def cache(name: str, like: str | None = None) -> Path:
            path = Path(folder) / name / "cache"
            path.parent.mkdir()
            if like is not None:
                shutil.copytree(Path(folder) / like / "cache", path)
            return path

        for number, (name, fit) in enumerate(FITS.items()):
            found[name, "empty"] = seconds(fit, cache("first" if name == FIRST else f"alone {number}"))
        found[FIRST, "its own"] = seconds(FITS[FIRST], Path(folder) / "first" / "cache")
        for number, (name, fit) in enumerate(FITS.items()):
            if name not in ("breast_cancer", FIRST):
                found[name, "the dense logistic fit's"] = seconds(fit, cache(f"next {number}", like="first"))
        own, before = cache("own"), "from own_loss import LogCosh\n"
        found["own loss, first process", "empty"] = seconds(USE_OWN_LOSS, own, before)
        found["own loss, second process", "its own"] = seconds(USE_OWN_LOSS, own, before)
    return found


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3)
    rounds = [once() for _ in range(parser.parse_args().repetitions)]
    print(f"{platform.machine()}, Numba {numba.__version__}, Python {platform.python_version()}\n")
    print("| fit | compiled code that is there | processor seconds |")
    print("|---|---|---|")
    for name, there in rounds[0]:
        print(f"| {name} | {there} | {min(found[name, there] for found in rounds):.2f} |")


if __name__ == "__main__":
    main()
