"""Data many times larger than the workers' memory, on one machine.

``python benchmarks/dask_out_of_core.py FOLDER --gigabytes 20 --memory 1.5`` writes an NPY stack into FOLDER (if it is
not there), solves logistic regression over it with two workers that may use so many gigabytes each, and prints time,
rounds, bytes and the largest memory of a worker. Delete FOLDER afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import threading
import time
from pathlib import Path

import distributed
import numpy as np
import psutil

import trsvr
import trsvr.dask

COLUMNS, BLOCK_ROWS = 100, 250_000


def write(folder: Path, gigabytes: float) -> None:
    """Blocks of 100 MB, float32: one block of random rows with its columns turned, and fresh labels for each."""
    count = min(COLUMNS * 4, round(gigabytes * 1e9 / (BLOCK_ROWS * COLUMNS * 4)))
    rng = np.random.default_rng(0)
    base = rng.standard_normal((BLOCK_ROWS, COLUMNS), dtype=np.float32)
    base *= np.linspace(0.2, 2.0, COLUMNS, dtype=np.float32)
    truth = np.cos(np.arange(COLUMNS))
    for name, shape, dtype in (("X", (BLOCK_ROWS, COLUMNS), np.float32), ("y", (BLOCK_ROWS,), np.int8)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        chunks = ((BLOCK_ROWS,) * count, *((length,) for length in shape[1:]))
        info = {"chunks": chunks, "dtype": np.dtype(dtype), "axis": 0}
        (folder / name / "info").write_bytes(pickle.dumps(info))
    for i in range(count):
        places = [folder / name / f"{i}.npy" for name in ("X", "y")]
        if all(place.exists() for place in places):
            continue
        X = np.roll(base, i, axis=1) * np.float32(1 + i // COLUMNS)
        noise = np.random.default_rng(i + 1).logistic(size=BLOCK_ROWS)
        for place, values in zip(places, (X, (X @ truth + noise > 0).astype(np.int8)), strict=True):
            beside = place.with_suffix(".part")
            with beside.open("wb") as file:
                np.save(file, values)
            beside.replace(place)


def watch(pids: list[int], peaks: dict[int, int], stop: threading.Event) -> None:
    while not stop.wait(0.05):
        for pid in pids:
            try:
                peaks[pid] = max(peaks.get(pid, 0), psutil.Process(pid).memory_info().rss)
            except psutil.NoSuchProcess:
                continue


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--memory", type=float, default=1.5, help="GB per worker")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--write-only", action="store_true")
    chosen = parser.parse_args()
    write(chosen.folder, chosen.gigabytes)
    if chosen.write_only:
        return
    size = sum(file.stat().st_size for file in (chosen.folder / "X").glob("*.npy"))
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
        pids = list(client.run(os.getpid).values())
        peaks: dict[int, int] = {}
        stop = threading.Event()
        watcher = threading.Thread(target=watch, args=(pids, peaks, stop))
        watcher.start()
        begun = time.perf_counter()
        problem = trsvr.dask.LinearModel(*trsvr.dask.read_npy_stack(chosen.folder / "X", chosen.folder / "y"))
        looked = time.perf_counter() - begun
        print(problem, f"first look {looked:.1f} s", flush=True)
        setup = traffic.counts()
        result = trsvr.minimize(problem, verbose=1)
        seconds = time.perf_counter() - begun
        counts = traffic.counts() - setup
        stop.set()
        watcher.join()
        survived = list(client.run(os.getpid).values()) == pids
    print(
        json.dumps(
            {
                "X, GB": size / 1e9,
                "worker memory, GB": chosen.workers * chosen.memory,
                "persisted": problem.persisted,
                "first look, s": looked,
                "all, s": seconds,
                "status": result.message,
                "epochs": result.epochs,
                "rounds": counts.rounds,
                "moved, MB": counts.moved / 1e6,
                "largest worker, GB": max(peaks.values()) / 1e9,
                "own memory, GB": psutil.Process().memory_info().rss / 1e9,
                "no worker was killed": survived,
                "gradient norm": result.gradient_norm,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
