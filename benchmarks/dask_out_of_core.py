"""Data many times larger than the workers' memory, on one machine.

``python benchmarks/dask_out_of_core.py FOLDER --gigabytes 20 --memory 1.5`` writes an NPY stack into FOLDER (blocks
that are there already are not written again), solves logistic regression over it with two workers that may use so many
gigabytes each, and prints time, rounds, bytes and the largest memory of a worker. The run is kept in
``FOLDER/run.ckpt``: a benchmark that was stopped goes on where it was, and says in how many sittings it was made. What
is measured is in ``FOLDER/report.json`` after every epoch. ``--delete`` removes the blocks at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import psutil

import trsvr
import trsvr.dask

COLUMNS, BLOCK_ROWS = 100, 250_000
BLOCK_BYTES = BLOCK_ROWS * COLUMNS * 4
TRUTH = np.cos(np.arange(COLUMNS))


def write(folder: Path, gigabytes: float) -> int:
    """Blocks of 100 MB, float32: one block of random rows with its columns turned, and fresh labels for each."""
    count = max(1, round(gigabytes * 1e9 / BLOCK_BYTES))
    missing = sum(not _is_whole(folder, i) for i in range(count))
    free = shutil.disk_usage(folder.parent if not folder.exists() else folder).free
    needed = missing * (BLOCK_BYTES + BLOCK_ROWS)
    if needed > 0.9 * free:
        raise SystemExit(f"{folder}: {needed / 1e9:.1f} GB are to be written, and {free / 1e9:.1f} GB are free")
    rng = np.random.default_rng(0)
    base = rng.standard_normal((BLOCK_ROWS, COLUMNS), dtype=np.float32)
    base *= np.linspace(0.2, 2.0, COLUMNS, dtype=np.float32)
    for name, shape, dtype in (("X", (BLOCK_ROWS, COLUMNS), np.float32), ("y", (BLOCK_ROWS,), np.int8)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        chunks = ((BLOCK_ROWS,) * count, *((length,) for length in shape[1:]))
        info = {"chunks": chunks, "dtype": np.dtype(dtype), "axis": 0}
        (folder / name / "info").write_bytes(pickle.dumps(info))
    for i in range(count):
        if _is_whole(folder, i):
            continue
        X = np.roll(base, i, axis=1)
        random = np.random.default_rng(i + 1)
        X *= random.choice(np.array([-1.0, 1.0], dtype=np.float32), size=(BLOCK_ROWS, 1))  # no two blocks alike
        y = (X @ TRUTH + random.logistic(size=BLOCK_ROWS) > 0).astype(np.int8)
        for name, values in (("X", X), ("y", y)):
            place = folder / name / f"{i}.npy"
            beside = place.with_suffix(".part")
            with beside.open("wb") as file:
                np.save(file, values)
            beside.replace(place)
    return count


def _is_whole(folder: Path, i: int) -> bool:
    """Whether a block has been written; files are renamed when they are complete."""
    return all((folder / name / f"{i}.npy").exists() for name in ("X", "y"))


class Watch:
    """The largest memory that the workers and this process have had, and whether a worker was replaced."""

    def __init__(self, pids: list[int]) -> None:
        self.pids, self.peaks, self.own = pids, dict.fromkeys(pids, 0), 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self.own = max(self.own, psutil.Process().memory_info().rss)
            for pid in self.pids:
                try:
                    self.peaks[pid] = max(self.peaks[pid], psutil.Process(pid).memory_info().rss)
                except psutil.NoSuchProcess:
                    continue

    def close(self) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--memory", type=float, default=1.5, help="GB per worker, which takes about 0.6")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write-only", action="store_true")
    parser.add_argument("--delete", action="store_true", help="remove the blocks when the run has ended well")
    chosen = parser.parse_args()
    begun = time.perf_counter()
    blocks = write(chosen.folder, chosen.gigabytes)
    size = blocks * BLOCK_BYTES
    print(f"{size / 1e9:.1f} GB in {blocks} blocks, written in {time.perf_counter() - begun:.0f} s", flush=True)
    if chosen.write_only:
        return
    report = chosen.folder / "report.json"
    before = json.loads(report.read_text()) if report.exists() else {"sittings": 0, "all, s": 0.0, "rounds": 0}
    with (
        distributed.LocalCluster(
            n_workers=chosen.workers,
            threads_per_worker=1,
            memory_limit=int(chosen.memory * 1e9),
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster, direct_to_workers=True) as client,
        trsvr.dask.Traffic(client) as traffic,
    ):
        pids = sorted(client.run(os.getpid).values())
        watch = Watch(pids)
        begun = time.perf_counter()
        stacks = trsvr.dask.read_npy_stack(chosen.folder / "X", chosen.folder / "y")
        problem = trsvr.dask.LinearModel(*stacks, client=client)
        looked = time.perf_counter() - begun
        print(problem, f"first look {looked:.1f} s", flush=True)
        setup = traffic.counts()

        def facts(result: Any) -> dict[str, Any]:
            counts = traffic.counts() - setup
            return {
                "X, GB": size / 1e9,
                "worker memory, GB": chosen.workers * chosen.memory,
                "persisted": problem.persisted,
                "first look, s": looked,
                "all, s": before["all, s"] + time.perf_counter() - begun,
                "sittings": before["sittings"] + 1,
                "status": result.message,
                "epochs": result.epochs,
                "value": result.value,
                "gradient norm": result.gradient_norm,
                "largest error of x": float(np.abs(result.x - TRUTH).max()),
                "rounds": before["rounds"] + counts.rounds,
                "moved, MB": counts.moved / 1e6,
                "largest worker, GB": max(watch.peaks.values()) / 1e9,
                "own memory, GB": watch.own / 1e9,
                "no worker was killed": sorted(client.run(os.getpid, on_error="ignore").values()) == pids,
            }

        def note(result: Any) -> None:
            report.write_text(json.dumps(facts(result), indent=1))

        result = trsvr.minimize(
            problem, verbose=1, callback=note, checkpoint=chosen.folder / "run.ckpt", checkpoint_every=1
        )
        note(result)
        watch.close()
    print(report.read_text())
    if chosen.delete and result.success:
        for name in ("X", "y"):
            shutil.rmtree(chosen.folder / name)


if __name__ == "__main__":
    main()
