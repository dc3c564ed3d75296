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

from trsvr.inference.covariances import Covariance, covariance, separation
from trsvr.inference.summaries import Summary, summary

__all__ = ["Covariance", "Summary", "covariance", "separation", "summary"]
