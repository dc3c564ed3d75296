"""How fast data sets are read, and from which density on dense rows are the better form.

    python benchmarks/datasets.py              readers, on made-up files and on those of TRSVR_DATA_DIR
    python benchmarks/datasets.py --storage    mini-batch gradients on dense and on CSR rows

Times are the least of several runs. Text is read from files that the system holds in memory, so the numbers are those
of the parser. Of bzip2 files the decompression alone is the floor; it is measured beside the whole.
"""

from __future__ import annotations

import argparse
import bz2
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse

from trsvr import datasets, problems


def least_seconds(task: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        task()
        times.append(time.perf_counter() - begin)
    return min(times)


def unpack(path: Path) -> int:
    size = 0
    with bz2.open(path) as stream:
        while block := stream.read(2**20):
            size += len(block)
    return size


def made_up_files(folder: Path) -> list[Path]:
    """Integers and indicators, short decimals, and numbers with all their digits."""
    tall = datasets.covtype_like(60_000)
    rounded = np.round(tall.X * 1000)
    datasets.write_libsvm(folder / "integers.svm", rounded, tall.y)
    text = datasets.text_like(15_000)
    short = scipy.sparse.csr_array(text.X, copy=True)
    short.data = np.round(short.data, 6)
    datasets.write_libsvm(folder / "six-digits.svm", short, text.y)
    datasets.write_libsvm(folder / "all-digits.svm", text.X, text.y)
    return sorted(folder.glob("*.svm"))


def measure_readers(repeats: int, scikit_learn: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = made_up_files(folder)
        real = Path(os.environ.get("TRSVR_DATA_DIR", "."))
        for packed in sorted(real.glob("*.svm.bz2")):
            text = folder / packed.name.removesuffix(".bz2")
            text.write_bytes(bz2.decompress(packed.read_bytes()))
            files.append(text)
        datasets.read_libsvm(files[0])  # compiles
        print(f"{'file':24}{'MB':>8}{'trsvr MB/s':>12}{'scikit-learn MB/s':>19}{'ratio':>7}")
        for file in files:
            size = file.stat().st_size / 1e6
            ours = least_seconds(lambda file=file: datasets.read_libsvm(file), repeats)
            line = f"{file.name:24}{size:8.1f}{size / ours:12.0f}"
            if scikit_learn:
                from sklearn.datasets import load_svmlight_file

                theirs = least_seconds(lambda file=file: load_svmlight_file(str(file)), 1 if size > 20 else repeats)
                line += f"{size / theirs:19.1f}{theirs / ours:7.1f}"
            print(line, flush=True)


def measure_loading() -> None:
    """First and second `load` of every set in TRSVR_DATA_DIR, in a cache of its own."""
    folder = os.environ.get("TRSVR_DATA_DIR")
    if not folder:
        print("\nTRSVR_DATA_DIR is not set: loading by name is not measured")
        return
    print(f"\n{'set':24}{'bzip2 alone s':>15}{'first load s':>14}{'second load s':>15}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRSVR_CACHE_DIR"] = cache
        for name, row in datasets.list().iterrows():
            path = Path(str(row["where"]).removesuffix(" (substitute)"))
            if not path.is_file() or name == "rcv1":
                continue
            floor = least_seconds(lambda path=path: unpack(path), 1)
            first = least_seconds(lambda name=name: datasets.load(name), 1)
            second = least_seconds(lambda name=name: datasets.load(name), 3)
            print(f"{name:24}{floor:15.3f}{first:14.3f}{second:15.4f}{first / second:8.0f}", flush=True)


def gradient_seconds(
    problem: problems.LinearModel, x: np.ndarray, batches: np.ndarray, repeats: int
) -> tuple[float, float]:
    """Time of a full gradient, and of a gradient on every batch."""
    problem.value_and_gradient(x), problem.batch_gradient(x, batches[0])  # compiles
    return (
        least_seconds(lambda: problem.value_and_gradient(x), repeats),
        least_seconds(lambda: [problem.batch_gradient(x, rows) for rows in batches], repeats),
    )


def measure_storage(repeats: int) -> None:
    """Time on CSR rows divided by time on dense rows: above 1 the dense form is faster."""
    rng = np.random.default_rng(0)
    print(f"{'columns':>8}{'density':>9}{'full gradient':>15}{'batches of 200':>16}{'memory':>8}")
    for columns in (22, 54, 112, 500):
        rows = 10_000_000 // columns
        y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
        x = 0.1 * rng.standard_normal(columns)
        batches = rng.integers(0, rows, (50, 200))
        for density in (0.1, 0.15, 0.2, 0.3, 0.45, 0.6):
            sparse = scipy.sparse.random(rows, columns, density, "csr", random_state=rng)
            (sparse_full, sparse_batch), (dense_full, dense_batch) = (
                gradient_seconds(problems.logistic(X, y), x, batches, repeats) for X in (sparse, sparse.toarray())
            )
            ratios = sparse_full / dense_full, sparse_batch / dense_batch
            print(f"{columns:8}{density:9.2f}{ratios[0]:15.2f}{ratios[1]:16.2f}{1.5 * density:8.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--storage", action="store_true", help="compare dense and CSR rows")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-scikit-learn", action="store_true", help="leave the slow reader out")
    arguments = parser.parse_args()
    if arguments.storage:
        measure_storage(arguments.repeats)
    else:
        measure_readers(arguments.repeats, not arguments.no_scikit_learn)
        measure_loading()


if __name__ == "__main__":
    main()
