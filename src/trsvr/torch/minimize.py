"""minimize(model, loss, dataset): the engine's loop around a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import trsvr
from trsvr.problems.losses import Squared
from trsvr.problems.residual_losses import BY_NAME, ResidualLoss, Rho
from trsvr.solvers import solver_from
from trsvr.solvers.base import as_solver
from trsvr.torch.least_squares import ModelResiduals, run
from trsvr.torch.problem import ModelProblem

# Unknowns or residuals, whichever are fewer, up to which a factorisation is made at every step.
_MOST_FACTORED = 3000


def minimize(
    model: torch.nn.Module,
    loss: Callable[..., Tensor],
    dataset: Any,
    solver: Any = None,
    *,
    hessian: str = "auto",
    weight_decay: float = 0.0,
    rows_at_once: int | None = None,
    **options: Any,
) -> trsvr.Result:
    """Minimise a model's mean loss over a data set, from its present parameters.

    Parameters
    ----------
    model : torch.nn.Module
        Float64 for many digits; dropout and batch norm in evaluation mode.
    loss : callable
        ``loss(outputs, target)``, the mean over a batch.
    dataset : map-style data set, TensorDataset or tuple of tensors or NumPy arrays
        A sample is ``(input, …, target)``.
    solver : optional
        Any solver of `trsvr`, or its name; by default damped Gauss–Newton steps for losses of residuals, as said below,
        and ``trsvr.TRSVR()``, the adaptive mode, for all others, with nothing to choose.
    hessian : {"auto", "exact", "gauss-newton"}
        Curvature products. "auto": damped Gauss–Newton steps with a factorisation, as `least_squares` makes, where the
        loss is one of residuals (`torch.nn.functional.mse_loss`, ``huber_loss`` or ``smooth_l1_loss``, or the module of
        one with the mean), no solver is chosen, and parameters or numbers in the targets are at most 3000; else
        "exact", and steps are measured in Gauss and Newton's matrix where the loss is convex in the outputs, no solver
        is chosen, and the matrix costs less arithmetic than seven products, or d/8 of them for d parameters.
    weight_decay : float
        λ of a penalty (λ/2)‖x‖².
    rows_at_once : int, optional
        Samples in memory at a time; by default 4096, and with damped steps as many as `ModelResiduals` takes.
    **options
        Those of `trsvr.minimize`: ``max_epochs``, ``max_seconds``, ``tol``, ``seed``, ``callback``, ``progress``, ….

    Returns
    -------
    trsvr.Result
        With the trace. The model's parameters are afterwards those of ``result.x``, the best point seen.
    """
    of_residuals = _of_residuals(loss)
    products = "exact" if hessian == "auto" else hessian
    # Also where residuals are taken instead: it is what checks model, loss and data.
    problem = ModelProblem(
        model,
        loss,
        dataset,
        hessian=products,
        weight_decay=weight_decay,
        rows_at_once=4096 if rows_at_once is None else rows_at_once,
    )
    if hessian == "auto" and of_residuals is not None and solver is None:
        counted = ModelResiduals(model, dataset)
        if min(counted.n_residuals, counted.n_parameters) <= _MOST_FACTORED:
            of_one, scale = of_residuals(counted.n_residuals // counted.n_samples)
            problem.release()
            chosen = ModelResiduals(
                model, dataset, loss=of_one, weight_decay=weight_decay, scale=scale, rows_at_once=rows_at_once
            )
            return run(chosen, None, options)
    if hessian == "auto" and solver is None:
        problem.offer_matrix()
    solver = as_solver(solver_from(solver))
    if problem.dtype != torch.float64 and solver.estimates_curvature:
        raise ValueError(
            "solver estimates curvature by differences of gradients, which needs a float64 model, got "
            f"{problem.dtype}: use model.double(), or hessian='exact' in the solver"
        )
    try:
        return run(problem, solver, options)
    finally:
        problem.release()


def _of_residuals(loss: Any) -> Callable[[int], tuple[ResidualLoss | Squared, float]] | None:
    """The loss of scaled residuals, and their scale, that say the same for k numbers in a target; None for others."""
    F, nn = torch.nn.functional, torch.nn
    kind: Any = type(loss)  # a class derived from one of torch's may compute something else
    if kind in (nn.MSELoss, nn.HuberLoss, nn.SmoothL1Loss) and loss.reduction != "mean":
        return None
    if loss is F.mse_loss or kind is nn.MSELoss:
        return lambda k: (Squared(), math.sqrt(2.0 / k))
    if loss is F.huber_loss or kind is nn.HuberLoss:
        end, slope = (loss.delta if kind is nn.HuberLoss else 1.0), 1.0
    elif loss is F.smooth_l1_loss or kind is nn.SmoothL1Loss:
        end = loss.beta if kind is nn.SmoothL1Loss else 1.0
        slope = end  # what divides Huber's loss
    else:
        return None
    if not end > 0.0:
        return None

    def of_one(k: int) -> tuple[ResidualLoss, float]:
        scale = 1.0 / math.sqrt(k * slope)
        return Rho(BY_NAME["huber"], scale * end), scale

    return of_one
