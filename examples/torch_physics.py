"""A physics-informed net for a boundary-value problem, in float64: where first-order methods are slow.

−u″ = π² sin(πx) + 4π² sin(4πx) on [−1, 1], u(±1) = 0, whose solution is u = sin(πx) + sin(4πx)/4. The net is
u(x) = (1 − x²) n(x), which meets the boundary values by itself; the residuals of the equation at 256 points are squared
and averaged. The second derivative makes the problem ill-conditioned. The usual choice, PyTorch's L-BFGS on all points,
runs beside, and so does `trsvr.torch.minimize` with nothing to choose.

Run it: ``python examples/torch_physics.py [--fast] [--out FOLDER]``
"""

import torch
from torch import nn, pi

from torch_race import Method, Task, first_order, grid, lbfgs, main, nothing_to_choose, options, variance_reduced


class Solution(nn.Module):
    """u(x); as a module, calling it gives the residuals −u″ − f."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1)).double()

    def u(self, x):
        return (1.0 - x * x) * self.net(x)

    def forward(self, x):
        def slope(at):
            return torch.func.jvp(self.u, (at,), (torch.ones_like(x),))[1]

        curvature = torch.func.jvp(slope, (x,), (torch.ones_like(x),))[1]
        return -curvature - pi**2 * torch.sin(pi * x) - 4.0 * pi**2 * torch.sin(4.0 * pi * x)


def equation(model, batch):
    residuals = model(batch[0])
    return residuals.square().mean(), residuals


@torch.no_grad()
def relative_error(model):  # of u itself, in the L2 norm, at a thousand points
    x = torch.linspace(-1.0, 1.0, 1000, dtype=torch.double).unsqueeze(1)
    exact = torch.sin(pi * x) + torch.sin(4.0 * pi * x) / 4.0
    return float((model.u(x) - exact).norm() / exact.norm())


chosen, points = options(__doc__), torch.linspace(-1.0, 1.0, 256, dtype=torch.double).unsqueeze(1)
task = Task(
    "torch_physics", "Physics-informed net, −u″ = f", Solution, equation, (points,), batch_size=64, budget=300.0,
    metric=relative_error, metric_name="error of u", metric_scale="log",
)  # fmt: skip
methods = [
    Method("SGD, momentum 0.9", grid(1e-7, 1e-3, 5), first_order(lambda p, r: torch.optim.SGD(p, r, 0.9))),
    Method("Adam", grid(3e-4, 3e-2, 5), first_order(lambda p, r: torch.optim.Adam(p, r))),
    Method("L-BFGS", [5.0, 10.0, 20.0, 50.0, 100.0], lbfgs),
    Method("TRSVR, Gauss–Newton", grid(1e-4, 1e-2, 5), variance_reduced("gauss-newton", max_cg=100)),
    Method("minimize", [0.0], nothing_to_choose(torch.zeros_like(points))),
]
main(task, methods, chosen)
