"""What people bring along from scikit-learn's own estimators, and what to say to it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

Init = TypeVar("Init", bound=Callable[..., None])

_LOGISTIC = {
    "penalty": "the penalty is L2, of strength 1/C; C=numpy.inf is no penalty (penalty=None)",
    "l1_ratio": "there is no L1 part; leave it out, which is l1_ratio=0",
    "l1_ratios": "there is no L1 part; leave it out, which is l1_ratios=(0,)",
    "dual": "there is one formulation; leave it out",
    "intercept_scaling": "the intercept is not penalised; leave it out",
    "multi_class": "three classes or more are one softmax model; sklearn.multiclass.OneVsRestClassifier fits each one",
    "use_legacy_attributes": "the attributes are those of use_legacy_attributes=False; leave it out",
}
_RIDGE = {
    "l1_ratio": "there is no L1 part; leave it out",
    "copy_X": "X is never written to; leave it out",
    "positive": "there are no constraints; scipy.optimize.lsq_linear has them",
}
#: scikit-learn's names for its solvers that are none of ours
SOLVERS = ("newton-cholesky", "newton-cg", "liblinear", "sag", "cholesky", "svd", "lsqr", "sparse_cg", "auto")


def answers(known: dict[str, str]) -> Callable[[Init], Init]:
    """Let a constructor answer to parameters that are scikit-learn's and not ours; its signature stays as it is."""

    def decorate(init: Init) -> Init:
        @functools.wraps(init)
        def answering(self: Any, *arguments: Any, **parameters: Any) -> None:
            for name in parameters:
                if name in known:
                    raise TypeError(f"{type(self).__name__} has no parameter {name!r}: {known[name]}")
            init(self, *arguments, **parameters)

        return answering  # type: ignore[return-value]  # wraps() keeps the signature, which mypy does not see

    return decorate


like_logistic_regression = answers(_LOGISTIC)
like_ridge = answers(_RIDGE)
