"""The scikit-learn front door: estimators that take the place of scikit-learn's own and need no tuning.

    from trsvr.sklearn import TRSVRClassifier, TRSVRClassifierCV, TRSVRRegressor, TRSVRRegressorCV

`TRSVRClassifier` minimises the objective of ``LogisticRegression`` (or, with the squared hinge, of ``LinearSVC``, the
intercept left unpenalised), `TRSVRRegressor` that of ``Ridge``, ``PoissonRegressor``, ``GammaRegressor`` or
``TweedieRegressor``. `TRSVRClassifierCV` and `TRSVRRegressorCV` choose the strength of the penalty by cross-validation.
"""

try:
    import sklearn as _sklearn  # noqa: F401  # this package's own name is trsvr.sklearn; imports are absolute
except ImportError as error:
    raise ImportError("trsvr.sklearn needs scikit-learn: pip install 'trsvr[sklearn]'") from error

from trsvr.sklearn.classifier import TRSVRClassifier
from trsvr.sklearn.cross_validation import TRSVRClassifierCV
from trsvr.sklearn.regressor import TRSVRRegressor
from trsvr.sklearn.regressor_cv import TRSVRRegressorCV

__all__ = ["TRSVRClassifier", "TRSVRClassifierCV", "TRSVRRegressor", "TRSVRRegressorCV"]
