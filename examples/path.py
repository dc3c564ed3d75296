"""What a path of warm starts saves: thirty strengths of the penalty, each solve begun where the one before ended.

python examples/path.py [--fast] [--out FOLDER]
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

import trsvr
from drawing import options, save
from trsvr.datasets import synthetic


def main() -> None:
    chosen = options(__doc__)
    data = synthetic(4_000 if chosen.fast else 40_000, 12, condition=1e3, lipschitz=1.0)
    strengths = np.geomspace(1.0, 1e-6, 8 if chosen.fast else 30)
    warm_start, coefficients, worst = None, [], 0.0
    passes: dict[str, list[float]] = {"from zero": [], "from the one before": []}
    for strength in strengths:
        problem = trsvr.problems.logistic(data.X, data.y, l2=strength)
        cold = trsvr.minimize(problem)
        warm = trsvr.minimize(problem, x0=warm_start)
        passes["from zero"].append(cold.passes)
        passes["from the one before"].append(warm.passes)
        coefficients.append(warm.x)
        worst = max(worst, float(np.abs(warm.x - cold.x).max()))
        warm_start = warm.x
    for name, counts in passes.items():
        print(f"{name:22}{sum(counts):8.1f} passes for {len(strengths)} strengths")
    print(f"largest difference between the two: {worst:.1e}")

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.semilogx(strengths, coefficients)
    left.set_title("coefficients", fontsize="medium")
    for (name, counts), style in zip(passes.items(), ("C1s--", "C0o-"), strict=True):
        right.semilogx(strengths, counts, style, markersize=3, label=name)
    right.set_ylim(bottom=0)
    right.set_title("passes over the data, to the default tolerance", fontsize="medium")
    right.legend()
    for axes in (left, right):
        axes.set_xlabel("λ")
        axes.invert_xaxis()
        axes.grid(alpha=0.3)
    save(figure, chosen.out, "path")


if __name__ == "__main__":
    main()
