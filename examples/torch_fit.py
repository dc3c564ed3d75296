"""A least-squares fit where digits matter: a damped oscillation in 200 noisy measurements, five unknowns, float64.

y(t) = A exp(−λt) sin(ωt + φ) + c. The unknowns are of uneven scale and the answer is wanted to many digits. The
reference is SciPy's least squares; drawn is the gap of the loss to it, and the largest relative error of the unknowns.

Run it: ``python examples/torch_fit.py [--fast] [--out FOLDER]``
"""

import numpy as np
import scipy.optimize
import torch
from torch import nn
from torch.nn import functional as F

from torch_race import Method, Task, first_order, grid, lbfgs, main, nothing_to_choose, options, variance_reduced

TRUE = (2.0, 0.4, 6.0, 0.5, 10.0)


class Oscillation(nn.Module):
    """The five unknowns, from a start that is a guess by eye."""

    def __init__(self):
        super().__init__()
        guess = torch.tensor([1.5, 0.2, 5.8, 0.8, 9.0], dtype=torch.double)
        self.unknowns = nn.Parameter(guess * (1.0 + 0.05 * torch.randn(5, dtype=torch.double)))

    def forward(self, t):
        return curve(self.unknowns, t, torch)


def curve(unknowns, t, library=np):
    amplitude, damping, frequency, phase, level = unknowns
    return amplitude * library.exp(-damping * t) * library.sin(frequency * t + phase) + level


def gap(model, batch):  # a constant changes neither slopes nor curvatures
    return F.mse_loss(outputs := model(batch[0]), batch[1]) - lowest, outputs


chosen, rng = options(__doc__), np.random.default_rng(0)
y = curve(TRUE, t := np.sort(rng.uniform(0.0, 5.0, 200))) + 0.05 * rng.normal(size=200)
tight = {"jac": "cs", "method": "dogbox", "xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
solved = scipy.optimize.least_squares(lambda unknowns: curve(unknowns, t) - y, TRUE, **tight)
lowest, data = 2.0 * solved.cost / len(t), (torch.from_numpy(t), torch.from_numpy(y))
task = Task(
    "torch_fit", "Damped oscillation, least squares: gap to the best fit", Oscillation, gap, data, batch_size=50,
    budget=400.0, metric=lambda model: float(np.abs(model.unknowns.detach().numpy() / solved.x - 1.0).max()),
    metric_name="error of the unknowns", metric_scale="log", floor=1e-18,
)  # fmt: skip
methods = [
    Method("SGD, momentum 0.9", grid(1e-4, 1e-1, 5), first_order(lambda p, r: torch.optim.SGD(p, r, 0.9))),
    Method("Adam", grid(1e-3, 1e-1, 5), first_order(lambda p, r: torch.optim.Adam(p, r))),
    Method("L-BFGS", [1.0, 3.0, 5.0, 10.0, 20.0], lbfgs),
    Method("TRSVR, exact", grid(1e-1, 1e3, 5), variance_reduced("exact")),
    Method("TRSVR, Gauss–Newton", grid(1e-1, 1e3, 5), variance_reduced("gauss-newton")),
    Method("minimize", [0.0], nothing_to_choose(data[1])),
]
main(task, methods, chosen), print(f"best fit: {', '.join(f'{value:.12g}' for value in solved.x)}")
