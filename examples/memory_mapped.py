"""How to fit rows that stay on the disk: a float32 matrix as a memory map, solved without ever being copied.

`LinearModel` uses a C-ordered float32 or float64 array in place, so a memory map is read page by page by the
passes, and the operating system keeps in memory what there is room for. Drawn is the memory that belongs to the
process itself, beside the size of the file (where the system tells: Linux).

    python examples/memory_mapped.py [--fast] [--out FOLDER]
"""

import re
import tempfile
from pathlib import Path

import numpy as np

import trsvr
from drawing import options, panels, save

COLUMNS, BLOCK, STATUS = 50, 50_000, Path("/proc/self/status")


def own_memory():
    """Megabytes of this process that are not pages of files; NaN where they cannot be told apart."""
    found = re.search(r"RssAnon:\s+(\d+) kB", STATUS.read_text()) if STATUS.exists() else None
    return float("nan") if found is None else int(found[1]) / 1e3


def write_rows(path, n_samples):
    """A file of float32 rows, written in blocks, and the labels."""
    rng, labels = np.random.default_rng(0), np.empty(n_samples)
    truth = rng.normal(size=COLUMNS) / 4.0
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n_samples, COLUMNS))
    for begin in range(0, n_samples, BLOCK):
        block = rng.standard_normal((BLOCK, COLUMNS), dtype=np.float32) * np.geomspace(1.0, 0.1, COLUMNS)
        rows[begin : begin + BLOCK] = block
        labels[begin : begin + BLOCK] = rng.random(BLOCK) < 1.0 / (1.0 + np.exp(-(block @ truth)))
    rows.flush()
    return labels


chosen = options(__doc__)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "rows.npy"
    labels = write_rows(path, 100_000 if chosen.fast else 1_000_000)
    before, megabytes, memory = own_memory(), path.stat().st_size / 1e6, []
    problem = trsvr.problems.logistic(np.load(path, mmap_mode="r"), labels, l2=1e-6)
    result = trsvr.minimize(problem, callback=lambda _: memory.append(own_memory() - before))
print(f"a file of {megabytes:.0f} MB: {result.message}")
print(f"{result.epochs} epochs, {result.passes:.1f} passes, {result.seconds:.2f} s")
print(f"memory beyond the file: at most {max(memory):.0f} MB")

figure, (left, right) = panels(8, 3.4)
result.plot(ax=left).set_ylabel("‖∇f‖²")
right.bar(["the file", "the process"], [megabytes, max(memory)], color=["0.75", "C0"])
right.set(ylabel="MB", title="the largest it became")
save(figure, chosen.out, "memory_mapped")
