"""From a study's problem to a `LinearModel`: load the data, draw the rows, put the objective on top."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from trsvr import problems
from trsvr.datasets import Dataset, load, read_libsvm
from trsvr.datasets import preprocess as preparing
from trsvr.datasets.dataset import best_form, signs
from trsvr.datasets.verify import content_sha256
from trsvr.experiments.specification import Objective, Problem
from trsvr.problems import LinearModel

# Problems that a process keeps: jobs come ordered by problem, and the large sets are memory maps.
_KEPT = 3
# Data that was sent here.
_PROVIDED: dict[tuple[str, str, str, int | None, str | None], Dataset] = {}


@dataclass(frozen=True)
class Subject:
    """A problem with everything that decides its values, and nothing else: picklable, small.

    The fields are those of `trsvr.experiments.specification.Problem`, the parameters as JSON text.
    """

    data: str
    preprocess: str
    parameters: str
    rows: int | None
    file: str | None
    objective: Objective

    @classmethod
    def of(cls, problem: Problem, objective: Objective) -> Subject:
        """The subject of a study's problem."""
        parameters = json.dumps(problem.parameters, sort_keys=True)
        return cls(problem.data, problem.preprocess, parameters, problem.rows, problem.file, objective)

    def dataset(self) -> Dataset:
        """The rows, kept by this process."""
        return _PROVIDED[self._place] if self._place in _PROVIDED else _dataset(*self._place)

    def provide(self, data: Dataset) -> None:
        """Take the rows from elsewhere: this process need not find them."""
        _PROVIDED.setdefault(self._place, data)

    @property
    def _place(self) -> tuple[str, str, str, int | None, str | None]:
        return self.data, self.preprocess, self.parameters, self.rows, self.file

    def problem(self) -> LinearModel:
        """The finite sum, kept by this process."""
        return _problem(self)

    def identity(self) -> str:
        """Hash of all that decides f: content of the data, preparation, rows, objective."""
        data = self.dataset()
        facts = {
            "content": data.sha256,
            "preprocess": data.preprocess,
            "rows": data.n_samples,
            "columns": data.n_features,
            "objective": [self.objective.l2, self.objective.strength(data.n_features), self.objective.a],
        }
        return digest(facts)


def digest(facts: Any) -> str:
    """A short hash of plain values."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@functools.lru_cache(maxsize=_KEPT)
def _dataset(data: str, preprocess: str, parameters: str, rows: int | None, file: str | None) -> Dataset:
    if file is None:
        found = load(data, preprocess=preprocess, **json.loads(parameters))
    else:
        found = _from_file(data, preprocess, file)
    if rows is None or rows >= found.n_samples:
        return found
    chosen = np.sort(np.random.default_rng(0).choice(found.n_samples, rows, replace=False))
    return _restricted(found, chosen)


def _from_file(name: str, method: str, file: str) -> Dataset:
    X, labels = read_libsvm(file, two_classes=True)
    method = "none" if method == "default" else method
    y, label_map = signs(labels, name)
    rows = best_form(X)
    sha256, nonzeros = content_sha256(X, labels), int(X.nnz)
    X = preparing.apply(method, preparing.learn(method, rows), rows)
    described = preparing.describe(method, scipy.sparse.issparse(X))
    return Dataset(X, y, name, file, method, label_map, sha256, nonzeros, described)


def _restricted(data: Dataset, chosen: Any) -> Dataset:
    X = data.X[chosen]
    nonzeros = int(X.nnz if scipy.sparse.issparse(X) else np.count_nonzero(X))
    source = f"{chosen.size} random rows of {data.n_samples}: {data.source}"
    return replace(data, X=X, y=data.y[chosen], source=source, nonzeros=nonzeros)


@functools.lru_cache(maxsize=_KEPT)
def _problem(subject: Subject) -> LinearModel:
    data, goal = subject.dataset(), subject.objective
    gamma = goal.strength(data.n_features)
    if gamma == 0.0:
        return problems.logistic(data.X, data.y, l2=goal.l2)
    return problems.double_well_logistic(data.X, data.y, l2=goal.l2, gamma=gamma, a=goal.a)
