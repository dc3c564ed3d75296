"""What a file of cells says: for every task, the time of every peer to every gap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .measure import Run, times
from .solvers import ALONE, OURS
from .store import Record, Store


def power(number: float) -> str:
    """1e-9, not 1e-09."""
    return f"{number:.0e}".replace("e-0", "e-")


@dataclass(frozen=True)
class Entry:
    """One peer on one task."""

    record: Record
    reached: dict[float, Run]

    @property
    def peer(self) -> str:
        """Its name."""
        return str(self.record["peer"])

    def seconds(self, goal: float) -> float:
        """Infinite where it never got there."""
        return self.reached[goal].seconds if goal in self.reached else np.inf

    @property
    def warm_up(self) -> float:
        """Seconds of the first call beyond those of a later one, converting included."""
        return max((float(w["prepare"] + w["first"]) for w in self.record["warm_up"]), default=np.nan)

    def setting(self, goal: float) -> str:
        """What was found to be fastest, in words."""
        if goal not in self.reached:
            return ""
        run = self.reached[goal]
        words = {**self.record["variants"][run.variant]}
        knob = f"{run.setting:g}" if run.setting else "defaults"
        return ", ".join(
            [knob, *(f"{key} {value:g}" if key != "eta" else f"η {value}" for key, value in words.items())]
        )


@dataclass(frozen=True)
class Subject:
    """One task and its entries, those of ours first."""

    task: Record
    entries: list[Entry]

    @property
    def title(self) -> str:
        """Data and λ."""
        t = self.task
        return f"{t['data']}, {t['rows']} × {t['columns']}, {t['storage']}, λ = {power(t['l2'])}"

    def entry(self, peer: str) -> Entry | None:
        """A peer's, if it was measured."""
        return next((entry for entry in self.entries if entry.peer == peer), None)

    def ours(self, goal: float, peer: str = OURS) -> float:
        """Our seconds."""
        entry = self.entry(peer)
        return np.inf if entry is None else entry.seconds(goal)

    def rivals(self, goal: float) -> list[Entry]:
        """Everybody else who got there, the fastest first."""
        others = [e for e in self.entries if e.peer not in (OURS, ALONE) and goal in e.reached]
        return sorted(others, key=lambda entry: entry.seconds(goal))


@dataclass(frozen=True)
class Results:
    """Everything in a file that was measured on the machine that wrote last."""

    about: Record
    subjects: list[Subject]

    @property
    def peers(self) -> list[str]:
        """All names in the order of the file."""
        return list(dict.fromkeys(entry.peer for subject in self.subjects for entry in subject.entries))

    def costs(self, goal: float) -> NDArray[np.float64]:
        """Seconds: one row a peer, one column a task; infinite where it never got there."""
        return np.array(
            [
                [entry.seconds(goal) if (entry := subject.entry(peer)) else np.inf for subject in self.subjects]
                for peer in self.peers
            ]
        ).reshape(len(self.peers), len(self.subjects))

    def unrest(self) -> tuple[float, float]:
        """How much slower than its best the sum over X was, beside each cell: the median and the 95th percentile."""
        ratios: list[float] = []
        for subject in self.subjects:
            floors = [f for entry in subject.entries for f in entry.record.get("floors", [])]
            ratios += [f / min(floors) for f in floors]
        return (float(np.median(ratios)), float(np.quantile(ratios, 0.95))) if ratios else (np.nan, np.nan)


def read(store: Store) -> Results:
    """The full measurement where there is one, else the quick one.

    Raises
    ------
    ValueError
        If nothing has been measured yet.
    """
    lines = store.read()
    abouts = [line for line in lines if line["kind"] == "about"]
    tasks, cells = store.latest("task"), store.latest("cell")
    if not abouts or not cells:
        raise ValueError(f"{store.path}: nothing has been measured yet; run `python -m benchmarks.peers run` first")
    newest = abouts[-1]
    here = [cell for cell in cells.values() if cell["about"] == newest["id"]]
    full = [cell for cell in here if not cell["quick"]]
    return Results(newest, sorted(_subjects(tasks, full or here), key=lambda s: (-s.task["l2"], s.task["rows"])))


def _subjects(tasks: dict[str, Record], cells: list[Record]) -> Iterator[Subject]:
    """Cells by data and λ: where our code has changed in between, ours are newer than those of the others."""
    by_problem: dict[tuple[str, float], dict[str, Record]] = {}
    for cell in cells:
        by_problem.setdefault((cell["data"], cell["l2"]), {})[cell["peer"]] = cell
    for records in by_problem.values():
        task = max((tasks[record["task"]] for record in records.values()), key=lambda task: str(task["when"]))
        runs = {peer: [Run(**run) for run in record["runs"]] for peer, record in records.items()}
        if OURS in runs:  # its own tolerance is one of its settings
            runs[OURS] = runs[OURS] + runs.get(ALONE, [])
        # Whoever finds a smaller value moves the mark for all.
        values = [run.value for found in runs.values() for run in found if np.isfinite(run.value)]
        smallest = min([task["smallest"], *values])
        yield Subject(task, [Entry(record, times(runs[peer], smallest)) for peer, record in records.items()])
