"""PyTorch front door: `TRSVR`, a ``torch.optim`` optimiser; `minimize` and `least_squares`, without a loop to write.

`LinearModel` is a problem on a CPU or a GPU for `trsvr.minimize`. See docs/pytorch.md and docs/gpu.md.
"""

try:
    import torch as _torch  # noqa: F401  # said in our words where it is missing
except ImportError as error:
    raise ImportError("trsvr.torch needs PyTorch: pip install 'trsvr[torch]'") from error

from trsvr.torch.least_squares import ModelResiduals, least_squares
from trsvr.torch.linear import LinearModel
from trsvr.torch.minimize import minimize
from trsvr.torch.optimizer import TRSVR, StepReport
from trsvr.torch.problem import ModelProblem

__all__ = ["TRSVR", "StepReport", "minimize", "least_squares", "ModelProblem", "ModelResiduals", "LinearModel"]
