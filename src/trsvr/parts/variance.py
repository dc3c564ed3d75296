"""The variance test that ends an inner loop, and the batch that grows with it.

E‖ḡ − g‖² ≤ (L²/b)‖x − x̃‖²: the further the loop walks from its reference, the noisier ḡ is. Half the difference between
the means of a batch's two halves has the same distribution as the batch's own error, so the noise is known without
a constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trsvr._arrays import Vector


def noise_and_signal(norm: Any, first: Vector, second: Vector, estimate: Vector) -> tuple[float, float]:
    """‖½(first − second)‖² and ‖estimate‖², both in P⁻¹."""
    with np.errstate(all="ignore"):  # where a loss overflows: it is too noisy then
        return norm.dual(0.5 * (first - second)), norm.dual(estimate)


def too_noisy(noise: float, signal: float, limit: float) -> bool:
    """Whether a step along the estimate would follow its error too much: ``limit`` is the part that noise may have."""
    return not noise <= limit * signal
