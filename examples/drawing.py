"""What the examples that draw share: their command line, and where a figure goes."""

from __future__ import annotations

import argparse
import io
import os
from pathlib import Path

import matplotlib

matplotlib.use("agg")  # figures are files: no window is needed, nor a screen
from matplotlib.figure import Figure
from PIL import Image

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"


def options(description: str, **more: tuple[str, str]) -> argparse.Namespace:
    """``--fast``, ``--out`` and, as ``name=(default, help)``, what one example has beyond them."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="small data and few epochs: only to see it run")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the figure (default: docs/figures)")
    for name, (default, text) in more.items():
        parser.add_argument(f"--{name}", default=default, help=f"{text} (default: {default})")
    return parser.parse_args()


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a figure beside its place, rename it, and say where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=110, format="png")
    beside = path.with_name(f".{path.name}")
    # A palette makes a line drawing a third of the size; this kind of it keeps colours of which there is little.
    palette = Image.Quantize.MAXCOVERAGE
    Image.open(drawn).convert("RGB").quantize(256, method=palette).save(beside, format="png", optimize=True)
    os.replace(beside, path)
    print(f"figure: {path}")
