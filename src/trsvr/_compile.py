"""Compiled and plain, from one text.

Algorithms and formulas are written once, as ordinary Python. This module lets the same text run in two ways:

- *plain*, on any object that has the methods the text calls;
- *compiled* by Numba, on records: `typing.NamedTuple` classes of arrays, numbers and other records.

``@jitable`` marks a function, ``@record`` a NamedTuple class, whose text may be compiled when a compiled function
calls it. ``@kernel`` compiles a function on its own (always). `compiled_for` returns an algorithm ready to run on
given records: compiled where all of them are records, the plain function otherwise.

Compiled code is kept on disk. Numba does not notice when a function in *another* file changes, so the folder's name
contains a hash of the package's sources, of Numba's version and of the processor: an edited formula can never meet
old machine code. Code that contains classes from outside the package is kept in a folder for their text, where that
can be looked into (`trsvr._own_text`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite.binding
import numba
from numba import types
from numba.core import event
from numba.core.caching import NullCache
from numba.extending import (
    models,
    overload_method,
    register_jitable,
    register_model,
    typeof_impl,
)

from trsvr._folders import private_folder
from trsvr._linking import PART, WHOLE
from trsvr._own_text import own_text_key

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)
Own = type | Callable[..., Any]

_PACKAGE = Path(__file__).parent
_COMPILED_ROOMS = ("problems", "parts", "solvers")
_UNUSED_DAYS = 30


# ---------------------------------------------------------------------------------- where code is kept


def _source_key() -> str:
    """Hash of everything that decides what the compiled code does."""
    digest = hashlib.sha256()
    files = sorted(_PACKAGE.glob("*.py"))
    for room in _COMPILED_ROOMS:
        files += sorted((_PACKAGE / room).rglob("*.py"))
    for file in files:
        digest.update(str(file.relative_to(_PACKAGE)).encode())
        digest.update(file.read_bytes())
    features = llvmlite.binding.get_host_cpu_features().flatten()
    for fact in (numba.__version__, sys.version, llvmlite.binding.get_host_cpu_name(), features):
        digest.update(fact.encode())
    return digest.hexdigest()[:20]


@functools.cache
def cache_folder(*parts: str) -> Path | None:
    """Folder of the compiled code, private to the user (it is loaded with pickle); None where none can be made."""
    folder = private_folder("kernels", _source_key(), *parts)
    if folder is not None:
        with contextlib.suppress(OSError):
            os.utime(folder)
            _remove_unused(folder.parent)
    return folder


def _remove_unused(root: Path) -> None:
    """Drop the code of texts that nobody has used for a month."""
    oldest = time.time() - _UNUSED_DAYS * 86400
    for folder in root.iterdir():
        if folder.is_dir() and folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)


_decorating = threading.Lock()


@contextlib.contextmanager
def _cached_here(folder: Path | None) -> Iterator[None]:
    """Point Numba at our folder while one function is decorated, and back afterwards; one thread at a time."""
    with _decorating:
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = str(folder or "")
        try:
            yield
        finally:
            numba.config.CACHE_DIR = before


# ----------------------------------------------------------------------------- saying that it compiles


_LONG_SECONDS = 1.0


class _Announcer(event.Listener):  # type: ignore[misc]  # Numba carries no types
    """Say on stderr what is being compiled, each time that it has taken a second (of this thread's processor time).

    What is compiled for the same kind of data within a second of each other counts together: a fit needs many small
    pieces of code.
    """

    def __init__(self) -> None:
        self._mine = threading.local()  # several threads may compile
        self._ended, self._seconds, self._said, self._kind = 0.0, 0.0, False, ""

    def begin(self, what: str, kind: str, kept: bool) -> None:
        """Something of ours begins to compile for a kind of data, perhaps inside something else."""
        if not getattr(self._mine, "names", []):
            self._mine.names, self._mine.begun, self._mine.kept = [], time.thread_time(), kept
            if kind != self._kind or time.monotonic() - self._ended > _LONG_SECONDS:
                self._seconds, self._said, self._kind = 0.0, False, kind
        self._mine.names.append(f"{what} for {kind}" if kind else what)
        self._look()

    def end(self) -> None:
        """It has been compiled."""
        self._look()
        self._mine.names.pop()
        if not self._mine.names:
            self._ended = time.monotonic()
            self._seconds += time.thread_time() - self._mine.begun

    def _look(self) -> None:
        if self._said or self._seconds + time.thread_time() - self._mine.begun < _LONG_SECONDS:
            return
        self._said = True
        if not os.environ.get("TRSVR_QUIET"):
            kept = (
                "once; kept for later runs"
                if self._mine.kept
                else "in every process: it cannot be kept; a class in an imported module can"
            )
            print(f"trsvr: compiling {self._mine.names[0]} ({kept}) ...", file=sys.stderr, flush=True)

    def on_start(self, happening: Any) -> None:
        dispatcher = happening.data["dispatcher"]
        if _is_ours(dispatcher.py_func):
            kept = not isinstance(dispatcher._cache, NullCache)
            self.begin(*_what_and_kind(dispatcher.py_func, happening.data["args"]), kept)

    def on_end(self, happening: Any) -> None:
        if _is_ours(happening.data["dispatcher"].py_func):
            self.end()


_WORDS = {
    "MarginKernels": "",
    "FullRows": "",
    "OutputKernels": "several outputs",
    "DenseRows": "dense rows",
    "SparseRows": "sparse rows",
    "work_off": "pass",
}


def _what_and_kind(function: Callable[..., Any], arguments: Any) -> tuple[str, str]:
    """What is compiled, with the parts of a method or the sum of a pass; for which rows, loss, regulariser, numbers."""
    what = _WORDS.get(function.__name__, function.__name__.strip("_").replace("_", " "))
    given = [kind for kind in arguments if isinstance(kind, types.BaseNamedTuple)]
    if not given:
        return what, ""
    data, *others = ([kind, *_records_in(kind)] for kind in given)
    arrays = [member for known in (*data[1:], data[0]) for member in known.types if isinstance(member, types.Array)]
    names = [_WORDS.get(name, name) for name in map(_class_name, data)]
    numbers = [str(member.dtype) for member in arrays[:1]]  # those of the rows
    parts = [_class_name(part) for record in others[:1] for part in record[1:] or record]
    return f"{what} ({', '.join(parts)})" if parts else what, ", ".join(filter(None, names + numbers))


def _records_in(kind: Any) -> list[Any]:
    return [member for member in kind.types if isinstance(member, types.BaseNamedTuple)]


def _class_name(kind: Any) -> str:
    return str(kind.instance_class.__name__)


event.register("numba:compile", _Announcer())


# ------------------------------------------------------------------------------- marking what compiles


def jitable(function: Function) -> Function:
    """Let compiled code call this function; called from Python it stays plain Python."""
    return cast(Function, register_jitable(**PART)(function))


def jitable_loop(fastmath: bool = False) -> Callable[[Function], Function]:
    """The same with floating-point rules of its own, those of `kernel`: for loops that only compiled code runs."""
    return cast(Callable[[Function], Function], register_jitable(**PART, fastmath=_rules(fastmath)))


def _rules(fastmath: bool) -> set[str]:
    return {"reassoc", "contract", "nsz"} if fastmath else {"contract"}


def kernel(fastmath: bool = False, fused: bool = True) -> Callable[[Function], Function]:
    """Compile a function on its own, from plain code too: the loops over vectors and rows.

    ``fastmath`` allows sums to be reordered and multiply-adds to be fused, so that they use vector registers; NaN and
    infinity keep their meaning. Within one machine the result stays the same from run to run. Without ``fused`` every
    product is rounded before it is added, as in NumPy.
    """

    def decorate(function: Function) -> Function:
        return cast(Function, _compile(function, rules=_rules(fastmath) if fused else set()))

    return decorate


def _compile(function: Callable[..., Any], *own: Own, rules: set[str] | None = None) -> Callable[..., Any]:
    """A Numba dispatcher that compiles on its first call; ``own`` is what comes from outside the package."""
    key = own_text_key(*own) if own else None
    folder = cache_folder() if not own else cache_folder("own", key) if key is not None else None
    with _cached_here(folder):
        dispatcher: Callable[..., Any] = numba.njit(
            cache=folder is not None,
            nogil=True,
            fastmath=_rules(False) if rules is None else rules,
            error_model="numpy",
            # Without Numba's own memory management nothing can be allocated in compiled code, and arrays carry no
            # reference counts: in loops over rows these cost more than the arithmetic, and two threads share them.
            _nrt=False,
            **WHOLE,
        )(function)
    if folder is not None and not numba.config.DISABLE_JIT:
        _never_share_files(dispatcher)
        if own:
            _keep_only_as_it_was(dispatcher, key, own)
    return dispatcher


def _never_share_files(dispatcher: Any) -> None:
    """Give each piece of kept code a file of its own.

    Numba numbers the files of a function 1, 2, …, and writes number and code without a lock: of two processes that
    compile at once, one could be led to the code of the other's types. With names that no one else takes, the worst is
    that one of them is forgotten and compiled again.
    """
    files = dispatcher._cache._cache_file
    pattern = files._data_name_pattern.replace("{number:d}", "{name}")
    files._data_name = lambda number: pattern.format(name=uuid.uuid4().hex)


def _keep_only_as_it_was(dispatcher: Any, key: str | None, own: tuple[Own, ...]) -> None:
    """Neither load nor keep code once its text has changed in this process; what cannot be read or written is no error.

    The files name the user's classes, so that reading them depends on modules that we do not know.
    """
    cache = dispatcher._cache

    def unless_changed(act: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any) -> Any:
            with contextlib.suppress(Exception):
                return act(*arguments) if own_text_key(*own) == key else None

        return guarded

    cache.load_overload, cache.save_overload = map(unless_changed, (cache.load_overload, cache.save_overload))


class _EmptyRecord(types.NamedTuple):  # type: ignore[misc]  # Numba carries no types
    """Numba type of a record without fields; Numba drops ``self`` of a method call if its type is falsy."""

    def __bool__(self) -> bool:
        return True


register_model(_EmptyRecord)(models.TupleModel)

_known_methods: dict[str, int] = {}  # name, number of parameters
_field_names: set[str] = set()
_records: set[type] = set()
_register_lock = threading.Lock()


def record(cls: Class) -> Class:
    """Let compiled code call the public methods of this NamedTuple class."""
    with _register_lock:
        if cls in _records:
            return cls
        methods = {
            name: inspect.signature(method)
            for name, method in vars(cls).items()
            if inspect.isfunction(method) and not name.startswith("_")
        }
        _refuse_clashes(cls, methods)
        # To Numba two NamedTuples of the same name are the same type: a class defined anew would run its old formulas.
        namesakes = sum(other.__name__.split("#")[0] == cls.__name__ for other in _records)
        if namesakes:
            cls.__name__ = f"{cls.__name__}#{namesakes + 1}"
        _records.add(cls)
        if not cls._fields:  # type: ignore[attr-defined]
            typeof_impl.register(cls)(lambda value, context: _EmptyRecord((), cls))
        for name, signature in methods.items():
            _register_method(name, signature)
    return cls


def _refuse_clashes(cls: type, methods: dict[str, inspect.Signature]) -> None:
    """Numba finds methods by name, for all records alike: a name stands for one kind of method, and for no field."""
    fields = set(cls._fields)  # type: ignore[attr-defined]
    for name in sorted((fields & _known_methods.keys()) | (methods.keys() & _field_names)):
        other = "method" if name in fields else "field"
        raise ValueError(f"{cls.__name__} uses the name {name!r}, which is the name of a {other} of another record")
    for name, signature in methods.items():
        wanted = _known_methods.get(name, len(signature.parameters))
        if len(signature.parameters) != wanted:
            raise ValueError(f"{cls.__name__}.{name} must have {wanted} parameters, self included, like its namesakes")
    _field_names.update(fields)


def _register_method(name: str, signature: inspect.Signature) -> None:
    """Teach Numba ``something.name(...)`` for every record: the class of the record has the text."""
    if name in _known_methods:
        return
    _known_methods[name] = len(signature.parameters)

    def find(self: Any, *arguments: Any) -> Any:
        return getattr(self.instance_class, name, None)

    # Numba reads an overload's parameters from its signature. Names may differ from class to class.
    find.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            inspect.Parameter(f"argument{k}" if k else "self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for k in range(len(signature.parameters))
        ]
    )
    overload_method(types.BaseNamedTuple, name, strict=False, jit_options=PART)(find)


# ---------------------------------------------------------------------------------- running algorithms


def is_record(value: object) -> bool:
    """Whether compiled code can take this object."""
    return type(value) in _records


def _is_ours(what: Own) -> bool:
    """Whether a class or function belongs to this package."""
    return what is tuple or (what.__module__ or "").split(".")[0] == "trsvr"


def _own_classes(value: object) -> Iterator[type]:
    """The classes in a record that come from outside the package."""
    if isinstance(value, tuple):
        if not _is_ours(type(value)):
            yield type(value)
        for member in value:
            if isinstance(member, tuple):
                yield from _own_classes(member)


_dispatcher = functools.cache(_compile)


def compiled_for(function: Function, *records: object) -> Function:
    """The algorithm, compiled if all of the given objects are records, else as it stands."""
    if not all(map(is_record, records)):
        return function
    own: dict[Own, None] = dict.fromkeys(cls for value in records for cls in _own_classes(value))
    if not _is_ours(function):
        own[function] = None
    return cast(Function, _dispatcher(function, *own))
