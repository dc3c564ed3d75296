"""Losses of generalised linear models, as functions of the margin z (the linear predictor) and the response y.

The mean of y is μ = exp(z), and for `Binomial` μ = 1/(1 + exp(−z)). A loss is half the *unit deviance*,

    log-likelihood of y at the mean y − log-likelihood of y at the mean μ,    times the dispersion,

so it is zero where μ = y and positive elsewhere: terms without z are kept, and twice the weighted sum of the losses is
the deviance. At no margin is a value, slope or curvature NaN; a value may be infinite, and a step there is refused.

Beside value, slope and curvature a family has ``expectation`` (the mean of y at a margin), ``variance`` (of y at a
mean, in units of the dispersion) and, where there is a formula for it, the ``conjugate`` of `trsvr.problems.losses`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trsvr._arrays import Numbers, Vector
from trsvr._compile import jitable, record
from trsvr._intrinsics import exp_minus, exp_of, log_of
from trsvr.problems.losses import BENDS, CURVATURE_BOUNDS, Logistic, Squared, excess


@jitable
def _times_log(a: Numbers) -> Numbers:
    """The product a log a, zero for a = 0."""
    return a * log_of(a)


@record
class Poisson(NamedTuple):
    """μ − y + y log(y/μ), μ = exp(z), for counts y ≥ 0."""

    def value(self, margin: Numbers, label: Numbers) -> Numbers:
        """Half the unit deviance."""
        t = self.log_ratio(margin, label)
        return self.joined(margin, label, t, excess(t))

    def log_ratio(self, margin: Numbers, label: Numbers) -> Numbers:
        """The logarithm t of μ/y."""
        return margin - log_of(label)

    def joined(self, margin: Numbers, label: Numbers, t: Numbers, near: Numbers) -> Numbers:
        """The value from what is exact near the best margin, and from the mean elsewhere."""
        is_near = (np.abs(t) < 1.0) & (label > 0.0)
        return np.where(is_near, label * near, (exp_of(margin) - label) - label * t)

    def slope(self, margin: Numbers, label: Numbers) -> Numbers:
        """Derivative, μ − y."""
        return exp_of(margin) - label

    def curvature(self, margin: Numbers, label: Numbers) -> Numbers:
        """Second derivative, μ."""
        return exp_of(margin)

    def conjugate(self, slope: Numbers, label: Numbers) -> Numbers:
        """With a = u + y: a log a − a − y log y + y for a ≥ 0."""
        a = slope + label
        return np.where(a >= 0.0, _times_log(np.maximum(a, 0.0)) - _times_log(label) - slope, np.inf)

    def expectation(self, margin: Numbers) -> Numbers:
        """Of y: exp(z)."""
        return exp_of(margin)

    def variance(self, mean: Numbers) -> Numbers:
        """Of y: μ."""
        return mean


@record
class Gamma(NamedTuple):
    """y/μ − 1 − log(y/μ), μ = exp(z), for y > 0."""

    def value(self, margin: Numbers, label: Numbers) -> Numbers:
        """Half the unit deviance."""
        t = self.log_ratio(margin, label)
        return self.joined(margin, label, t, excess(t))

    def log_ratio(self, margin: Numbers, label: Numbers) -> Numbers:
        """The logarithm t of y/μ."""
        return log_of(label) - margin

    def joined(self, margin: Numbers, label: Numbers, t: Numbers, near: Numbers) -> Numbers:
        """The value from what is exact near the best margin, and from the mean elsewhere."""
        return np.where(np.abs(t) < 1.0, near, label * exp_of(-margin) - 1.0 - t)

    def slope(self, margin: Numbers, label: Numbers) -> Numbers:
        """Derivative, 1 − y/μ."""
        return 1.0 - label * exp_of(-margin)

    def curvature(self, margin: Numbers, label: Numbers) -> Numbers:
        """Second derivative, y/μ."""
        return label * exp_of(-margin)

    def conjugate(self, slope: Numbers, label: Numbers) -> Numbers:
        """With v = 1 − u: v log(v/y) − v + 1 + log y for v ≥ 0."""
        v = 1.0 - slope
        found = _times_log(np.maximum(v, 0.0)) + slope * (1.0 + log_of(label))
        return np.where(v >= 0.0, found, np.inf)

    def expectation(self, margin: Numbers) -> Numbers:
        """Of y: exp(z)."""
        return exp_of(margin)

    def variance(self, mean: Numbers) -> Numbers:
        """Of y: μ²."""
        return mean * mean


@record
class Tweedie(NamedTuple):
    """Half the unit deviance of a variance μᵖ with 1 ≤ p ≤ 2, μ = exp(z), for y ≥ 0.

    With p = 1 it is `Poisson`, with p = 2 `Gamma`; between them y is zero with a positive probability, as claims are.
    """

    power: float = 1.5

    def value(self, margin: Numbers, label: Numbers) -> Numbers:
        """y^(2−p) (G(2 − p, t) − G(1 − p, t)), with t = log(μ/y) and G(c, t) = (exp(c t) − 1)/c, or t for c = 0."""
        c, e = 2.0 - self.power, 1.0 - self.power
        over_c, over_e = 1.0 / np.where(c == 0.0, 1.0, c), 1.0 / np.where(e == 0.0, 1.0, e)
        t = margin - log_of(label)
        scale = np.where(label > 0.0, exp_of(c * log_of(label)), 0.0)
        part = np.minimum(np.maximum(t, -1.0), 1.0)
        near = scale * (
            np.where(c == 0.0, part, np.expm1(c * part) * over_c)
            - np.where(e == 0.0, part, np.expm1(e * part) * over_e)
        )
        falling = np.where(label > 0.0, label * exp_of(e * margin), 0.0)
        far = np.where(c == 0.0, t, (exp_of(c * margin) - scale) * over_c) - np.where(
            e == 0.0, label * t, (falling - scale) * over_e
        )
        return np.where((np.abs(t) < 1.0) & (label > 0.0), near, far)

    def slope(self, margin: Numbers, label: Numbers) -> Numbers:
        """Derivative, μ^(2−p) − y μ^(1−p)."""
        falling = np.where(label > 0.0, label * exp_of((1.0 - self.power) * margin), 0.0)
        return exp_of((2.0 - self.power) * margin) - falling

    def curvature(self, margin: Numbers, label: Numbers) -> Numbers:
        """Second derivative, (2 − p) μ^(2−p) + (p − 1) y μ^(1−p)."""
        falling = np.where(label > 0.0, label * exp_of((1.0 - self.power) * margin), 0.0)
        rising = np.where(self.power < 2.0, (2.0 - self.power) * exp_of((2.0 - self.power) * margin), 0.0)
        return rising + np.where(self.power > 1.0, (self.power - 1.0) * falling, 0.0)

    def expectation(self, margin: Numbers) -> Numbers:
        """Of y: exp(z)."""
        return exp_of(margin)

    def variance(self, mean: Numbers) -> Numbers:
        """Of y: μᵖ."""
        return mean**self.power


@record
class NegativeBinomial(NamedTuple):
    """y log(y/μ) − (y + 1/α) log((1 + αy)/(1 + αμ)), μ = exp(z), for counts y ≥ 0 of variance μ + αμ².

    The dispersion α > 0 is given, not estimated; as it goes to zero the loss becomes that of `Poisson`.
    """

    dispersion: float = 1.0

    def value(self, margin: Numbers, label: Numbers) -> Numbers:
        """Half the unit deviance.

        With t = log(μ/y), v = αy and r = 1/α it is (y + r) log(1 + v/(1 + v) (exp(t) − 1)) − y t, and, the same,
        (y + r) log(1 + 1/(1 + v) (exp(−t) − 1)) + r t: the one keeps its digits for small v, the other for large ones.
        """
        v, r, t = self.dispersion * label, 1.0 / self.dispersion, margin - log_of(label)
        part = np.minimum(np.maximum(t, -1.0), 1.0)
        a = margin + np.log(self.dispersion)
        sign = np.where(v > 1.0, -1.0, 1.0)
        smaller = np.where(v > 1.0, 1.0 / np.maximum(v, 1.0), v)
        near = np.log1p(smaller / (1.0 + smaller) * np.expm1(sign * part))
        far = np.maximum(sign * a, 0.0) + np.log1p(exp_minus(np.abs(a))) - np.log1p(smaller)
        return (label + r) * np.where((np.abs(t) < 1.0) & (v > 0.0), near, far) - np.where(v > 1.0, -r, label) * t

    def slope(self, margin: Numbers, label: Numbers) -> Numbers:
        """Derivative, (μ − y)/(1 + αμ)."""
        r, a = 1.0 / self.dispersion, margin + np.log(self.dispersion)
        e = exp_minus(np.abs(a))
        return np.where(a > 0.0, r * (1.0 - self.dispersion * label * e), r * e - label) / (1.0 + e)

    def curvature(self, margin: Numbers, label: Numbers) -> Numbers:
        """Second derivative, μ (1 + αy)/(1 + αμ)²."""
        e = exp_minus(np.abs(margin + np.log(self.dispersion)))
        return (label + 1.0 / self.dispersion) * (e / ((1.0 + e) * (1.0 + e)))

    def conjugate(self, slope: Numbers, label: Numbers) -> Numbers:
        """With r = y + 1/α and a = (u + y)/r: r (a log a + (1 − a) log(1 − a) − a log α) + … for 0 ≤ a ≤ 1."""
        r = label + 1.0 / self.dispersion
        a = (slope + label) / r
        inside = np.minimum(np.maximum(a, 0.0), 1.0)
        entropy = _times_log(inside) + _times_log(1.0 - inside) - inside * np.log(self.dispersion)
        kept = r * np.log1p(self.dispersion * label) - _times_log(label)
        return np.where((a >= 0.0) & (a <= 1.0), r * entropy + kept, np.inf)

    def expectation(self, margin: Numbers) -> Numbers:
        """Of y: exp(z)."""
        return exp_of(margin)

    def variance(self, mean: Numbers) -> Numbers:
        """Of y: μ + αμ²."""
        return mean + self.dispersion * mean * mean


@record
class Binomial(NamedTuple):
    """y log(y/μ) + (1 − y) log((1 − y)/(1 − μ)), μ = 1/(1 + exp(−z)), for shares y of successes, 0 ≤ y ≤ 1.

    A row's weight is its number of trials. `trsvr.problems.LinearModel` also takes y as N × 2 counts, successes and
    failures, and makes shares and weights of them.
    """

    def value(self, margin: Numbers, label: Numbers) -> Numbers:
        """Half the unit deviance of one trial."""
        additive, factor = self.split_value(margin, label)
        return additive + np.log(factor)

    def split_value(self, margin: Numbers, label: Numbers) -> tuple[Numbers, Numbers]:
        """As `trsvr.problems.Logistic` splits it."""
        kept = _times_log(label) + _times_log(1.0 - label)
        return np.maximum(margin, 0.0) - label * margin + kept, 1.0 + exp_minus(np.abs(margin))

    def slope(self, margin: Numbers, label: Numbers) -> Numbers:
        """Derivative, μ − y, as (1 − y) μ − y (1 − μ): no digit is lost where y and μ are both nearly one."""
        e = exp_minus(np.abs(margin))
        more, less = 1.0 / (1.0 + e), e / (1.0 + e)
        return (1.0 - label) * np.where(margin > 0.0, more, less) - label * np.where(margin > 0.0, less, more)

    def curvature(self, margin: Numbers, label: Numbers) -> Numbers:
        """Second derivative, μ (1 − μ)."""
        e = exp_minus(np.abs(margin))
        return e / ((1.0 + e) * (1.0 + e))

    def conjugate(self, slope: Numbers, label: Numbers) -> Numbers:
        """With a = u + y: a log a + (1 − a) log(1 − a), minus the same of y, for 0 ≤ a ≤ 1."""
        a = slope + label
        inside = np.minimum(np.maximum(a, 0.0), 1.0)
        entropy = _times_log(inside) + _times_log(1.0 - inside) - _times_log(label) - _times_log(1.0 - label)
        return np.where((a >= 0.0) & (a <= 1.0), entropy, np.inf)

    def expectation(self, margin: Numbers) -> Numbers:
        """Of a trial: 1/(1 + exp(−z))."""
        e = exp_minus(np.abs(margin))
        return np.where(margin > 0.0, 1.0, e) / (1.0 + e)

    def variance(self, mean: Numbers) -> Numbers:
        """Of a trial: μ (1 − μ)."""
        return mean * (1.0 - mean)


FAMILIES = (Poisson, Gamma, Tweedie, NegativeBinomial, Binomial)
CURVATURE_BOUNDS[Binomial] = 0.25
BENDS.update(dict.fromkeys(FAMILIES, lambda loss: 1.0))  # |φ‴| ≤ φ″ for all of them
#: |φ′| at most, from what a pass has kept: curvatures and responses. It takes no exponential.
STEEPNESS: dict[type, Callable[[Vector, Vector], Vector]] = {
    Poisson: np.maximum,  # |μ − y|
    Gamma: lambda curvatures, labels: np.maximum(curvatures, 1.0),  # |1 − y/μ|
}
#: families whose mean is exp(z)
LOG_LINK = (Poisson, Gamma, Tweedie, NegativeBinomial)


def check_family(loss: Any) -> None:
    """Refuse parameters of a family that are none."""
    if isinstance(loss, Tweedie):
        power = loss.power
        if isinstance(power, bool) or not isinstance(power, int | float | np.number) or not 1.0 <= power <= 2.0:
            raise ValueError(f"power must be a number from 1 (Poisson) to 2 (Gamma), got {power!r}")
    if isinstance(loss, NegativeBinomial):
        alpha = loss.dispersion
        number = isinstance(alpha, int | float | np.number) and not isinstance(alpha, bool)
        if not number or not 0.0 < float(alpha) < math.inf:
            raise ValueError(f"dispersion must be a finite number > 0, got {alpha!r}")


def outside_domain(loss: Any, y: NDArray[Any]) -> tuple[int, str] | None:
    """Position of the first y for which a family has no likelihood, and what it accepts."""
    if isinstance(loss, Binomial):
        bad, wanted = ~((y >= 0.0) & (y <= 1.0)), "shares of successes, 0 <= y <= 1 (or N x 2 successes and failures)"
    elif isinstance(loss, Gamma) or (isinstance(loss, Tweedie) and loss.power == 2.0):
        bad, wanted = ~(y > 0.0), "> 0"
    elif isinstance(loss, Poisson | Tweedie | NegativeBinomial):
        bad, wanted = ~(y >= 0.0), ">= 0"
    else:
        return None
    places = np.flatnonzero(bad)
    return (int(places[0]), wanted) if places.size else None


def shares_of(counts: NDArray[Any]) -> tuple[Vector, Vector]:
    """Shares of successes, and trials, from N × 2 counts of successes and failures."""
    numbers = counts.astype(np.float64)
    bad = np.argwhere(~(np.isfinite(numbers) & (numbers >= 0.0)))
    if bad.size:
        row, column = bad[0]
        raise ValueError(f"y must be counts >= 0, got {numbers[row, column]} at row {row}, column {column}")
    trials = numbers.sum(axis=1)
    return numbers[:, 0] / np.where(trials > 0.0, trials, 1.0), trials


def mean_of(loss: Any, margins: Any) -> Any:
    """The mean of y at these margins; the margins themselves where the loss has no other."""
    if isinstance(loss, FAMILIES):
        with np.errstate(all="ignore"):
            return loss.expectation(margins)
    return margins


def is_glm(loss: Any) -> bool:
    """Whether a loss is half a unit deviance."""
    return isinstance(loss, (*FAMILIES, Logistic, Squared))
