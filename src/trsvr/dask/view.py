"""What the adaptive mode knows of the curvature, with the rows on the workers: `trsvr.problems.curvature`, in rounds.

At most two rounds per outer iteration. With a dense norm:

1. *At the trial point*: value, gradient, the blocks' shares of the sampled curvature matrix, and the rows of the next
   iteration's first inner step. None of these depends on what is not known yet; only if the trial point is refused, or
   more rows are wanted for the matrix, was its share sent in vain.
2. *When the inner loop goes on*: the rows of all further steps, as many as fit into this process. If the matrix has
   to be made again, it is made in this round.

The workers keep no margins: a task computes them again from x, which costs no more memory traffic than reading them
back, and nothing is lost with a worker. A batch whose rows would travel longer than a round takes stays on the
workers: then the second round is one inner step, made where the rows lie, and the only one.

With a diagonal norm, or several outputs:

1. *At the trial point*: value, gradient, the Hessian's diagonal, and a slice of rows that stay here (`HeldRows`).
2. *For the step*: products of the Hessian with a few directions at once; see `trsvr.dask.subspace`.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from trsvr._arrays import Indices, Matrix, Vector
from trsvr._draws import Draws
from trsvr.dask.blocks import Order, Own
from trsvr.dask.rows import Here
from trsvr.dask.subspace import CentredSample, HeldRows, SampledHessian, about_means, step_in_subspace
from trsvr.problems.centring import CentredView, Centring
from trsvr.problems.certificate import GapFacts, linear_facts, steady_by_bend
from trsvr.problems.curvature import MarginView, draw_runs
from trsvr.problems.losses import bend_of
from trsvr.problems.steps import StepRequest, StepTaken
from trsvr.problems.views import NOTHING_KNOWN, Coming, CurvatureView, Prices, Raising
from trsvr.solvers.base import within

if TYPE_CHECKING:
    from trsvr.dask.model import LinearModel, RunModel

# Inner steps beyond the first for which the second round brings rows: all that there can be.
_FURTHER_STEPS = 8
_KINDS = ("identity", "diagonal", "dense")


class Pool:
    """The rows of some inner steps of one outer iteration, and those that stay, shared by the two views of a run."""

    def __init__(self, model: LinearModel) -> None:
        self._model = model
        self.held = HeldRows(model)
        self.epoch: Draws | None = None
        self.batch_size = 0  # rows of the first inner step, which have been sent for; 0: none
        self.second_round = False  # whether this iteration's second round has been spent
        self._parts: list[tuple[list[Indices], int, Here]] = []
        self._views: dict[int, tuple[Vector, MarginView]] = {}

    def begin(self, epoch: Draws | None) -> None:
        """Forget the rows of the iteration before."""
        self.epoch, self.second_round, self.batch_size = epoch, False, 0
        self._parts, self._views = [], {}

    def plan_first(self, batch_size: int, draws: Draws) -> Here | None:
        """The rows of the iteration's first inner step."""
        self.batch_size = batch_size
        return self.plan(batch_size, draws, range(1))

    def plan(self, batch_size: int, draws: Draws, numbers: range, scattered: bool = False) -> Here | None:
        """The rows of these steps, to be sent for; None where not even one batch is worth its way."""
        runs: list[Indices] = []
        for number in numbers:
            begins, length = draw_runs(self._model.n_rows, batch_size, draws.stream("batch", number), scattered)
            if self.find(begins, length) is not None:
                continue
            if (len(runs) + 1) * begins.size * length > self._model.rows_worth:
                break
            runs.append(begins)
        if not runs:
            return None
        here = Here(self._model, _rows_of_runs(np.concatenate(runs), length, self._model.n_rows), counted=False)
        self._parts.append((runs, length, here))
        return here

    def find(self, begins: Indices, length: int) -> tuple[int, Here] | None:
        """The rows of a batch, if they have been sent for."""
        for place, (runs, run_length, here) in enumerate(self._parts):
            if run_length == length and any(np.array_equal(begins, known) for known in runs):
                return place, here
        return None

    def view(self, place: int, x: Vector) -> MarginView:
        """Margins at x of the rows that are here."""
        known = self._views.get(place)
        if known is None or not np.array_equal(known[0], x):
            view = MarginView(self._parts[place][2].problem())
            view.evaluate(x)
            known = self._views[place] = (x.copy(), view)
        return known[1]


class DaskView(CurvatureView):
    """What can be known of the curvature at one point."""

    raising = Raising.WHOLE

    def __init__(self, model: RunModel) -> None:
        self.problem = model
        self.n_rows, self.d, self.n_outputs = model.n_rows, model.n_parameters, model.n_outputs
        self._local = model._like.curvature_view()  # for the penalty, which needs no rows
        self._pool = model.pool
        self._x: Vector = np.full(self.d, np.nan)
        self._value = (np.nan, self._x)
        self._raised = False
        self._known: dict[Any, Any] = {}  # what the rounds at this x have brought
        self._expected = Coming()
        #: of the columns, where the coordinates are centred at them: a matrix of all rows is then made so
        self.means: Vector | None = None
        d, several = self.d // self.n_outputs, self.n_outputs > 1
        known = Prices.of_rows(model.n_samples, d, self.n_outputs, model.n_samples * d)
        # Every answer is a round of messages, which lasts about as long as a pass. Rows of batches come with one that
        # is made anyway; matrices of several outputs would be too much to send.
        self._prices = known._replace(
            matrix_row=math.inf if several else known.matrix_row,
            direction=math.inf,
            batch_row=math.inf if several else 0.0,
            wait=1.0,
        )

    def prices(self) -> Prices:
        """What rounds cost."""
        return self._prices

    def warm_up(self, dense: bool) -> None:
        """Compile (or load) what will be needed here."""
        self._local.warm_up(dense)

    # --------------------------------------------------------------------------------------------------- the rounds

    def evaluate(self, x: Vector, coming: Coming = NOTHING_KNOWN) -> tuple[float, Vector]:
        """The value f and ∇f at x; the view is then of x, and what the coming iteration will ask for has come along."""
        same = np.array_equal(x, self._x)
        if coming.draws is not None or not same:
            self._expected = coming
        if same:
            self._raised = False
            return self._value[0], self._value[1].copy()
        self._look(x, None if coming.norm == "dense" else self._pool.held.next_slice(coming.draws))
        return self._value[0], self._value[1].copy()

    def _look(self, x: Vector, here: Here | None) -> None:
        """The first round at x, before the epoch that comes."""
        self._x, self._known = x.copy(), {}
        kind, rows, batch_size, self._raised, draws = self._expected
        self._pool.begin(draws)
        if kind == "dense" and draws is not None and batch_size:
            here = self._pool.plan_first(batch_size, draws)
        sums = self._round(kind, rows, draws, here, gradient=True)
        self._raised = False
        self._value = self.problem.finish(x, sums)

    def _rows_of_all_steps(self, draws: Draws | None) -> Here | None:
        """What a round that makes the matrix again should bring along, because it is the iteration's second one."""
        batch_size = self._expected.batch_size
        return self._pool.plan(batch_size, draws, range(1 + _FURTHER_STEPS)) if draws and batch_size else None

    def _round(
        self, kind: str, rows: int, draws: Draws | None, here: Here | None = None, gradient: bool = False
    ) -> Any:
        """One round at this view's point: a sample for the matrix, or the diagonal, and rows."""
        order = Order(self.problem.formulas, self._x, gradient=gradient, raised=self._raised)
        own = None
        if kind == "dense" and draws is not None:
            share = 1.0 if rows >= self.n_rows else rows / self.n_rows
            order = order._replace(sample=share, means=self.means)
            own = [Own(draws=(draws, block)) for block in range(self.problem.n_blocks)]
        elif kind != "dense":
            order = order._replace(diagonal=True)
        sums = self.problem.send(order, own, here).sums()
        if "weight" in sums:
            before, after = sums["weight"]
            self._known["weight", False] = (before, before)
            if order.raised or order.diagonal:
                self._known["weight", True] = (before, after)
        for name, raised in (("diagonal", False), ("raised diagonal", True)):
            if name in sums:
                self._known["diagonal", raised] = sums[name] / self.problem.n_samples
        for name in ("matrix", "centred matrix"):
            if name in sums:
                half = np.zeros((self.d, self.d))
                half[np.triu_indices(self.d)] = sums[name] / self.problem.n_samples
                matrix = half + np.triu(half, 1).T
                self._known["matrix", self._raised] = (rows, draws, matrix, int(sums["taken"][0]), name != "matrix")
        return sums

    def snapshot(self) -> dict[str, Any]:
        """What the view knows, for a checkpoint: its point and what was asked for there; the rest follows."""
        kind, rows, batch_size, raised, draws = self._expected
        asked = {"kind": _KINDS.index(kind), "rows": rows, "batch_size": batch_size, "raised": raised}
        pool = {"batch_size": self._pool.batch_size}
        return {
            "x": self._x,
            "raised": self._raised,
            "asked": asked | (draws._asdict() if draws else {}),
            "pool": pool | (self._pool.epoch._asdict() if self._pool.epoch else {}),
            "held": self._pool.held.snapshot(),
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over such a snapshot; the sums come in a round, the same one as before."""
        x, asked, pool = snapshot["x"], within("asked", snapshot), within("pool", snapshot)
        if x.shape != (self.d,):
            raise ValueError(f"x must have {self.d} numbers, got shape {x.shape}")
        kind = _KINDS[int(asked["kind"])]
        self._expected = Coming(
            kind, int(asked["rows"]), int(asked["batch_size"]), bool(asked["raised"]), _epoch_of(asked)
        )
        self._pool.held.restore(within("held", snapshot))
        if np.isfinite(x).all():
            self._look(x, None)
        if self._pool.epoch != _epoch_of(pool):  # the last trial point was refused: it had its rows sent for
            self._pool.begin(_epoch_of(pool))
            if pool["batch_size"] and self._pool.epoch is not None:
                self._pool.plan_first(int(pool["batch_size"]), self._pool.epoch)
        self._raised = bool(snapshot["raised"])

    # ------------------------------------------------------------------------------------------------- the curvatures

    def total_weight(self) -> float:
        """Sum of the curvatures."""
        return self._weights()[1]

    def raise_curvatures(self, steep: float, flat: float) -> float:
        """Raise the curvatures to what a bound on the losses would have; returns their sum before over after."""
        self._raised = True
        before, after = self._weights()
        return before / after if after > 0.0 else 1.0

    def _weights(self) -> tuple[float, float]:
        key = ("weight", self._raised)
        if key not in self._known:
            # What is asked for next will be the matrix, or the diagonal: it comes along.
            kind, rows, *_ = self._expected
            coming = self.problem.coming
            self._pool.second_round = True
            self._round(kind, rows, coming, self._rows_of_all_steps(coming) if kind == "dense" else None)
            if key not in self._known:
                self._round("diagonal", 0, None)
        before, after = self._known[key]
        return float(before), float(after)

    def penalty_slopes(self, x: Vector) -> Vector:
        """∇r(x)."""
        return self._local.penalty_slopes(x)

    def penalty_curvatures(self, x: Vector) -> Vector:
        """Diagonal of ∇²r(x)."""
        return self._local.penalty_curvatures(x)

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Mean Hessian of the losses from about so many rows, half of them drawn for their curvature; and how many.

        Every block takes its share of the rows, by the same rule as if it were all there is.
        """
        return self.blocks_found(rows, draws)[:2]

    def blocks_found(self, rows: int, draws: Draws) -> tuple[Matrix, int, bool]:
        """The same, and whether it is about the columns' means."""
        key = ("matrix", self._raised)
        kept = known = self._known.get(key)
        if known is None or known[:2] != (rows, draws):
            of_this_epoch = self.problem.coming == draws
            here = None
            if of_this_epoch:
                self._pool.second_round = True
                here = self._rows_of_all_steps(draws)
            self._round("dense", rows, draws, here)
            known = self._known[key]
            if not of_this_epoch and kept is not None:  # a look aside: what the coming epoch will ask for stays
                self._known[key] = kept
        return known[2][None].copy(), known[3], known[4]

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses, all rows, times v, or times each row of a matrix: one round."""
        order = Order(self.problem.formulas, self._x, product=v, raised=self._raised)
        return np.asarray(self.problem.send(order).sums()["product"] / self.problem.n_samples)

    def step(self, request: StepRequest) -> StepTaken:
        """Conjugate gradients would wait for every product: the best step within a few directions, in one round."""
        diagonal = self.diagonal()  # which may look at the sample in another way
        return step_in_subspace(request, self.sampled(), diagonal, self.product)

    def gap_facts(self, x: Vector, value: float) -> GapFacts | None:
        """What bounds f − min f; the curvature between several intercepts would take a round."""
        if (self.n_outputs > 1 and self.problem.intercept) or bend_of(self.problem.loss) == math.inf:
            return None
        total = np.array([[self._weights()[0] / self.problem.n_samples]]) if self.n_outputs == 1 else np.zeros((0, 0))
        return linear_facts(self.problem, x, value, total, lambda t: steady_by_bend(self.problem.loss, t))

    def sampled(self) -> SampledHessian:
        """Curvatures at the view's point of rows that have come here to stay."""
        return self._pool.held.at(self._x, self._raised)

    def diagonal(self) -> Vector:
        """Diagonal of the mean Hessian of the losses.

        Where the curvatures are raised only after the round at this point, by how much is what the sample says.
        """
        key, plain = ("diagonal", self._raised), self._known.get(("diagonal", False))
        if key not in self._known and plain is not None:
            raised = self._pool.held.at(self._x, True).diagonal()
            self._known[key] = plain + np.maximum(raised - self._pool.held.at(self._x, False).diagonal(), 0.0)
        if key not in self._known:
            self._round("diagonal", 0, None)
        return np.asarray(self._known[key]).copy()

    # -------------------------------------------------------------------------------------------------- inner steps

    def changes(
        self, x: Vector, batch_size: int, scattered: bool, draws: Draws, number: int
    ) -> tuple[Vector, Vector, int] | None:
        """Mean change of the losses' gradients between this view's point and x, on two independent halves of a batch.

        None where that would take a third round.
        """
        begins, length = draw_runs(self.n_rows, batch_size, draws.stream("batch", number), scattered)
        found = self._pool.find(begins, length)
        if found is None:
            if self._pool.second_round:
                return None
            self._pool.second_round = True
            here = self._pool.plan(batch_size, draws, range(number, number + _FURTHER_STEPS), scattered)
            if here is None:
                return self._changes_there(x, begins, length)
            here.problem()
            found = self._pool.find(begins, length)
            assert found is not None
        place, here = found
        view = self._pool.view(place, self._x)
        share = self.n_rows / self.problem.n_samples
        # A run that wraps around is not a run here: its rows lie at both ends.
        wraps = begins + length > self.n_rows
        if wraps.any():
            halves = (_rows_of_runs(half, length, self.n_rows) for half in np.split(begins, 2))
            # `changes_on` halves what it is given: a half of single rows, twice, is its own first half.
            means = [view.changes_on(x, np.tile(here.numbers(half), 2), 1)[0] for half in halves]
        else:
            means = list(view.changes_on(x, here.numbers(begins), length))
        return share * means[0], share * means[1], begins.size * length

    def _changes_there(self, x: Vector, begins: Indices, length: int) -> tuple[Vector, Vector, int]:
        """The same, summed where the rows lie."""
        halves = [self._runs_there(half, length) for half in np.split(begins, 2)]
        own = [Own(halves=pair, moved=x) for pair in zip(*halves, strict=True)]
        sums = self.problem.send(Order(self.problem.formulas, self._x), own).sums()
        share = self.n_rows / self.problem.n_samples / (begins.size // 2 * length)
        return share * sums["first"], share * sums["second"], begins.size * length

    def _runs_there(self, begins: Indices, length: int) -> list[tuple[Indices, Indices]]:
        """Runs as (begins, ends) within each block; those that wrap around or cross a border become two."""
        starts = np.sort(np.concatenate([begins, begins - self.n_rows]))
        borders = self.problem.row_begins
        runs = []
        for low, high in itertools.pairwise(borders.tolist()):
            near = starts[np.searchsorted(starts, low - length, "right") : np.searchsorted(starts, high)]
            runs.append((np.maximum(near, low) - low, np.minimum(near + length, high) - low))
        return runs


class CentredDaskView(CentredView):
    """Such a view in centred coordinates."""

    view: DaskView

    def __init__(self, view: DaskView, frame: Centring) -> None:
        super().__init__(view, frame)
        view.means = frame.means

    def blocks(self, rows: int, draws: Draws) -> tuple[Matrix, int]:
        """Mean Hessian of the losses from about so many rows; and how many."""
        matrices, taken, is_inside = self.view.blocks_found(rows, draws)
        return matrices if is_inside else self.frame.matrix_inside(matrices), taken

    def diagonal(self) -> Vector:
        """Diagonal of the mean Hessian of the losses; of columns far from zero what the rows say that are here."""
        D = self.view.diagonal().reshape(-1, self.frame.outputs)
        moments, far = about_means(D, self.frame.means)
        sampled = self._sampled() if far.any() else None
        if sampled is not None and sampled.n_rows:
            moments = np.where(far, sampled.diagonal().reshape(D.shape)[:-1], moments)
        D[:-1] = moments
        return D.ravel()

    def _sampled(self) -> CentredSample:
        return CentredSample(self.view.sampled(), self.frame)

    def product(self, v: Vector) -> Vector:
        """Mean Hessian of the losses times v, or times each row of a matrix: one round."""
        if v.ndim == 1:
            return super().product(v)
        products = self.view.product(np.array([self.frame.outside(row) for row in v]))
        return np.array([self.frame.gradient_inside(row) for row in products])

    def step(self, request: StepRequest) -> StepTaken:
        """The best step within a few directions."""
        diagonal = self.diagonal()  # which may look at the sample in another way
        return step_in_subspace(request, self._sampled(), diagonal, self.product)


def _rows_of_runs(begins: Indices, length: int, n_rows: int) -> Indices:
    rows = (begins[:, None] + np.arange(length)) % n_rows
    return np.asarray(rows.ravel(), dtype=np.int64)


def _epoch_of(snapshot: dict[str, Any]) -> Draws | None:
    return Draws(int(snapshot["seed"]), int(snapshot["epoch"])) if "seed" in snapshot else None
