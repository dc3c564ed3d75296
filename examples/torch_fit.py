"""A least-squares fit where digits matter: a damped oscillation in 200 noisy measurements, five unknowns, float64.

y(t) = A exp(−λt) sin(ωt + φ) + c. The unknowns are of uneven scale and the answer is wanted to many digits, as for any
table of constants. The reference is SciPy's Levenberg–Marquardt; drawn is the gap of the loss to it, and the largest
relative error of the unknowns. `trsvr.torch.minimize` runs beside, with nothing to choose.

Run it: ``python examples/torch_fit.py [--fast] [--out FOLDER]``
"""

from __future__ import annotations

import copy

import numpy as np
import scipy.optimize
import torch
from torch import nn
from torch.nn import functional as F

import trsvr
import trsvr.torch
from torch_race import Curve, Method, Task, first_order, grid, lbfgs, main, options, variance_reduced

TRUE = (2.0, 0.4, 6.0, 0.5, 10.0)
NAMES = ("amplitude", "damping", "frequency", "phase", "level")


class Oscillation(nn.Module):
    """The five unknowns, from a start that is a guess by eye."""

    def __init__(self) -> None:
        super().__init__()
        guess = torch.tensor([1.5, 0.2, 5.8, 0.8, 9.0], dtype=torch.double)
        self.unknowns = nn.Parameter(guess * (1.0 + 0.05 * torch.randn(5, dtype=torch.double)))

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        """The curve at times t."""
        amplitude, damping, frequency, phase, level = self.unknowns
        return amplitude * torch.exp(-damping * t) * torch.sin(frequency * t + phase) + level


def measurements() -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0.0, 5.0, 200))
    return torch.from_numpy(t), torch.from_numpy(curve(TRUE, t) + 0.05 * rng.normal(size=200))


def curve(unknowns: tuple[float, ...], t: np.ndarray) -> np.ndarray:
    amplitude, damping, frequency, phase, level = unknowns
    return amplitude * np.exp(-damping * t) * np.sin(frequency * t + phase) + level


def engine(task: Task, model: nn.Module, _: float, drawn: Curve) -> None:
    """The adaptive mode of the engine; it has nothing to choose."""
    watcher = copy.deepcopy(model)

    def record(so_far: trsvr.Result) -> None:
        nn.utils.vector_to_parameters(torch.from_numpy(so_far.x.copy()), watcher.parameters())
        if not drawn.record(task, watcher, so_far.passes):
            raise StopIteration

    trsvr.torch.minimize(
        model, F.mse_loss, task.tensors, hessian="gauss-newton", max_passes=task.budget, tol=None, callback=record
    )


if __name__ == "__main__":
    chosen = options(__doc__ or "")
    t, y = measurements()
    solved = scipy.optimize.least_squares(
        lambda unknowns: curve(unknowns, t.numpy()) - y.numpy(), TRUE, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15
    )
    lowest = 2.0 * solved.cost / len(t)

    def gap(model: nn.Module, batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = model(batch[0])
        return F.mse_loss(outputs, batch[1]) - lowest, outputs  # a constant changes neither slopes nor curvatures

    def error(model: nn.Module) -> float:
        found = next(model.parameters()).detach().numpy()
        return float(np.abs(found / solved.x - 1.0).max())

    task = Task(
        name="torch_fit",
        title="Damped oscillation, least squares: gap to the best fit",
        build=Oscillation,
        loss_on_batch=gap,
        tensors=(t, y),
        batch_size=50,
        budget=400.0,
        metric=error,
        metric_name="error of the unknowns",
        metric_scale="log",
        floor=1e-18,
    )
    methods = [
        Method("SGD, momentum 0.9", grid(1e-4, 1e-1, 5), first_order(lambda p, r: torch.optim.SGD(p, r, 0.9))),
        Method("Adam", grid(1e-3, 1e-1, 5), first_order(lambda p, r: torch.optim.Adam(p, r))),
        Method("L-BFGS", [1.0, 3.0, 5.0, 10.0, 20.0], lbfgs),
        Method("TRSVR, exact", grid(1e-1, 1e3, 5), variance_reduced("exact")),
        Method("TRSVR, Gauss–Newton", grid(1e-1, 1e3, 5), variance_reduced("gauss-newton")),
        Method("minimize, Gauss–Newton", [0.0], engine),
    ]
    main(task, methods, chosen)
    print("best fit: " + ", ".join(f"{name} {value:.12g}" for name, value in zip(NAMES, solved.x, strict=True)))
