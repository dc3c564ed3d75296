"""least_squares and curve_fit: SciPy's calls, with damped steps that go to many digits by default."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from trsvr import _check
from trsvr._arrays import Matrix, Vector
from trsvr.engine.api import minimize
from trsvr.engine.result import Result, Status
from trsvr.inference import covariance
from trsvr.problems.differences import KINDS
from trsvr.problems.least_squares import LeastSquares
from trsvr.problems.residual_losses import BY_NAME, Rho, as_residual_loss
from trsvr.solvers.levenberg_marquardt import LevenbergMarquardt

# Trial points for each unknown, if nothing else is said.
_TRIALS = 500
# Part of f that a step beyond a bound is to gain where a run has ended by the user's tolerances.
_GAINS_MUCH = 0.1
_METHODS = ("trf", "dogbox", "lm")
_TR_SOLVERS = ("exact", "lsmr")


@dataclass(frozen=True)
class LeastSquaresResult(Mapping[str, Any]):
    """SciPy's fields, by attribute or by name.

    Attributes
    ----------
    x : array
        The solution.
    cost : float
        Half the sum of squares, or of the losses, there.
    fun, jac, grad
        Residuals, their Jacobian and the gradient Jᵀℓ′ at x; rows of the Jacobian are times √ℓ″, as SciPy's are.
    optimality : float
        ‖grad‖∞.
    nfev, njev : int
        Points at which the residuals were looked at, the start and the trial points (without those that differences,
        second derivatives and a second opinion before the end take), and evaluations of the Jacobian.
        ``result.passes`` counts everything.
    status : int
        1 to 4 where the run has converged, 0 at the limit of evaluations, -2 where a callback has ended it, -1 else.
    message, success
        Why it ended, in words, and whether it has converged.
    active_mask : array
        Zeros: no bound is active.
    result : Result
        Our own account of the run, with its trace.
    """

    x: Vector
    cost: float
    fun: Vector
    jac: Matrix
    grad: Vector
    optimality: float
    active_mask: Vector
    nfev: int
    njev: int
    status: int
    message: str
    success: bool
    result: Result

    def __repr__(self) -> str:
        return (
            f"LeastSquaresResult({self.message}\n"
            f"  cost {self.cost:.12g}, optimality {self.optimality:.3g}, {self.nfev} evaluations of the residuals, "
            f"{self.njev} of the Jacobian\n  x {np.array2string(self.x, threshold=20, prefix='  x ')})"
        )

    def __getitem__(self, name: str) -> Any:
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        return vars(self)[name]

    def __iter__(self) -> Iterator[str]:
        return (known.name for known in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


class _AllAtOnce(LeastSquares):
    """The user's function of all residuals at once, known at the start; Jacobians are counted."""

    def __init__(
        self, fun: Any, jac: Any, bounds: tuple[Vector, Vector], start: Vector, at_start: Vector, loss: Any
    ) -> None:
        size, d = at_start.size, start.size

        def residuals(x: Any, indices: Any) -> Any:
            if np.array_equal(x, start):
                return at_start
            if x.dtype.kind != "c" and not ((x >= bounds[0]) & (x <= bounds[1])).all():
                return np.full(size, np.nan)
            found = _as_residuals(fun(x))
            if found.shape != (size,):
                raise ValueError(f"fun must return {size} residuals as it did at x0, got shape {found.shape}")
            return found

        def jacobian(x: Vector, indices: Any) -> Any:
            if np.ndim(found := jac(x)) > 2:
                raise ValueError(f"jac must return a matrix, m × {d}, got shape {np.shape(found)}")
            return found

        super().__init__(size, d, residuals, jacobian if callable(jac) else jac, loss, rows_at_once=size)
        self.njev = 0
        self._last: tuple[Vector, bool, list[tuple[slice, Matrix]], Vector] | None = None

    def jacobian_rows(self, x: Vector, residuals: Vector, fine: bool) -> Iterator[tuple[slice, Matrix]]:
        """Rows of J at x, in one block; the last ones are known."""
        fine = fine and not callable(self._jacobian)
        if self._last is None or not (np.array_equal(x, self._last[0]) and fine == self._last[1]):
            self.njev += 1
            self._last = x.copy(), fine, list(super().jacobian_rows(x, residuals, fine)), residuals
        return iter(self._last[2])

    def known_residuals(self, x: Vector) -> Vector:
        """Residuals at a point, which are known where J was looked at last."""
        return self._last[3] if self._last is not None and np.array_equal(x, self._last[0]) else self.residuals_at(x)


def _as_residuals(found: Any) -> Any:
    """What ``fun`` has returned as an array."""
    if found is None:
        raise ValueError("fun must return a vector of residuals, got None")
    array = np.atleast_1d(found)
    if array.dtype.kind not in "biufcO":
        raise ValueError(f"fun must return numbers, got an array of {array.dtype}")
    return array


def least_squares(
    fun: Callable[..., Any],
    x0: Any,
    jac: Any = None,
    bounds: Any = (-np.inf, np.inf),
    method: str = "trf",
    ftol: float | None = None,
    xtol: float | None = None,
    gtol: float | None = None,
    x_scale: Any = None,
    loss: Any = "linear",
    f_scale: float = 1.0,
    diff_step: Any = None,
    tr_solver: Any = None,
    tr_options: Any = None,
    jac_sparsity: Any = None,
    max_nfev: int | None = None,
    verbose: int = 0,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    callback: Callable[..., None] | None = None,
    workers: Any = None,
) -> LeastSquaresResult:
    """Minimise half the sum of squares of residuals, with the call of `scipy.optimize.least_squares`.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args, **kwargs)`` returns the residuals. Outside its domain it may return NaN: such a step is refused.
    x0 : array
        Starting point.
    jac : callable or str, optional
        ``jac(x, *args, **kwargs)`` returns their derivatives, m × d. By default differences, finer ones at the end;
        "2-point", "3-point" or "cs" fixes their kind.
    bounds : optional
        Points outside are refused. A solution on a bound is not found: ValueError.
    ftol, xtol, gtol : float, optional
        Ends before many digits are reached: a step that lowers the cost by less than this part, one shorter than this
        part of x, a gradient below it. None, the default: as far as the numbers go.
    x_scale : array, "jac" or None
        Size of a typical step in each unknown; by default from the columns of the Jacobian.
    loss : {"linear", "soft_l1", "huber", "cauchy", "arctan"}, callable or a loss of `trsvr.problems`
        ρ(z) of squared residuals, as in SciPy; ``f_scale`` is the residual from which on it differs from z.
    max_nfev : int, optional
        Start and trial points at most; by default 500 for each unknown.
    verbose : int
        2 prints a line for every trial point.
    args, kwargs
        Further arguments of ``fun`` and ``jac``.
    callback : callable, optional
        ``callback(intermediate_result)`` with ``x``, ``fun``, ``cost``, ``nit`` and ``nfev``, or ``callback(x)``,
        after every trial point (not at the start); StopIteration ends the run.
    method, tr_solver, diff_step, tr_options, jac_sparsity, workers
        SciPy's hints, accepted and not needed: there is one method, and it chooses its steps.

    Returns
    -------
    LeastSquaresResult
        With SciPy's fields.

    Examples
    --------
    >>> import numpy as np, trsvr
    >>> trsvr.least_squares(lambda x: [10 * (x[1] - x[0] ** 2), 1 - x[0]], [-1.2, 1.0]).x.round(9)
    array([1., 1.])
    """
    if np.iscomplexobj(x0):
        raise ValueError("x0 must be real: write complex unknowns as pairs of real ones")
    start = _check.vector("x0", np.atleast_1d(x0))
    _check.one_of("method", method, _METHODS)
    if tr_solver is not None:
        _check.one_of("tr_solver", tr_solver, _TR_SOLVERS)
    low, high = _bounds(bounds, start)
    kwargs = {} if kwargs is None else dict(kwargs)
    if not callable(fun):
        raise ValueError(f"fun must be a function that returns residuals, got {fun!r}")
    first = _as_residuals(fun(start.copy(), *args, **kwargs))
    if np.iscomplexobj(first):
        raise ValueError("fun must return real residuals: write complex ones as pairs, real and imaginary part")
    first = np.array(first, dtype=np.float64)  # a copy, which fun does not write into
    if first.ndim != 1 or first.size == 0:
        raise ValueError(f"fun must return a vector of residuals, got shape {first.shape}")
    if not np.isfinite(first).all():
        raise ValueError("residuals are not finite at x0: fun must be finite where the run begins")
    jac = _check_kind(jac)
    derivatives = (lambda x: jac(x, *args, **kwargs)) if callable(jac) else jac
    problem = _AllAtOnce(
        lambda x: fun(x, *args, **kwargs), derivatives, (low, high), start, first, _loss(loss, f_scale)
    )
    solver = LevenbergMarquardt(
        scaling=_scaling(x_scale, start.size), ftol=ftol or 0.0, xtol=xtol or 0.0, gtol=gtol or 0.0
    )
    most = _TRIALS * start.size if max_nfev is None else _check.whole("max_nfev", max_nfev)

    watch = None if callback is None else _after_trial_points(callback, problem)
    result = minimize(
        problem, solver, x0=start, max_epochs=most - 1, callback=watch, verbose=max(verbose - 1, 0), threads=1
    )
    reached = result.status is Status.CALLBACK or (max_nfev is not None and result.status is Status.EPOCH_LIMIT)
    asked = max(solver.ftol, solver.xtol, solver.gtol)
    if not reached and (result.status is not Status.CONVERGED or asked > 0.0):
        _check_bounds(problem, result, start, low, high)
    found = _answer(problem, result)
    if verbose:
        print(found)
    return found


def _after_trial_points(callback: Callable[..., None], problem: _AllAtOnce) -> Callable[[Result], None]:
    """A callback of either of SciPy's kinds as one of ours."""
    takes_result = "intermediate_result" in inspect.signature(callback).parameters

    def watch(so_far: Result) -> None:
        if so_far.epochs == 0:
            return
        if takes_result:
            from scipy.optimize import OptimizeResult  # slow to import, and rarely needed

            fun = problem.known_residuals(so_far.x)
            cost = so_far.value * problem.n_samples
            callback(
                intermediate_result=OptimizeResult(
                    x=so_far.x, fun=fun, nit=so_far.epochs, nfev=1 + so_far.epochs, cost=cost
                )
            )
        else:
            callback(so_far.x)

    return watch


def _check_kind(jac: Any) -> Any:
    if jac is None or callable(jac) or (isinstance(jac, str) and jac in KINDS):
        return jac
    raise ValueError(f"jac must be a function, one of {', '.join(map(repr, KINDS))} or None, got {jac!r}")


def _loss(loss: Any, f_scale: float) -> Any:
    scale = _check.positive("f_scale", f_scale)
    if isinstance(loss, str):
        return Rho(BY_NAME[_check.one_of("loss", loss, BY_NAME)], scale)
    if callable(loss) and "rho" not in dir(loss):
        return Rho(loss, scale)
    return as_residual_loss(loss)


def _scaling(x_scale: Any, d: int) -> tuple[float, ...] | None:
    """D, where the user has one."""
    if x_scale is None or (isinstance(x_scale, str) and x_scale == "jac"):
        return None
    try:
        sizes = np.broadcast_to(np.asarray(x_scale, dtype=np.float64), (d,))
    except (TypeError, ValueError):
        raise ValueError(f"x_scale must be 'jac', a positive number or {d} of them, got {x_scale!r}") from None
    if not (np.isfinite(sizes) & (sizes > 0.0)).all():
        raise ValueError(f"x_scale must be positive numbers or 'jac', got {x_scale!r}")
    return tuple((1.0 / sizes).tolist())


def _bounds(bounds: Any, start: Vector) -> tuple[Vector, Vector]:
    pair = (bounds.lb, bounds.ub) if {"lb", "ub"} <= set(dir(bounds)) else bounds
    try:
        low, high = (np.asarray(side, dtype=np.float64) for side in pair)
    except (TypeError, ValueError):
        low = high = np.zeros((0, 0))
    if not {low.shape, high.shape} <= {(), start.shape}:
        raise ValueError(f"bounds must be a pair of numbers or of arrays like x0, got {bounds!r}")
    low, high = np.broadcast_to(low, start.shape), np.broadcast_to(high, start.shape)
    if not ((start >= low) & (start <= high)).all():
        raise ValueError("x0 must lie within bounds")
    return low, high


def _answer(problem: _AllAtOnce, result: Result) -> LeastSquaresResult:
    """SciPy's account of a run."""
    x = result.x
    residuals = problem.residuals_at(x)
    matrix = np.concatenate([rows for _, rows in problem.jacobian_rows(x, residuals, True)])
    terms = problem.terms(residuals)
    gradient = matrix.T @ terms.slopes
    _, first, second = problem.loss.rho((residuals / problem.loss.scale) ** 2)
    curvatures = first + 2.0 * second * (residuals / problem.loss.scale) ** 2
    matrix *= np.sqrt(np.maximum(curvatures, np.finfo(float).eps))[:, None]
    limit = result.status in (Status.EPOCH_LIMIT, Status.PASS_LIMIT, Status.TIME_LIMIT)
    codes = {Status.CONVERGED: 1, Status.ROUNDING_FLOOR: 2, Status.CALLBACK: -2}
    return LeastSquaresResult(
        x=x,
        cost=terms.total,
        fun=residuals,
        jac=matrix,
        grad=gradient,
        optimality=float(np.abs(gradient).max()),
        active_mask=np.zeros(x.size, dtype=int),
        nfev=1 + result.epochs,
        njev=problem.njev,
        status=0 if limit else codes.get(result.status, -1),
        message=result.message,
        success=result.success,
        result=result,
    )


def _check_bounds(problem: _AllAtOnce, result: Result, start: Vector, low: Vector, high: Vector) -> None:
    """Raise ValueError if a bound has kept a run from a minimum: x is on it, or on its way there.

    Where it would go is told by each unknown alone; at an end that was asked for, by a whole step that still gains
    much. On its way to a bound at zero x has no size that it would be near to: where it began says what is near.
    """
    if not (np.isfinite(low) | np.isfinite(high)).any():
        return
    x, stuck = result.x, result.status in (Status.ROUNDING_FLOOR, Status.NO_PROGRESS, Status.NOT_FINITE)
    residuals = problem.residuals_at(x)
    (block,) = problem.linearized(x, residuals, True)
    matrix, gradient = block.jacobian, block.jacobian.T @ block.residuals
    if result.status is Status.CONVERGED:
        step = np.linalg.lstsq(matrix, block.residuals, rcond=None)[0]
        ahead = x - step
        binds = ((ahead < low) | (ahead > high)) & (0.5 * float(gradient @ step) > _GAINS_MUCH * result.value)
    else:
        squares = np.square(matrix).sum(axis=0)
        ahead = x - np.divide(gradient, squares, out=np.zeros_like(x), where=squares > 0.0)
        near = 1e-6 * np.maximum(np.abs(x), np.where(np.isfinite(low), np.abs(low), 0.0))
        binds = ((x - low <= near) & (gradient > 0.0)) | ((high - x <= near) & (gradient < 0.0))
        binds |= (ahead < low) & (stuck | (x - low <= 1e-6 * (start - low)))
        binds |= (ahead > high) & (stuck | (high - x <= 1e-6 * (high - start)))
    if binds.any():
        raise ValueError(
            f"bounds bind at position {int(np.flatnonzero(binds)[0])}: trsvr.least_squares finds minima inside bounds "
            "only. scipy.optimize.least_squares follows bounds, or write x as a function of unknowns without them"
        )


def curve_fit(
    f: Callable[..., Any],
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    check_finite: bool = True,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    jac: Any = None,
    *,
    full_output: bool = False,
    nan_policy: str | None = None,
    **kwargs: Any,
) -> Any:
    """Fit f(xdata, *parameters) to ydata, with the call and the answer of `scipy.optimize.curve_fit`.

    Parameters
    ----------
    f : callable
        ``f(xdata, a, b, …)`` returns the model's values.
    xdata, ydata
        Whatever f takes, and the data.
    p0 : array, optional
        Starting point; by default ones, and between bounds where there are any.
    sigma : array, optional
        Standard deviations of ydata, or their covariance matrix.
    absolute_sigma : bool
        Whether sigma is meant in absolute terms; otherwise only its ratios count.
    check_finite, nan_policy
        As in SciPy: data that are not finite raise, or with ``nan_policy="omit"`` are left out.
    bounds, method, **kwargs
        As for `least_squares`; of MINPACK's options ``maxfev`` and ``diag`` count, ``epsfcn`` and ``factor`` are not
        needed.
    jac : callable or str, optional
        ``jac(xdata, a, b, …)`` returns the derivatives of f, M × d.
    full_output : bool
        Also return a dictionary with ``nfev`` and ``fvec``, a message and a number that is 1 to 4 on success.

    Returns
    -------
    popt, pcov
        Parameters and their covariance; with it infinite, and a warning, where the data do not determine them.

    Raises
    ------
    RuntimeError
        If the fit has not converged.
    """
    x, y = xdata, np.asarray(ydata, dtype=np.float64).ravel()
    if isinstance(xdata, list | tuple | np.ndarray):
        x = np.asarray(xdata, dtype=np.float64)
    if y.size == 0:
        raise ValueError("ydata must not be empty")
    weights = None if sigma is None else np.asarray(sigma, dtype=np.float64)
    if nan_policy not in (None, "raise", "omit"):
        raise ValueError(f"nan_policy must be None, 'raise' or 'omit', got {nan_policy!r}")
    if nan_policy == "omit" and isinstance(x, np.ndarray):
        good = np.isfinite(y) & np.isfinite(x).reshape(-1, x.shape[-1]).all(axis=0)
        x, y = x[..., good], y[good]
        if weights is not None and weights.size > 1:
            weights = weights[good] if weights.ndim == 1 else weights[np.ix_(good, good)]
    elif check_finite:
        _check.finite("ydata", y)
        if isinstance(x, np.ndarray):
            _check.finite("xdata", x)
    divided = _divided_by(weights, y.size)
    start = _inside(bounds, _count(f)) if p0 is None else np.atleast_1d(p0)
    if "args" in kwargs:
        raise ValueError("args must be left out: write f as a function of xdata and its parameters alone")
    options: dict[str, Any] = {"bounds": bounds, "method": method or "trf", **kwargs}
    options["max_nfev"] = options.pop("maxfev", options.get("max_nfev")) or None
    if options.pop("col_deriv", False):
        raise ValueError("col_deriv must be left out: jac returns a row for each of ydata")
    if (diag := options.pop("diag", None)) is not None:
        options["x_scale"] = 1.0 / np.asarray(diag, dtype=np.float64)
    for hint in ("epsfcn", "factor"):  # of MINPACK's differences and first step
        options.pop(hint, None)
    if callable(jac):
        options["jac"] = lambda p: divided(np.asarray(jac(x, *p), dtype=np.float64))
    elif jac is not None:
        options["jac"] = jac
    found = least_squares(lambda p: divided(np.asarray(f(x, *p)).ravel() - y), start, **options)
    if not found.success:
        raise RuntimeError(f"Optimal parameters not found: {found.message}")
    size = found.fun.size  # a single number in ydata is for all of f's
    problem = LeastSquares(size, start.size, lambda p, i: found.fun, lambda p, i: found.jac, rows_at_once=size)
    known = covariance(problem, found.x, known_variance=1.0)
    matrix = known.matrix
    if not absolute_sigma and known.degrees_of_freedom > 0:
        matrix = matrix * (2.0 * found.cost / known.degrees_of_freedom)
    if known.rank < start.size or (known.degrees_of_freedom <= 0 and not absolute_sigma):
        from scipy.optimize import OptimizeWarning  # slow to import, and rarely needed

        warnings.warn("Covariance of the parameters could not be estimated", OptimizeWarning, stacklevel=2)
        matrix = np.full_like(matrix, np.inf)
    if not full_output:
        return found.x, matrix
    return found.x, matrix, {"nfev": found.nfev, "fvec": found.fun}, found.message, found.status


def _divided_by(sigma: Vector | Matrix | None, size: int) -> Callable[[Any], Any]:
    """Residuals, or their derivatives, in units of their standard deviations."""
    if sigma is None:
        return lambda values: values
    if sigma.ndim <= 1 and sigma.size in (1, size):
        if not (sigma > 0.0).all():
            raise ValueError("sigma must be > 0")
        return lambda values: values / (sigma if values.ndim == 1 or sigma.size == 1 else sigma[:, None])
    if sigma.shape == (size, size):
        try:
            factor = np.linalg.cholesky(sigma)
        except np.linalg.LinAlgError:
            raise ValueError("sigma must be a positive definite matrix") from None
        return lambda values: np.linalg.solve(factor, values)
    raise ValueError(f"sigma must have shape ({size},) or ({size}, {size}), got {sigma.shape}")


def _inside(bounds: Any, d: int) -> Vector:
    """Where SciPy starts: at one, between two bounds, or one away from the only one."""
    pair = (bounds.lb, bounds.ub) if {"lb", "ub"} <= set(dir(bounds)) else bounds
    try:
        low, high = (np.broadcast_to(np.asarray(side, dtype=np.float64), (d,)) for side in pair)
    except (TypeError, ValueError):  # which will be said of them later
        return np.ones(d)
    known_low, known_high = np.isfinite(low), np.isfinite(high)
    with np.errstate(invalid="ignore"):
        return np.select(
            [known_low & known_high, known_low, known_high], [0.5 * (low + high), low + 1.0, high - 1.0], 1.0
        )


def _count(f: Callable[..., Any]) -> int:
    """Parameters of f beside xdata."""
    given = inspect.signature(f).parameters.values()
    known = [each for each in given if each.kind not in (each.KEYWORD_ONLY, each.VAR_KEYWORD)]
    if any(each.kind is each.VAR_POSITIONAL for each in known) or len(known) < 2:
        raise ValueError("p0 must be given: the number of parameters cannot be read off f")
    return len(known) - 1
