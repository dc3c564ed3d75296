"""The dual of an L2-penalised linear model, and ascent on it by one row after the other.

With weights s_i (mean one) and φ_i the loss of row i as a function of its margin, the problem and its dual are

    min over w    f(w) = (1/N) Σ s_i φ_i(x_iᵀw) + (λ/2)‖w‖²
    max over u    D(u) = −(1/N) Σ s_i φ_i*(u_i) − (λ/2)‖w(u)‖²,    w(u) = −(1/(λN)) Σ s_i u_i x_i,

and D(u) ≤ min f for every u. At the maximum u_i is the slope of φ_i, and w(u) the minimiser. An ascent keeps w = w(u):
the best change of u_i alone is a formula of the loss (its ``dual_step``) in the margin x_iᵀw, and moves w along x_i.

An *intercept* b is not penalised, and would bind u by Σ s_i u_i = 0. Instead each epoch has the term (ρ/2)(b − c)²
more, with c the intercept it began with: then b = c − r/ρ with r = (1/N) Σ s_i u_i, and

    D_c(u) = D(u) + c r − r²/(2ρ).

The minimiser of f is where c stands still (a proximal point method in b, or multipliers for the constraint), and where
ρ is small beside the curvature along b, c follows at once.

*Threads.* Rows come in buckets of consecutive ones, in random order. A round's buckets are dealt to a few pieces, each
with a copy of x; then their changes of x are added. Pieces see nothing of each other, and would correct an error that
they share several times over. How much they overlap shows in their sum, ‖Σ Δ_k‖² / Σ ‖Δ_k‖², between 0 and their
number; in the next round each takes the steps for λ divided by that, which is safe if it is as large (Ma et al. 2017,
CoCoA+, where it is called σ'). If it turns out to be larger, only a part of the round's changes is kept, the ratio of
the two: of a concave D that part gains at least as large a part of what the pieces have gained by themselves. Every
piece adds the changes of the last round up for itself, so that no thread waits for another's sum. Pieces and rounds
follow from the data alone: the bits are those of one thread.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trsvr import _threads
from trsvr._arrays import Indices, Matrix, Vector
from trsvr._compile import compiled_for, kernel, record
from trsvr._draws import Draws
from trsvr._intrinsics import fetch_add, read_shared
from trsvr._vectors import copy_into, dot
from trsvr.problems.frames import Frame
from trsvr.problems.losses import has_dual
from trsvr.problems.margins import MarginKernels
from trsvr.problems.regularizers import is_uniform
from trsvr.problems.views import FLOPS_OF_A_CALL

if TYPE_CHECKING:
    from trsvr.problems.base import Problem

#: Consecutive rows that are processed together: single ones anywhere in memory take twice as long.
BUCKET = 64
# Of few rows fewer, so that there are as many buckets to shuffle.
_BUCKETS = 64
# ρ over λ, and ρ at most. Where it is small, the intercept makes steps short; where it is large, c follows slowly.
_PROX_RATIO, _LARGEST_PROX = 30.0, 0.1
# Entries of X from which on there are two, four and eight pieces: more of them cost epochs.
_PIECES = (2**18, 2**24, 2**27)
# A piece's share of a round is worth so many entries at least, and so many times the length of x, which is copied.
_ENTRIES, _COPIES = 2**15, 4
# With fewer rounds the pieces see too little of each other: what they save in time, they need in epochs.
_FEWEST_ROUNDS, _MOST_ROUNDS = 2, 16
# Numbers of x whose changes are added up at once: they stay in a core's nearest cache. About so many say how much
# changes overlap.
_STRETCH, _SEEN = 512, 8192
# How many entries are worked off before Python may look at signals and at the clock: some hundredths of a second.
_ENTRIES_PER_CALL = 20_000_000
# How often a thread that waits for another's piece looks before it sleeps, about half a millisecond: pieces of a round
# take as long as one another, so the other one is soon done unless it has lost its core. And how long it sleeps then.
_LOOKS, _NAP_SECONDS = 3_000_000, 1e-4
_ABANDONED = 2**62
# Rows on which the length of the first dual point is tried.
_TRIED_ROWS = 1024
_SMALLEST_PART = 1e-9
# Newton's iterations on one dual variable, in multiplications.
_FLOPS_OF_A_FORMULA = 120.0


def why_no_dual(problem: Problem) -> str:
    """Why a problem has no dual that can be ascended row by row, and what to take instead; "" if it has one."""
    kernels = problem.kernels
    if not isinstance(kernels, MarginKernels) or problem.is_elsewhere:
        kind = f"{problem.n_outputs} outputs" if problem.n_outputs > 1 else type(problem).__name__
        return f"a linear model with one output and its rows in memory, got {kind}; TRSVR() takes any"
    if not problem.largest_squared_row:
        return "rows that have been looked at and are not all zero; TRSVR() takes any"
    if not has_dual(kernels.loss):
        return f"a loss with the formulas conjugate and dual_step, got {kernels.loss!r}; SAGA() and TRSVR() take any"
    if not is_uniform(kernels.regularizer) or not kernels.regularizer.strength > 0.0:
        wanted = "the regularizer L2 with one strength > 0 for all coefficients"
        return f"{wanted}, got {kernels.regularizer!r}; SAGA() and TRSVR() take any"
    return ""


def dual_price(problem: Any) -> float:
    """What an epoch costs, in products with the Hessian of all rows: entries, a formula a row, and copies of x."""
    entries, d = problem.n_entries, problem.n_parameters
    pieces, rounds = _shares(entries, d, math.ceil(problem.kernels.labels.size / BUCKET))
    product = 4.0 * entries + FLOPS_OF_A_CALL
    formulas, copies = _FLOPS_OF_A_FORMULA * problem.n_samples, 2.0 * pieces * rounds * d
    # In one piece an epoch has one thread, where a product may have two: how many there are must not decide anything.
    alone = 2.0 if pieces == 1 and problem.passes.are_shared else 1.0
    return alone * (4.0 * entries + formulas + copies + rounds * FLOPS_OF_A_CALL) / product


def _shares(entries: int, d: int, buckets: int) -> tuple[int, int]:
    """Pieces that work side by side, and rounds after which they are merged: functions of the data alone."""
    pieces = min(2 ** sum(entries >= least for least in _PIECES), buckets)
    while pieces > 1:
        rounds = min(entries // (pieces * max(_ENTRIES, _COPIES * d)), buckets // pieces)
        if rounds >= _FEWEST_ROUNDS:
            return pieces, min(rounds, _MOST_ROUNDS)
        pieces //= 2
    return 1, 1


@kernel(fastmath=True)
def _overlap(before: Vector, changed: Matrix, ease: float, columns: int, scratch: Vector) -> float:
    """How much the pieces' changes of x overlap: ‖Σ Δ_k‖² over Σ ‖Δ_k‖², from some of its numbers where d is large."""
    count = changed.shape[0]
    together, alone = 0.0, 0.0
    extra = 1.0 / ease - 1.0 if columns < before.size else 0.0  # the intercept counts for more, where there is one
    if extra > 0.0:
        changes = 0.0
        for k in range(count):
            change = changed[k, columns] - before[columns]
            changes += change
            alone += extra * change * change
        together += extra * changes * changes
    every = max(1, before.size // _SEEN)
    for start in range(0, before.size, every * _STRETCH):
        end = min(start + _STRETCH, before.size)
        old, sum_of = before[start:end], scratch[start:end]
        first = changed[0, start:end]
        for j in range(old.size):
            sum_of[j] = first[j] - old[j]
            alone += sum_of[j] * sum_of[j]
        for k in range(1, count):
            other = changed[k, start:end]
            for j in range(old.size):
                change = other[j] - old[j]
                sum_of[j] += change
                alone += change * change
        for j in range(old.size):
            together += sum_of[j] * sum_of[j]
    return min(max(together / alone, 1.0), float(count)) if alone > 0.0 else 1.0


@kernel(fastmath=True)
def _merge(before: Vector, changed: Matrix, share: float, out: Vector) -> None:
    """Add ``share`` times the changes of all pieces to ``before``, and copy it."""
    for start in range(0, before.size, _STRETCH):
        end = min(start + _STRETCH, before.size)
        old, sum_of = before[start:end], out[start:end]
        first = changed[0, start:end]
        for j in range(old.size):
            sum_of[j] = first[j] - old[j]
        for k in range(1, changed.shape[0]):
            other = changed[k, start:end]
            for j in range(old.size):
                sum_of[j] += other[j] - old[j]
        for j in range(old.size):
            old[j] += share * sum_of[j]
            sum_of[j] = old[j]


@record
class DualEpoch(NamedTuple):
    """One epoch: where it begins, which buckets its pieces take, and what they leave behind.

    Piece p of round r is number r·P + p, where P is how many a round has; its copy of x lies where the one before the
    last has left its own. ``per_slope`` is how far x moves along x_i for a unit of s_i u_i, 1/(λN); ``ease`` is λ/ρ.
    """

    start: Vector
    points: Matrix  # x before the round: each piece keeps it for itself, near its own core
    copies: Any  # x for each piece of a round, which works on it
    overlaps: Vector  # that a round and the one before reckon with
    slopes: Vector
    earlier: Vector  # slopes before their step
    norms: Vector
    buckets: Indices  # where they begin
    shares: Indices  # piece k has the buckets shares[k] … shares[k+1]−1
    bucket_size: int
    gains: Vector  # Σ s_i q_i (u₊ − u_i)² of each piece
    per_slope: float
    ease: float

    def merge_into(self, kernels: Any, around: int, place: int, out: Vector) -> float:
        """The point before a round, in ``out`` and where a piece keeps it; returns how much the last one's overlap."""
        before = self.points[place, : self.start.size]
        if around == 0:
            copy_into(self.start, before)
            copy_into(self.start, out)
            return self.overlaps[1]
        last = (around - 1) % 2
        overlap = _overlap(before, self.copies[last], self.ease, kernels.columns, out)
        _merge(before, self.copies[last], 1.0 / max(overlap, self.overlaps[last]), out)
        return overlap

    def take_back(self, overlap: float, around: int, place: int) -> None:
        """Where the last round's changes overlap more than was reckoned with, only a part of them has been made."""
        part = self.overlaps[(around - 1) % 2] / overlap
        if around > 0 and part < 1.0:
            piece = (around - 1) * self.copies.shape[1] + place
            self.gains[piece] *= part
            for k in range(self.shares[piece], self.shares[piece + 1]):
                begin = self.buckets[k]
                for i in range(begin, min(begin + self.bucket_size, self.slopes.size)):
                    self.slopes[i] = self.earlier[i] + part * (self.slopes[i] - self.earlier[i])

    def finish(self, kernels: Any, rounds: int, out: Vector) -> float:
        """The point after so many rounds, in ``out``; returns how much changes overlap."""
        overlap = self.merge_into(kernels, rounds, 0, out)
        for place in range(self.copies.shape[1]):
            self.take_back(overlap, rounds, place)
        return overlap

    def ascend(self, kernels: Any, piece: int) -> None:
        """One piece: a copy of x, and a step on each of its rows."""
        around, place = piece // self.copies.shape[1], piece % self.copies.shape[1]
        x = self.copies[around % 2, place]
        overlap = self.merge_into(kernels, around, place, x)
        self.take_back(overlap, around, place)
        if place == 0:
            self.overlaps[around % 2] = overlap
        gain = 0.0
        for k in range(self.shares[piece], self.shares[piece + 1]):
            begin = self.buckets[k]
            for i in range(begin, min(begin + self.bucket_size, self.slopes.size)):
                weight = kernels.scale(i)
                if weight > 0.0:
                    slope, per_slope = self.slopes[i], weight * overlap * self.per_slope
                    q = self.norms[i] * per_slope
                    chosen = kernels.loss.dual_step(slope, kernels.margin(i, x), kernels.labels[i], q)
                    self.earlier[i], self.slopes[i] = slope, chosen
                    change = chosen - slope
                    gain += weight * q * change * change
                    kernels.rows.add(i, -per_slope * change, x)
                    if kernels.intercept:
                        x[kernels.columns] -= self.ease * per_slope * change
        self.gains[piece] = gain / overlap


def _ascend(kernels: Any, epoch: Any, claimed: Indices, done: Indices, home: int, first: int, last: int) -> int:
    """Work off rounds first … last−1; several threads call at once, and each begins a round at its own place.

    So what a piece reads has mostly been left by the same core. Pieces that others are late with are taken as well. A
    round begins when all those before are done. Returns the number of one that was waited for in vain, else −1.
    """
    pieces = epoch.copies.shape[1]
    for around in range(first, last):
        for _ in range(_LOOKS):
            if read_shared(done) >= around * pieces:
                break
        if read_shared(done) < around * pieces:
            return around
        for k in range(pieces):
            piece = around * pieces + (home + k) % pieces
            if fetch_add(claimed[piece:]) == 0:
                epoch.ascend(kernels, piece)
                fetch_add(done)
    return -1


@record
class ConjugateSum(NamedTuple):
    """Conjugates of the losses at the slopes (in the total), and the slopes themselves (first in the vector)."""

    slopes: Vector

    def add_run(self, kernels: Any, k: int, begin: int, end: int, part: Vector) -> float:
        """Add one run."""
        total = 0.0
        for i in range(begin, end):
            weight = kernels.scale(i)
            if weight > 0.0:
                conjugate = kernels.loss.conjugate(self.slopes[i], kernels.labels[i])
                total += weight * (conjugate - self.slopes[i] * kernels.shift(i))
                part[0] += weight * self.slopes[i]
        return total


def _slopes_at(kernels: Any, margins: Vector, out: Vector) -> None:
    for i in range(margins.size):
        out[i] = kernels.loss.slope(margins[i], kernels.labels[i])


def _mean_conjugate(kernels: Any, slopes: Vector, part: float, every: int) -> float:
    """Mean of s_i φ_i*(``part`` · u_i) over every k-th row."""
    total = 0.0
    count = 0.0
    for i in range(0, slopes.size, every):
        weight = kernels.scale(i)
        if weight > 0.0:
            slope = part * slopes[i]
            total += weight * (kernels.loss.conjugate(slope, kernels.labels[i]) - slope * kernels.shift(i))
            count += 1.0
    return total / max(count, 1.0)


class DualAscent:
    """A dual point of a linear model and the ascent from it. The primal point x = (w(u), b) is the caller's.

    Parameters
    ----------
    problem : LinearModel
        One for which `why_no_dual` has nothing to say.
    bucket_size : int
        Consecutive rows that are processed together, at most.
    """

    def __init__(self, problem: Any, bucket_size: int = BUCKET) -> None:
        self.problem, self.kernels = problem, problem.kernels
        self.strength = float(problem.kernels.regularizer.strength)
        self.n, rows = problem.n_samples, problem.kernels.labels.size
        #: λ/ρ
        self.ease = max(1.0 / _PROX_RATIO, self.strength / _LARGEST_PROX)
        self.bucket_size = max(1, min(bucket_size, rows // _BUCKETS))
        self.buckets = math.ceil(rows / self.bucket_size)
        self.pieces, self.rounds = _shares(problem.n_entries, problem.n_parameters, self.buckets)
        #: ‖x_i‖² plus what the intercept adds
        self.norms = problem.squared_rows + (self.ease - 1.0 if problem.intercept else 0.0)
        self.slopes, self._earlier = np.zeros(rows), np.zeros(rows)
        self.per_slope = 1.0 / (self.strength * self.n)
        self.overlap = 1.0
        #: a lower bound on what the last epoch has added to the dual: Σ s_i q_i (u₊ − u_i)² / 2N
        self.gain = 0.0
        self.begun = False
        self.frame = Frame()  # the coordinates of the caller's point

    @cached_property
    def _room(self) -> tuple[Matrix, Any]:
        """For x before a round, and for the copies of its pieces and of the next one's.

        Behind each lies an unused cache line: threads share none.
        """
        d = self.problem.n_parameters
        return np.empty((self.pieces, d + 8)), np.empty((2, self.pieces, d + 8))

    def warm_up(self) -> None:
        """Compile (or load) what will be needed."""
        x, nothing = np.zeros(self.problem.n_parameters), np.zeros(0)
        epoch, none = self._epoch(x, np.zeros(0, dtype=np.int64)), np.zeros(1, dtype=np.int64)
        compiled_for(_ascend, self.kernels, epoch)(self.kernels, epoch, none, none, 0, 0, 0)
        compiled_for(DualEpoch.finish, self.kernels, epoch)(epoch, self.kernels, 0, x)
        self.problem.passes.warm_up(ConjugateSum(self.slopes), self.kernels)
        compiled_for(_slopes_at, self.kernels)(self.kernels, nothing, nothing)
        compiled_for(_mean_conjugate, self.kernels)(self.kernels, nothing, 1.0, 1)

    def begin(self, x: Vector) -> None:
        """A dual point from x, and w(u) in x. One pass."""
        margins = np.empty(self.slopes.size)
        gradient = self.problem.value_and_gradient(x, margins, np.empty_like(margins))[1]
        self.start(x, margins, gradient)

    def start(self, x: Vector, margins: Vector, gradient: Vector) -> None:
        """The same from what is known at x: the slopes u there, times what makes the dual largest.

        At the minimiser that is one, and x stays; elsewhere w(u) = x − ∇f/λ may be far away.
        """
        compiled_for(_slopes_at, self.kernels)(self.kernels, margins, self.slopes)
        at, gradient = self.frame.outside(x), self.frame.gradient_outside(gradient)
        columns, centre = self.kernels.columns, at[self.kernels.columns] if self.problem.intercept else 0.0
        at[:columns] -= gradient[:columns] / self.strength
        mean = gradient[columns] if self.problem.intercept else 0.0
        part = self._best_part(centre * mean, self.strength * dot(at[:columns], at[:columns]) + self._slack(mean))
        at[:columns] *= part
        self.slopes *= part
        x[:] = self.frame.inside(at)
        self.begun = True

    def _best_part(self, linear: float, quadratic: float) -> float:
        """The power of 1/2 whose multiple of the slopes has the largest dual value, about."""
        every = max(1, self.slopes.size // _TRIED_ROWS)
        conjugates = compiled_for(_mean_conjugate, self.kernels)

        def value(part: float) -> float:
            losses: float = conjugates(self.kernels, self.slopes, part, every)
            return -losses + part * linear - 0.5 * part * part * quadratic

        part, best = 1.0, value(1.0)
        while part > _SMALLEST_PART and (lower := value(0.5 * part)) > best:
            part, best = 0.5 * part, lower
        return part

    def _slack(self, mean: float) -> float:
        """r²/ρ."""
        return self.ease * mean * mean / self.strength

    def epoch(self, x: Vector, draws: Draws, number: int, time_is_up: Callable[[], bool]) -> int:
        """A step on every row; changes u and x. Returns how many rows there were time for."""
        at = self.frame.outside(x)
        if self.problem.intercept:
            at[self.kernels.columns] -= self.ease * self._mean_slope() / self.strength  # b = c − r/ρ
        order = draws.stream("dual", number).permutation(self.buckets) * self.bucket_size
        epoch = self._epoch(at, order)
        rounds = max(1, self.rounds * _ENTRIES_PER_CALL // max(self.problem.n_entries, 1))  # in a call
        for begun in range(0, self.rounds, rounds):
            made = min(begun + rounds, self.rounds)
            self._work_off(epoch, begun, made)
            if time_is_up():
                break
        self.overlap = compiled_for(DualEpoch.finish, self.kernels, epoch)(epoch, self.kernels, made, at)
        self.gain = 0.5 * float(epoch.gains[: made * self.pieces].sum()) / self.n
        if at is not x:
            x[:] = self.frame.inside(at)
        return min(int(epoch.shares[made * self.pieces]) * self.bucket_size, self.n)

    def _epoch(self, x: Vector, order: Indices) -> DualEpoch:
        shares = np.linspace(0, order.size, self.rounds * self.pieces + 1).astype(np.int64)
        room = x, *self._room, np.array([1.0, self.overlap]), self.slopes, self._earlier, self.norms
        return DualEpoch(*room, order, shares, self.bucket_size, np.zeros(shares.size), self.per_slope, self.ease)

    def _work_off(self, epoch: DualEpoch, first: int, last: int) -> None:
        """Let threads share the pieces of rounds first … last−1."""
        run = compiled_for(_ascend, self.kernels, epoch)
        claimed, done = np.zeros(last * self.pieces, dtype=np.int64), np.full(1, first * self.pieces)
        homes = itertools.count()

        def work() -> None:
            home, around = next(homes), first
            while (around := run(self.kernels, epoch, claimed, done, home, around, last)) >= 0:
                while done[0] < around * self.pieces:  # another thread's piece is due, and it has no core
                    if claimed[-1] >= _ABANDONED:
                        return
                    time.sleep(_NAP_SECONDS)

        _threads.run(work, work, self.pieces, lambda: claimed.fill(_ABANDONED))

    def _mean_slope(self) -> float:
        """Of all rows: r = (1/N) Σ s_i u_i."""
        weights = self.kernels.weights
        return float((weights * self.slopes if weights.size else self.slopes).sum()) / self.n

    def _conjugates(self) -> tuple[float, float]:
        """The means of s_i φ_i*(u_i) and of s_i u_i."""

        def use(totals: Vector, parts: Matrix) -> tuple[float, float]:
            return float(totals.sum()) / self.n, float(parts[: totals.size, 0].sum()) / self.n

        found: tuple[float, float] = self.problem.passes.sums(ConjugateSum(self.slopes), self.kernels, use)
        return found

    def gap(self, x: Vector, value: float) -> float:
        """How far f(x) = ``value`` is above its minimum at most, at the end of an epoch.

        Without an intercept that is f(w) − D(u). With one u is not quite feasible: b r makes good for it to first
        order, and (r²/2λ)·max‖x_i‖² bounds what is left when the u_i of one sign are scaled to sum to zero.
        """
        conjugates, mean = self._conjugates()
        columns, x = self.kernels.columns, self.frame.outside(x)
        bound = value + conjugates + 0.5 * self.strength * dot(x[:columns], x[:columns])
        if self.problem.intercept:
            longest = max(1.0, self.problem.largest_squared_row)
            bound += -x[columns] * mean + 0.5 * mean * mean * longest / self.strength
        return float(bound)

    def snapshot(self) -> dict[str, Any]:
        """What a later process needs to go on."""
        return {"slopes": self.slopes, "overlap": self.overlap, "begun": self.begun}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot."""
        kept = snapshot["slopes"]
        if kept.shape != self.slopes.shape or kept.dtype != self.slopes.dtype:
            raise ValueError(f"slopes must have {self.slopes.size} numbers, got shape {kept.shape}")
        self.slopes[:] = kept
        self.overlap, self.begun = float(snapshot["overlap"]), bool(snapshot["begun"])
