"""What decides the behaviour of classes and functions from outside the package, as one short key.

Compiled code of a user's own loss or regulariser is kept under this key. It is made from what Numba would compile: the
bytecode of the class's functions, the constants in it, and the global names that it uses, as they are in this process
(the text of a file may have changed since it was imported). Where something is used that cannot be looked into, there
is no key, and the code is not kept.
"""

from __future__ import annotations

import hashlib
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

# Modules whose functions change only with their version, which is part of the kept code's folder or does not matter.
_TRUSTED = ("builtins", "math", "cmath", "operator", "numpy", "numba", "scipy", "trsvr", "typing")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_LARGE_ARRAY = 10**6  # bytes; Numba does not copy larger ones into the code, which then cannot be kept


@dataclass
class _Description:
    """A class or a function: facts about it, the functions that it uses, and whether this is all."""

    facts: list[str] = field(default_factory=list)
    functions: list[types.FunctionType] = field(default_factory=list)
    whole: bool = True


# What each class and function was made of when its code was first asked for. Numba goes on with that: what changes
# later in this process (a global, a method) leads to a mixture of old and new, which must not be kept.
_first_seen: dict[object, _Description] = {}


def own_text_key(*own: type | Callable[..., Any]) -> str | None:
    """Hash of all that the compiled code of these classes and functions depends on; None where it cannot be seen."""
    digest = hashlib.sha256()
    waiting: list[Any] = list(own)
    seen: set[object] = set()
    whole = True
    for thing in waiting:  # which grows
        if thing not in seen:
            seen.add(thing)
            description = _describe_class(thing) if isinstance(thing, type) else _describe_function(thing)
            whole &= description.whole and _first_seen.setdefault(thing, description) == description
            digest.update("\n".join(description.facts).encode())
            waiting += description.functions
    return digest.hexdigest()[:20] if whole else None


def _is_trusted(module: str | None) -> bool:
    return (module or "").split(".")[0] in _TRUSTED


def _is_found_by_name(cls: type) -> bool:
    """Whether pickle, which Numba uses, finds the class again; of what the main script defines it makes a copy."""
    return cls.__module__ != "__main__" and getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is cls


def _describe_class(cls: type) -> _Description:
    """Its names, fields and public members: compiled code calls no others."""
    # Numba names code after the class's name, which `record` may have changed: it must be that of the kept code.
    found = _Description([f"class {cls.__name__}"], whole=_is_found_by_name(cls))
    for base in cls.__mro__:
        if _is_trusted(base.__module__):
            continue
        fields = getattr(base, "_fields", ())
        found.facts.append(f"class {base.__module__} {base.__qualname__} {fields}")
        for name, member in sorted(vars(base).items()):
            if not (name.startswith("_") or name in fields or isinstance(member, property)):
                found.facts.append(name)
                _describe(member.__func__ if isinstance(member, staticmethod) else member, (), found)
    return found


def _describe_function(function: Any) -> _Description:
    """Its code and the values that it uses."""
    found = _Description()
    if not isinstance(function, types.FunctionType):
        found.whole = False
        return found
    names = _describe_code(function.__code__, found)
    _describe(function.__defaults__, names, found)
    _describe(tuple((function.__kwdefaults__ or {}).items()), names, found)
    for cell in function.__closure__ or ():
        try:
            _describe(cell.cell_contents, names, found)
        except ValueError:  # empty
            found.whole = False
    for name in names:
        if name in function.__globals__:
            found.facts.append(f"global {name}")
            _describe(function.__globals__[name], names, found)
    return found


def _describe_code(code: types.CodeType, found: _Description) -> tuple[str, ...]:
    """Bytecode and constants; returns the names it uses, those of functions inside it included."""
    found.facts.append(f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars} {code.co_argcount}")
    names = code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _describe_code(constant, found)
        else:
            found.facts.append(f"{type(constant).__name__} {constant!r}")
    return names


def _describe(value: Any, names: tuple[str, ...], found: _Description) -> None:
    """A value that is used; of a module, those of its members that may be meant."""
    facts = found.facts
    if type(value) in _PLAIN or isinstance(value, np.number | np.bool_):
        facts.append(f"{type(value).__name__} {value!r}")
    elif type(value) is tuple:
        facts.append(f"tuple of {len(value)}")
        for member in value:
            _describe(member, names, found)
    elif type(value) is np.ndarray and value.dtype.kind in "biufc" and value.nbytes <= _LARGE_ARRAY:
        facts.append(f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}")
    elif isinstance(value, types.ModuleType):
        facts.append(f"module {value.__name__}")
        if not _is_trusted(value.__name__):
            for name in sorted({name for name in names if hasattr(value, name)}):
                member = getattr(value, name)
                facts.append(f"member {name}")
                if isinstance(member, types.ModuleType) and not _is_trusted(member.__name__):
                    found.whole = False  # modules may contain each other
                else:
                    _describe(member, names, found)
    elif isinstance(value, np.ufunc):
        facts.append(f"ufunc {value.__name__}")
        found.whole &= getattr(np, value.__name__, None) is value
    elif isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) and _is_trusted(value.__module__):
        facts.append(f"{type(value).__name__} {value.__module__} {value.__qualname__}")
    elif isinstance(value, types.FunctionType):
        facts.append(f"function {value.__qualname__}")
        found.functions.append(value)
    elif isinstance(value, Dispatcher):  # compiled by the user
        facts.append(repr(sorted(value.targetoptions.items(), key=str)))
        found.functions.append(value.py_func)
    else:
        found.whole = False
