"""PyTorch front door: linear models on CPU or CUDA tensors, `LinearModel`.

See docs/gpu.md.
"""

try:
    import torch as _torch  # noqa: F401  # the real one: imports are absolute
except ImportError as error:
    raise ImportError("trsvr.torch needs PyTorch: pip install 'trsvr[torch]'") from error

from trsvr.torch.linear import LinearModel

__all__ = ["LinearModel"]
