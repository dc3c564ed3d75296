"""PyTorch front door: `TRSVR`, a ``torch.optim`` optimiser, and `minimize` for those who do not want to write the loop.

See docs/pytorch.md.
"""

try:
    import torch as _torch  # noqa: F401  # the real one: imports are absolute
except ImportError as error:
    raise ImportError("trsvr.torch needs PyTorch: pip install 'trsvr[torch]'") from error

from trsvr.torch.minimize import minimize
from trsvr.torch.optimizer import TRSVR, StepReport
from trsvr.torch.problem import ModelProblem

__all__ = ["TRSVR", "StepReport", "minimize", "ModelProblem"]
