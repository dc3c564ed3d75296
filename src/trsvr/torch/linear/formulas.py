"""The losses of `trsvr.problems` as functions of tensors of margins.

Margins Z are n × K in float64; with one output K = 1. Labels are as the compiled kernels keep them: ±1, 0 … K−1, or
numbers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from trsvr.problems.families import FAMILIES, Binomial, Gamma, NegativeBinomial, Poisson, Tweedie
from trsvr.problems.losses import Logistic, PseudoHuber, Softmax, Squared, SquaredHinge

#: numbers by which the fused kernels know a loss
CODES: dict[type, int] = {Logistic: 0, SquaredHinge: 1, Squared: 2, PseudoHuber: 3}
KNOWN = (*CODES, Softmax, *FAMILIES)


def check_loss(loss: Any) -> None:
    """Refuse a loss whose formulas exist for single numbers only."""
    if type(loss) not in KNOWN:
        names = ", ".join(kind.__name__ for kind in KNOWN)
        raise ValueError(
            f"loss must be one of {names} on tensors, got {loss!r}; trsvr.problems.LinearModel takes your own"
        )


def values_and_slopes(loss: Any, Z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Losses (n) and their derivatives in the margins (n × K)."""
    if isinstance(loss, Softmax):
        chosen = y.long()[:, None]
        logs = torch.logsumexp(Z, 1)
        slopes = torch.exp(Z - logs[:, None])
        values = logs - Z.gather(1, chosen)[:, 0]
        return values, slopes.scatter_add(1, chosen, -torch.ones_like(Z[:, :1]))
    z = Z[:, 0]
    if isinstance(loss, FAMILIES):
        values, slopes, _ = _family(loss, z, y.double())
        return values, slopes[:, None]
    if isinstance(loss, Logistic):
        m = z * y
        small = torch.exp(-m.abs())
        values = (-m).clamp(min=0.0) + torch.log1p(small)
        slopes = -y * torch.where(m > 0.0, small, 1.0) / (1.0 + small)
    elif isinstance(loss, SquaredHinge):
        gap = (1.0 - z * y).clamp(min=0.0)
        values, slopes = gap * gap, -2.0 * y * gap
    elif isinstance(loss, Squared):
        residual = z - y
        values, slopes = 0.5 * residual * residual, residual
    else:
        residual = z - y
        root = torch.sqrt(1.0 + (residual / loss.delta) ** 2)
        values, slopes = residual * residual / (1.0 + root), residual / root
    return values, slopes[:, None]


def _family(loss: Any, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Half unit deviances, slopes and curvatures, as `trsvr.problems.families` has them.

    Where a mean is near its y, values are differences of large terms: these keep fewer digits than the compiled ones.
    """
    kept = torch.xlogy(y, y)
    if isinstance(loss, Poisson):
        mean = torch.exp(z)
        return mean - y - y * z + kept, mean - y, mean
    if isinstance(loss, Gamma):
        ratio = y * torch.exp(-z)
        return ratio - 1.0 + z - torch.log(y), 1.0 - ratio, ratio
    if isinstance(loss, Tweedie):
        if loss.power in (1.0, 2.0):
            return _family(Poisson() if loss.power == 1.0 else Gamma(), z, y)
        c, e = 2.0 - loss.power, 1.0 - loss.power
        rising, falling = torch.exp(c * z), torch.where(y > 0.0, y * torch.exp(e * z), 0.0)
        return y**c / (c * e) - falling / e + rising / c, rising - falling, c * rising - e * falling
    if isinstance(loss, Binomial):
        share = torch.sigmoid(z)
        values = torch.nn.functional.softplus(z, threshold=700.0) - y * z + kept + torch.xlogy(1.0 - y, 1.0 - y)
        return values, share - y, share * torch.sigmoid(-z)
    assert isinstance(loss, NegativeBinomial)
    r, a = 1.0 / loss.dispersion, z + math.log(loss.dispersion)
    small = torch.exp(-a.abs())
    above = a.clamp(min=0.0) + torch.log1p(small)
    values = kept - y * z + (y + r) * (above - torch.log1p(loss.dispersion * y))
    slopes = torch.where(a > 0.0, r * (1.0 - loss.dispersion * y * small), r * small - y) / (1.0 + small)
    return values, slopes, (y + r) * small / (1.0 + small) ** 2


def slopes_of(loss: Any, Z: Tensor, y: Tensor) -> Tensor:
    """Derivatives in the margins alone."""
    return values_and_slopes(loss, Z, y)[1]


def curvatures(loss: Any, Z: Tensor, y: Tensor) -> Tensor:
    """Second derivatives, n × K; for `Softmax` the diagonal π (1 − π)."""
    if isinstance(loss, Softmax):
        return _spread(torch.softmax(Z, 1))
    z = Z[:, 0]
    if isinstance(loss, FAMILIES):
        return _family(loss, z, y.double())[2][:, None]
    if isinstance(loss, Logistic):
        small = torch.exp(-z.abs())
        found = small / (1.0 + small) ** 2
    elif isinstance(loss, SquaredHinge):
        found = torch.where(z * y < 1.0, 2.0, 0.0).to(z.dtype)
    elif isinstance(loss, Squared):
        found = torch.ones_like(z)
    else:
        square = 1.0 + ((z - y) / loss.delta) ** 2
        found = 1.0 / (square * torch.sqrt(square))
    return found[:, None]


def raised_curvatures(loss: Any, Z: Tensor, y: Tensor) -> Tensor:
    """The same, at least |slope| / max(|z|, 1): see `trsvr.problems.margins.raised_curvature`."""
    if isinstance(loss, Softmax):
        return _spread(raised_chances(Z, y))
    found = curvatures(loss, Z, y)
    return torch.maximum(found, slopes_of(loss, Z, y).abs() / Z.abs().clamp(min=1.0))


def curvature_times(loss: Any, Z: Tensor, y: Tensor, T: Tensor, raised: bool = False) -> Tensor:
    """Second derivative of each row's loss, times the row of T: n × K."""
    if isinstance(loss, Softmax):
        shares = raised_chances(Z, y) if raised else torch.softmax(Z, 1)
        return shares * (T - (shares * T).sum(1, keepdim=True))
    return (raised_curvatures if raised else curvatures)(loss, Z, y) * T


def _spread(chances: Tensor) -> Tensor:
    return chances * (1.0 - chances)


def raised_chances(Z: Tensor, y: Tensor) -> Tensor:
    """Probabilities nearer to the label's, for rows on the wrong side: `trsvr.problems.output_curvature` says why."""
    chances, place = torch.softmax(Z, 1), y.long()[:, None]
    right = chances.gather(1, place)
    odds = torch.log1p(-right.clamp(max=0.5)) - torch.log(right.clamp(min=torch.finfo(torch.float64).eps))
    wanted = ((1.0 - right) / odds.clamp(min=1.0)).clamp(max=0.25)
    share = 0.5 - torch.sqrt(0.25 - wanted)
    mixed = torch.where(share > right, (share - right) / (1.0 - right).clamp(min=0.5), 0.0)
    return (chances * (1.0 - mixed)).scatter_add(1, place, mixed)
