"""Keeps a run: a snapshot at every epoch's end in memory, and the newest one on the disk from time to time.

A folder that is full, read-only or gone does not end a run: it goes on in memory and says so, once.
"""

from __future__ import annotations

import copy
import datetime
import logging
import math
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._version import __version__
from trsvr.engine import checkpoint
from trsvr.engine.checkpoint import CheckpointError, Content
from trsvr.engine.result import TRACE_COLUMNS, Status

_log = logging.getLogger("trsvr")

_USUAL_SECONDS = 30.0
# Without a wish of the user's, writing takes at most about this part of the time.
_LARGEST_SHARE = 0.05
_UNITS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]+?)s?\s*", re.IGNORECASE)


class NotedPath(type(Path())):  # type: ignore[misc]  # Path's own class depends on the system
    """A path with a note that goes into the checkpoint: how the command line finds its data again."""

    note: dict[str, Any] | None = None


class Every:
    """How often to write: a number of epochs, or a time."""

    def __init__(self, wish: Any = None) -> None:
        self.epochs: int | None = None
        self.seconds: float | None = None
        if isinstance(wish, datetime.timedelta):
            self.seconds = _check.positive("checkpoint_every", wish.total_seconds())
        elif isinstance(wish, str):
            self.seconds = _seconds(wish)
        elif wish is not None:
            self.epochs = _check.whole("checkpoint_every", wish)

    def is_due(self, epochs: int, seconds: float, last_took: float) -> bool:
        """Whether to write, so many epochs and seconds after the last time."""
        if self.epochs is not None:
            return epochs >= self.epochs
        if self.seconds is not None:
            return seconds >= self.seconds
        return seconds >= max(_USUAL_SECONDS, last_took / _LARGEST_SHARE)


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text)
    unit = None if found is None else _UNITS.get(found[2].lower()) or _UNITS.get(found[2].lower() + "s")
    if found is None or unit is None:
        raise ValueError(
            f"checkpoint_every must be a number of epochs or a time such as '30 s', '5 min' or '2 h', got {text!r}"
        )
    return _check.positive("checkpoint_every", float(found[1]) * unit)


def checked_path(given: Any) -> Path:
    """The place of a checkpoint, with its folder made whole: a later change of directory does not move it."""
    try:
        path = Path(os.path.abspath(os.fspath(given)))
    except TypeError:
        raise ValueError(f"checkpoint must be a path, got {given!r}") from None
    if path.is_dir():
        raise ValueError(f"checkpoint must be a file, got the folder {path}")
    if not path.parent.is_dir():
        raise ValueError(f"checkpoint must be a file in a folder that exists, got {path}")
    return path


class Keeper:
    """The checkpoints of one run.

    Parameters
    ----------
    path : Path
        Where they are written.
    every : Every
        How often.
    about : dict
        What does not change: configuration, fingerprint, starting point.
    newest_is_intact : bool
        Whether the file there now, if any, is good.
    """

    def __init__(self, path: Path, every: Every, about: Content, newest_is_intact: bool = True) -> None:
        self.path = path
        self.trouble: str | None = None
        self._every = every
        self._about = {"trsvr": __version__, **about}
        self._newest_is_intact = newest_is_intact
        self._snapshot: Content | None = None
        self._written_epoch = -1
        self._written_at = time.monotonic()
        self._took = 0.0
        self._said = False
        checkpoint.remove_leftovers(path)

    def take(self, run: Any, best: Any, test: Any, final: tuple[Status, str] | None = None) -> None:
        """Remember an epoch's end, and write it if it is time.

        ``final`` says why the run has ended, where it has: whatever happens before `finish`, it is not continued then.
        """
        try:
            self._snapshot = _snapshot(run, best, test)
            if final is not None:
                self._snapshot |= {"status": final[0].name, "message": final[0].sentence(final[1])}
        except MemoryError as error:
            self._fails(error)
            return
        since = time.monotonic() - self._written_at
        if self._written_epoch < 0 or self._every.is_due(run.epoch - self._written_epoch, since, self._took):
            self._write({})

    def finish(self, status: Status | None, message: str = "", gap_bound: float = math.nan) -> None:
        """Write the last epoch's end; with a status the run is finished, without one it can be continued."""
        if self._snapshot is None:
            return
        if status is not None or self._snapshot["run"]["epoch"] > self._written_epoch:
            self._write({} if status is None else {"status": status.name, "message": message, "gap_bound": gap_bound})

    def _write(self, more: Content) -> None:
        assert self._snapshot is not None
        begun = time.monotonic()
        content = {**self._about, **self._snapshot, **more}
        content["rows"] = _table(content["rows"][0][: content["rows"][1]])
        try:
            checkpoint.write(self.path, content, keep_newest=self._newest_is_intact)
        except (OSError, MemoryError) as error:
            self._fails(error)
        else:
            self._newest_is_intact = True
            self.trouble = None
            self._written_epoch = content["run"]["epoch"]
        self._written_at = time.monotonic()
        self._took = self._written_at - begun

    def _fails(self, error: Exception) -> None:
        strerror = error.strerror if isinstance(error, OSError) else None
        reason = strerror or str(error) or type(error).__name__
        self.trouble = f"the checkpoint {self.path} could not be written: {reason}"
        if not self._said:
            self._said = True
            _log.warning("%s; the run goes on in memory", self.trouble)


def _snapshot(run: Any, best: Any, test: Any) -> Content:
    """Everything that changes, copied: the next epoch works in place."""
    return {
        "state": {name: copy.copy(entry) for name, entry in run.state.snapshot().items()},
        "run": {name: vars(run)[name] for name in run.COUNTED},
        "best": {"x": best.x.copy(), "value": best.value, "gradient": best.gradient.copy()},
        "test": test.snapshot(),
        # Rows are only ever added, so the list and its present length are a copy.
        "rows": (run.rows, len(run.rows)),
    }


def _table(rows: list[dict[str, float]]) -> Content:
    return {name: np.array([row[name] for row in rows], dtype=np.float64) for name in TRACE_COLUMNS}


_WHOLE = (
    *("epoch", "steps", "gradient_evaluations", "hessian_products", "batch_size", "inner_steps", "rejected"),
    *("curvature_rows", "negative_curvature"),
)


def rows_from(table: Content) -> list[dict[str, float]]:
    """The rows of the trace, as the loop had them."""
    columns = {name: np.asarray(table[name], dtype=np.float64).tolist() for name in TRACE_COLUMNS}
    if len(set(map(len, columns.values()))) != 1:
        raise CheckpointError("the columns of its trace differ in length")
    rows = [dict(zip(columns, entries, strict=True)) for entries in zip(*columns.values(), strict=True)]
    for row in rows:
        for name in _WHOLE:
            if math.isfinite(row[name]):
                row[name] = int(row[name])
    return rows


def difference(kept: Any, wanted: Any, name: str = "") -> str | None:
    """The first thing in which two configurations differ, in words; None where they agree."""
    if isinstance(kept, dict) and isinstance(wanted, dict) and set(kept) == set(wanted):
        if kept.get("class") == wanted.get("class"):
            for key in wanted:
                inner = name if key == "fields" else f"{name} {key}".strip()
                found = difference(kept[key], wanted[key], inner)
                if found is not None:
                    return found
            return None
        kept, wanted = kept.get("class"), wanted.get("class")
    both_nan = isinstance(kept, float) and isinstance(wanted, float) and math.isnan(kept) and math.isnan(wanted)
    if both_nan or (type(kept) is type(wanted) and kept == wanted):
        return None
    if isinstance(kept, int | float) and isinstance(wanted, int | float) and kept == wanted:
        return None
    return f"{name} was {kept!r}, is {wanted!r}"
