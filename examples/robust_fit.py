"""What outliers do to a fit: a damped oscillation with every sixth measurement wrong, by three losses.

python examples/robust_fit.py
"""

from __future__ import annotations

import numpy as np

import trsvr
from trsvr.problems import LeastSquares, PseudoHuber, Squared, Tukey

TRUE = np.array([2.0, 0.3, 2.5, 0.4])
NOISE = 0.05


def main() -> None:
    random = np.random.default_rng(0)
    t = np.linspace(0.0, 10.0, 300)

    def model(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return x[0] * np.exp(-x[1] * t[rows]) * np.cos(x[2] * t[rows] + x[3])

    y = model(TRUE, np.arange(300)) + NOISE * random.normal(size=300)
    y[::6] += random.normal(scale=3.0, size=50)

    # One after the other: a loss that forgets rows needs a start from which it does not forget the wrong ones.
    x = np.array([1.5, 0.2, 2.4, 0.5])
    print("loss          error of the constants   passes")
    for loss in (Squared(), PseudoHuber(NOISE), Tukey(4.685 * NOISE)):
        result = trsvr.minimize(LeastSquares(300, 4, lambda x, i: model(x, i) - y[i], loss=loss), x0=x)
        assert result.success, result.message
        x = result.x
        print(f"{type(loss).__name__:13} {np.abs(x - TRUE).max():<24.4f} {result.passes:.0f}")


if __name__ == "__main__":
    main()
