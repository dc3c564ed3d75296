"""What every method does on a plateau: an autoencoder with a narrow waist, truly nonconvex, on digits.

Run it: ``python examples/torch_autoencoder.py [--fast] [--out FOLDER]``
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from torch_mlp import contenders, digits
from torch_race import Task, main, options


def build() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 4), nn.Tanh(), nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 64)
    )


def rebuild(model: nn.Module, batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    outputs = model(batch[0])
    return F.mse_loss(outputs, batch[0]), outputs


if __name__ == "__main__":
    chosen = options(__doc__ or "")
    X, _, X_test, _ = digits()

    @torch.no_grad()
    def test_error(model: nn.Module) -> float:
        return float(F.mse_loss(model(X_test), X_test))

    task = Task(
        name="torch_autoencoder",
        title="Autoencoder 64-32-4-32-64 on digits",
        build=build,
        loss_on_batch=rebuild,
        tensors=(X,),
        batch_size=64,
        budget=40.0,
        metric=test_error,
        metric_name="test error",
        metric_scale="log",
    )
    # The squared error per pixel is small, and so are its slopes: all grids lie ten times higher.
    methods = contenders(6)
    for method in methods:
        if method.name != "Adam":
            method.candidates = [10.0 * candidate for candidate in method.candidates]
    main(task, methods, chosen)
