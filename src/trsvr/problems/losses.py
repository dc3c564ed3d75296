"""Losses of a linear model, as functions of the margin z = wᵀx and the label y.

A loss is a NamedTuple whose fields are its parameters and whose methods are three formulas: ``value``, ``slope`` (first
derivative in z) and ``curvature`` (second). They are compiled into the kernels; a loss of your own is one more such
class, in any file. All formulas hold for margins of any size: nothing overflows.

Small data are processed without compiling, all rows at once. So a formula is written with NumPy's functions
(``np.exp``, ``np.where``, ``np.maximum``): the same text takes a number when compiled and arrays when plain. A loss of
your own that takes numbers only (``math.exp``, ``if``) is always compiled.

``labels`` says what y may be: ``"two classes"`` (kept as ±1), ``"classes"`` (kept as 0 … K−1) or ``"numbers"``.
``curvature_bound`` is the supremum of the curvature, from which step sizes are derived.

A loss that can be minimised in the dual has two formulas more: ``conjugate``, φ*(u) = sup over z of uz − φ(z), and
``dual_step``, the u₊ with u₊ = φ'(z₊) and z₊ = z − q (u₊ − u), which is the best change of one dual variable u, a slope
of the loss, where the margin z falls by q for each unit of it (`trsvr.problems.dual`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from trsvr._arrays import Numbers, Vector
from trsvr._compile import jitable, record
from trsvr._intrinsics import add_to_entry, entry_of, exp_minus
from trsvr._linking import PART

# log(1 + e) is four terms of its series, to the last digit, where e is less.
_SMALL = 2.0**-12
# Newton's iterations on one dual variable: usually one or two, and bisection where they go astray.
_MOST_ITERATIONS = 60
_TINY = float(np.finfo(float).tiny)
# The last one is a step of third order (Chebyshev's); a longer one might leave (0, 1). So the change is wrong by a few
# per cent at most, and as good as one that is right, since the next epoch changes it again.
_SMALL_STEP = 0.5


@record
class Logistic(NamedTuple):
    """log(1 + exp(−y z)), y = ±1."""

    def value(self, margin: Numbers, label: Numbers) -> Numbers:
        """Loss."""
        return np.maximum(-margin * label, 0.0) + np.log1p(self.exponential(margin))

    def exponential(self, margin: Numbers) -> Numbers:
        """The exponential e = exp(−|z|) that all formulas are made of: compiled together they share one."""
        return exp_minus(np.abs(margin))

    def split_value(self, margin: Numbers, label: Numbers) -> tuple[Numbers, Numbers]:
        """(a, c) with loss = a + log(c) and 1 ≤ c ≤ 2, so that one logarithm serves the product of many c.

        A small e would lose its digits in c: there c is one, and log(1 + e) a part of a.
        """
        e = self.exponential(margin)
        small = np.where(e < _SMALL, e, 0.0)
        series = small * (1.0 - small * (0.5 - small * (1.0 / 3.0 - 0.25 * small)))
        return np.maximum(-margin * label, 0.0) + series, 1.0 + (e - small)

    def slope(self, margin: Numbers, label: Numbers) -> Numbers:
        """Derivative, −y σ(−y z)."""
        e = self.exponential(margin)
        return -label * (np.where(margin * label > 0.0, e, 1.0) / (1.0 + e))

    def curvature(self, margin: Numbers, label: Numbers) -> Numbers:
        """Second derivative, σ(z) σ(−z)."""
        e = self.exponential(margin)
        whole = 1.0 + e
        return e / (whole * whole)

    def conjugate(self, slope: float, label: float) -> float:
        """With a = −y u: a log a + (1 − a) log(1 − a) for 0 ≤ a ≤ 1."""
        a = -label * slope
        if not 0.0 <= a <= 1.0:
            return math.inf
        return (a * math.log(a) if a > 0.0 else 0.0) + ((1.0 - a) * math.log1p(-a) if a < 1.0 else 0.0)

    def dual_step(self, slope: float, margin: float, label: float, q: float) -> float:
        """Newton's method for t = y z₊ in t − m = q (σ(−t) − a), where m = y z; the root lies within q of m − q a."""
        a, m = -label * slope, label * margin
        low, high = m - q * a, m + q * (1.0 - a)
        t, share = m, a
        for _ in range(_MOST_ITERATIONS):
            e = exp_minus(abs(t))
            share = (e if t > 0.0 else 1.0) / (1.0 + e)
            slack = share * (1.0 - share)
            excess, softness = (t - m) - q * (share - a), 1.0 / (1.0 + q * slack)
            step = excess * softness
            if abs(step) <= _SMALL_STEP:
                bend = slack * (0.5 - share)
                step *= 1.0 - step * q * bend * softness
                # Of the two sides of the equation the one that is less wrong where t is.
                share += step * (slack + step * bend) if q * slack <= 1.0 else (excess - step) / q
                break
            low, high = (low, t) if excess > 0.0 else (t, high)
            t -= step
            if not low < t < high:
                t = 0.5 * (low + high)
        return -label * share


class _LogisticAt(Logistic):
    """The same at margins whose exponential is known: plain formulas share it, as compiled ones do."""

    known: Numbers

    def exponential(self, margin: Numbers) -> Numbers:
        """As it was found."""
        return self.known


def sharing(loss: Any, margins: Vector) -> Any:
    """The loss, for plain formulas at these margins alone."""
    if type(loss) is not Logistic:
        return loss
    shared = _LogisticAt()
    shared.known = loss.exponential(margins)
    return shared


@record
class SquaredHinge(NamedTuple):
    """max(0, 1 − y z)², y = ±1; the curvature is the one-sided one at the kink."""

    def value(self, margin: Numbers, label: Numbers) -> Numbers:
        """Loss."""
        gap = 1.0 - margin * label
        return np.where(gap <= 0.0, 0.0, gap * gap)  # a margin that is not a number is not without loss

    def slope(self, margin: Numbers, label: Numbers) -> Numbers:
        """Derivative."""
        gap = 1.0 - margin * label
        return np.where(gap <= 0.0, 0.0, -2.0 * label * gap)

    def curvature(self, margin: Numbers, label: Numbers) -> Numbers:
        """Second derivative: 2 inside the margin, 0 outside."""
        return np.where(margin * label < 1.0, 2.0, 0.0)

    def conjugate(self, slope: float, label: float) -> float:
        """With a = −y u: a²/4 − a for a ≥ 0."""
        a = -label * slope
        return a * (0.25 * a - 1.0) if a >= 0.0 else math.inf

    def dual_step(self, slope: float, margin: float, label: float, q: float) -> float:
        """From a₊ = max(0, 2 (1 − m − q (a₊ − a)))."""
        gap = 1.0 - label * margin - q * label * slope
        return 0.0 if gap <= 0.0 else -2.0 * label * gap / (1.0 + 2.0 * q)


@record
class Squared(NamedTuple):
    """(z − y)² / 2."""

    def value(self, margin: Numbers, label: Numbers) -> Numbers:
        """Loss."""
        residual = margin - label
        return 0.5 * residual * residual

    def slope(self, margin: Numbers, label: Numbers) -> Numbers:
        """Derivative."""
        return margin - label

    def curvature(self, margin: Numbers, label: Numbers) -> Numbers:
        """Second derivative."""
        return 1.0

    def expectation(self, margin: Numbers) -> Numbers:
        """Of y: the margin."""
        return margin

    def variance(self, mean: Numbers) -> Numbers:
        """Of y, in units of the dispersion."""
        return 1.0

    def conjugate(self, slope: float, label: float) -> float:
        """½u² + u y."""
        return slope * (0.5 * slope + label)

    def dual_step(self, slope: float, margin: float, label: float, q: float) -> float:
        """From u₊ = z − q (u₊ − u) − y."""
        return (margin - label + q * slope) / (1.0 + q)


@record
class PseudoHuber(NamedTuple):
    """δ² (√(1 + ((z − y)/δ)²) − 1): quadratic near zero, linear far out."""

    delta: float = 1.0

    def value(self, margin: Numbers, label: Numbers) -> Numbers:
        """Loss, in the form that keeps its digits for small residuals."""
        residual = margin - label
        ratio = residual / self.delta
        return residual * residual / (1.0 + np.sqrt(1.0 + ratio * ratio))

    def slope(self, margin: Numbers, label: Numbers) -> Numbers:
        """Derivative."""
        residual = margin - label
        ratio = residual / self.delta
        return residual / np.sqrt(1.0 + ratio * ratio)

    def curvature(self, margin: Numbers, label: Numbers) -> Numbers:
        """Second derivative."""
        ratio = (margin - label) / self.delta
        square = 1.0 + ratio * ratio
        return 1.0 / (square * np.sqrt(square))

    def conjugate(self, slope: float, label: float) -> float:
        """δ² (1 − √(1 − (u/δ)²)) + u y for |u| ≤ δ."""
        ratio = slope / self.delta
        square = 1.0 - ratio * ratio
        return slope * label + slope * slope / (1.0 + math.sqrt(square)) if square >= 0.0 else math.inf

    def dual_step(self, slope: float, margin: float, label: float, q: float) -> float:
        """Newton's method for the residual r in r + q φ'(r) = c: concave where r > 0, so it comes from the left."""
        c = margin - label + q * slope
        wanted = abs(c)
        r = max(wanted / (1.0 + q), wanted - q * self.delta)
        for _ in range(_MOST_ITERATIONS):
            ratio = r / self.delta
            square = 1.0 + ratio * ratio
            root = math.sqrt(square)
            step = (wanted - r - q * r / root) / (1.0 + q / (square * root))
            r += step
            if abs(step) <= 1e-10 * r:
                break
        ratio = r / self.delta
        return math.copysign(r / math.sqrt(1.0 + ratio * ratio), c)


@record
class Softmax(NamedTuple):
    """log Σ_k exp(z_k) − z_y for K outputs z and a class y in 0 … K−1.

    Its formulas take the vector of margins, plain also a K × n matrix of the margins of n rows: `value_and_slopes`
    replaces it by the slopes p − e_y (p the probabilities), `curvature_product` multiplies K numbers t by the K × K
    curvature, p ∘ t − p (pᵀt).
    """

    def value_and_slopes(self, margins: Numbers, label: Numbers) -> Numbers:
        """Loss; ``margins`` is overwritten by the slopes."""
        largest = margins[0]
        for k in range(1, len(margins)):
            largest = np.maximum(largest, margins[k])
        of_label = entry_of(label, margins) - largest
        for k in range(len(margins)):
            margins[k] = exp_minus(largest - margins[k])
        own = entry_of(label, margins)
        add_to_entry(label, -own, margins)  # it is zero now, and the others add up
        others = margins[0]
        for k in range(1, len(margins)):
            others = others + margins[k]
        total = others + own
        for k in range(len(margins)):
            margins[k] /= total
        add_to_entry(label, -(others / total), margins)
        # Where the label is the most probable the loss is small, and keeps its digits in another form.
        return np.where(others <= own, np.log1p(others / np.maximum(own, _TINY)), np.log(total) - of_label)

    def curvature_product(self, margins: Numbers, label: Numbers, directions: Numbers) -> None:
        """Multiply ``directions`` by the curvature, in place; ``margins`` is overwritten."""
        self.value_and_slopes(margins, label)
        add_to_entry(label, 1.0, margins)
        self.probability_product(margins, directions)

    def probability_product(self, probabilities: Numbers, directions: Numbers) -> None:
        """The same from the probabilities p."""
        mean = 0.0
        for k in range(len(probabilities)):
            mean += probabilities[k] * directions[k]
        for k in range(len(probabilities)):
            directions[k] = probabilities[k] * (directions[k] - mean)


MarginLoss = Logistic | SquaredHinge | Squared | PseudoHuber

_LABELS: dict[type, str] = {Logistic: "two classes", SquaredHinge: "two classes", Softmax: "classes"}
CURVATURE_BOUNDS: dict[type, float] = {
    Logistic: 0.25,
    SquaredHinge: 2.0,
    Squared: 1.0,
    PseudoHuber: 1.0,
    Softmax: 0.5,
}


# By how much of itself a curvature changes for a unit of the margin, at most; infinite where it jumps.
BENDS: dict[type, Any] = {
    Logistic: lambda loss: 1.0,
    SquaredHinge: lambda loss: math.inf,
    Squared: lambda loss: 0.0,
    PseudoHuber: lambda loss: 1.5 / loss.delta,
    Softmax: lambda loss: 1.0,
}


def bend_of(loss: Any) -> float | None:
    """By how much of itself a curvature changes for a unit of the margin, at most, for a loss that is convex.

    None where nothing is known, not even that it is convex; a loss from outside the package may say it as ``bend``.
    """
    known = BENDS.get(type(loss))
    return getattr(loss, "bend", None) if known is None else float(known(loss))


def is_smooth(loss: Any) -> bool:
    """Whether curvatures are known not to jump: at a hinge they say nothing about how long a step should be."""
    bend = bend_of(loss)
    return bend is not None and bend < math.inf


def labels_of(loss: Any) -> str:
    """What kind of labels a loss wants; a loss from outside the package says so in an attribute ``labels``."""
    return str(_LABELS.get(type(loss)) or getattr(loss, "labels", "numbers"))


def curvature_bound(loss: Any) -> float | None:
    """Supremum of the second derivative, where it is known."""
    return CURVATURE_BOUNDS.get(type(loss)) or getattr(loss, "curvature_bound", None)


def has_dual(loss: Any) -> bool:
    """Whether a loss has the two formulas of the dual; one from outside the package may have them too."""
    return all(hasattr(loss, formula) for formula in ("conjugate", "dual_step"))


def split_value(loss: Any, margin: Numbers, label: Numbers) -> tuple[Numbers, Numbers]:
    """(a, c) with loss = a + log(c); c is 1 for losses without a logarithm."""
    if hasattr(loss, "split_value"):
        pair: tuple[float, float] = loss.split_value(margin, label)
        return pair
    return loss.value(margin, label), 1.0


@jitable
def excess(t: Numbers) -> Numbers:
    """exp(t) − 1 − t for |t| ≤ 1, to all digits, by Taylor's polynomial; larger t count as that."""
    t = np.minimum(np.maximum(t, -1.0), 1.0)
    p = 1.0 / 355687428096000.0
    p = p * t + 1.0 / 20922789888000.0
    p = p * t + 1.0 / 1307674368000.0
    p = p * t + 1.0 / 87178291200.0
    p = p * t + 1.0 / 6227020800.0
    p = p * t + 1.0 / 479001600.0
    p = p * t + 1.0 / 39916800.0
    p = p * t + 1.0 / 3628800.0
    p = p * t + 1.0 / 362880.0
    p = p * t + 1.0 / 40320.0
    p = p * t + 1.0 / 5040.0
    p = p * t + 1.0 / 720.0
    p = p * t + 1.0 / 120.0
    p = p * t + 1.0 / 24.0
    p = p * t + 1.0 / 6.0
    p = p * t + 0.5
    return p * t * t


# LLVM does not inline a long function, and a loop with a call does not run in vector registers: long values are put
# together here from short ones.
@overload(split_value, strict=False, jit_options=PART, inline="always")  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_split_value(loss: Any, margin: Any, label: Any) -> Any:
    if hasattr(loss.instance_class, "joined"):
        return lambda loss, margin, label: (
            loss.joined(margin, label, loss.log_ratio(margin, label), excess(loss.log_ratio(margin, label))),
            1.0,
        )
    if hasattr(loss.instance_class, "split_value"):
        return lambda loss, margin, label: loss.split_value(margin, label)
    return lambda loss, margin, label: (loss.value(margin, label), 1.0)
