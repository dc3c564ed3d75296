"""What tells one problem, or one configuration, from another: so that a run is never continued on other data.

A linear model is hashed whole: every entry, label and weight, the loss and the regulariser with their formulas. Of a
problem made of functions the answers are hashed, at a fixed point.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trsvr import _threads, parts, solvers
from trsvr.engine.checkpoint import raw_bytes
from trsvr.engine.stopping import Tolerance
from trsvr.problems.linear import LinearModel

_CHUNK = 2**24
_NUMBERS = (bool, int, float, str)

# Classes that a configuration in a checkpoint may name; nothing else is ever built from a file.
_KNOWN: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        *(getattr(solvers, name) for name in solvers.__all__ if name != "BY_NAME"),
        *(getattr(parts, name) for name in parts.__all__ if inspect.isclass(getattr(parts, name)) and name != "Exit"),
        Tolerance,
    )
}


def of_problem(problem: Any) -> str:
    """Fingerprint of a problem: equal for equal data, loss, regulariser and weights, whatever process asks."""
    if hasattr(problem, "fingerprint"):
        return str(problem.fingerprint())
    digest = hashlib.blake2b(digest_size=32)
    digest.update(f"{type(problem).__name__} {problem.n_samples} {problem.n_parameters}\n".encode())
    if type(problem) is LinearModel:
        kernels = problem.kernels
        digest.update(json.dumps([_formulas(problem.loss), _formulas(problem.regularizer)]).encode())
        digest.update(f"{problem.intercept} {problem.n_outputs} {problem.n_features}".encode())
        for array in (*_arrays(kernels.rows), kernels.labels, kernels.weights):
            digest.update(_of_array(array))
    else:
        # sin(1), sin(2), …: a point that no problem was made for.
        value, gradient = problem.value_and_gradient(np.sin(np.arange(1.0, problem.n_parameters + 1.0)))
        digest.update(np.array([value, *np.ravel(gradient)], dtype="<f8").tobytes())
    return digest.hexdigest()


def _arrays(rows: Any) -> list[NDArray[Any]]:
    return [entry for entry in rows if isinstance(entry, np.ndarray)]


def _of_array(array: NDArray[Any]) -> bytes:
    """Hash of an array, pieces of it on all allowed threads."""
    digest = hashlib.blake2b(f"{array.dtype.str} {array.shape}\n".encode(), digest_size=32)
    if not array.size:
        return digest.digest()
    raw = raw_bytes(np.ascontiguousarray(array))
    pieces = [raw[begin : begin + _CHUNK] for begin in range(0, len(raw), _CHUNK)]

    def one(piece: memoryview) -> bytes:
        return hashlib.blake2b(piece, digest_size=32).digest()

    if len(pieces) == 1:
        digest.update(one(pieces[0]))
    else:
        pool = ThreadPoolExecutor(min(_threads.current(), len(pieces)))
        try:
            for part in pool.map(one, pieces):
                digest.update(part)
        finally:
            pool.shutdown(cancel_futures=True)  # Ctrl-C does not wait for pieces that have not begun
    return digest.digest()


def _formulas(record: Any) -> Any:
    """A loss or regulariser: its class, its numbers, and, from outside the package, the text of its formulas."""
    cls = type(record)
    described: list[Any] = [
        cls.__name__.split("#")[0],
        {name: _plain(entry) for name, entry in record._asdict().items()},
    ]
    if cls.__module__.split(".")[0] != "trsvr":
        described += [_text(method) for _, method in sorted(vars(cls).items()) if inspect.isfunction(method)]
    return described


def _text(function: Any) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # typed at a prompt: no source, but the same bytecode for the same text
        return f"{function.__code__.co_code.hex()} {function.__code__.co_consts!r}"


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return _formulas(value)
    return value.item() if isinstance(value, np.generic) else value


# ------------------------------------------------------------------------------------------------------ configuration


def of_solver(solver: Any) -> Any:
    """A solver, or a part, as plain values: the name of its class and its fields."""
    if isinstance(solver, np.generic):
        return solver.item()
    if solver is None or isinstance(solver, _NUMBERS):
        return solver
    if isinstance(solver, np.ndarray):
        return _of_array(solver).hex()
    if inspect.isclass(solver) or inspect.isroutine(solver):
        return f"{solver.__module__}.{solver.__qualname__}"
    if isinstance(solver, list | tuple) and not hasattr(solver, "_asdict"):
        return [of_solver(entry) for entry in solver]
    if hasattr(solver, "_asdict"):
        fields = solver._asdict()
    elif dataclasses.is_dataclass(solver):
        fields = {field.name: getattr(solver, field.name) for field in dataclasses.fields(solver)}
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
