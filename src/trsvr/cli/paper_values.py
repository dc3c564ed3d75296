"""The values that the TRSVR paper tuned, by data set, for ``trsvr compare --paper``: taken from the studies' files.

A set that stands in several studies takes a method's values from the earliest one that has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trsvr.experiments import specification

#: Labels of the studies and names of the command line.
NAMES = {
    "TRSVR-EstH": "trsvr-esth",
    "TRSVR-Id": "trsvr-id",
    "SVRG": "svrg",
    "SARAH": "sarah",
    "SAGA": "saga",
    "SGD": "sgd",
    "Adam": "adam",
    "Classic TR": "trust-region",
    "TRish": "trish",
}
#: What stands in for a data set is treated like it.
_ALIASES = {"rcv1": "rcv1-subset-union"}


@dataclass(frozen=True)
class Study:
    """How the paper treats one data set.

    Attributes
    ----------
    gamma : float
        Strength of the double well; λ is 1e-4 throughout, a is 0.5, and the start has standard normal entries.
    methods : dict
        Settings of the methods it tuned.
    """

    gamma: float
    methods: dict[str, dict[str, Any]]


def _read() -> dict[str, Study]:
    found: dict[str, Study] = {}
    for study in map(specification.find, specification.names()):
        for problem in study.problems if study.paper else ():
            known = found.setdefault(problem.data, Study(study.objective.gamma, {}))
            for method in problem.methods:
                if method.role == "paper" and method.label in NAMES:
                    known.methods.setdefault(NAMES[method.label], method.settings)
    return found | {alias: found[name] for name, alias in _ALIASES.items()}


STUDIES = _read()
