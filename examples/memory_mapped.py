"""Rows that stay on the disk: a float32 matrix as a memory map, solved without ever being copied.

`LinearModel` uses a C-ordered float32 or float64 array where it lies, so a memory map is read page by page by the
passes, and the operating system keeps in memory what there is room for. Drawn is the memory that belongs to the
process itself, beside the size of the file (where the system tells: Linux).

    python examples/memory_mapped.py [--fast] [--out FOLDER]
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import trsvr
from drawing import options, save

COLUMNS = 50


def own_memory() -> float:
    """Megabytes of this process that are not pages of files; NaN where they cannot be told apart."""
    status = Path("/proc/self/status")
    found = re.search(r"RssAnon:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return float("nan") if found is None else int(found[1]) / 1e3


def write_rows(path: Path, n_samples: int) -> np.ndarray:
    """A file of float32 rows, written in blocks, and the labels."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=COLUMNS) / 4.0
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n_samples, COLUMNS))
    labels = np.empty(n_samples)
    for begin in range(0, n_samples, 50_000):
        block = rng.standard_normal((min(50_000, n_samples - begin), COLUMNS), dtype=np.float32)
        block *= np.geomspace(1.0, 0.1, COLUMNS, dtype=np.float32)
        rows[begin : begin + len(block)] = block
        labels[begin : begin + len(block)] = rng.random(len(block)) < 1.0 / (1.0 + np.exp(-(block @ truth)))
    rows.flush()
    return labels


def main() -> None:
    chosen = options(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        labels = write_rows(path, 100_000 if chosen.fast else 1_000_000)
        before, megabytes = own_memory(), path.stat().st_size / 1e6
        problem = trsvr.problems.logistic(np.load(path, mmap_mode="r"), labels, l2=1e-6)
        memory: list[float] = []
        result = trsvr.minimize(problem, callback=lambda _: memory.append(own_memory() - before))
    print(f"a file of {megabytes:.0f} MB: {result.message}")
    print(f"{result.epochs} epochs, {result.passes:.1f} passes, {result.seconds:.2f} s")
    print(f"memory beyond the file: at most {max(memory):.0f} MB")

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    result.plot(ax=left)
    left.set_ylabel("‖∇f‖²")
    right.bar(["the file", "the process"], [megabytes, max(memory)], color=["0.75", "tab:blue"])
    right.set_ylabel("MB")
    right.set_title("the largest it became", fontsize="medium")
    right.grid(alpha=0.3, axis="y")
    save(figure, chosen.out, "memory_mapped")


if __name__ == "__main__":
    main()
