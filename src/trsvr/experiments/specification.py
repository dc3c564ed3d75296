"""What a study is: data, objective, start, budget, seeds, methods and grids, read from a TOML file and checked.

A file is checked as a whole before anything runs. A message names the file and the key, such as
``my-study.toml: problem[0].method[2].settings.alfa``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from trsvr import _check
from trsvr.datasets import preprocess
from trsvr.datasets.generators import GENERATORS
from trsvr.datasets.registry import ENTRIES
from trsvr.solvers import BY_NAME

#: Who chose a method's settings: the paper; we, for the sake of a comparison; nobody; a grid.
ROLES = ("paper", "extra", "adaptive", "tuned")
STARTS = ("normal", "zero")
UNITS = ("1", "1/L_max")
DATA_SETS = (*ENTRIES, *(name for name in GENERATORS if name not in ENTRIES))
#: γ = NONCONVEX · λ · d makes the double well truly nonconvex.
NONCONVEX = 10.0

#: Alternatives to choices of ours that a study can be run with, and how they are called.
ALTERNATIVES = {
    "zero": "start at zero",
    "minmax": "columns scaled to [0, 1]",
    "lmax": "L_max = 50.1",
}
#: The synthetic set with L_max, and not L, at the paper's 50.1.
_LMAX_LIPSCHITZ = 1.92293

Settings = dict[str, Any]


@dataclass(frozen=True)
class Objective:
    """Logistic loss + (l2/2)‖w‖² + (gamma/d) Σ (w_j² − a²)².

    ``gamma`` is a number, or ``gamma_over_l2_d`` gives it in units of l2·d.
    """

    l2: float = 1e-4
    gamma: float = 0.0
    a: float = 0.5
    gamma_over_l2_d: float | None = None

    def strength(self, n_features: int) -> float:
        """The number γ for d columns."""
        return self.gamma if self.gamma_over_l2_d is None else self.gamma_over_l2_d * self.l2 * n_features

    def is_convex(self, n_features: int) -> bool:
        """Whether the regulariser has no negative curvature: λ ≥ 4a²γ/d."""
        return self.l2 >= 4.0 * self.a**2 * self.strength(n_features) / n_features


@dataclass(frozen=True)
class Grid:
    """Logarithmic steps from ``low`` to ``high``, in a unit."""

    low: float
    high: float
    points: int
    unit: str = "1"

    def values(self, largest_smoothness: float) -> list[float]:
        """The points; L_max is needed where they are given in its unit."""
        scale = 1.0 / largest_smoothness if self.unit == "1/L_max" else 1.0
        return [float(f"{scale * value:.6g}") for value in np.geomspace(self.low, self.high, self.points)]


def grid_points(grids: dict[str, Grid], largest_smoothness: float = 1.0) -> list[dict[str, float]]:
    """The product of the parameters' values."""
    values = [grid.values(largest_smoothness) for grid in grids.values()]
    return [dict(zip(grids, chosen, strict=True)) for chosen in itertools.product(*values)]


@dataclass(frozen=True)
class Method:
    """One line of a table: a solver with settings."""

    label: str  # its name in this study
    solver: str  # name of the solver, as for the command line
    settings: Settings = field(default_factory=dict)  # arguments of the solver
    role: str = "paper"  # one of `ROLES`
    group: str = ""  # methods of one group are spoken of together; empty is none

    def build(self) -> Any:
        """The solver itself."""
        return BY_NAME[self.solver](**self.settings)

    def on_grid(self, grids: dict[str, Grid], largest_smoothness: float = 1.0) -> list[dict[str, float]]:
        """The points of its grid, without those that the solver refuses (γ₁ ≤ γ₂ of TRish)."""
        found = []
        for point in grid_points(grids, largest_smoothness):
            with contextlib.suppress(ValueError):
                replace(self, settings={**self.settings, **point}).build()
                found.append(point)
        return found


@dataclass(frozen=True)
class Problem:
    """One data set of a study, with the methods that run on it."""

    data: str  # name of a data set; with ``file`` any name
    methods: tuple[Method, ...]
    preprocess: str = "default"  # as for `trsvr.datasets.load`
    parameters: dict[str, Any] = field(default_factory=dict)  # arguments of a generator
    rows: int | None = None  # at most so many rows, drawn once without replacement
    file: str | None = None  # a LIBSVM file of the user's own


@dataclass(frozen=True)
class Study:
    """A whole study."""

    name: str
    title: str  # its heading
    problems: tuple[Problem, ...]
    objective: Objective = Objective()
    about: str = ""  # what it is for
    start: str = "normal"  # standard normal entries from the run's seed; or "zero"
    epochs: int | None = None  # the budget of a run; None is no limit, at least one of the two is given
    passes: float | None = None
    seeds: int = 5  # runs of each method, with seeds 0, 1, …
    timed: bool = (
        False  # whether its subject is time: its jobs run on one thread, with at most a quarter of the cores busy
    )
    #: for each label the parameters to tune, and between which values; the same number of points for every method
    grids: dict[str, dict[str, Grid]] = field(default_factory=dict)
    grid_epochs: int | None = None  # the budget of a grid's point where it is less than the study's
    paper: bool = False  # whether it is a study of the paper
    axes: tuple[str, ...] = ("epoch", "passes")  # columns that its figures are drawn against
    #: what ``--quick`` changes: epochs, passes, seeds, rows (at most so many rows, drawn once)
    quick: dict[str, Any] = field(default_factory=dict)

    def quickly(self) -> Study:
        """The same with the small budget of ``--quick``."""
        smaller = {key: self.quick[key] for key in ("epochs", "passes", "seeds") if key in self.quick}
        rows = self.quick.get("rows")
        problems = self.problems if rows is None else tuple(replace(problem, rows=rows) for problem in self.problems)
        return replace(self, problems=problems, **smaller)

    def on_grid(self) -> Study:
        """The same as a point of a grid is run: without a clock, and for no longer than ``grid_epochs``."""
        shorter = min((budget for budget in (self.epochs, self.grid_epochs) if budget is not None), default=None)
        return replace(self, timed=False, epochs=shorter)

    def nonconvex(self) -> Study:
        """The truly nonconvex variant: γ = 10·λ·d."""
        return replace(
            self,
            name=f"{self.name}-nonconvex",
            title=f"{self.title}, truly nonconvex: γ = {NONCONVEX:g}·λ·d",
            objective=replace(self.objective, gamma_over_l2_d=NONCONVEX),
        )

    def alternative(self, name: str) -> Study:
        """The same with another choice where the paper leaves one open; only the problems that it changes."""
        _check.one_of("alternative", name, ALTERNATIVES)
        changed: dict[str, Any]
        if name == "zero":
            changed = {"start": "zero"} if self.start != "zero" else {"problems": ()}
        elif name == "minmax":
            standardised = [
                p for p in self.problems if p.data in ENTRIES and ENTRIES[p.data].preprocess == "standardize"
            ]
            changed = {"problems": tuple(replace(problem, preprocess="minmax") for problem in standardised)}
        else:
            generated = [p for p in self.problems if p.data == "synthetic" and not p.parameters]
            scaled = {"lipschitz": _LMAX_LIPSCHITZ}
            changed = {"problems": tuple(replace(problem, parameters=scaled) for problem in generated)}
        return replace(self, name=f"{self.name}-{name}", title=f"{self.title}, {ALTERNATIVES[name]}", **changed)

    def only(self, wanted: Iterable[str]) -> Study:
        """Restricted to data sets and methods of these names (of any of a kind, where none of that kind is named)."""
        names = set(wanted)
        data = names & {problem.data for problem in self.problems}
        labels = names & {method.label for problem in self.problems for method in problem.methods}
        chosen = [
            replace(problem, methods=tuple(m for m in problem.methods if not labels or m.label in labels))
            for problem in self.problems
            if not data or problem.data in data
        ]
        return replace(self, problems=tuple(problem for problem in chosen if problem.methods))

    def names(self) -> set[str]:
        """Everything that ``--only`` can name."""
        data = {problem.data for problem in self.problems}
        return data | {method.label for problem in self.problems for method in problem.methods}


# ------------------------------------------------------------------------------------------------- where they are


def names() -> list[str]:
    """The studies that come with the package, the paper's first."""
    return sorted((path.name[: -len(".toml")] for path in _folder().iterdir() if path.name.endswith(".toml")), key=rank)


def rank(name: str) -> tuple[int, str]:
    """Order of studies: the paper's in its order, then those beyond it; a variant follows its study."""
    order = ("convex", "double-well", "sgd-adam", "sensitivity", "ablation")
    base = name
    for variant in ("nonconvex", *ALTERNATIVES):
        base = base.removesuffix(f"-{variant}")
    return (order.index(base) if base in order else len(order), name)


def _folder() -> Any:
    return resources.files("trsvr.experiments") / "studies"


def find(name: str) -> Study:
    """A study by its name, or from a file whose name ends in ``.toml``."""
    if name.endswith(".toml"):
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path.name}: is not text in UTF-8 ({error})") from None
        return parse(text, path.name, path.parent)
    _check.one_of("STUDY, unless a file that ends in .toml,", name, names())
    return parse((_folder() / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


# ------------------------------------------------------------------------------------------------ reading a file


def parse(text: str, source: str, folder: Path | None = None) -> Study:
    """A study from the text of a TOML file.

    Parameters
    ----------
    text, source : str
        The text, and the file's name for messages.
    folder : path, optional
        Where files that it names are looked for.

    Raises
    ------
    ValueError
        Naming the file, the key, what was got and what is accepted.
    """
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{source}: {error}") from None
    except RecursionError:
        raise ValueError(f"{source}: brackets are nested too deeply for a study") from None
    try:
        return _study(_Table(tree, ""), folder or Path())
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


class _Table:
    """A table of the file that knows where it stands and which of its keys were read."""

    def __init__(self, tree: Any, place: str) -> None:
        if not isinstance(tree, Mapping):
            raise ValueError(f"{place} must be a table, got {tree!r}")
        self.tree, self.place = tree, place
        self.known: list[str] = []

    def where(self, key: str) -> str:
        return f"{self.place}.{key}" if self.place else key

    def take(self, key: str, default: Any = None) -> Any:
        self.known.append(key)
        return self.tree.get(key, default)

    def needed(self, key: str) -> Any:
        if key not in self.tree:
            raise ValueError(f"{self.where(key)} is missing")
        return self.take(key)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.needed(key) if default is None else self.take(key, default)
        if not isinstance(value, str) or (default is None and not value.strip()):
            raise ValueError(f"{self.where(key)} must be a text, got {value!r}")
        return value

    def choice(self, key: str, default: str, known: Iterable[str]) -> str:
        return _check.one_of(self.where(key), self.take(key, default), known)

    def truth(self, key: str) -> bool:
        value = self.take(key, False)
        if not isinstance(value, bool):
            raise ValueError(f"{self.where(key)} must be true or false, got {value!r}")
        return value

    def number(self, key: str, default: float | None, *, zero: bool = False) -> float:
        value = self.needed(key) if default is None else self.take(key, default)
        return _check.positive(self.where(key), value, zero=zero)

    def optional(self, key: str, *, zero: bool = False) -> float | None:
        return None if self.take(key) is None else self.number(key, None, zero=zero)

    def whole(self, key: str, default: int | None = None) -> int | None:
        value = self.take(key, default)
        return None if value is None else _check.whole(self.where(key), value)

    def table(self, key: str) -> _Table:
        return _Table(self.take(key, {}), self.where(key))

    def tables(self, key: str) -> list[_Table]:
        value = self.needed(key)
        if not isinstance(value, list) or not value:
            raise ValueError(f"{self.where(key)} must be at least one table, [[{self.where(key)}]]")
        return [_Table(entry, f"{self.where(key)}[{k}]") for k, entry in enumerate(value)]

    def finish(self) -> None:
        """Refuse keys that nobody has asked for."""
        for key in self.tree:
            if key not in self.known:
                _check.one_of(self.where(key) + ": the key", key, self.known)


def _study(table: _Table, folder: Path) -> Study:
    name = table.text("name")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
        raise ValueError(f"name must be letters, digits, '-', '_', '.' or '+', got {name!r}")
    problems = tuple(_problem(entry, folder) for entry in table.tables("problem"))
    study = Study(
        name=name,
        title=table.text("title", name),
        about=" ".join(table.text("about", "").split()),
        objective=_objective(table.table("objective")),
        start=table.choice("start", "normal", STARTS),
        epochs=table.whole("epochs"),
        passes=table.optional("passes"),
        seeds=table.whole("seeds", 5) or 5,
        timed=table.truth("timed"),
        paper=table.truth("paper"),
        axes=_axes(table),
        problems=problems,
        grids=_grids(table.table("grid"), problems),
        grid_epochs=table.whole("grid_epochs"),
        quick=_quick(table.table("quick")),
    )
    table.finish()
    if study.epochs is None and study.passes is None:
        raise ValueError("epochs or passes must be given: a run needs an end")
    return study


def _objective(table: _Table) -> Objective:
    relative = table.optional("gamma_over_l2_d", zero=True)
    if relative is not None and "gamma" in table.tree:
        raise ValueError(f"{table.where('gamma')} and gamma_over_l2_d are two ways of saying the same: give one")
    found = Objective(
        table.number("l2", 1e-4, zero=True), table.number("gamma", 0.0, zero=True), table.number("a", 0.5, zero=True)
    )
    table.finish()
    return replace(found, gamma_over_l2_d=relative)


AXES = ("epoch", "passes", "time")


def _axes(table: _Table) -> tuple[str, ...]:
    axes = table.take("axes", ["epoch", "passes"])
    if not isinstance(axes, list) or not axes:
        raise ValueError(f"{table.where('axes')} must be a list of {', '.join(AXES)}, got {axes!r}")
    return tuple(_check.one_of(table.where("axes"), axis, AXES) for axis in axes)


def _quick(table: _Table) -> dict[str, Any]:
    found: dict[str, Any] = {key: table.whole(key) for key in ("epochs", "seeds", "rows")}
    found["passes"] = table.optional("passes")
    table.finish()
    return {key: value for key, value in found.items() if value is not None}


def _problem(table: _Table, folder: Path) -> Problem:
    file = None if table.take("file") is None else str((folder / table.text("file")).absolute())
    data = table.text("data") if file else _check.one_of(table.where("data"), table.needed("data"), DATA_SETS)
    parameters = table.take("parameters", {})
    if parameters and data not in GENERATORS:
        raise ValueError(f"{table.where('parameters')} are for generators, not for {data}")
    methods = [method for entry in table.tables("method") for method in _methods(entry)]
    labels = [method.label for method in methods]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"{table.where('method')}: the label {label!r} appears twice")
    found = Problem(
        data=data,
        methods=tuple(methods),
        preprocess=table.choice("preprocess", "default", ("default", *preprocess.PREPROCESS)),
        parameters=dict(parameters),
        rows=table.whole("rows"),
        file=file,
    )
    table.finish()
    return found


def _methods(table: _Table) -> list[Method]:
    """One method, or as many as its sweep has points."""
    label = table.text("label")
    solver = _check.one_of(table.where("solver"), table.needed("solver"), BY_NAME)
    settings = table.take("settings", {})
    role = table.choice("role", "paper", ROLES)
    group = table.text("group", "")
    grids = _parameters(table.table("sweep"), solver)
    table.finish()
    found = []
    for point in grid_points(grids):
        text = " ".join(f"{key}={value:g}" for key, value in point.items())
        method = Method(
            f"{label} {text}".strip(), solver, {**dict(settings), **point}, role, group or (label if point else "")
        )
        _check_settings(method, table.where("settings"))
        found.append(method)
    return found


def _check_settings(method: Method, place: str) -> None:
    for key in method.settings:
        _check_setting(f"{place}.{key}", key, method.solver)
    try:
        method.build()
    except (ValueError, TypeError) as error:
        raise ValueError(f"{place}: {error}") from None


def _check_setting(place: str, key: str, solver: str) -> None:
    known = [entry.name for entry in dataclasses.fields(BY_NAME[solver])]
    _check.one_of(f"{place}: a setting of {solver}", key, known)


def _parameters(table: _Table, solver: str) -> dict[str, Grid]:
    grids = {}
    for key in table.tree:
        _check_setting(table.where(key), key, solver)
        entry = table.table(key)
        low, high = entry.number("low", None), entry.number("high", None)
        if high < low:
            raise ValueError(f"{entry.where('high')} must be at least low = {low:g}, got {high:g}")
        points = entry.whole("points")
        if points is None:
            raise ValueError(f"{entry.where('points')} is missing")
        grids[key] = Grid(low, high, points, entry.choice("unit", "1", UNITS))
        entry.finish()
    return grids


def _grids(table: _Table, problems: tuple[Problem, ...]) -> dict[str, dict[str, Grid]]:
    grids = {}
    methods = {method.label: method for problem in problems for method in problem.methods}
    for label in table.tree:
        _check.one_of(f"{table.where(label)}: the label of a method", label, sorted(methods))
        grids[label] = _parameters(table.table(label), methods[label].solver)
    sizes = {label: len(methods[label].on_grid(found)) for label, found in grids.items()}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{label} {size}" for label, size in sizes.items())
        raise ValueError(f"grid must have the same number of points for every method, got {told}")
    return grids
