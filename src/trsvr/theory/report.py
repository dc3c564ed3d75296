"""`check`: in words, which assumptions of the theorem hold for given settings, and what its guarantee is worth."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import numpy as np

from trsvr import _check
from trsvr.theory.constants import component_smoothness, constants
from trsvr.theory.theorem import Complexity, Lyapunov, best_lyapunov, complexity


@dataclass(frozen=True)
class Statement:
    """One assumption.

    Attributes
    ----------
    name : str
    holds : bool
    sentence : str
    """

    name: str
    holds: bool
    sentence: str


@dataclass(frozen=True)
class Report:
    """What `check` found; ``print(report)`` shows it.

    Attributes
    ----------
    statements : tuple of Statement
        The assumptions, in the order of the proof.
    guarantee : str
        What follows.
    alpha, batch_size, inner_steps : float, int, int
        The settings.
    smoothness, hessian_bound : float
        L_max and κ_H.
    progress : float
        Λ_min at the best z; there is a guarantee if it is positive and all statements hold.
    gap : float
        f(x₀) − f_inf, with f_inf = 0.
    start : float
        ‖∇f(x₀)‖².
    useful_after : Complexity
        When the bound falls below ‖∇f(x₀)‖²; before that it says nothing.
    """

    statements: tuple[Statement, ...]
    guarantee: str
    alpha: float
    batch_size: int
    inner_steps: int
    smoothness: float
    hessian_bound: float
    progress: float
    gap: float
    start: float
    useful_after: Complexity

    @property
    def holds(self) -> bool:
        """Whether every assumption holds, so that the guarantee is one."""
        return all(statement.holds for statement in self.statements)

    def __str__(self) -> str:
        lines = [
            f"{'holds' if statement.holds else 'FAILS':5}  {statement.name}: {statement.sentence}"
            for statement in self.statements
        ]
        return "\n".join([*lines, f"=> {self.guarantee}"])


def check(problem: Any, settings: Any, *, radius: float | None = None, x0: Any = None) -> Report:
    """Judge settings by the theorem of the TRSVR paper.

    Parameters
    ----------
    problem : LinearModel
    settings : TRSVR, SVRG or Settings
        A solver, or what `theorem_settings` returns. For SVRG and for H = I with α ≤ 1 the step is −αḡ, which is also
        the trust-region step for H = 0: the theorem is used with κ_H = 0, which asks for less than κ_H = 1.
    radius : float, optional
        All |w_j| of all iterates are at most this. With a double well the default is `sublevel_radius` at x0.
    x0 : array, optional
        Starting point; default zeros.

    Returns
    -------
    Report
        Guarantees use Λ_min at the best z (`best_lyapunov`), with f_inf = 0: no loss and no regulariser is negative.
    """
    x = np.zeros(problem.n_parameters) if x0 is None else _check.vector("x0", x0, problem.n_parameters)
    value, gradient = problem.value_and_gradient(x)
    alpha, b, steps, kind, estimator = _read(settings)
    _check.whole("batch_size", b, at_most=problem.n_samples)
    facts = constants(problem, radius=radius)
    L = component_smoothness(problem, radius=facts.radius)
    kappa = _kappa(settings, kind, alpha, L)
    M = L + 2.0 * kappa
    proof = best_lyapunov(alpha, b, steps, L, kappa)
    statements = (
        _lipschitz(L, facts.smoothness, facts.radius),
        Statement("f is bounded below", True, "no loss and no regulariser is negative, so f_inf >= 0"),
        _unbiased(estimator),
        _bounded_curvature(kind, kappa, L),
        _short_steps(alpha, M),
        _steps_per_epoch(steps, proof, (alpha, b, L, kappa)),
    )
    holds = all(statement.holds for statement in statements)
    progress = proof.smallest
    start = float(gradient @ gradient)
    useful = complexity(max(start, 1e-300), value, problem.n_samples, b, steps, progress if holds else 0.0)
    sentence = _guarantee(holds, value, steps, progress, useful, start) + _regime(alpha, L, kind)
    return Report(statements, sentence, alpha, b, steps, L, kappa, progress, value, start, useful)


# --------------------------------------------------------------------------------------------- reading settings


def _read(settings: Any) -> tuple[float, int, int, str, str]:
    """α, b, S, the curvature's name and the estimator's name."""
    told = asdict(settings) if is_dataclass(settings) and not isinstance(settings, type) else {}
    given = {name: told.get(name) for name in ("alpha", "step", "batch_size", "inner_steps")}
    alpha = given["step"] if given["alpha"] is None else given["alpha"]
    needed = {"alpha or step": alpha, "batch_size": given["batch_size"], "inner_steps": given["inner_steps"]}
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise ValueError(
            f"settings must be a TRSVR, an SVRG or theorem_settings(...), got {settings!r} without {', '.join(missing)}"
        )
    for name, value in given.items():
        if isinstance(value, str):
            raise ValueError(
                f"settings must have numbers, got {name}={value!r}: adaptive settings are not the theorem's"
            )
    kind = told.get("hessian", "given" if given["step"] is None else "none")
    kind = "estimated" if kind == "auto" else kind  # what it means beside a numeric alpha
    return (
        _check.positive("alpha", alpha),
        _check.whole("batch_size", settings.batch_size),
        _check.whole("inner_steps", settings.inner_steps),
        kind,
        told.get("gradient", "svrg"),
    )


def _kappa(settings: Any, kind: str, alpha: float, L: float) -> float:
    if kind == "given":
        return float(settings.hessian_bound)
    if kind == "none" or (kind == "identity" and alpha <= 1.0):
        return 0.0
    return 1.0 if kind == "identity" else L


# -------------------------------------------------------------------------------------------------- assumptions


def _lipschitz(L: float, mean: float, radius: float | None) -> Statement:
    where = "everywhere" if radius is None else f"as long as every |w_j| <= {radius:.4g}, which nothing enforces"
    return Statement(
        "component gradients are Lipschitz",
        True,
        f"with L_max = {L:.4g} {where} (the L of f itself, {mean:.4g}, is not enough for the variance lemma)",
    )


def _unbiased(estimator: Any) -> Statement:
    holds = estimator == "svrg"
    return Statement(
        "gradient estimates are unbiased, with variance at most (L_max²/b)‖x − x̃‖²",
        holds,
        "rows are drawn uniformly with replacement, and the estimator is SVRG's"
        if holds
        else f"the estimator is {estimator!r}; the theorem is about SVRG's",
    )


def _bounded_curvature(kind: str, kappa: float, L: float) -> Statement:
    if kappa == 0.0:
        sentence = "kappa_H = 0: the step is −αḡ, as with H = 0"
    elif kind == "identity":
        sentence = "kappa_H = 1: H = I"
    elif kind == "given":
        sentence = f"kappa_H = {kappa:.4g}, as given ({kappa / L:.3g} L_max)"
    else:
        sentence = f"kappa_H = L_max = {kappa:.4g}: H is a mean of component Hessians"
    return Statement("curvature is bounded", True, sentence)


def _short_steps(alpha: float, M: float) -> Statement:
    limit = 1.0 / (2.0 * M)
    # the theorem's own alpha is this limit, up to rounding
    holds = alpha <= min(1.0, limit) * (1.0 + 1e-12)
    relation = "is" if holds else f"is not ({alpha / limit:.3g} times too large)"
    return Statement(
        "steps are short", holds, f"alpha = {alpha:.4g} {relation} at most 1/(2(L_max + 2 kappa_H)) = {limit:.4g}"
    )


def _steps_per_epoch(steps: int, proof: Lyapunov, settings: tuple[float, int, float, float]) -> Statement:
    holds = proof.smallest > 0.0
    if holds:
        sentence = f"after S = {steps} steps Lambda_min = {proof.smallest:.4g} is still positive"
    else:
        sentence = (
            f"S = {steps} steps are too many: Lambda_min is not positive; S <= {_longest(steps, settings)} is allowed"
        )
    return Statement("epochs are short", holds, sentence)


def _longest(too_many: int, settings: tuple[float, int, float, float]) -> int:
    """The largest S for which Λ_min > 0; Λ_min falls with S, and one step always has it."""
    alpha, b, L, kappa = settings
    fine = 1
    while too_many - fine > 1:
        middle = (fine + too_many) // 2
        if best_lyapunov(alpha, b, middle, L, kappa).smallest > 0.0:
            fine = middle
        else:
            too_many = middle
    return fine


# ----------------------------------------------------------------------------------------------------- verdicts


def _guarantee(holds: bool, gap: float, steps: int, progress: float, useful: Complexity, start: float) -> str:
    if not holds:
        return "no guarantee: the theorem is silent about these settings, which does not mean that they are bad."
    text = (
        f"over K epochs the mean of E‖∇f‖² is at most {gap / (steps * progress):.4g} / K. It is {start:.4g} at the "
        f"start: the bound begins to say something after {useful.epochs:.0f} epochs ({useful.passes:.0f} passes)."
    )
    return text if start > 0.0 else "the starting point is stationary already."


def _regime(alpha: float, L: float, kind: str) -> str:
    if kind in ("none", "identity") or not math.isfinite(alpha * L):
        return ""
    if alpha * L <= 1.0:
        return f" alpha·L_max = {alpha * L:.3g} <= 1: steps end on the boundary, so this is SVRG with step {alpha:.4g}."
    return f" alpha·L_max = {alpha * L:.3g} > 1: steps can end inside the region, and curvature matters."
