"""The finite sum that is minimised: f(w) = (1/N) Σ log(1 + exp(−y_i x_iᵀw)) + (λ/2)‖w‖², no intercept."""

import math

import numpy as np
from benchopt.stopping_criterion import SufficientProgressCriterion
from scipy.special import expit

from benchopt import BaseObjective


class Objective(BaseObjective):
    """Mean logistic loss with an l2 term inside every component.

    Beside the value, whose distance to the best one benchopt draws, a curve has ‖∇f‖ and, from solvers that count them,
    component gradients and passes over the data (component gradients over N): the axis on which machines do not differ.
    """

    name = "Finite-sum l2 logistic regression"
    min_benchopt_version = "1.7"
    requirements = ("numpy", "scipy")
    parameters = {"l2": [1e-4, 1e-6]}  # noqa: RUF012  (benchopt reads it from the class)
    sampling_strategy = "iteration"
    # An epoch that brings nothing is no reason to stop: radii shrink, batches grow, and then it goes on.
    stopping_criterion = SufficientProgressCriterion(eps=1e-13, patience=6)

    def set_data(self, X, y):
        """X dense or CSR, y of −1 and 1."""
        labels = set(np.unique(y))
        if labels != {-1, 1}:
            raise ValueError(f"y must have the labels -1 and 1, got {sorted(labels)[:5]}")
        self.X, self.y = X, y

    def get_objective(self):
        """What a solver is told."""
        return {"X": self.X, "y": self.y, "l2": self.l2}

    def evaluate_result(self, w, passes=math.nan, gradient_evaluations=math.nan):
        """By NumPy, for every solver alike."""
        margins = self.y * (self.X @ w)
        gradient = self.X.T @ (-self.y * expit(-margins)) / len(self.y) + self.l2 * w
        return {
            "value": float(np.logaddexp(0.0, -margins).mean() + 0.5 * self.l2 * (w @ w)),
            "gradient_norm": float(np.linalg.norm(gradient)),
            "passes": float(passes),
            "gradient_evaluations": float(gradient_evaluations),
        }

    def get_one_result(self):
        """The start."""
        return {"w": np.zeros(self.X.shape[1])}
