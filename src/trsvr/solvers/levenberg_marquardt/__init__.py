"""Damped Gauss–Newton steps on a sum of losses of residuals (Levenberg and Marquardt, as a trust region: Moré 1978).

At x, with residuals r, their Jacobian J and D the lengths of J's columns:

    p = argmin ½‖r + Jp‖²  over  ‖Dp‖ ≤ Δ                              `trsvr.parts.damping`
    p ← p + ½a with (JᵀJ + λD²)a = −Jᵀ r″(p, p)                        where p goes on along the last step
    ρ = (f(x) − f(x + p)) / predicted decrease;   Δ follows ρ;   x ← x + p unless f rose

An epoch is one trial point. Its residuals are one pass, the Jacobian at a point that is kept is another; a refused step
needs none. A point where a residual is not finite is refused. The curvature of the path, r″(p, p), costs no pass: the
Jacobians at both ends of the last step show it.

*Endings.* The sine of the angle between r and the space that J can reach, ‖P_J r‖/‖r‖, is zero at a stationary point
and has no units (MINPACK looks at the columns one by one). The run may end where it is below 1e-10, or where a step is
below the rounding of x. It has converged if f does not fall along the direction in which J is flattest. Unless full
steps have shown that JᵀJ is the larger part of the Hessian, and J sees every direction, S is computed there from
differences of Jᵀr: the whole Hessian says what is left, and leads on, or out of a saddle point. Near the end the values
of f no longer tell points apart: the sine judges them.

*Large residuals.* JᵀJ is the Hessian without S = Σ rᵢ∇²rᵢ. Steps show what S is (`trsvr.parts.second_order`), at no
price, and the model that has predicted the last gradient better makes the next step (Dennis, Gay & Welsch 1981).
"""

from trsvr.solvers.levenberg_marquardt.method import LevenbergMarquardt

__all__ = ["LevenbergMarquardt"]
