"""The methods that take part in a comparison: from the words of ``--methods`` to solvers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from trsvr import _check, theory
from trsvr.cli import options as o
from trsvr.engine import Result
from trsvr.problems import LinearModel
from trsvr.solvers import BY_NAME

#: Short names for the paper's variants of TRSVR.
VARIANTS = {"trsvr-esth": "estimated", "trsvr-id": "identity", "trsvr-exact": "exact"}
METHODS = (*BY_NAME, *VARIANTS)


def parse_methods(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Names and settings from ``name:setting=value:…,name…``."""
    found = []
    for part in text.split(","):
        name, *settings = (piece.strip() for piece in part.split(":"))
        if not name:
            raise ValueError(f"--methods must be names separated by commas, got {text!r}")
        _check.one_of("--methods", name, METHODS)
        known = [entry.name for entry in dataclasses.fields(BY_NAME["trsvr" if name in VARIANTS else name])]
        given: dict[str, Any] = {}
        for setting in settings:
            key, equals, value = (piece.strip() for piece in setting.partition("="))
            if not equals or not value:
                raise ValueError(f"--methods: a setting of {name} must be NAME=VALUE, got {setting!r}")
            _check.one_of(f"--methods: a setting of {name}", key, known)
            given[key] = _value(value)
        found.append((name, given))
    return found


def _value(text: str) -> Any:
    """A whole number, a number, or the word itself."""
    try:
        return o.number("", text, "auto")
    except ValueError:
        return text


@dataclass
class Contestant:
    """A method that takes part.

    Attributes
    ----------
    label : str
        Its name in tables and figures, different for each.
    name : str
        Its name for the command line.
    settings : dict
        What was chosen, by the user or by the paper.
    solver
        The solver itself.
    results : dict
        Results by seed.
    """

    label: str
    name: str
    settings: dict[str, Any]
    solver: Any
    results: dict[int, Result] = field(default_factory=dict)


def contestant(name: str, settings: dict[str, Any], problem: LinearModel) -> Contestant:
    """A method with the settings that were given, the others filled in."""
    kind = BY_NAME["trsvr" if name in VARIANTS else name]
    chosen = dict(settings)
    usual = next((entry.default for entry in dataclasses.fields(kind) if entry.name == "batch_size"), None)
    if isinstance(usual, int) and usual > problem.n_samples:  # a default batch is not larger than the data
        chosen.setdefault("batch_size", problem.n_samples)
    if name in VARIANTS:
        chosen.setdefault("hessian", VARIANTS[name])
        chosen.setdefault("batch_size", min(200, problem.n_samples))
        if "alpha" not in chosen:
            # With the identity TRSVR is SVRG, whose step theory knows; with curvature α = 1 is a usual choice.
            b = _check.whole(f"batch_size of {name}", chosen["batch_size"], at_most=problem.n_samples)
            chosen["alpha"] = theory.recommended_step(problem, "svrg", batch_size=b) if name == "trsvr-id" else 1.0
    try:
        solver = kind(**chosen)
        solver.check(problem)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return Contestant(name, name, settings, solver)


def tell_apart(contestants: list[Contestant]) -> None:
    """Give methods that take part twice the settings in which they differ as part of their names."""
    for one in contestants:
        others = [other for other in contestants if other.name == one.name and other is not one]
        different = [
            f"{key}={value}"
            for key, value in one.settings.items()
            if any(other.settings.get(key) != value for other in others)
        ]
        one.label = " ".join([one.name, *different])
    labels = [one.label for one in contestants]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"--methods names {label} twice with the same settings")
