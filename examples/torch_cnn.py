"""Where SGD and Adam win clearly: a small convolutional net on digits, TRSVR at equal gradient evaluations.

Run it: ``python examples/torch_cnn.py [--fast] [--out FOLDER]``
"""

from __future__ import annotations

from torch import nn

from torch_mlp import accuracy, classify, contenders, digits
from torch_race import Task, main, options


def build() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


if __name__ == "__main__":
    chosen = options(__doc__ or "")
    X, y, X_test, y_test = digits()
    task = Task(
        name="torch_cnn",
        title="CNN on digits",
        build=build,
        loss_on_batch=classify,
        tensors=(X, y),
        batch_size=64,
        budget=25.0,
        metric=accuracy(X_test, y_test),
        metric_name="test accuracy",
    )
    main(task, contenders(5), chosen)
