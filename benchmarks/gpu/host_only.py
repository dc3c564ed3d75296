"""Run trsvr on a machine that has no Numba: import this first.

GPU machines often come with PyTorch and little else. The tensors' sums need no compiled code; the host's share of a
solve, a few sweeps over vectors of length d per epoch, runs in NumPy instead. Where Numba is installed, nothing is
changed. Problems of `trsvr.problems` run as plain Python then: use them for small checks only.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))


def _add_scaled(factor, a, out):
    out += factor * a


def _copy_into(a, out):
    out[:] = a


def _scale_by(factor, out):
    out *= factor


def _turn(beta, solved, direction):
    direction *= beta
    direction -= solved


def _factor(matrix, factor):
    try:
        factor[:] = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _substitute(factor, v):
    v[:] = np.linalg.solve(factor.T, np.linalg.solve(factor, v))


def _multiply(matrix, v, out):
    out[:] = matrix @ v


def _replace(matrix, new, new_part, old, old_part, out):
    out[:] = matrix + (np.outer(new, new_part) - np.outer(old, old_part))


def _take_means(v, outputs, free, means):
    table = v.reshape(-1, outputs)
    means[:] = table.mean(axis=1)
    free.reshape(-1, outputs)[:] = table - means[:, None]


def _give_means(means, outputs, v):
    table = v.reshape(-1, outputs)
    table += (means - table.mean(axis=1))[:, None]


def _solve_apart(diagonal, inverse, outputs, v, out):
    means = np.empty(inverse.size)
    _take_means(v, outputs, out, means)
    out /= diagonal
    _give_means(means * inverse, outputs, out)


_SWEEPS = {
    "_dot": lambda a, b: float(a @ b),
    "_add_scaled": _add_scaled,
    "copy_into": _copy_into,
    "scale_by": _scale_by,
    "_turn": _turn,
    "_factor": _factor,
    "_substitute": _substitute,
    "_multiply": _multiply,
    "_replace": _replace,
    "_take_means": _take_means,
    "_give_means": _give_means,
    "_solve_apart": _solve_apart,
}


class _Anything(types.ModuleType):
    """A module, class or function that stands for whatever compiled code would need."""

    __path__ = ()
    __version__ = "none"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name)

    def __call__(self, *arguments, **options):
        if len(arguments) == 1 and callable(arguments[0]) and not options:
            return arguments[0]
        return lambda function: function


def _njit(*arguments, **options):
    def compiled(function):
        return _SWEEPS.get(function.__name__, function)

    return compiled(arguments[0]) if arguments and callable(arguments[0]) else compiled


class _Listener:
    """What the announcer of compilations derives from."""


def missing(name: str) -> bool:
    """Whether a package cannot be imported here."""
    try:
        importlib.import_module(name)
    except Exception:  # an installed package that does not fit the others is as good as none
        for key in [key for key in sys.modules if key == name or key.startswith(name + ".")]:
            del sys.modules[key]
        return True
    return False


STANDING_IN: list[str] = []

if missing("numba"):
    STANDING_IN.append("numba")
    for name in (
        "llvmlite", "llvmlite.ir", "llvmlite.binding", "numba", "numba.types", "numba.core", "numba.core.event",
        "numba.core.cgutils", "numba.extending", "numba.config",
    ):  # fmt: skip
        module = sys.modules[name] = _Anything(name)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    sys.modules["numba"].njit = _njit
    sys.modules["numba"].config.CACHE_DIR = ""
    sys.modules["numba.core.event"].Listener = _Listener
    sys.modules["numba.types"].NamedTuple = object
    binding, extending = sys.modules["llvmlite.binding"], sys.modules["numba.extending"]
    binding.get_host_cpu_name = lambda: ""
    binding.get_host_cpu_features = lambda: types.SimpleNamespace(flatten=lambda: "")
    for name in ("register_model", "overload", "overload_method"):
        setattr(extending, name, lambda *_, **__: lambda function: function)
    for name in ("register_jitable", "intrinsic"):
        setattr(extending, name, lambda function: function)
    extending.typeof_impl = types.SimpleNamespace(register=lambda kind: lambda function: function)
if missing("platformdirs"):
    STANDING_IN.append("platformdirs")
    module = sys.modules["platformdirs"] = types.ModuleType("platformdirs")
    module.user_cache_dir = module.user_cache_path = module.user_data_dir = lambda *_, **__: "/tmp/trsvr"
