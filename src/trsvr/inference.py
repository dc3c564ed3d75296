"""How certain estimates are: covariances of least-squares fits and of linear models, and their summary.

Of a linear model with weights w_i, margins z_i and half unit deviances ℓ_i (`trsvr.problems.families`) let

    A = Σ w_i I_i x_i x_iᵀ    with I_i = (dμ/dz)²/V(μ), the expected ℓ″,
    B = Σ w_i ℓ″_i x_i x_iᵀ + Λ,    M = Σ w_i ℓ′_i² x_i x_iᵀ,

over rows (x_i, 1), and Λ the Hessian of the penalty times Σ w_i. The covariance of the estimates is

    φ (A + Λ)⁻¹ A (A + Λ)⁻¹    as the model says, with φ the dispersion,
    B⁻¹ M B⁻¹                  whatever the variance of y is (the sandwich; HC0),

and HC0 times n/(n − k) is HC1. With groups, M sums the squares of whole groups. The effective degrees of freedom are
k = tr (A + Λ)⁻¹ A, the number of coefficients where nothing is penalised. φ is 1 for counts, else Pearson's statistic
over n − k. Under a penalty this is the scatter of the estimates around their own mean, not their bias.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy.special import gammaln, ndtr, ndtri, xlog1py, xlogy

from trsvr import _check, _html
from trsvr._arrays import Indices, Matrix, Vector
from trsvr._draws import NO_EPOCH
from trsvr.parts.damping import sums_of
from trsvr.problems.base import Problem, as_problem
from trsvr.problems.centring import Centring
from trsvr.problems.curvature import SampledMatrix
from trsvr.problems.families import LOG_LINK, Binomial, Gamma, NegativeBinomial, Poisson, Tweedie, is_glm
from trsvr.problems.linear import LinearModel
from trsvr.problems.losses import Logistic, Squared
from trsvr.problems.matrix import as_matrix
from trsvr.problems.regularizers import coordinate
from trsvr.problems.residuals import ResidualProblem

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Covariance", "Summary", "covariance", "summary"]

KINDS = ("model", "HC0", "HC1", "cluster")
_KNOWN_DISPERSION = (Poisson, NegativeBinomial, Binomial)
INTERCEPT = "(intercept)"
# Eigenvalues of a matrix of unit diagonal that are rounding, times its size.
_ROUNDING = 64 * np.finfo(float).eps
# Rows are at the edge where their share of the largest curvature is so small; an error of a margin that says nothing.
_EDGE, _ENDLESS = 1e-6, 100.0


@dataclass(frozen=True)
class Covariance:
    """Of the estimates x.

    Attributes
    ----------
    matrix : array of shape (d, d)
        The covariance; infinite where the data do not determine x.
    standard_errors : array
        Square roots of its diagonal.
    variance : float
        That of a residual of weight one, or the dispersion of a generalised linear model.
    degrees_of_freedom : float
        Observations less the rank, or less the effective number of coefficients.
    rank : int
        Directions of x that the data determine; less than d means that no single x is the answer.
    """

    matrix: Matrix
    variance: float
    degrees_of_freedom: float
    rank: int

    @property
    def standard_errors(self) -> Vector:
        """√ of the diagonal."""
        return np.sqrt(np.diagonal(self.matrix))


def covariance(
    problem: Any,
    result: Any,
    *,
    known_variance: float | None = None,
    kind: str = "model",
    groups: Any = None,
    weights: str = "frequency",
) -> Covariance:
    """Covariance of a fit at its end: of nonlinear least squares, or of a linear model with one output.

    Parameters
    ----------
    problem : LeastSquares or LinearModel
        A linear model in memory or on Dask.
    result : Result, LeastSquaresResult or array
        The end of a run on it, or x.
    known_variance : float, optional
        That of a residual of weight one, or the dispersion, where it is known and not to be estimated.
    kind : {"model", "HC0", "HC1", "cluster"}
        Of a linear model: what is believed of the variance of y (see the top of `trsvr.inference`). "model" needs a
        loss that is a likelihood: a family, `Logistic` or `Squared`.
    groups : array of length N, optional
        With kind="cluster": rows of one group may depend on each other. G groups, of n rows and k coefficients, correct
        it by G/(G − 1) · (n − 1)/(n − k).
    weights : {"frequency", "precision"}
        What the sample weights count: a row of weight 2 is two observations, or one of half the variance (the mean of
        two measurements, or of two trials of `Binomial`). It matters for n and for HC0 and HC1.

    Notes
    -----
    Least squares: s²(JᵀWJ)⁻¹, inverted by singular values of the scaled columns, so that nearly dependent parameters
    keep their digits. With a loss other than the squared one, ℓ″ is in the place of W: an approximation that ignores
    how far the noise is from normal.

    Linear models: one pass over the rows for each of A, B and M. Dependent columns without a penalty, and a fit whose
    coefficients grow for ever (separated classes), raise ValueError.
    """
    problem = as_problem(problem)
    x = _check.vector("result", result if isinstance(result, np.ndarray | list | tuple) else result.x)
    if not isinstance(problem, ResidualProblem):
        return _Fit(problem, x, weights).covariance(kind, groups, known_variance)
    if kind != "model":
        raise ValueError(f"kind must be 'model' for least squares, got {kind!r}")
    value, residuals = problem.value_at(x)
    if not np.isfinite(value):
        raise ValueError("result must be a point where the residuals are finite")
    d, m = x.size, residuals.size
    sums = sums_of(problem.linearized(x, residuals, True), max(m, d), d, True)
    columns = np.where(sums.columns > 0.0, sums.columns, 1.0)
    _, values, right = np.linalg.svd(sums.matrix / columns)
    rank = int(np.sum(values > np.finfo(float).eps * max(m, d) * values.max(initial=0.0)))
    freedom = m - rank
    if known_variance is not None:
        variance = _check.positive("known_variance", known_variance)
    else:
        variance = 2.0 * problem.n_samples * value / freedom if freedom > 0 else np.inf
    if rank < d:
        return Covariance(np.full((d, d), np.inf), variance, freedom, rank)
    root = right.T / values / columns[:, None]
    return Covariance(root @ root.T * (variance / problem.n_samples), variance, freedom, rank)


# ------------------------------------------------------------------------------------------------------- the summary


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

    problem = as_problem(problem)
    x = _check.vector("result", result if isinstance(result, np.ndarray | list | tuple) else result.x)
    if not isinstance(confidence, float) or not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be a number between 0 and 1, got {confidence!r}")
    fit = _Fit(problem, x, weights)
    known = fit.covariance(kind, groups, known_variance)
    errors = known.standard_errors
    with np.errstate(divide="ignore", invalid="ignore"):
        z = x / errors
    reach = float(ndtri(0.5 + 0.5 * confidence)) * errors
    table = pd.DataFrame(
        {
            "coefficient": x,
            "standard error": errors,
            "z": z,
            "p": 2.0 * ndtr(-np.abs(z)),
            "lower": x - reach,
            "upper": x + reach,
        },
        index=pd.Index(fit.names),
    )
    likelihood = fit.log_likelihood(known.variance)
    return Summary(
        table=table,
        kind=kind,
        observations=fit.n,
        degrees_of_freedom=known.degrees_of_freedom,
        effective_coefficients=fit.n - known.degrees_of_freedom,
        dispersion=known.variance,
        deviance=fit.deviance,
        null_deviance=fit.null_deviance(),
        log_likelihood=likelihood,
        aic=-2.0 * likelihood + 2.0 * (fit.n - known.degrees_of_freedom),
    )


# ---------------------------------------------------------------------------------------------------- sums over rows


class _Rows(NamedTuple):
    """What is known of each row that counts, in one block: margins, responses, weights (of mean one), offset."""

    z: Vector
    y: Vector
    w: Any
    offset: Any


def _rows_of(model: LinearModel, x: Vector | None) -> _Rows:
    kernels, chosen = model.kernels, model.chosen_rows
    z = np.zeros(kernels.labels.size) if x is None else model.decision(x)
    y = 0.5 * (kernels.labels + 1.0) if isinstance(model.loss, Logistic) else kernels.labels
    w = kernels.weights if kernels.weights.size else np.ones(y.size)
    offset = kernels.offset if kernels.offset.size else np.zeros(y.size)
    rows = _Rows(z, y, w, offset)
    return rows if chosen is None else _Rows(*(part[chosen] for part in rows))


def _family(loss: Any) -> Any:
    """The loss of responses 0 and 1 instead of labels −1 and 1."""
    return Binomial() if isinstance(loss, Logistic) else loss


def _information(loss: Any, z: Vector) -> Vector:
    """Expected ℓ″ at margins z: (dμ/dz)²/V(μ)."""
    if isinstance(loss, Squared | Gamma):
        return np.ones_like(z)
    if isinstance(loss, Binomial):
        return np.asarray(loss.curvature(z, 0.0))
    mean = loss.expectation(z)
    return np.asarray(mean * (mean / loss.variance(mean)))


@np.errstate(all="ignore")
def row_facts(model: LinearModel, x: Vector) -> Vector:
    """Sums over rows: losses, Pearson's statistic; and whether the mean of some is at the edge of its range."""
    rows, loss = _rows_of(model, x), _family(model.loss)
    values = float(np.sum(rows.w * loss.value(rows.z, rows.y)))
    if not is_glm(loss):
        return np.array([values, np.nan, 0.0])
    mean = loss.expectation(rows.z)
    residuals = np.where(rows.y == mean, 0.0, rows.y - mean)
    pearson = float(np.sum(rows.w * np.where(residuals == 0.0, 0.0, residuals * (residuals / loss.variance(mean)))))
    if isinstance(loss, Binomial):
        edge = mean * (1.0 - mean) < _EDGE
    else:
        edge = isinstance(loss, LOG_LINK) & (rows.y == 0.0) & (mean < _EDGE * np.average(rows.y, weights=rows.w))
    return np.array([values, pearson, float(np.any(edge))])


@np.errstate(all="ignore")
def gram_of(model: LinearModel, x: Vector, which: str) -> Matrix:
    """Σ over rows of a factor times (x_i, 1)(x_i, 1)ᵀ; the factor is by name that of A, B or M."""
    rows, loss = _rows_of(model, x), _family(model.loss)
    if which == "expected":
        factors = rows.w * _information(loss, rows.z)
    elif which == "observed":
        factors = rows.w * loss.curvature(rows.z, rows.y)
    else:
        slopes = loss.slope(rows.z, rows.y)
        factors = (rows.w if which == "squares" else rows.w * rows.w) * slopes * slopes
    return _gram(model, np.broadcast_to(factors, rows.z.shape))


def _gram(model: LinearModel, factors: Vector) -> Matrix:
    if model.is_small:
        return np.asarray(model.n_samples * model.small.gram(np.ascontiguousarray(factors)))
    if model.chosen_rows is not None:
        everywhere = np.zeros(model.kernels.labels.size)
        everywhere[model.chosen_rows] = factors
        factors = everywhere
    if not model.squared_rows.size:
        model._scan()
    gram = SampledMatrix(model, model.kernels)
    found, _ = gram.matrix(np.ascontiguousarray(factors), gram.n_rows, NO_EPOCH)
    return model.n_samples * found


@np.errstate(all="ignore")
def group_sums(model: LinearModel, x: Vector, groups: Indices) -> tuple[Indices, Matrix]:
    """The groups that there are in a block, and the sum of w ℓ′ (x_i, 1) over each."""
    rows, loss, chosen = _rows_of(model, x), _family(model.loss), model.chosen_rows
    slopes = rows.w * loss.slope(rows.z, rows.y)
    found, places = np.unique(groups if chosen is None else groups[chosen], return_inverse=True)
    columns = np.arange(groups.size) if chosen is None else chosen
    shape = found.size, groups.size
    sums = scipy.sparse.csr_array((slopes, (places.ravel(), columns)), shape=shape)
    together = sums @ as_matrix(model.kernels.rows, model.n_features)
    matrix = together.toarray() if scipy.sparse.issparse(together) else np.asarray(together)
    if model.intercept:
        matrix = np.column_stack([matrix, np.bincount(places.ravel(), slopes, found.size)])
    return found, matrix.astype(np.float64)


@np.errstate(all="ignore")
def null_sums(model: LinearModel, constant: float) -> Vector:
    """Sums of losses, slopes and curvatures where every margin is a constant and the offset."""
    rows, loss = _rows_of(model, None), _family(model.loss)
    z = constant + rows.offset
    parts = (loss.value(z, rows.y), loss.slope(z, rows.y), loss.curvature(z, rows.y), rows.y)
    return np.array([np.sum(rows.w * part) for part in parts])


@np.errstate(all="ignore")
def likelihoods(model: LinearModel, x: Vector, dispersion: float, scale: float, precision: bool) -> float:
    """Log-likelihood of the rows, whose weights are those of the kernels times ``scale``."""
    rows, loss = _rows_of(model, x), _family(model.loss)
    z, y, w = rows.z, rows.y, scale * rows.w
    mean = loss.expectation(z)
    if isinstance(loss, Poisson):
        terms = w * (xlogy(y, mean) - mean - gammaln(y + 1.0))
    elif isinstance(loss, Binomial):  # the weights are trials
        ways = gammaln(w + 1.0) - gammaln(w * y + 1.0) - gammaln(w * (1.0 - y) + 1.0)
        terms = ways - w * (np.maximum(z, 0.0) - y * z + np.log1p(np.exp(-np.abs(z))))
    elif isinstance(loss, NegativeBinomial):
        shape, odds = 1.0 / loss.dispersion, loss.dispersion * mean
        each = gammaln(y + shape) - gammaln(shape) - gammaln(y + 1.0) - xlog1py(y + shape, odds) + xlogy(y, odds)
        terms = w * each
    elif isinstance(loss, Gamma):
        shape = (w if precision else 1.0) / dispersion
        each = shape * (np.log(shape * y) - z) - shape * y / mean - np.log(y) - gammaln(shape)
        terms = each if precision else w * each
    else:
        return math.nan
    return float(np.sum(terms))


# ------------------------------------------------------------------------------------------------------------ a fit


class _Fit:
    """A linear model at a point, and the sums that its statistics are made of."""

    def __init__(self, problem: Problem, x: Vector, weights: str) -> None:
        if problem.n_outputs > 1:
            raise ValueError(
                f"problem must have one output, got {problem.n_outputs}: a model for each class has errors"
            )
        self._problem, self._x = problem, x
        if x.size != problem.n_parameters:
            raise ValueError(f"result must have {problem.n_parameters} numbers, got {x.size}")
        self.precision = _check.one_of("weights", weights, ("frequency", "precision")) == "precision"
        facts = self._parts(row_facts, x)
        model: Any = problem
        self.loss, self.total = model.loss, float(model.total_weight)
        #: the user's weights over those of the kernels
        self.scale = self.total / problem.n_samples
        #: observations
        self.n = float(problem.n_samples) if self.precision else self.total
        sums = np.sum(facts, axis=0)
        if not np.isfinite(sums[0]):
            raise ValueError("result must be a point where the losses are finite")
        self._losses, self._pearson = self.scale * sums[0], self.scale * sums[1]
        self._at_edge = bool(sums[2])
        self.deviance = 2.0 * self._losses if is_glm(self.loss) else math.nan
        names = model.feature_names or tuple(f"x{j}" for j in range(model.n_features))
        self.names = (*names, INTERCEPT) if model.intercept else names
        d = model.n_features
        slopes = [coordinate(model.regularizer, j).curvature(x[j], d) for j in range(d)]
        self._penalty = self.total * np.array([*slopes, *([0.0] if model.intercept else [])])

    def _parts(self, function: Any, *arguments: Any, per_row: Any = None) -> list[Any]:
        return self._problem.on_rows(function, *arguments, per_row=per_row)

    def _matrix(self, which: str) -> Matrix:
        factor = self.scale**2 if which == "squares of sums" else self.scale
        return factor * np.sum(self._parts(gram_of, self._x, which), axis=0)

    def covariance(self, kind: str, groups: Any, known_variance: float | None) -> Covariance:
        """As `covariance` says."""
        _check.one_of("kind", kind, KINDS)
        if (groups is None) == (kind == "cluster"):
            raise ValueError("groups must be given with kind='cluster', and only then")
        if kind == "model" and not is_glm(self.loss):
            raise ValueError(
                f"kind must be 'HC0', 'HC1' or 'cluster' with the loss {type(self.loss).__name__}, which is no "
                "likelihood, got 'model'"
            )
        information = self._matrix("expected" if is_glm(self.loss) else "observed")
        penalised = information + np.diag(self._penalty)
        inverse = self._inverse(penalised)
        count = float(np.trace(inverse @ information))
        freedom = self.n - count
        if known_variance is not None:
            variance = _check.positive("known_variance", known_variance)
        elif isinstance(_family(self.loss), _KNOWN_DISPERSION) or not is_glm(self.loss):
            variance = 1.0
        else:
            variance = self._pearson / freedom if freedom > 0.0 else math.inf
        if kind == "model":
            matrix = variance * (inverse @ information @ inverse if self._penalty.any() else inverse)
        else:
            matrix = self._sandwich(kind, groups, inverse, count)
        self._refuse_separation(np.sqrt(np.diagonal(matrix)))
        return Covariance(matrix, variance, freedom, self._x.size)

    def _sandwich(self, kind: str, groups: Any, inverse: Matrix, count: float) -> Matrix:
        if is_glm(self.loss) and not isinstance(_family(self.loss), Poisson | Binomial | Squared):
            inverse = self._inverse(self._matrix("observed") + np.diag(self._penalty))
        if kind != "cluster":
            correction = 1.0 if kind == "HC0" else self.n / (self.n - count)
            return correction * (inverse @ self._matrix("squares of sums" if self.precision else "squares") @ inverse)
        codes, number = _codes(groups)
        together = np.zeros((number, self._x.size))
        for found, sums in self._parts(group_sums, self._x, per_row=codes):
            together[found] += self.scale * sums
        correction = number / (number - 1.0) * (self.n - 1.0) / (self.n - count)
        return correction * (inverse @ (together.T @ together) @ inverse)

    def _inverse(self, matrix: Matrix) -> Matrix:
        """Of a positive definite matrix; refused, by name, where columns depend on each other.

        With an intercept the columns are centred meanwhile: those far from zero are nearly parallel to it.
        """
        if not np.isfinite(matrix).all():
            raise ValueError("result must be a point where the curvature is finite")
        d, whole = len(matrix), np.diagonal(matrix)
        frame = Centring(np.zeros(d - 1), 1)
        if self.names[-1] == INTERCEPT and whole[-1] > 0.0:
            frame = Centring(matrix[:-1, -1] / whole[-1], 1)
        centred = frame.matrix_inside(matrix)
        squares = np.diagonal(centred)
        empty = np.flatnonzero(squares <= _ROUNDING * d * whole)
        if empty.size:
            kind = "zero" if whole[empty[0]] == 0.0 else "constant, as the intercept is"
            raise ValueError(
                f"without a penalty {self.names[empty[0]]!r} has no standard error: its column is {kind}. Leave it "
                "out, or penalise it"
            )
        sizes = np.sqrt(squares)
        values, vectors = np.linalg.eigh(centred / np.outer(sizes, sizes))
        if values[0] <= _ROUNDING * d * values[-1]:
            direction = frame.outside(vectors[:, 0] / sizes) * np.sqrt(whole)
            involved = np.flatnonzero(np.abs(direction) > 1e-4 * np.abs(direction).max())
            named = ", ".join(repr(self.names[j]) for j in involved[:10])
            more = f" and {involved.size - 10} more" if involved.size > 10 else ""
            raise ValueError(
                f"the columns {named}{more} depend on each other linearly: without a penalty their coefficients have "
                "no standard errors. Leave one of them out (a level of a one-hot encoding, say), or penalise them"
            )
        root = np.array([frame.outside(column) for column in (vectors / np.sqrt(values) / sizes[:, None]).T]).T
        return np.asarray(root @ root.T)

    def _refuse_separation(self, errors: Vector) -> None:
        """A coefficient that grows for ever has an error that does, too, and leaves rows at the edge of their range."""
        if not self._at_edge or self._penalty[: errors.size - int(self.names[-1] == INTERCEPT)].all():
            return
        lows, highs = zip(*self._parts(column_ranges), strict=True)
        ranges = np.max(highs, axis=0) - np.min(lows, axis=0)
        endless = np.flatnonzero((errors[: ranges.size] * ranges > _ENDLESS) & (self._penalty[: ranges.size] == 0.0))
        if endless.size:
            named = ", ".join(repr(self.names[j]) for j in endless[:10])
            raise ValueError(
                f"the data are separated: without a penalty {named} can predict some rows ever better, and the best "
                "coefficients are infinite. Penalise them (regularizer=L2(…)), or leave the columns out"
            )

    def log_likelihood(self, dispersion: float) -> float:
        """At this dispersion; of a normal y at the largest."""
        if isinstance(self.loss, Squared):
            weights = self._parts(log_weights) if self.precision else []
            extra = 0.5 * (float(np.sum(weights)) + self.n * math.log(self.scale)) if weights else 0.0
            return extra - 0.5 * self.n * (math.log(2.0 * math.pi * self.deviance / self.n) + 1.0)
        if not is_glm(self.loss) or isinstance(self.loss, Tweedie):
            return math.nan
        return float(np.sum(self._parts(likelihoods, self._x, dispersion, self.scale, self.precision)))

    def null_deviance(self) -> float:
        """Where every margin is a constant and the offset: Newton's method for the constant."""
        if not is_glm(self.loss):
            return math.nan
        mean = float(np.sum(self._parts(null_sums, 0.0), axis=0)[3]) / self._problem.n_samples
        if isinstance(self.loss, LOG_LINK):
            constant = math.log(max(mean, np.finfo(float).tiny))
        elif isinstance(self.loss, Squared):
            constant = mean
        else:
            mean = min(max(mean, 1e-16), 1.0 - 1e-16)
            constant = math.log(mean) - math.log1p(-mean)
        value, slope, curvature, _ = np.sum(self._parts(null_sums, constant), axis=0)
        for _ in range(100):
            step = -slope / curvature if curvature > 0.0 else 0.0
            if not abs(step) > 1e-12 * max(abs(constant), 1.0):
                break
            step = min(max(step, -2.0), 2.0) if not isinstance(self.loss, Squared) else step
            there = np.sum(self._parts(null_sums, constant + step), axis=0)
            while not there[0] <= value + 1e-12 * abs(value) and abs(step) > 1e-12:
                step *= 0.5
                there = np.sum(self._parts(null_sums, constant + step), axis=0)
            constant += step
            value, slope, curvature, _ = there
        return 2.0 * self.scale * float(value)


def column_ranges(model: LinearModel) -> tuple[Vector, Vector]:
    """Smallest and largest entries of the columns."""
    matrix = as_matrix(model.kernels.rows, model.n_features)
    if not scipy.sparse.issparse(matrix):
        return matrix.min(axis=0), matrix.max(axis=0)
    return matrix.min(axis=0).toarray().ravel(), matrix.max(axis=0).toarray().ravel()


def log_weights(model: LinearModel) -> float:
    """Sum of the logarithms of the rows' weights."""
    return float(np.sum(np.log(_rows_of(model, None).w)))


def _codes(groups: Any) -> tuple[Indices, int]:
    array = np.asarray(groups.to_numpy() if hasattr(groups, "to_numpy") else groups)
    if array.ndim != 1:
        raise ValueError(f"groups must be a vector with one entry for each row, got shape {array.shape}")
    known, codes = np.unique(array, return_inverse=True)
    if known.size < 2:
        raise ValueError("groups must be two or more, got one: nothing can be said of their scatter")
    return codes.astype(np.int64), int(known.size)
