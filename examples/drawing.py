"""What the examples that draw share: their command line, their axes, and where a figure goes."""

from __future__ import annotations

import argparse
import io
import os
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("agg")  # figures are files: no window is needed, nor a screen
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

import trsvr
from trsvr.experiments.figures import COLOURS
from trsvr.parts.subproblems import CGWork

# Colours that differ in lightness too, with at least 3:1 against white: "C0", "C1" and so on in the examples.
plt.rcParams["axes.prop_cycle"] = plt.cycler(color=COLOURS)
FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"


def options(description: str | None, **more: tuple[str, str]) -> argparse.Namespace:
    """``--fast``, ``--out`` and, as ``name=(default, help)``, what one example has beyond them."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="small data and few epochs: only to see it run")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the figure (default: docs/figures)")
    for name, (default, text) in more.items():
        parser.add_argument(f"--{name}", default=default, help=f"{text} (default: {default})")
    return parser.parse_args()


def panels(width: float, height: float, count: int = 2) -> tuple[Figure, list[Axes]]:
    """A figure with so many axes beside each other, each with a light grid."""
    figure, axes = plt.subplots(1, count, figsize=(width, height), layout="constrained", squeeze=False)
    for one in axes[0]:
        one.grid(alpha=0.3)
    return figure, list(axes[0])


def on_grid(problem: Any, low: Any, high: Any, count: int = 61) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of a problem with two unknowns on a grid between two corners: both coordinates, and f."""
    one, two = np.meshgrid(np.linspace(low[0], high[0], count), np.linspace(low[1], high[1], count))
    values = [problem.value_and_gradient(np.array(point))[0] for point in zip(one.ravel(), two.ravel(), strict=True)]
    return one, two, np.reshape(values, one.shape)


def visited(problem: Any, solver: Any, start: Any, **chosen: Any) -> tuple[np.ndarray, Any]:
    """The points that a run goes through, one per row, and its result."""
    points = [np.asarray(start, dtype=float)]
    result = trsvr.minimize(problem, solver, x0=start, callback=lambda now: points.append(now.x.copy()), **chosen)
    return np.array(points), result


class Matrix:
    """A Hessian as conjugate gradients want it: a product, and vᵀHv with it."""

    def __init__(self, entries: np.ndarray) -> None:
        self.entries = entries

    def product(self, v: np.ndarray, squared_norm: float, out: np.ndarray) -> float:
        """Leave H v in ``out``; return vᵀHv."""
        out[:] = self.entries @ v
        return float(v @ out)


def steihaug(hessian: np.ndarray, gradient: np.ndarray, radius: float) -> np.ndarray:
    """The step of Steihaug's method, to a tight tolerance."""
    work = CGWork.of_size(gradient.size)
    trsvr.parts.steihaug_cg(Matrix(hessian), gradient, radius, 1e-12, 10, work)
    return work.step.copy()


def circle(radius: float) -> Any:
    """The boundary of a region."""
    return plt.Circle((0, 0), radius, fill=False, color="C1", linestyle="--")


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a figure beside its place, rename it, and say where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=110, format="png")
    beside = path.with_name(f".{path.name}")
    # A palette makes a line drawing a third of the size; this kind of it keeps colours of which there is little, and
    # moves them towards those that are there, so that a band has the colour of its line.
    palette = Image.Quantize.MAXCOVERAGE
    Image.open(drawn).convert("RGB").quantize(256, method=palette, kmeans=1).save(beside, format="png", optimize=True)
    os.replace(beside, path)
    print(f"figure: {path}")
