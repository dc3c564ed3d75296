"""What JᵀJ lacks of the Hessian at a point: S = Σ ℓ′(rᵢ)∇²rᵢ/N, from differences, with ℓ′ held fast."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from trsvr._arrays import ROOT_EPSILON, Matrix, Vector
from trsvr._blas import alone
from trsvr.solvers.levenberg_marquardt import rules
from trsvr.solvers.levenberg_marquardt.run import Run

_EPSILON = float(np.finfo(float).eps)
_FOURTH_ROOT = _EPSILON**0.25
# A difference below this part of the numbers that it is made of is rounding. One of residuals is to be so much larger,
# or as long as it may be.
_ROUNDING, _FELT, _LONGER = 8.0 * _EPSILON, 1e3, 10.0


def bending_at(run: Run) -> Bending:
    """S at the reference: differences of Jᵀℓ′, or of ℓ′ᵀr where J is itself made of differences."""
    return FromResiduals(run) if run.problem.jacobian_passes(False) > 1 else FromJacobians(run)


class _Bending:
    def __init__(self, run: Run) -> None:
        here = run.own.here
        assert here is not None
        self.run, self.problem, self.here = run, run.problem, here
        self.terms = self.problem.terms(here.residuals)
        self.slopes, self.count = self.terms.slopes, self.problem.n_samples  # of all losses, not of their mean
        # Of an unknown that is nearly zero its own size says nothing: how far it goes until residuals feel it does.
        columns = here.sums.columns
        self.felt = np.divide(math.sqrt(2.0 * here.value), columns, out=np.ones_like(columns), where=columns > 0.0)
        self.sizes = np.maximum(np.abs(here.x), rules.FELT * self.felt)

    def along(self, direction: Vector) -> Vector:
        """S times a direction."""
        raise NotImplementedError

    def beyond(self, direction: Vector) -> Vector:
        """What the whole Hessian times a direction has beside J̃ᵀJ̃."""
        bend = self.here.bend if self.here.rows is not None else self.raised
        return self.along(direction) + (bend @ direction if isinstance(bend, np.ndarray) else 0.0)

    @cached_property
    def raised(self) -> Matrix | float:
        """What `Point.bend` is where rows of J are kept, where they are not."""
        if self.here.rows is not None or not self.terms.raised.any():
            return 0.0
        weights, fine = self.terms.raised / self.problem.n_samples, self.run.own.fine
        self.run.own.passes += self.problem.jacobian_passes(fine)
        found = np.zeros((self.here.x.size, self.here.x.size))
        for place, rows in self.problem.jacobian_rows(self.here.x, self.here.residuals, fine):
            with alone(rows):
                found -= rows.T @ (weights[place, None] * rows)
        return found


class FromJacobians(_Bending):
    """Differences of J(x)ᵀℓ′."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._pull = self.here.sums.gradient - self.problem.l2 * (self.here.x - self.problem.towards)
        self._rounding = _ROUNDING * math.sqrt(2.0 * self.here.value) * self.here.sums.columns

    def along(self, direction: Vector) -> Vector:
        """S times a direction."""
        x = self.here.x + ROOT_EPSILON / float(np.abs(direction / self.sizes).max()) * direction
        most = int(np.abs(direction).argmax())
        length = float((x[most] - self.here.x[most]) / direction[most])
        self.run.own.passes += 1.0
        change = self.problem.pulled(x, self.here.residuals, self.slopes) / self.count - self._pull
        return np.where(np.abs(change) <= self._rounding, 0.0, change) / length

    def whole(self) -> Matrix | None:
        """S; None where it is not finite."""
        d, x = self.here.x.size, self.here.x
        second = np.empty((d, d))
        for j, unit in enumerate(np.eye(d)):
            second[j] = self.along(self.sizes[j] * unit) / self.sizes[j]
            own_size = abs(float(x[j]))
            if abs(second[j, j]) > rules.BENT * self.here.sums.columns[j] ** 2 and 0.0 < own_size < self.sizes[j]:
                far, self.sizes[j] = float(self.sizes[j]), own_size  # perhaps so far that J is another one there
                near = self.along(own_size * unit) / own_size
                if near[j] != 0.0:
                    second[j] = near
                else:  # so near that nothing is seen
                    self.sizes[j] = far
        second += self.raised
        return 0.5 * (second + second.T) if np.isfinite(second).all() else None


class FromResiduals(_Bending):
    """Second differences of the number ℓ′ᵀr(x), to whichever side its domain allows."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        x, self._value = self.here.x, float(self.slopes @ self.here.residuals) / self.count
        self._rounding = _ROUNDING * float(np.abs(self.slopes) @ np.abs(self.here.residuals)) / self.count
        self._moved, self._alone = np.zeros(x.size), np.empty(x.size)
        self._own = np.empty(x.size)  # the diagonal of S
        for j, size in enumerate(self.sizes):
            longest = max(size, min(float(self.felt[j]), float(np.abs(x).max()) or 1.0))
            while not self._look_along(j, _FOURTH_ROOT * size) and size < longest:
                size *= _LONGER  # until it is felt

    def _look_along(self, j: int, length: float) -> bool:
        """Move an unknown by a length or two; whether that was felt."""
        x = self.here.x
        for signed in (length, -length):
            ahead = x.copy()
            ahead[j] += signed
            self._moved[j] = ahead[j] - x[j]
            self._alone[j] = self._at(ahead)
            ahead[j] += self._moved[j]
            change = self._at(ahead) - 2.0 * self._alone[j] + self._value
            if math.isfinite(change):
                break
        self._own[j] = self._seen(change) / self._moved[j] ** 2
        return not abs(change) <= _FELT * self._rounding

    def _seen(self, change: float) -> float:
        return 0.0 if abs(change) <= self._rounding else change

    def _at(self, x: Vector) -> float:
        self.run.own.passes += 1.0
        with np.errstate(invalid="ignore"):
            return float(self.slopes @ self.problem.residuals_at(x)) / self.count

    def along(self, direction: Vector) -> Vector:
        """S times a direction."""
        length = 1.0 / float(np.abs(direction / self._moved).max())
        there = self.here.x + length * direction
        value, found = self._at(there), np.empty_like(direction)
        for j, by in enumerate(self._moved):
            x = there.copy()
            x[j] += by
            found[j] = self._seen(self._at(x) - value - self._alone[j] + self._value) / (length * by)
        return found

    def whole(self) -> Matrix | None:
        """S; None where it is not finite."""
        d, second = self.here.x.size, np.diag(self._own)
        for j in range(d):
            for k in range(j):
                x = self.here.x.copy()
                x[[j, k]] += self._moved[[j, k]]
                mixed = self._at(x) - self._alone[j] - self._alone[k] + self._value
                second[j, k] = second[k, j] = self._seen(mixed) / (self._moved[j] * self._moved[k])
        second = second + self.raised
        return second if np.isfinite(second).all() else None


Bending = FromJacobians | FromResiduals
