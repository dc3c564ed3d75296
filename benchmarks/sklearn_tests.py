"""scikit-learn's own tests of LogisticRegression and LogisticRegressionCV, run on our estimators.

    python benchmarks/sklearn_tests.py            # a table: passed, skipped and why, failed
    python benchmarks/sklearn_tests.py -k cv      # what follows is for pytest

The installed scikit-learn's test_logistic.py is collected as it is, after `LogisticRegression` and
`LogisticRegressionCV` have been exchanged for classes that take scikit-learn's parameters and fit with ours. What has
no counterpart (L1, liblinear's penalised intercept, private functions, deprecations) is skipped, with its reason.
"""

from __future__ import annotations

import collections
import importlib.util
import sys
from typing import Any

import numpy as np
import pytest
import sklearn
import sklearn.linear_model

from trsvr.sklearn import TRSVRClassifier, TRSVRClassifierCV
from trsvr.sklearn.callbacks import with_callbacks

L1 = "an L1 penalty"
LIBLINEAR = "liblinear: its intercept is penalised, its classes are fitted one by one"
PRIVATE = "a private function of scikit-learn"
DEPRECATED = "a deprecated parameter of scikit-learn"
ARRAY_API = "arrays of other libraries (array API)"
LEGACY = "attributes in dictionaries by class (use_legacy_attributes=True)"
OWN_SOLVER = "a property of one of scikit-learn's solvers"
WORDING = "the words of a warning"

#: Tests, by the beginnings of their names, that speak of something else than the estimators' results.
SKIPPED = {
    "test_logistic_regression_path_": PRIVATE,
    "test_consistency_path": PRIVATE,
    "test_get_default_scorer": PRIVATE,
    "test_logistic_regression_array_api": ARRAY_API,
    "test_penalty_deprecated": DEPRECATED,
    "test_logisticregressioncv_warns_with_use_legacy_attributes": DEPRECATED,
    "test_l1_ratio_None_deprecated": DEPRECATED,
    "test_logisticregression_warns_with_n_jobs": DEPRECATED,
    "test_lr_scoring_warns": DEPRECATED,
    "test_lr_penalty_l1ratio_incompatible": DEPRECATED,
    "test_l1_ratio_non_elasticnet": L1,
    "test_elasticnet_l1_ratio_err_helpful": L1,
    "test_check_solver_option": OWN_SOLVER,
    "test_newton_cholesky_fallback_to_lbfgs": OWN_SOLVER,
    "test_single_feature_newton_cg": OWN_SOLVER,
    "test_liblinear": LIBLINEAR,
    "test_logistic_cv_multinomial_score": PRIVATE,
    "test_logreg_predict_proba_multinomial": PRIVATE,
    "test_max_iter": WORDING,
    "test_penalty_none": DEPRECATED,
    "test_warm_start_newton_solver": OWN_SOLVER,  # two iterations twice are four
    "test_large_sparse_matrix[csr_matrix-sag": OWN_SOLVER,  # refuses indices of 64 bits, which ours takes
    "test_large_sparse_matrix[csr_array-sag": OWN_SOLVER,
    "test_logistic_regression_callback_support_warning": OWN_SOLVER,  # has no callbacks, ours has
    "test_logistic_regression_callback_support[0]": "max_iter=0: theirs iterates once, ours never",
}


def _refuse(estimator: Any) -> None:
    """Skip the test that asks for something without a counterpart."""
    ratios = np.ravel(getattr(estimator, "l1_ratios", estimator.l1_ratio))
    if any(ratio not in (None, 0.0) for ratio in ratios) or estimator.penalty in ("l1", "elasticnet"):
        pytest.skip(L1)
    if estimator.solver == "liblinear":
        pytest.skip(LIBLINEAR)
    if estimator.dual:
        pytest.skip("the dual formulation")
    if getattr(estimator, "use_legacy_attributes", False) is True:
        pytest.skip(LEGACY)


class LogisticRegression(TRSVRClassifier):
    """Ours, with scikit-learn's parameters."""

    loss, device = "log_loss", None

    def __init__(
        self, penalty="deprecated", *, C=1.0, l1_ratio=0.0, dual=False, tol=1e-4, fit_intercept=True,
        intercept_scaling=1, class_weight=None, random_state=None, solver="lbfgs", max_iter=100, verbose=0,
        warm_start=False, n_jobs=None,
    ):  # fmt: skip
        for name, value in locals().items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    @with_callbacks
    def fit(self, X, y, sample_weight=None):
        """Fit with our solver, whichever was named."""
        _refuse(self)
        solver, C = self.solver, self.C
        self.solver, self.C = None, np.inf if self.penalty is None else C
        try:
            return TRSVRClassifier.fit.__wrapped__(self, X, y, sample_weight)
        finally:
            self.solver, self.C = solver, C


class LogisticRegressionCV(TRSVRClassifierCV):
    """Ours, with scikit-learn's parameters, and the axis for l1_ratios in its attributes."""

    loss, device, l1_ratio = "log_loss", None, 0.0

    def __init__(
        self, *, Cs=10, l1_ratios=(0.0,), fit_intercept=True, cv=None, dual=False, penalty="deprecated", scoring=None,
        solver="lbfgs", tol=1e-4, max_iter=100, class_weight=None, n_jobs=None, verbose=0, refit=True,
        intercept_scaling=1.0, random_state=None, use_legacy_attributes=False,
    ):  # fmt: skip
        for name, value in locals().items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    def fit(self, X, y, sample_weight=None, **params):
        """Fit with our solver, whichever was named."""
        _refuse(self)
        solver, self.solver = self.solver, None
        try:
            super().fit(X, y, sample_weight, **params)
        finally:
            self.solver = solver
        self.l1_ratios_, self.l1_ratio_ = np.array([0.0]), 0.0
        self.scores_ = self.scores_[:, None, :]
        self.n_iter_ = self.n_iter_[:, None, :]
        self.coefs_paths_ = self.coefs_paths_[:, None]
        return self


class Tally:
    """A plugin of pytest: skips what is named above, and counts."""

    def __init__(self) -> None:
        self.reasons: collections.Counter[str] = collections.Counter()
        self.passed, self.failed = 0, []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Mark what speaks of something else."""
        for item in items:
            reason = next((why for name, why in SKIPPED.items() if item.name.startswith(name)), None)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count one outcome."""
        if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            self.reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
        elif report.outcome == "failed":
            self.failed.append(report.nodeid.rpartition("::")[2])
        elif report.when == "call":
            self.passed += report.outcome == "passed"


def main(arguments: list[str]) -> int:
    sklearn.linear_model.LogisticRegression = LogisticRegression
    sklearn.linear_model.LogisticRegressionCV = LogisticRegressionCV
    module = importlib.util.find_spec("sklearn.linear_model.tests.test_logistic")
    if module is None or module.origin is None:
        print("this scikit-learn was installed without its tests", file=sys.stderr)
        return 2
    tally = Tally()
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-c", "/dev/null", "--tb=short", "-q", "--no-header"]
    pytest.main([*options, "-W", "ignore", module.origin, *arguments], plugins=[tally])
    print(f"\n| scikit-learn {sklearn.__version__}, test_logistic.py | tests |\n|---|---|\n| passed | {tally.passed} |")
    for reason, count in tally.reasons.most_common():
        print(f"| skipped: {reason} | {count} |")
    print(f"| failed | {len(tally.failed)} |")
    for name in tally.failed:
        print(f"failed: {name}")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
