"""What tells one linear model from another, so that a run is never continued on other data.

It is hashed whole: every entry, label and weight, the loss and the regulariser with their formulas.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trsvr import _threads
from trsvr._arrays import raw_bytes

_CHUNK = 2**24


def of_linear_model(problem: Any) -> str:
    """Equal for equal data, loss, regulariser and weights, whatever process asks."""
    digest = hashlib.blake2b(digest_size=32)
    digest.update(f"{type(problem).__name__} {problem.n_samples} {problem.n_parameters}\n".encode())
    kernels = problem.kernels
    digest.update(json.dumps([formulas(problem.loss), formulas(problem.regularizer)]).encode())
    digest.update(f"{problem.intercept} {problem.n_outputs} {problem.n_features}".encode())
    rows = [entry for entry in kernels.rows if isinstance(entry, np.ndarray)]
    for array in (*rows, kernels.labels, kernels.weights, kernels.offset):
        digest.update(of_array(array))
    return digest.hexdigest()


def of_array(array: NDArray[Any]) -> bytes:
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


def formulas(given: Any) -> Any:
    """A loss or regulariser: its class, its numbers, and, from outside the package, the text of its formulas."""
    cls = type(given)
    described: list[Any] = [
        cls.__name__.split("#")[0],
        {name: _plain(entry) for name, entry in given._asdict().items()},
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
    if isinstance(value, tuple):
        return formulas(value)
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value
