"""A physics-informed net for a boundary-value problem, in float64: least squares where digits matter.

−u″ = π² sin(πx) + 16π² sin(4πx)/4 on [−1, 1], u(±1) = 0, whose solution is u = sin(πx) + sin(4πx)/4. The net is
u(x) = (1 − x²) n(x), which meets the boundary values by itself; the residuals of the equation at 256 points are squared
and averaged. The second derivative makes the problem ill-conditioned, which is hard on first-order methods. The usual
choice, PyTorch's L-BFGS on all points, runs beside, and so does `trsvr.torch.minimize` with nothing to choose.

Run it: ``python examples/torch_physics.py [--fast] [--out FOLDER]``
"""

from __future__ import annotations

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

import trsvr
import trsvr.torch
from torch_race import Curve, Method, Task, first_order, grid, lbfgs, main, options, variance_reduced

PI = math.pi


class Solution(nn.Module):
    """u(x); as a module, calling it gives the residuals −u″ − f."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1)).double()

    def u(self, x: torch.Tensor) -> torch.Tensor:
        """The solution itself."""
        return (1.0 - x * x) * self.net(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Residuals at the points."""
        x = x.detach().requires_grad_(True)
        (slope,) = torch.autograd.grad(self.u(x).sum(), x, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
        force = PI**2 * torch.sin(PI * x) + 4.0 * PI**2 * torch.sin(4.0 * PI * x)
        return -curvature - force.detach()


def equation(model: nn.Module, batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    residuals = model(batch[0])
    return residuals.square().mean(), residuals


@torch.no_grad()
def relative_error(model: nn.Module) -> float:
    """Of u itself, in the L2 norm, at a thousand points."""
    x = torch.linspace(-1.0, 1.0, 1000, dtype=torch.double).unsqueeze(1)
    exact = torch.sin(PI * x) + torch.sin(4.0 * PI * x) / 4.0
    return float((model.u(x) - exact).norm() / exact.norm())


def engine(task: Task, model: nn.Module, _: float, curve: Curve) -> None:
    """The adaptive mode of the engine; it has nothing to choose."""
    points = task.tensors[0]
    watcher = copy.deepcopy(model)

    def record(so_far: trsvr.Result) -> None:
        nn.utils.vector_to_parameters(torch.from_numpy(so_far.x.copy()), watcher.parameters())
        if not curve.record(task, watcher, so_far.passes):
            raise StopIteration

    trsvr.torch.minimize(
        model,
        F.mse_loss,
        (points, torch.zeros_like(points)),
        hessian="gauss-newton",
        max_epochs=None,
        max_passes=task.budget,
        tol=None,
        callback=record,
    )


if __name__ == "__main__":
    chosen = options(__doc__ or "")
    points = torch.linspace(-1.0, 1.0, 256, dtype=torch.double).unsqueeze(1)
    task = Task(
        name="torch_physics",
        title="Physics-informed net, −u″ = f",
        build=Solution,
        loss_on_batch=equation,
        tensors=(points,),
        batch_size=64,
        budget=300.0,
        metric=relative_error,
        metric_name="error of u",
        metric_scale="log",
    )
    methods = [
        Method("SGD, momentum 0.9", grid(1e-7, 1e-3, 5), first_order(lambda p, r: torch.optim.SGD(p, r, 0.9))),
        Method("Adam", grid(3e-4, 3e-2, 5), first_order(lambda p, r: torch.optim.Adam(p, r))),
        Method("L-BFGS", [5.0, 10.0, 20.0, 50.0, 100.0], lbfgs),
        Method("TRSVR, Gauss–Newton", grid(1e-4, 1e-2, 5), variance_reduced("gauss-newton", max_cg=100)),
        Method("minimize, Gauss–Newton", [0.0], engine),
    ]
    main(task, methods, chosen)
