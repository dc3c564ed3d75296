"""Linear models on tensors, for CPUs and GPUs: rows, sums, Triton kernels, and the problem made of them."""

from trsvr.torch.linear.model import LinearModel, checked_device

__all__ = ["LinearModel", "checked_device"]
