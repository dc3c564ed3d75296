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

from trsvr import _check, _html
from trsvr._arrays import Indices, Matrix, Vector, as_array
from trsvr._blas import one_blas_thread
from trsvr._draws import NO_EPOCH
from trsvr.parts.damping import sums_of
from trsvr.problems.base import Problem, as_problem
from trsvr.problems.centring import Centring
from trsvr.problems.curvature import SampledMatrix
from trsvr.problems.families import LOG_LINK, Binomial, Gamma, NegativeBinomial, Poisson, Tweedie, is_glm
from trsvr.problems.linear import LinearModel
from trsvr.problems.losses import Logistic, Squared
from trsvr.problems.matrix import as_matrix
from trsvr.problems.passes import GradientSum
from trsvr.problems.regularizers import coordinate
from trsvr.problems.residuals import ResidualProblem

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Covariance", "Summary", "covariance", "summary"]

KINDS = ("model", "HC0", "HC1", "cluster")
_KNOWN_DISPERSION = (Poisson, NegativeBinomial, Binomial)
# Losses whose ℓ″ does not depend on y: what is expected of it is what it is.
_CANONICAL = (Poisson, Binomial, Squared)
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
    from scipy.special import ndtr, ndtri

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
    """What is known of each row that counts, in one block: margins, responses, weights (of mean one), offset.

    ``curvatures`` are weighted, and ``total`` is the sum of the losses: both come with the margins from one pass.
    """

    z: Vector
    y: Vector
    w: Any
    offset: Any
    curvatures: Vector
    total: float = 0.0


def _rows_of(model: LinearModel, x: Vector | None) -> _Rows:
    kernels, chosen = model.kernels, model.chosen_rows
    z, curvatures, total = np.zeros(kernels.labels.size), np.zeros(kernels.labels.size), 0.0
    y = 0.5 * (kernels.labels + 1.0) if isinstance(model.loss, Logistic) else kernels.labels
    w = kernels.weights if kernels.weights.size else np.ones(y.size)
    if x is not None and model.is_small:
        z = model.decision(x)
        values = w * model.loss.value(z, kernels.labels)
        total = float(np.sum(values if chosen is None else values[chosen]))
        curvatures = w * model.loss.curvature(z, kernels.labels)
    elif x is not None:
        total, _ = model.summed(GradientSum(np.ascontiguousarray(x), z, curvatures), 1.0)
    offset = kernels.offset if kernels.offset.size else np.zeros(y.size)

    def some(part: Vector) -> Vector:
        return part if chosen is None else part[chosen]

    return _Rows(some(z), some(y), some(w), some(offset), some(curvatures), total)


def _family(loss: Any) -> Any:
    """The loss of responses 0 and 1 instead of labels −1 and 1."""
    return Binomial() if isinstance(loss, Logistic) else loss


@np.errstate(all="ignore")
def row_sums(model: LinearModel, x: Vector, matrices: tuple[str, ...]) -> dict[str, Any]:
    """Sums over rows: losses, Pearson's statistic, whether the mean of some is at the edge of its range, and matrices.

    Each matrix is Σ of a factor times (x_i, 1)(x_i, 1)ᵀ, the factor by name that of A, B or M.
    """
    rows, loss = _rows_of(model, x), _family(model.loss)
    z, y, w = rows.z, rows.y, rows.w
    found: dict[str, Any] = {"losses": rows.total, "pearson": math.nan, "edge": False}
    if is_glm(loss) and not isinstance(loss, _KNOWN_DISPERSION):
        mean = loss.expectation(z)
        residuals = np.where(y == mean, 0.0, y - mean)
        found["pearson"] = float(
            np.sum(w * np.where(residuals == 0.0, 0.0, residuals * (residuals / loss.variance(mean))))
        )
    if isinstance(loss, Binomial):
        found["edge"] = bool(np.any(rows.curvatures < _EDGE * w))
    elif isinstance(loss, LOG_LINK) and not isinstance(loss, Gamma):
        empty = z[y == 0.0]
        found["edge"] = bool(empty.size and np.exp(empty.min()) < _EDGE * np.average(y, weights=w))
    for which in matrices:
        if which == "observed" or (which == "expected" and isinstance(loss, _CANONICAL)):
            factors = rows.curvatures
        elif which == "expected" and isinstance(loss, Gamma):
            factors = w
        elif which == "expected":
            mean = loss.expectation(z)
            factors = w * mean * (mean / loss.variance(mean))
        else:
            slopes = loss.slope(z, y)
            factors = (w if which == "squares" else w * w) * slopes * slopes
        found[which] = _gram(model, factors)
    return found


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


def response_sums(model: LinearModel) -> Vector:
    """Sums of the responses, and of the exponentials of the offset."""
    rows = _rows_of(model, None)
    return np.array([np.sum(rows.w * rows.y), np.sum(rows.w * np.exp(rows.offset))])


@np.errstate(all="ignore")
def null_sums(model: LinearModel, constant: float) -> Vector:
    """Sums of losses, slopes and curvatures where every margin is a constant and the offset."""
    rows, loss = _rows_of(model, None), _family(model.loss)
    z = constant + rows.offset
    parts = (loss.value(z, rows.y), loss.slope(z, rows.y), loss.curvature(z, rows.y))
    return np.array([np.sum(rows.w * part) for part in parts])


@np.errstate(all="ignore")
def likelihoods(model: LinearModel, x: Vector, dispersion: float, scale: float, precision: bool) -> float:
    """Log-likelihood of the rows, whose weights are those of the kernels times ``scale``."""
    from scipy.special import gammaln, xlog1py, xlogy  # take long, and few need them

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


class SeparationError(ValueError):
    """The best coefficients are infinite."""


def separation(problem: Any, x: Vector) -> str | None:
    """What is to be said where the rows are separated, and x has only come so far on an endless way; else None.

    One pass over the rows, and a covariance only if some of them are at the edge of their range.
    """
    fit = _Fit(problem, x, "frequency")
    if any(part["edge"] for part in problem.on_rows(row_sums, x, ())):
        try:
            fit.covariance("model", None, None)
        except SeparationError as error:
            return str(error)
        except ValueError:
            return None  # dependent columns: another matter
    return None


class _Fit:
    """A linear model at a point, and the sums that its statistics are made of."""

    deviance = math.nan

    def __init__(self, problem: Problem, x: Vector, weights: str) -> None:
        if problem.n_outputs > 1:
            raise ValueError(
                f"problem must have one output, got {problem.n_outputs}: a model for each class has errors"
            )
        if x.size != problem.n_parameters:
            raise ValueError(f"result must have {problem.n_parameters} numbers, got {x.size}")
        self._problem, self._x = problem, x
        self.precision = _check.one_of("weights", weights, ("frequency", "precision")) == "precision"
        if "total_weight" not in dir(problem):
            problem.on_rows(_nothing)  # it is no linear model, and says so
        model: Any = problem
        self.loss, self.total = model.loss, float(model.total_weight)
        #: the user's weights over those of the kernels
        self.scale = self.total / problem.n_samples
        #: observations
        self.n = float(problem.n_samples) if self.precision else self.total
        names = model.feature_names or tuple(f"x{j}" for j in range(model.n_features))
        self.names = (*names, INTERCEPT) if model.intercept else names
        d = model.n_features
        curvatures = [coordinate(model.regularizer, j).curvature(x[j], d) for j in range(d)]
        self._penalty = self.total * np.array([*curvatures, *([0.0] if model.intercept else [])])

    def _parts(self, function: Any, *arguments: Any, per_row: Any = None) -> list[Any]:
        return self._problem.on_rows(function, *arguments, per_row=per_row)

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
        # One reading of the rows for all sums. Where ℓ″ does not depend on y, B is A.
        matrices = ["expected" if is_glm(self.loss) else "observed"]
        if kind != "model" and not isinstance(_family(self.loss), _CANONICAL) and is_glm(self.loss):
            matrices.append("observed")
        if kind in ("HC0", "HC1"):
            matrices.append("squares of sums" if self.precision else "squares")
        parts = self._parts(row_sums, self._x, tuple(matrices))
        sums = {name: self.scale * sum(part[name] for part in parts) for name in ("losses", "pearson", *matrices)}
        if not np.isfinite(sums["losses"]):
            raise ValueError("result must be a point where the losses are finite")
        if is_glm(self.loss):
            self.deviance = 2.0 * float(sums["losses"])
        information = sums[matrices[0]]
        inverse = self._inverse(information + np.diag(self._penalty))
        count = float(np.sum(inverse * information))
        freedom = self.n - count
        if known_variance is not None:
            variance = _check.positive("known_variance", known_variance)
        elif isinstance(_family(self.loss), _KNOWN_DISPERSION) or not is_glm(self.loss):
            variance = 1.0
        else:
            variance = float(sums["pearson"]) / freedom if freedom > 0.0 else math.inf
        if kind == "model":
            matrix = variance * (inverse @ information @ inverse if self._penalty.any() else inverse)
        else:
            if "observed" in matrices[1:]:
                inverse = self._inverse(sums["observed"] + np.diag(self._penalty))
            # M of weights as precisions has the square of the scale.
            meat = sums.get("squares", self.scale * sums.get("squares of sums", 0.0))
            matrix = self._sandwich(kind, groups, inverse, meat, count)
        if any(part["edge"] for part in parts):
            self._refuse_separation(np.sqrt(np.diagonal(matrix)))
        return Covariance(matrix, variance, freedom, self._x.size)

    def _sandwich(self, kind: str, groups: Any, inverse: Matrix, meat: Any, count: float) -> Matrix:
        if kind != "cluster":
            correction = 1.0 if kind == "HC0" else self.n / (self.n - count)
            return np.asarray(correction * (inverse @ meat @ inverse))
        codes, number = _codes(groups)
        together = np.zeros((number, self._x.size))
        for found, sums in self._parts(group_sums, self._x, per_row=codes):
            together[found] += self.scale * sums
        correction = number / (number - 1.0) * (self.n - 1.0) / (self.n - count)
        return np.asarray(correction * (inverse @ (together.T @ together) @ inverse))

    def _inverse(self, matrix: Matrix) -> Matrix:
        """Of a positive definite matrix; refused, by name, where columns depend on each other.

        With an intercept the columns are centred meanwhile: those far from zero are nearly parallel to it.
        """
        from scipy.linalg import lapack  # takes long, and few need it

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
        scaled = centred / np.outer(sizes, sizes)
        with one_blas_thread():  # to wake others takes longer than a matrix of this size
            factor, failed = lapack.dpotrf(scaled)
            sure = 0.0 if failed else lapack.dpocon(factor, np.abs(scaled).sum(axis=0).max())[0]
            half = lapack.dpotri(factor)[0] if sure > _ROUNDING * d else factor
        if sure > _ROUNDING * d:
            inverse = (np.triu(half) + np.triu(half, 1).T) / np.outer(sizes, sizes)
            inverse[-1] -= frame.means @ inverse[:-1]
            inverse[:, -1] -= inverse[:, :-1] @ frame.means
            return np.asarray(inverse)
        direction = frame.outside(np.linalg.eigh(scaled)[1][:, 0] / sizes) * np.sqrt(whole)
        involved = np.flatnonzero(np.abs(direction) > 1e-4 * np.abs(direction).max())
        named = ", ".join(repr(self.names[j]) for j in involved[:10])
        more = f" and {involved.size - 10} more" if involved.size > 10 else ""
        raise ValueError(
            f"the columns {named}{more} depend on each other linearly: without a penalty their coefficients have no "
            "standard errors. Leave one of them out (a level of a one-hot encoding, say), or penalise them"
        )

    def _refuse_separation(self, errors: Vector) -> None:
        """A coefficient that grows for ever has an error that does, too, and leaves rows at the edge of their range."""
        lows, highs = zip(*self._parts(column_ranges), strict=True)
        ranges = np.max(highs, axis=0) - np.min(lows, axis=0)
        endless = np.flatnonzero((errors[: ranges.size] * ranges > _ENDLESS) & (self._penalty[: ranges.size] == 0.0))
        if endless.size:
            named = ", ".join(repr(self.names[j]) for j in endless[:10])
            raise SeparationError(
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
        responses, exposures = np.sum(self._parts(response_sums), axis=0)
        mean = float(responses) / self._problem.n_samples
        if isinstance(self.loss, LOG_LINK):
            constant = math.log(max(float(responses), np.finfo(float).tiny) / float(exposures))
        elif isinstance(self.loss, Squared):
            constant = mean
        else:
            mean = min(max(mean, 1e-16), 1.0 - 1e-16)
            constant = math.log(mean) - math.log1p(-mean)
        value, slope, curvature = np.sum(self._parts(null_sums, constant), axis=0)
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
            value, slope, curvature = there
        return 2.0 * self.scale * float(value)


def _nothing(model: LinearModel) -> None:
    """Look at nothing."""


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
    array = as_array(groups)
    if array.ndim != 1:
        raise ValueError(f"groups must be a vector with one entry for each row, got shape {array.shape}")
    known, codes = np.unique(array, return_inverse=True)
    if known.size < 2:
        raise ValueError("groups must be two or more, got one: nothing can be said of their scatter")
    return codes.astype(np.int64), int(known.size)
