"""Where SGD and Adam win: a multilayer perceptron on scikit-learn's digits, TRSVR at equal gradient evaluations.

Run it: ``python examples/torch_mlp.py [--fast] [--out FOLDER]``
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from torch_race import Method, Task, first_order, grid, main, options, variance_reduced


def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """1437 images to learn from and 360 to test on, always the same."""
    images, labels = load_digits(return_X_y=True)
    X, y = torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    return X[train], y[train], X[test], y[test]


def classify(model: nn.Module, batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    return F.cross_entropy(outputs := model(batch[0]), batch[1]), outputs


def accuracy(X: torch.Tensor, y: torch.Tensor):  # type: ignore[no-untyped-def]
    @torch.no_grad()
    def measure(model: nn.Module) -> float:
        return float((model(X).argmax(1) == y).float().mean())

    return measure


def contenders(count: int = 8) -> list[Method]:
    """Each with as many candidates for its step length."""
    return [
        Method("SGD, momentum 0.9", grid(3e-3, 3.0, count), first_order(lambda p, r: torch.optim.SGD(p, r, 0.9))),
        Method("Adam", grid(1e-4, 1e-1, count), first_order(lambda p, r: torch.optim.Adam(p, r))),
        Method("TRSVR", grid(1e-2, 1e1, count), variance_reduced("exact")),
        Method("TRSVR, coefficient 1 → 0", grid(1e-2, 1e1, count), variance_reduced("exact", falling=True)),
        Method("TRSVR, Gauss–Newton", grid(1e-2, 1e1, count), variance_reduced("gauss-newton")),
    ]


if __name__ == "__main__":
    chosen, (X, y, X_test, y_test) = options(__doc__), digits()
    task = Task(
        name="torch_mlp",
        title="MLP 64-64-10 on digits",
        build=lambda: nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)),
        loss_on_batch=classify,
        tensors=(X, y),
        batch_size=64,
        budget=60.0,
        metric=accuracy(X_test, y_test),
        metric_name="test accuracy",
    )
    main(task, contenders(), chosen)
