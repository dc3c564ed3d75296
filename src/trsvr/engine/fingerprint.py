"""What tells one configuration from another: a solver, or a part, as plain values and back."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import numpy as np

from trsvr import parts, solvers
from trsvr.engine.stopping import Tolerance
from trsvr.problems.fingerprint import of_array

_NUMBERS = (bool, int, float, str)

# Classes that a configuration in a checkpoint may name; nothing else is ever built from a file.
_KNOWN: dict[str, Any] = {
    cls.__name__: cls
    for room in (solvers, parts)
    for name, cls in vars(room).items()
    if name in room.__all__ and inspect.isclass(cls) and name != "Exit"
} | {"Tolerance": Tolerance}


def of_solver(solver: Any) -> Any:
    """A solver, or a part, as plain values: the name of its class and its fields."""
    if isinstance(solver, np.generic):
        return solver.item()
    if solver is None or isinstance(solver, _NUMBERS):
        return solver
    if isinstance(solver, np.ndarray):
        return of_array(solver).hex()
    if inspect.isclass(solver) or inspect.isroutine(solver):
        return f"{solver.__module__}.{solver.__qualname__}"
    if isinstance(solver, tuple) and type(solver) is not tuple:  # a record: a class made by NamedTuple
        fields = solver._asdict()  # type: ignore[attr-defined]
    elif isinstance(solver, list | tuple):
        return [of_solver(entry) for entry in solver]
    elif dataclasses.is_dataclass(solver):
        fields = {field.name: vars(solver)[field.name] for field in dataclasses.fields(solver)}
    else:
        fields = {name: value for name, value in vars(solver).items() if not name.startswith("_")}
    name = type(solver).__name__.split("#")[0]
    own = _KNOWN.get(name) is type(solver)
    return {
        "class": name if own else f"{type(solver).__module__}.{type(solver).__qualname__}",
        "fields": {field: of_solver(value) for field, value in fields.items()},
    }


def solver_from(described: Any) -> Any:
    """The solver that `of_solver` has described; None where it is not made of the package's own classes alone."""
    if not isinstance(described, dict):
        return described
    cls = _KNOWN.get(str(described.get("class")))
    if cls is None:
        return None
    fields = {str(name): solver_from(value) for name, value in described["fields"].items()}
    if any(fields[name] is None and described["fields"][name] is not None for name in fields):
        return None
    return cls(**fields)
