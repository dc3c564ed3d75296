"""Who takes part, and how each is called.

A peer is a function that prepares a task, untimed, and returns ``solve(setting)`` → weights. The setting runs up a
ladder of increasing precision: a tolerance divided by ten each time, or a number of epochs. Where it is not known which
is better (threads, step size), the peer has several variants; all of them are run and the best time counts.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse

import trsvr
from trsvr import _threads

from . import install
from .problem import Task, Vector

Solve = Callable[[float], Vector]
Variant = dict[str, Any]

TOLERANCES = tuple(10.0**-k for k in range(1, 15))
EPOCHS = tuple(float(round(1.5**k)) for k in range(2, 22))
#: Newton's method on a d × d matrix is out of the question beyond this.
_LARGEST_MATRIX = 5000


def _one_or_all() -> tuple[Variant, ...]:
    """One BLAS thread, and as many as there are cores: spinning BLAS threads can slow small problems down."""
    threads = _threads.available()
    return ({"threads": 1}, {"threads": threads}) if threads > 1 else ({"threads": 1},)


@dataclass(frozen=True)
class Peer:
    """One solver.

    Attributes
    ----------
    name : str
        As shown.
    module : str
        What must be importable.
    distribution : str
        Its name for pip.
    prepare : callable
        ``prepare(task, **variant)`` → ``solve(setting)``; "threads" limits BLAS and OpenMP and is passed on too.
    ladder : tuple of float
        Settings, from loose to precise.
    variants : tuple of dict
        All are tried.
    refuses : callable
        ``refuses(task)`` → why it cannot be run there, or "".
    compiles : bool
        It compiles at its first call and keeps nothing for later processes: done once for all cells, and told.
    apart : bool
        It lies in a folder of its own, because another package has the same modules.
    """

    name: str
    module: str
    distribution: str
    prepare: Callable[..., Solve]
    ladder: tuple[float, ...] = TOLERANCES
    variants: tuple[Variant, ...] = ({"threads": 1},)
    refuses: Callable[[Task], str] = lambda task: ""
    compiles: bool = False
    apart: bool = False

    @property
    def ours(self) -> bool:
        """Whether our code is what is timed, or a part of it."""
        return self.distribution in ("trsvr", "scipy")

    def missing(self) -> str:
        """Why it cannot take part on this machine, or ""."""
        if self.apart:
            return "" if self._distributions() else install.why_not(self.distribution) or "not installed"
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            return install.why_not(self.distribution) or f"not installed: {error}"
        return ""

    def version(self) -> str:
        """Version of its package, for the record."""
        if self.apart:
            return self._distributions()[0].version
        return trsvr.__version__ if self.distribution == "trsvr" else importlib.metadata.version(self.distribution)

    def _distributions(self) -> list[importlib.metadata.Distribution]:
        """What is kept apart of it."""
        return list(importlib.metadata.distributions(path=[str(install.folder_of(self.distribution))]))


# ---------------------------------------------------------------------------------------------------------------- ours


def _problem(task: Task) -> trsvr.problems.LinearModel:
    return trsvr.problems.logistic(task.X, task.y, l2=task.l2, intercept=task.data.intercept)


def _trsvr(task: Task, threads: int) -> Solve:
    return lambda tol: trsvr.minimize(_problem(task), tol=tol).x


def _trsvr_alone(task: Task, threads: int) -> Solve:
    return lambda _: trsvr.minimize(_problem(task)).x


# --------------------------------------------------------------------------------------------------------------- SciPy


def _scipy_lbfgs(task: Task, threads: int) -> Solve:
    start = np.zeros(_problem(task).n_parameters)

    def solve(tol: float) -> Vector:
        problem = _problem(task)
        options = {"gtol": tol, "ftol": 0.0, "maxiter": 20_000, "maxfun": 40_000}
        found = scipy.optimize.minimize(problem.value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
        return np.asarray(found.x)

    return solve


def _scipy_trust_ncg(task: Task, threads: int) -> Solve:
    start = np.zeros(_problem(task).n_parameters)

    def solve(tol: float) -> Vector:
        problem = _problem(task)
        found = scipy.optimize.minimize(
            problem.value_and_gradient, start, jac=True, method="trust-ncg",
            hessp=lambda x, v: problem.hessian_product(x, None, v), options={"gtol": tol, "maxiter": 2000},
        )  # fmt: skip
        return np.asarray(found.x)

    return solve


# -------------------------------------------------------------------------------------------------------- scikit-learn


def _scikit_learn(task: Task, threads: int, solver: str, module: str = "sklearn.linear_model") -> Solve:
    LogisticRegression = importlib.import_module(module).LogisticRegression

    def solve(tol: float) -> Vector:
        model = LogisticRegression(
            C=1 / (task.l2 * task.n), solver=solver, fit_intercept=task.data.intercept, tol=tol, max_iter=20_000,
            random_state=0,
        )  # fmt: skip
        model.fit(task.X, task.y)
        return task.weights(model.coef_, model.intercept_)

    return solve


def _too_wide(task: Task) -> str:
    columns = task.X.shape[1]
    return f"it would factor a matrix of {columns} × {columns}" if columns > _LARGEST_MATRIX else ""


# ----------------------------------------------------------------------------------------------------------- LIBLINEAR


def _liblinear(task: Task, threads: int, kind: int, more: str = "") -> Solve:
    from liblinear.liblinearutil import parameter, problem, train

    converted = problem(task.y, scipy.sparse.csr_matrix(task.X))

    def solve(tol: float) -> Vector:
        model = train(converted, parameter(f"-s {kind} -c {1 / (task.l2 * task.n)!r} -e {tol!r} -q{more}"))
        sign = 1.0 if model.label[0] == 1 else -1.0
        return sign * np.ctypeslib.as_array(model.w, (task.X.shape[1],)).copy()

    return solve


def _liblinear_multicore(task: Task, threads: int) -> Solve:
    install.use_apart("liblinear-multicore", "liblinear")
    return _liblinear(task, threads, 0, f" -m {threads}")


# ---------------------------------------------------------------------------------------------------------------- glum


def _glum(task: Task, threads: int, solver: str) -> Solve:
    from glum import GeneralizedLinearRegressor

    rows, labels = task.columns_first, (task.y > 0).astype(float)

    def solve(tol: float) -> Vector:
        model = GeneralizedLinearRegressor(
            family="binomial", alpha=task.l2, l1_ratio=0, fit_intercept=task.data.intercept, solver=solver,
            gradient_tol=tol, max_iter=20_000,
        )  # fmt: skip
        model.fit(rows, labels)
        return task.weights(model.coef_, model.intercept_)

    return solve


# ------------------------------------------------------------------------------------------------------------- Cyanure


def _cyanure(task: Task, threads: int, solver: str) -> Solve:
    from cyanure.estimators import Classifier

    rows = task.X if task.data.is_sparse else task.columns_first

    def solve(tol: float) -> Vector:
        model = Classifier(
            loss="logistic", penalty="l2", lambda_1=task.l2, fit_intercept=task.data.intercept, tol=tol,
            max_iter=20_000, solver=solver, verbose=False, duality_gap_interval=5, n_threads=threads,
        )  # fmt: skip
        model.fit(rows, task.y)
        return task.weights(model.coef_, model.intercept_ if task.data.intercept else 0.0)

    return solve


# -------------------------------------------------------------------------------------------------------------- snapml


def _snapml(task: Task, threads: int, dual: bool) -> Solve:
    import snapml

    def solve(tol: float) -> Vector:
        model = snapml.LogisticRegression(
            dual=dual, regularizer=task.l2 * task.n, tol=tol, max_iter=20_000, n_jobs=threads, fit_intercept=False,
            random_state=0, generate_training_history=None,
        )  # fmt: skip
        return np.asarray(model.fit(task.X, task.y).coef_, dtype=np.float64).ravel()

    return solve


# ----------------------------------------------------------------------------------------------------------- lightning


def _lightning_svrg(task: Task, threads: int, step: float) -> Solve:
    from lightning.classification import SVRGClassifier

    def solve(epochs: float) -> Vector:
        model = SVRGClassifier(
            alpha=task.l2, loss="log", eta=step / task.largest_smoothness, max_iter=int(epochs), tol=1e-30,
            random_state=0,
        )  # fmt: skip
        return np.asarray(model.fit(task.X, task.y).coef_, dtype=np.float64).ravel()

    return solve


def _lightning_saga(task: Task, threads: int, eta: str) -> Solve:
    from lightning.classification import SAGAClassifier

    def solve(epochs: float) -> Vector:
        # Its penalties: alpha is that of l2 (mean loss + alpha/2 ‖w‖²), beta that of the one with a proximal step.
        model = SAGAClassifier(
            alpha=task.l2, beta=0.0, penalty=None, loss="log", eta=eta, max_iter=int(epochs), tol=1e-30, random_state=0
        )
        return np.asarray(model.fit(task.X, task.y).coef_, dtype=np.float64).ravel()

    return solve


# --------------------------------------------------------------------------------------------------------------- skglm


def _skglm(task: Task, threads: int) -> Solve:
    from skglm.datafits import Logistic
    from skglm.penalties import L1_plus_L2
    from skglm.solvers import ProxNewton
    from skglm.utils.jit_compilation import compiled_clone

    rows, columns = task.columns_first, task.X.shape[1]
    datafit, penalty = compiled_clone(Logistic()), compiled_clone(L1_plus_L2(task.l2, 0.0))

    def solve(tol: float) -> Vector:
        # Its working sets are for sparse solutions; ours is dense, so all columns are in the first one.
        solver = ProxNewton(p0=columns, max_iter=50, max_pn_iter=1000, tol=tol, fit_intercept=False)
        return np.asarray(solver.solve(rows, task.y, datafit, penalty)[0])

    return solve


# ----------------------------------------------------------------------------------------------------------------- all


def _penalises_it(task: Task) -> str:
    return "it has no intercept that is not penalised" if task.data.intercept else ""


def _with(prepare: Callable[..., Solve], **fixed: Any) -> Callable[..., Solve]:
    return lambda task, **variant: prepare(task, **fixed, **variant)


OURS, ALONE = "trsvr", "trsvr, nothing set"


def everybody() -> list[Peer]:
    """All peers; ours first, because their patience is measured by our time."""
    both, every = _one_or_all(), ({"threads": _threads.available()},)
    return [
        Peer(ALONE, "trsvr", "trsvr", _trsvr_alone, ladder=(0.0,), variants=every),
        Peer(OURS, "trsvr", "trsvr", _trsvr, variants=every),
        Peer("SciPy L-BFGS-B, our kernels", "scipy.optimize", "scipy", _scipy_lbfgs, variants=both),
        Peer("SciPy trust-ncg, our kernels", "scipy.optimize", "scipy", _scipy_trust_ncg, variants=both),
        *(
            Peer(
                f"scikit-learn {solver}",
                "sklearn.linear_model",
                "scikit-learn",
                _with(_scikit_learn, solver=solver),
                variants=both if solver in ("lbfgs", "newton-cg", "newton-cholesky") else ({"threads": 1},),
                refuses={"newton-cholesky": _too_wide, "liblinear": _penalises_it}.get(solver, lambda task: ""),
            )
            for solver in ("newton-cholesky", "lbfgs", "newton-cg", "liblinear", "sag", "saga")
        ),
        *(
            Peer(
                f"LIBLINEAR {form}",
                "liblinear.liblinearutil",
                "liblinear-official",
                _with(_liblinear, kind=kind),
                refuses=_penalises_it,
            )
            for form, kind in (("primal", 0), ("dual", 7))
        ),
        Peer(
            "LIBLINEAR multicore primal",
            "liblinear.liblinearutil",
            "liblinear-multicore",
            _liblinear_multicore,
            variants=both,
            refuses=_penalises_it,
            apart=True,
        ),
        *(
            Peer(
                f"scikit-learn-intelex {solver}",
                "sklearnex.linear_model",
                "scikit-learn-intelex",
                _with(_scikit_learn, solver=solver, module="sklearnex.linear_model"),
                variants=both,
            )
            for solver in ("lbfgs", "newton-cg")
        ),
        Peer("glum IRLS", "glum", "glum", _with(_glum, solver="irls-ls"), variants=both, refuses=_too_wide),
        *(
            Peer(f"Cyanure {solver}", "cyanure.estimators", "cyanure", _with(_cyanure, solver=solver), variants=both)
            for solver in ("auto", "catalyst-svrg")
        ),
        *(
            Peer(
                f"snapml {form}",
                "snapml",
                "snapml",
                _with(_snapml, dual=form == "dual"),
                variants=both,
                refuses=_penalises_it,
            )
            for form in ("dual", "primal")
        ),
        Peer(
            "lightning SVRG",
            "lightning.classification",
            "sklearn-contrib-lightning",
            _lightning_svrg,
            ladder=EPOCHS,
            refuses=_penalises_it,
            variants=tuple({"threads": 1, "step": step} for step in (1.0, 4.0)),
        ),
        Peer(
            "lightning SAGA",
            "lightning.classification",
            "sklearn-contrib-lightning",
            _lightning_saga,
            ladder=EPOCHS,
            refuses=_penalises_it,
            variants=tuple({"threads": 1, "eta": eta} for eta in ("auto", "line-search")),
        ),
        Peer("skglm ProxNewton", "skglm.solvers", "skglm", _skglm, variants=both, refuses=_penalises_it, compiles=True),
    ]
