"""What ``trsvr solve`` was asked for, and the rows of the file that it is done with."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trsvr import _check
from trsvr.cli import options as o
from trsvr.cli.models import Model, scores
from trsvr.cli.scaling import Scaling
from trsvr.cli.tables import Table, Wanted, read_table
from trsvr.problems.families import FAMILIES, LOG_LINK, outside_domain


@dataclass(frozen=True)
class Task:
    """Data and objective, as they were asked for; a checkpoint keeps them so that a run can be continued."""

    file: str
    target: str | None
    format: str
    header: bool
    zero_based: bool
    test_size: str | None
    loss: str
    l2: float
    gamma: float
    a: float
    delta: float
    intercept: bool
    method: str
    tol: str
    seed: int
    device: str
    sep: str = "auto"
    drop: tuple[str, ...] = ()
    weights: str | None = None
    standardize: bool = False
    offset: str | None = None
    categorical: tuple[str, ...] = ()
    drop_first: bool = False
    power: float = 1.5
    dispersion: float = 1.0

    @classmethod
    def from_note(cls, path: Path, note: Any) -> Task:
        """The task in a checkpoint's note, which anybody may have written."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        needed = {name for name, field in fields.items() if field.default is dataclasses.MISSING}
        if not isinstance(note, dict) or not needed <= set(note) <= set(fields):
            raise ValueError(f"{path} was not written by trsvr solve: trsvr.resume continues it from Python")
        kinds = {"str": str, "bool": bool, "int": int, "float": int | float, "str | None": str | None}
        for name, entry in note.items():
            kind = str(fields[name].type)
            of_texts = isinstance(entry, list) and all(isinstance(text, str) for text in entry)
            if not (of_texts if kind not in kinds else isinstance(entry, kinds[kind])):
                raise ValueError(f"{path}: {name} must be {kind}, got {entry!r}")
        return cls(**{**note, **{name: tuple(note.get(name, ())) for name in ("drop", "categorical")}})

    def at(self, file: Path) -> Task:
        """The same with the data at another place."""
        return dataclasses.replace(self, file=str(file))

    @property
    def objective(self) -> tuple[Any, Any]:
        """Loss and regulariser."""
        return o.objective(self.loss, self.l2, self.gamma, self.a, self.delta, self.power, self.dispersion)

    @property
    def wanted(self) -> Wanted:
        """What is expected of the file."""
        return Wanted(
            self.target,
            header=self.header,
            zero_based=self.zero_based,
            separator=self.sep,
            weights=self.weights,
            drop=self.drop,
            offset=self.offset,
            categorical=self.categorical,
            drop_first=self.drop_first,
        )


def check_responses(table: Table, loss: Any, name: str) -> None:
    """Refuse what a family cannot have, and weights that are none, by the rows of the file: parts of it have others."""
    y = np.asarray(table.y)
    counted = np.ones(y.shape[:1], dtype=bool)
    if table.weights is not None and table.weights.shape == counted.shape:
        counted = table.weights > 0.0
        negative = np.flatnonzero(table.weights < 0.0)
        if negative.size:
            row = negative[0]
            raise ValueError(f"--weights must be >= 0, got {table.weights[row]} in row {row + 1}")
    if not isinstance(loss, FAMILIES) or y.ndim != 1:
        return
    if y.dtype.kind not in "buif":
        raise ValueError(f"--target must hold numbers for --loss {name}, got {str(y[0])!r} in row 1")
    found = outside_domain(loss, np.where(counted, y, 0.5))
    if found is not None:
        raise ValueError(f"--target must be {found[1]} for --loss {name}, got {y[found[0]]} in row {found[0] + 1}")
    if isinstance(loss, LOG_LINK) and not y[counted].any():
        raise ValueError(f"--target must have a positive entry for --loss {name}, got only zeros")


def split(table: Table, test_size: str | None, seed: int) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Rows to learn from (None: all) and rows held out, both in order."""
    n = table.X.shape[0]
    if test_size is None:
        return None, np.empty(0, dtype=np.int64)
    size = o.number("--test-size", test_size)
    count = round(size * n) if 0 < size < 1 else size
    if isinstance(count, float) or not 1 <= count < n:
        raise ValueError(f"--test-size must be a share below 1 or a number of rows below {n}, got {test_size}")
    order = np.random.default_rng(_check.whole("--seed", seed, at_least=0)).permutation(n)
    return np.sort(order[count:]), np.sort(order[:count])


@dataclass(frozen=True)
class Rows:
    """Rows of a table, in memory."""

    X: Any
    y: NDArray[Any]
    weights: NDArray[np.float64] | None
    offset: NDArray[np.float64] | None
    groups: NDArray[Any] | None
    scaling: Scaling | None = None

    @classmethod
    def of(cls, table: Table, chosen: NDArray[np.int64] | None) -> Rows:
        """Some of them, or all."""
        assert table.y is not None, "a table with a target was asked for"
        n = table.X.shape[0]
        for option, given in (("weights", table.weights), ("offset", table.offset), ("groups", table.groups)):
            if given is not None and given.shape != (n,):
                raise ValueError(f"--{option} must have one entry for each of the {n} rows, got shape {given.shape}")

        def some(part: Any) -> Any:
            return part if chosen is None or part is None else part[chosen]

        return cls(*map(some, (table.X, table.y, table.weights, table.offset, table.groups)))

    def scores(self, model: Model) -> dict[str, float] | None:
        """How well the model predicts them."""
        return scores(self.y, model.predict(self.X, self.offset), model.classes, self.weights, model.loss)


def training_rows(task: Task, model: Model, groups: str | None) -> Rows:
    """The rows that a model was fitted to, read again."""
    columns = model.facts.get("raw_columns") or model.facts["columns"]
    wanted = dataclasses.replace(
        task.wanted,
        target=task.target if columns is None else model.facts["target"],
        groups=groups,
        columns=columns,
        n_features=model.facts["n_features"],
        levels=model.facts.get("levels", {}),
        categorical=(),
    )
    table = read_table(Path(task.file), wanted, task.format)
    rows = Rows.of(table, split(table, task.test_size, task.seed)[0])
    return dataclasses.replace(rows, scaling=Scaling.of(rows.X, task.intercept) if task.standardize else None)
