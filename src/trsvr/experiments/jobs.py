"""A job is one run: a problem, a solver with its settings, a seed and a budget. Its identity is a hash of these.

The hash contains everything that changes the result: the content of the data, how it is prepared, the objective, the
solver and its settings, the start, the seed, the budget, the library's version and the text of its algorithms (without
comments and docstrings), and the versions of NumPy and Numba. It does not contain the study: the same run is made once.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import trsvr
from trsvr.experiments.specification import Method, Study
from trsvr.experiments.subjects import Subject, digest

#: Raised by hand when this package runs a job in another way, so that old results are not taken for new ones.
FORMAT = 1
_ROOMS = ("problems", "parts", "solvers", "engine")
_TRIES = 20


@dataclass(frozen=True)
class Job:
    """One run, ready to be sent to a worker."""

    subject: Subject  # what is minimised
    problem_id: str  # the subject's identity, computed once
    solver: str  # its name
    settings: str  # its arguments, as JSON text
    seed: int
    start: str  # "normal" or "zero"
    epochs: int | None  # the budget
    passes: float | None
    timed: bool = False  # whether its time is a result: it then runs beside few others

    @property
    def name(self) -> str:
        """The solver with its settings, as benchopt writes it."""
        chosen = ",".join(f"{key}={value}" for key, value in json.loads(self.settings).items())
        return f"{self.solver}[{chosen}]"

    @functools.cached_property
    def identity(self) -> str:
        """The hash that names its file."""
        return digest({**self.facts(), "code": code_hash(), **versions()})

    def facts(self) -> dict[str, Any]:
        """What was asked for, as plain values."""
        return {
            "format": FORMAT,
            "problem": self.problem_id,
            "solver": self.solver,
            "settings": json.loads(self.settings),
            "seed": self.seed,
            "start": self.start,
            "epochs": self.epochs,
            "passes": self.passes,
            "timed": self.timed,
        }


def job_of(study: Study, subject: Subject, problem_id: str, method: Method, seed: int) -> Job:
    """The run of one method with one seed."""
    settings = json.dumps(method.settings, sort_keys=True, ensure_ascii=False)
    return Job(subject, problem_id, method.solver, settings, seed, study.start, study.epochs, study.passes, study.timed)


def jobs_of(study: Study, problem_ids: dict[Subject, str]) -> Iterator[tuple[Subject, Method, Job]]:
    """All runs of a study on the problems that are there; seed by seed, so that an early end still has all methods."""
    for seed in range(study.seeds):
        for problem in study.problems:
            subject = Subject.of(problem, study.objective)
            if subject in problem_ids:
                for method in problem.methods:
                    yield subject, method, job_of(study, subject, problem_ids[subject], method, seed)


def versions() -> dict[str, str]:
    """Versions of what computes."""
    return {"trsvr": trsvr.__version__, "numpy": version("numpy"), "numba": version("numba")}


@functools.cache
def code_hash() -> str:
    """Hash of the algorithms' text, without comments, docstrings and layout."""
    package = Path(trsvr.__file__).parent
    files = [
        *sorted(package.glob("_*.py")),
        *(file for room in _ROOMS for file in sorted((package / room).rglob("*.py"))),
    ]
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.relative_to(package).as_posix()}\n{_meaning(file.read_text(encoding='utf-8'))}\n".encode())
    return whole.hexdigest()[:24]


def _parsed(text: str) -> ast.Module:
    """The syntax tree. Before Python 3.13 two threads that parse at once may disturb each other (CPython 106905)."""
    for _ in range(_TRIES):
        with contextlib.suppress(SystemError):
            return ast.parse(text)
    return ast.parse(text)


def _meaning(text: str) -> str:
    tree = _parsed(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            node.body = node.body[1:]
    return ast.dump(tree)
