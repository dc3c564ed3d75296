"""A fitted linear model as statisticians read it: coefficients with their errors, deviances, likelihoods."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trsvr import _html
from trsvr.inference.covariances import estimated
from trsvr.inference.fits import Fit, point
from trsvr.inference.sums import constant_sums, log_weights, response_sums, saturated_likelihood
from trsvr.problems.base import as_problem
from trsvr.problems.families import LOG_LINK, Gamma, Poisson, Tweedie, is_glm
from trsvr.problems.losses import Squared

if TYPE_CHECKING:
    import pandas as pd

# Newton's method for the null model: steps at most, the longest in units of the margin, and when it stands still.
_STEPS, _LONGEST, _STILL = 100, 2.0, 1e-12


@dataclass(frozen=True)
class Summary:
    """A fitted linear model, as statisticians read it.

    Attributes
    ----------
    table : pandas.DataFrame
        A row for each coefficient, by name, the intercept last: ``coefficient``, ``standard error``, ``z``, ``p`` (two
        sided, normal), ``lower`` and ``upper``.
    kind : str
        Of the covariance.
    observations, degrees_of_freedom : float
        n, and n less the effective number of coefficients.
    effective_coefficients : float
        k = tr (A + Λ)⁻¹ A.
    dispersion : float
        1 for counts, else Pearson's statistic over the degrees of freedom.
    deviance, null_deviance : float
        Twice the weighted sum of the losses, here and where an intercept (with the offset) is all there is.
    log_likelihood, aic : float
        At this dispersion; of a normal y at the one that makes it largest. AIC is −2 log L + 2k. NaN for `Tweedie`,
        whose density has no closed form, and for losses that are no likelihood, as are the deviances then.
    """

    table: pd.DataFrame
    kind: str
    observations: float
    degrees_of_freedom: float
    effective_coefficients: float
    dispersion: float
    deviance: float
    null_deviance: float
    log_likelihood: float
    aic: float

    def facts(self) -> dict[str, float]:
        """All but the table."""
        return {name: value for name, value in vars(self).items() if name not in ("table", "kind")}

    def __repr__(self) -> str:
        told = [f"{name.replace('_', ' ')} {value:.10g}" for name, value in self.facts().items()]
        lines = [f"standard errors: {self.kind}", ", ".join(told[:4]), ", ".join(told[4:])]
        return f"{self.table.to_string(float_format=lambda number: f'{number:.6g}')}\n" + "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = [("standard errors", self.kind), *((n.replace("_", " "), f"{v:.8g}") for n, v in self.facts().items())]
        return str(self.table.to_html()) + _html.table("Fit", facts)


def summary(
    problem: Any,
    result: Any,
    *,
    kind: str = "model",
    groups: Any = None,
    weights: str = "frequency",
    known_variance: float | None = None,
    confidence: float = 0.95,
) -> Summary:
    """Coefficients of a linear model with standard errors and confidence limits, and how well it fits.

    Parameters
    ----------
    problem : LinearModel
        With one output, in memory or on Dask.
    result : Result or array
        The end of a run on it, or x.
    kind, groups, weights, known_variance
        As for `covariance`.
    confidence : float
        Level of the confidence limits.

    Examples
    --------
    >>> import numpy as np, trsvr
    >>> from trsvr.problems import L2, LinearModel, Poisson
    >>> counts, dose = [2, 3, 6, 7, 8, 9, 10, 12, 15], np.array([-1.0, -1, 0, 0, 0, 0, 1, 1, 1])
    >>> problem = LinearModel(dose[:, None], counts, Poisson(), L2(0.0), intercept=True)
    >>> found = trsvr.inference.summary(problem, trsvr.minimize(problem))
    >>> found.table["coefficient"].round(4).to_dict()
    {'x0': 0.6698, '(intercept)': 1.8893}
    >>> found.table["standard error"].round(4).to_dict()
    {'x0': 0.1787, '(intercept)': 0.1421}
    """
    import pandas as pd  # only when a table is looked at
    from scipy.special import ndtr, ndtri

    if not isinstance(confidence, float) or not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be a number between 0 and 1, got {confidence!r}")
    x = point(result)
    fit = Fit.of(as_problem(problem), x, weights)
    known, deviance = estimated(fit, kind, groups, known_variance)
    errors = known.standard_errors
    with np.errstate(divide="ignore", invalid="ignore"):
        z = x / errors
    reach = float(ndtri(0.5 + 0.5 * confidence)) * errors
    columns = np.column_stack([x, errors, z, 2.0 * ndtr(-np.abs(z)), x - reach, x + reach])
    table = pd.DataFrame(columns, fit.names, ["coefficient", "standard error", "z", "p", "lower", "upper"])
    likelihood = log_likelihood(fit, deviance, known.variance)
    return Summary(
        table=table,
        kind=kind,
        observations=fit.n,
        degrees_of_freedom=known.degrees_of_freedom,
        effective_coefficients=fit.n - known.degrees_of_freedom,
        dispersion=known.variance,
        deviance=deviance,
        null_deviance=null_deviance(fit),
        log_likelihood=likelihood,
        aic=-2.0 * likelihood + 2.0 * (fit.n - known.degrees_of_freedom),
    )


def log_likelihood(fit: Fit, deviance: float, dispersion: float) -> float:
    """At this dispersion; of a normal y at the largest.

    The deviance is what is missing to the likelihood of means that are y itself, so that no margins are needed.
    """
    if isinstance(fit.loss, Squared):
        weights = fit.parts(log_weights) if fit.precision else []
        extra = 0.5 * (float(np.sum(weights)) + fit.n * math.log(fit.scale)) if weights else 0.0
        return extra - 0.5 * fit.n * (math.log(2.0 * math.pi * deviance / fit.n) + 1.0)
    if not is_glm(fit.loss):
        return math.nan
    dispersion = 1.0 if fit.dispersion_is_known else dispersion
    saturated = fit.parts(saturated_likelihood, dispersion, fit.scale, fit.precision)
    return float(np.sum(saturated)) - 0.5 * deviance / dispersion


def null_deviance(fit: Fit) -> float:
    """Where every margin is a constant and the offset: Newton's method for the constant."""
    if not is_glm(fit.loss):
        return math.nan
    response, offset = np.sum(fit.parts(response_sums), axis=0) / fit.problem.n_samples
    constant = _link(fit.loss, float(response)) - float(offset)
    here = np.sum(fit.parts(constant_sums, constant), axis=0)
    for _ in range(_STEPS):
        step, losses = _step(fit.loss, *here)
        if losses > 0.5 * here[0]:  # else little more than rounding may be left
            return 2.0 * fit.scale * losses
        if not abs(step) > _STILL * max(abs(constant), 1.0):
            break
        there = np.sum(fit.parts(constant_sums, constant + step), axis=0)
        while not there[0] <= here[0] * (1.0 + _STILL) and abs(step) > _STILL:
            step *= 0.5
            there = np.sum(fit.parts(constant_sums, constant + step), axis=0)
        constant, here = constant + step, there
    return 2.0 * fit.scale * float(here[0])


def _link(loss: Any, mean: float) -> float:
    """The margin of a mean."""
    if isinstance(loss, Squared):
        return mean
    if isinstance(loss, LOG_LINK):
        return math.log(max(mean, np.finfo(float).tiny))
    mean = min(max(mean, 1e-16), 1.0 - 1e-16)
    return math.log(mean) - math.log1p(-mean)


def _step(loss: Any, value: float, slope: float, curvature: float) -> tuple[float, float]:
    """To the best constant, and the losses there: both where the slope after t is a e^((2 − p)t) − b e^((1 − p)t).

    Else Newton's step, and NaN.
    """
    power = {Poisson: 1.0, Gamma: 2.0}.get(type(loss), loss.power if isinstance(loss, Tweedie) else math.nan)
    falling = curvature - (2.0 - power) * slope
    rising = falling + slope
    if falling > 0.0 and rising > 0.0:
        step = math.log(falling / rising)
        return step, value + rising * _integral(2.0 - power, step) - falling * _integral(1.0 - power, step)
    step = -slope / curvature if curvature > 0.0 else 0.0
    return step if isinstance(loss, Squared) else min(max(step, -_LONGEST), _LONGEST), math.nan


def _integral(rate: float, t: float) -> float:
    """Of e^(rate·s) over s from 0 to t."""
    return math.expm1(rate * t) / rate if rate else t
