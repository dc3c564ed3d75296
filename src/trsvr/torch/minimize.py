"""minimize(model, loss, dataset): the engine's loop around a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import trsvr
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
    rows_at_once: int = 4096,
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
        Any solver of `trsvr`, or its name; default ``trsvr.TRSVR()``, the adaptive mode, with nothing to choose.
    hessian : {"auto", "exact", "gauss-newton"}
        Curvature products. "auto": damped Gauss–Newton steps with a factorisation, as `least_squares` makes, where the
        loss is `torch.nn.functional.mse_loss` (or ``MSELoss``), no solver is chosen, and parameters or numbers in the
        targets are at most 3000; else "exact".
    weight_decay : float
        λ of a penalty (λ/2)‖x‖².
    rows_at_once : int
        Samples in memory at a time.
    **options
        Those of `trsvr.minimize`: ``max_epochs``, ``max_seconds``, ``tol``, ``seed``, ``callback``, ``progress``, ….

    Returns
    -------
    trsvr.Result
        With the trace. The model's parameters are afterwards those of ``result.x``, the best point seen.
    """
    squares = loss is torch.nn.functional.mse_loss or (isinstance(loss, torch.nn.MSELoss) and loss.reduction == "mean")
    products = "exact" if hessian == "auto" else hessian
    # Also where residuals are taken instead: it is what checks model, loss and data.
    problem = ModelProblem(model, loss, dataset, hessian=products, weight_decay=weight_decay, rows_at_once=rows_at_once)
    if hessian == "auto" and squares and solver is None:
        residuals = ModelResiduals(model, dataset, weight_decay=weight_decay, scale=1.0)
        per_row = residuals.n_residuals // residuals.n_samples
        if min(residuals.n_residuals, residuals.n_parameters) <= _MOST_FACTORED:
            scale = math.sqrt(2.0 / per_row)
            problem.release()
            return run(ModelResiduals(model, dataset, weight_decay=weight_decay, scale=scale), None, options)
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
