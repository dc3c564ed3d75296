"""All cells in turn: data set by data set, λ by λ, ours first."""

from __future__ import annotations

import datetime
import os
import platform
import time
from pathlib import Path

import threadpoolctl

from trsvr.experiments.jobs import code_hash
from trsvr.experiments.runner import machine

from . import cell
from .measure import GOALS, Limits, Run, times
from .problem import OTHER_SETS, QUICK_SETS, SETS, Data, Task
from .solvers import ALONE, Peer, everybody
from .store import Record, Store, identity

FORMAT = 1
STRENGTHS, QUICK_STRENGTHS = (1e-4, 1e-6), (1e-4,)


def about() -> dict[str, str]:
    """The machine, in words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    blas = sorted({f"{pool['internal_api']} {pool['version']}" for pool in threadpoolctl.threadpool_info()})
    return {**machine(), "memory": f"{memory:.0f} GiB", "kernel": platform.release(), "blas": ", ".join(blas)}


def where(here: dict[str, str]) -> dict[str, str]:
    """What must be equal for times to stand in one table."""
    return {key: here[key] for key in ("processor", "cores", "memory", "python", "numpy", "scipy", "numba")}


def chosen(names: list[str], wanted: str, what: str) -> list[str]:
    """Those whose name contains one of the wanted words (a whole name means only that one); all if none are given."""
    words = [word.strip().lower() for word in wanted.split(",") if word.strip()]
    found: list[str] = []
    for word in words:
        exact = [name for name in names if name.lower() == word]
        hits = exact or [name for name in names if word in name.lower()]
        if not hits:
            raise SystemExit(f"--only: no {what} is called {word!r}; there are {', '.join(names)}")
        found += hits
    return [name for name in names if name in found] if words else names


def run(
    path: Path, *, quick: bool, only: str, minutes: float, again: bool, strengths: list[float] | None = None
) -> None:
    """Measure what has not been measured yet."""
    sets, peers = only.partition(";")[0], only.partition(";")[2]
    everyone = everybody()
    names = chosen([*SETS, *OTHER_SETS], sets, "data set") if sets else list(QUICK_SETS if quick else SETS)
    takes_part = [peer for peer in everyone if peer.name in chosen([p.name for p in everyone], peers, "peer")]
    if ALONE not in [peer.name for peer in takes_part]:  # it is everybody's measure
        takes_part.insert(0, everyone[0])
    for peer in takes_part:
        missing = peer.missing()
        print(f"  {peer.name}: {missing or peer.version()}")
    here = about()
    store = Store(path)
    store.add({"kind": "about", "id": identity(**where(here)), **here, "when": _now(), "load": os.getloadavg()[0]})
    print(f"{here['processor']}, {here['cores']} cores, load {os.getloadavg()[0]:.1f}\n", flush=True)
    deadline = time.monotonic() + 60 * minutes
    for l2 in strengths or (QUICK_STRENGTHS if quick else STRENGTHS):
        for name in names:
            task = Task(Data.load(name), l2)
            session = _Session(store, task, quick, here, again)
            for peer in takes_part:
                if time.monotonic() > deadline:
                    print(f"\n{minutes:g} minutes are over; the same command goes on from here")
                    return
                session.measure(peer)


class _Session:
    """The cells of one task."""

    def __init__(self, store: Store, task: Task, quick: bool, here: dict[str, str], again: bool) -> None:
        self.store, self.task, self.quick, self.again = store, task, quick, again
        self.about = identity(**where(here))
        facts = self.facts = {
            "format": FORMAT, "data": task.data.sha256, "name": task.data.name, "preprocess": task.data.preprocess,
            "l2": task.l2, "quick": quick, "machine": where(here),
        }  # fmt: skip
        key = identity(kind="task", code=code_hash(), **facts)
        known = None if again else store.latest("task").get(key)
        if known is None:
            known = {"kind": "task", "id": key, **task.data.facts(), "l2": task.l2, "quick": quick, "when": _now()}
            known |= {"about": self.about, **cell.reference(task)}
            store.add(known)
        self.known = known
        self.limits = Limits(60.0, 180.0)  # for ourselves; then for the others by our own time
        print(f"\n{task.data.name}, λ = {task.l2:g}: f* = {known['smallest']:.15g}", flush=True)

    def measure(self, peer: Peer) -> None:
        """One cell, unless it is known."""
        key = identity(
            kind="cell", peer=peer.name, version="" if peer.missing() else peer.version(),
            code=code_hash() if peer.ours else "", **self.facts,
        )  # fmt: skip
        record = None if self.again else self.store.latest("cell").get(key)
        fresh = record is None
        if record is None:
            record = {
                "kind": "cell", "id": key, "task": self.known["id"], "data": self.task.data.name, "l2": self.task.l2,
                "quick": self.quick, "peer": peer.name, "variants": list(peer.variants), "when": _now(),
                "version": "" if peer.missing() else peer.version(), "limits": vars(self.limits),
                "about": self.about,
                **cell.measure(peer, self.task, self.known["smallest"], self.limits),
            }  # fmt: skip
            self.store.add(record)
        reached = times((Run(**run) for run in record["runs"]), self.known["smallest"])
        if peer.name == ALONE and reached:
            self.limits = Limits.from_ours(max(run.seconds for run in reached.values()), self.quick)
        self._tell(record, reached, fresh)

    def _tell(self, record: Record, reached: dict[float, Run], fresh: bool) -> None:
        cells = "  ".join(f"{1e3 * reached[g].seconds:9.1f}" if g in reached else f"{'–':>9}" for g in GOALS)
        note = record["note"] + ("" if fresh else " (known)")
        print(f"  {record['peer']:<30}{cells}  ms to {', '.join(f'{g:g}' for g in GOALS)}  {note}", flush=True)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
