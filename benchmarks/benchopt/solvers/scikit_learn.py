"""scikit-learn's LogisticRegression at the same objective."""

import warnings

import numpy as np
from benchmark_utils import NOT_COUNTED
from sklearn.linear_model import LogisticRegression

from benchopt import BaseSolver


class Solver(BaseSolver):
    """So many iterations, with a tolerance that never ends them."""

    name = "scikit-learn"
    install_cmd = "conda"
    requirements = ("scikit-learn",)
    parameters = {"solver": ["lbfgs", "newton-cholesky", "newton-cg", "saga"]}  # noqa: RUF012

    def skip(self, X, y, l2):
        """Newton's method on a matrix that would not fit is left out."""
        if self.solver == "newton-cholesky" and X.shape[1] > 5000:
            return True, f"it would factor a matrix of {X.shape[1]} x {X.shape[1]}"
        return False, None

    def set_objective(self, X, y, l2):
        """Sum of losses + ‖w‖²/(2C), so C = 1/(λN)."""
        self.X, self.y = X, y
        self.model = LogisticRegression(
            C=1 / (l2 * X.shape[0]), solver=self.solver, fit_intercept=False, tol=1e-14, random_state=0
        )

    def warm_up(self):
        """Load its libraries."""
        self.run_once(1)

    def run(self, n_iter):
        """It begins at zero; no iterations means zero."""
        self.w = np.zeros(self.X.shape[1])
        if n_iter > 0:
            self.model.max_iter = n_iter
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of iterations that ran out, as they are meant to
                self.w = self.model.fit(self.X, self.y).coef_.ravel()

    def get_result(self):
        """Weights; it does not tell how many gradients it took."""
        return {"w": self.w, **NOT_COUNTED}
