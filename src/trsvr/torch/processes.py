"""Data-parallel processes: sums over all of them, so that every process takes the same step."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Processes:
    """A group of processes that hold the same parameters and different batches.

    DistributedDataParallel averages gradients inside ``backward()``, which we never call: gradients come from
    ``torch.autograd.grad``, at two points, and Hessian products beside them. So the sums are made here.

    Parameters
    ----------
    group : "auto", None or a process group
        "auto" is all processes where torch.distributed runs with more than one, None this process alone.
    """

    def __init__(self, group: Any) -> None:
        running = dist.is_available() and dist.is_initialized()
        if isinstance(group, str):
            if group != "auto":
                raise ValueError(f"process_group must be 'auto', None or a process group, got {group!r}")
            group = dist.group.WORLD if running else None
        elif group is not None and not running:
            raise ValueError("process_group was given, and torch.distributed is not initialised")
        self.group = group
        self.count = dist.get_world_size(group) if group is not None else 1

    def sum(self, vector: Tensor, *numbers: float | Tensor) -> tuple[Tensor, list[float]]:
        """Sum of a vector, and of numbers beside it, over all processes."""
        beside = [torch.as_tensor(number, dtype=torch.float64, device=vector.device) for number in numbers]
        if self.count == 1:
            return vector, torch.stack(beside).tolist() if beside else []
        dist.all_reduce(vector, group=self.group)
        if not beside:
            return vector, []
        stacked = torch.stack(beside)
        dist.all_reduce(stacked, group=self.group)
        return vector, stacked.tolist()

    def refuse_different(self, x: Tensor) -> None:
        """Raise ValueError if the processes do not hold the same parameters."""
        if self.count == 1:
            return
        marks = torch.stack([x.double().sum(), x.double().norm()])
        both = torch.cat([marks, -marks])
        dist.all_reduce(both, op=dist.ReduceOp.MAX, group=self.group)
        highest, lowest = both[:2], -both[2:]
        if not torch.equal(highest, lowest):
            raise ValueError(
                "params differ between the processes, and every process takes the same steps: wrap the model in "
                "DistributedDataParallel or broadcast its parameters first; process_group=None is for independent runs"
            )
