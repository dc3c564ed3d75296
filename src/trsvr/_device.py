"""Which linear models a device has: compiled ones on the CPU, tensors elsewhere."""

from __future__ import annotations

import functools
from typing import Any

from trsvr.problems.linear import LinearModel


def linear_model(device: Any = None) -> Any:
    """The class to build linear models of, checked before any data are read.

    Parameters
    ----------
    device : None, "cpu", "cuda" or "cuda:1", …
        None is the CPU. PyTorch is imported for other devices only.
    """
    if device is None or device == "cpu":
        return LinearModel
    if not isinstance(device, str):
        raise ValueError(f"device must be None, 'cpu' or 'cuda', got {device!r}")
    from trsvr.torch.linear import LinearModel as TensorModel
    from trsvr.torch.linear import checked_device

    return functools.partial(TensorModel, device=checked_device(device))
