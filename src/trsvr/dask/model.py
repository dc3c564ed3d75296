"""Linear models over blocks of rows that lie on the workers of a Dask cluster."""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import dask
import numpy as np
from distributed import Client, default_client

from trsvr import _check
from trsvr._arrays import Indices, Vector
from trsvr._draws import Draws
from trsvr.dask.blocks import (
    Facts,
    Formulas,
    Order,
    Rowset,
    Sums,
    hash_block,
    look,
    make_block,
    make_raw,
    on_block,
    warm_up,
)
from trsvr.dask.inputs import as_blocks
from trsvr.dask.rounds import Rounds
from trsvr.dask.rows import EpochStream, Here
from trsvr.dask.view import CentredDaskView, DaskView, Pool
from trsvr.parts.norm_choice import NormRules, kind_of_norm
from trsvr.problems import fingerprint
from trsvr.problems.base import Problem
from trsvr.problems.centring import CentredProblem, centring_by_product
from trsvr.problems.linear import LinearModel as LocalModel
from trsvr.problems.linear import classes_in, names_of, one_for_each_row, rows_of_offset
from trsvr.problems.losses import Logistic, Softmax, labels_of
from trsvr.problems.matrix import take_rows
from trsvr.problems.regularizers import L2, add_penalty, add_penalty_product, fitted
from trsvr.problems.rows import DenseRows, SparseRows
from trsvr.problems.views import CurvatureView

_log = logging.getLogger("trsvr")
_ROWS_BYTES = 256 * 2**20
# Numbers of rows travel with the tasks; Dask warns of graphs beyond ten million bytes.
_MOST_ROWS = 2**20
_PERSIST_PART = 0.5
# Rows of this size, and of so much more for every block, travel about as long as a round takes (docs/dask.md); a
# larger batch, or one of a quarter of all rows, is summed where it lies.
_WORTH_BYTES, _WORTH_BYTES_PER_BLOCK = 6 * 2**20, 3 * 2**18
_WORTH_PART = 4


class LinearModel(Problem):
    """f(x) = (1/N) Σ loss(x_iᵀw + intercept, y_i) + r(w), with the rows on the workers of a Dask cluster.

    The full value and gradient are summed where the blocks lie. The rows of an epoch's inner loop come here, together
    with the full gradient: one round of communication per epoch.

    Parameters
    ----------
    X : dask array, dask data frame, or a list of blocks
        Rows are samples. Blocks are dense arrays or CSR matrices, of any number of rows; in a list they may be delayed
        objects or futures. Columns are not split: an array whose chunks split them is rechunked.
    y : dask array, NumPy array, or a list of blocks, optional
        Labels, as for `trsvr.problems.LinearModel`. Without it the blocks of the list X are pairs of rows and labels,
        as the readers of this package return them.
    loss, regularizer, intercept
        As for `trsvr.problems.LinearModel`.
    sample_weight, offset : like y, optional
    client : distributed.Client, optional
        Default: the current one.
    persist : bool or "auto"
        Whether the blocks stay in the workers' memory (where that is short, Dask spills them to its own files), or are
        read again in every round. "auto" keeps them if they need at most half of the workers' memory.
    rows_at_once : int, optional
        Rows that may be in this process at a time; default: 256 MiB of them. Without a matrix the adaptive mode brings
        all rows where they are few; a number below theirs keeps it from that.
    patience : float
        Seconds without any worker after which the data counts as lost.

    Attributes
    ----------
    n_samples, n_parameters, n_features, n_outputs, classes
        As for `trsvr.problems.LinearModel`.
    n_blocks : int
    persisted : bool
        Whether the blocks stay in the workers' memory.
    """

    is_elsewhere = compiles = defined_at_zero = certifies = has_view = True

    def __init__(
        self,
        X: Any,
        y: Any = None,
        loss: Any = None,
        regularizer: Any = None,
        intercept: bool = False,
        sample_weight: Any = None,
        offset: Any = None,
        *,
        client: Client | None = None,
        persist: bool | str = "auto",
        rows_at_once: int | None = None,
        patience: float = 300.0,
    ) -> None:
        loss = Logistic() if loss is None else loss
        regularizer = L2() if regularizer is None else regularizer
        LocalModel._check_formulas(loss, regularizer)
        if not isinstance(persist, bool) and persist != "auto":
            raise ValueError(f"persist must be True, False or 'auto', got {persist!r}")
        _check.positive("patience", patience)
        if rows_at_once is not None:
            _check.whole("rows_at_once", rows_at_once)
        self.client = _client(client)
        #: names of X's columns, where it has them
        self.feature_names = names_of(X)
        parts, size = as_blocks(X, y, sample_weight, offset)
        name = uuid.uuid4().hex[:8]
        call = dask.delayed(make_raw, pure=False)
        raw = [call(*part, dask_key_name=f"trsvr-raw-{name}-{i}") for i, part in enumerate(parts)]
        room = _PERSIST_PART * _cluster_memory(self.client)
        known_to_fit = persist is True or (persist == "auto" and size is not None and size <= room)
        rounds = Rounds(self.client, self.client.compute(raw) if known_to_fit else raw, patience)
        facts: list[Facts] = rounds.map(look, loss, bool(intercept))
        given = sample_weight is not None, offset is not None
        self._understand(facts, loss, regularizer, bool(intercept), *given)
        self.persisted = known_to_fit or (persist == "auto" and sum(one.size for one in facts) <= room)
        if not self.persisted and persist == "auto":
            _log.info("the blocks are read again in every round: they need more than half of the workers' memory")
        build = dask.delayed(make_block, pure=False)
        signs = labels_of(loss) == "two classes"
        blocks = [
            build(one, self.classes, signs, self._weight_scale, dask_key_name=f"trsvr-block-{name}-{i}")
            for i, one in enumerate(rounds.blocks)
            if facts[i].counted
        ]
        self.rounds = Rounds(self.client, self.client.compute(blocks) if self.persisted else blocks, patience)
        if self.persisted:
            self.rounds.wait_for(self.rounds.blocks)
        row_bytes = max(1, sum(one.size for one in facts) // max(1, self.n_rows))
        self.rows_at_once = rows_at_once or int(np.clip(_ROWS_BYTES // row_bytes, 1, _MOST_ROWS))
        #: rows of inner steps that the adaptive mode may bring here in one round
        worth = (_WORTH_BYTES + _WORTH_BYTES_PER_BLOCK * len(blocks)) // row_bytes
        self.rows_worth = min(self.rows_at_once, worth, self.n_rows // _WORTH_PART)
        #: whether all rows may come here, and would travel no longer than a round takes
        self.has_few_rows = self.n_samples <= min(self.rows_at_once, worth)

    # ---------------------------------------------------------------------------------------------- at the door

    def _understand(
        self, facts: list[Facts], loss: Any, regularizer: Any, intercept: bool, weighted: bool, shifted: bool
    ) -> None:
        """Numbers of rows, classes and weights from what a first look at the blocks has found."""
        begins = np.concatenate([[0], np.cumsum([one.rows for one in facts])]).astype(np.int64)
        for block, (begin, one) in enumerate(zip(begins, facts, strict=False)):
            if one.bad is not None:
                raise ValueError(_complaint(block, int(begin), one))
        filled = [one for one in facts if one.rows]
        columns = {one.columns for one in filled}
        if not filled or columns == {0}:
            raise ValueError(f"X must have at least one row and one column, got {len(facts)} empty blocks")
        for name, seen in (("columns", columns), ("kinds", {one.kind for one in filled})):
            if len(seen) > 1:
                raise ValueError(
                    f"the blocks of X must agree, got different {name}: {', '.join(map(str, sorted(seen)))}"
                )
        kind = labels_of(loss)
        labels = [one.labels for one in filled]
        self.classes = None if kind == "numbers" else classes_in(np.concatenate(labels), kind)[0]
        self.n_features = columns.pop()
        self.n_outputs = len(self.classes) if isinstance(loss, Softmax) and self.classes is not None else 1
        if shifted and {one.shifts for one in filled} != {self.n_outputs}:
            found = max(one.shifts for one in filled)
            raise ValueError(f"offset must have {self.n_outputs} numbers for each row of X, got {found}")
        regularizer = fitted(regularizer, self.n_features, self.n_outputs)
        self.loss, self.regularizer, self.intercept = loss, regularizer, intercept
        self.n_parameters = (self.n_features + intercept) * self.n_outputs
        #: where each block's rows begin: all of them, and those of positive weight; blocks without any are left out
        used = [one for one in filled if one.counted]
        self.row_begins = np.concatenate([[0], np.cumsum([one.rows for one in used])]).astype(np.int64)
        self.begins = np.concatenate([[0], np.cumsum([one.counted for one in used])]).astype(np.int64)
        self.n_rows, self.n_samples = int(self.row_begins[-1]), int(self.begins[-1])
        if self.n_samples == 0:
            raise ValueError("sample_weight must have at least one positive entry, got only zeros")
        #: sum of the weights as they were given
        self.total_weight = sum(one.weight for one in facts)
        self._weight_scale = self.n_samples / self.total_weight if weighted else 1.0
        self.formulas = Formulas(loss, regularizer, intercept, self.classes, self.n_features)
        #: max and mean over the rows of weight_i (‖x_i‖² + 1 if there is an intercept)
        self.largest_squared_row = self._weight_scale * max(one.largest for one in facts)
        self.mean_squared_row = self._weight_scale * sum(one.summed for one in facts) / self.n_samples
        self._kind = filled[0].kind
        entries = sum(one.entries for one in facts) // max(1, self.n_rows)
        shift = self.n_outputs if shifted else 0
        self._prototype = _prototype(self._kind, self.n_features, entries, self.classes, loss, weighted, shift)
        self._like = LocalModel.of_rows(*self._prototype, self.formulas)
        #: kernels of the right kind over one row of the usual length: what compiled code is made for
        self.kernels = self._like.kernels

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.rounds.blocks)

    def with_formulas(self, loss: Any, regularizer: Any) -> LinearModel:
        """The same blocks, where they are, with another loss and regulariser; the labels stay as they are encoded."""
        LocalModel._check_formulas(loss, regularizer)
        twin = object.__new__(LinearModel)
        twin.__dict__.update(self.__dict__)
        twin.classes, twin.n_outputs = (self.classes, self.n_outputs) if type(loss) is type(self.loss) else (None, 1)
        regularizer = fitted(regularizer, self.n_features, twin.n_outputs)
        twin.loss, twin.regularizer = loss, regularizer
        twin.n_parameters = (self.n_features + self.intercept) * twin.n_outputs
        twin.formulas = Formulas(loss, regularizer, self.intercept, twin.classes, self.n_features)
        twin._like = LocalModel.of_rows(*self._prototype, twin.formulas)
        twin.kernels = twin._like.kernels
        return twin

    # ----------------------------------------------------------------------------------------------- full passes

    def warm_up(self, products: bool = False) -> None:
        """Compile (or load) what passes need, here and on the workers."""
        self._like.warm_up(products)
        # A worker that dies meanwhile is not waited for: it compiles when its first task comes.
        self.client.run(warm_up, self._prototype, self.formulas, products, on_error="ignore")

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """f(x) and ∇f(x): one round."""
        sent = self.send(Order(self.formulas, self._point("x", x), gradient=True))
        return self.finish(x, sent.sums())

    def send(self, order: Order, own: Any = None, here: Here | None = None) -> Any:
        """Start a round, which may bring rows."""
        wanted = None if here is None else here.wanted
        sent = self.rounds.start(order, own, wanted, counted=here is None or here.counted)
        if here is not None:
            here.comes_with(sent)
        return sent

    def finish(self, x: Vector, sums: Sums) -> tuple[float, Vector]:
        """F and ∇f from the sums of the losses."""
        gradient = sums["gradient"] / self.n_samples
        value = float(sums["value"][0]) / self.n_samples
        penalty = add_penalty(self.regularizer, self._point("x", x), self.n_features * self.n_outputs, gradient)
        return value + penalty, gradient

    def hessian_product(self, x: Vector, indices: Indices | None, v: Vector) -> Vector:
        """Mean of ∇²f_i(x) v over the indices; over all rows, in one round, for ``indices=None``."""
        x, v = self._point("x", x), self._point("v", v)
        if indices is not None:
            return self.gather(indices).hessian_product(x, None, v)
        out = self.send(Order(self.formulas, x, product=v)).sums()["product"] / self.n_samples
        add_penalty_product(self.regularizer, x, self.n_features * self.n_outputs, v, out)
        return out

    def on_rows(self, function: Callable[..., Any], *arguments: Any, per_row: Any = None) -> list[Any]:
        """``function(part, *arguments)`` on every block, where it lies; ``per_row`` is cut as the rows are."""
        own = None
        if per_row is not None:
            own = np.split(one_for_each_row(per_row, self.n_rows), self.row_begins[1:-1])
        return self.rounds.map(on_block, function, self.formulas, *arguments, own=own)

    def for_run(self) -> Problem:
        """The same blocks, with room for what one run has on its way."""
        return RunModel.of(self)

    def curvature_view(self) -> CurvatureView:
        """What the adaptive mode looks at."""
        return self.for_run().curvature_view()

    def centred(self) -> Problem:
        """The model as the adaptive mode works on it: centred where it has an intercept; the means cost a round.

        Without a matrix the Hessian is known here as far as its rows are here. Few rows all come, in one round, and are
        a model in memory.
        """
        if self.has_few_rows and not self._has_matrix():
            return self.gather(np.arange(self.n_samples)).as_whole().centred()
        if not self.intercept:
            return self
        return CentredProblem(self, centring_by_product(self), CentredDaskView)

    def _has_matrix(self) -> bool:
        """Whether the adaptive mode would send for matrices of the curvature."""
        columns, prices = self.n_parameters // self.n_outputs, self.curvature_view().prices()
        return kind_of_norm("auto", prices, self.n_samples, columns, NormRules()) == "dense"

    # ------------------------------------------------------------------------------------------------------ rows

    def batch_gradient(self, x: Vector, indices: Indices) -> Vector:
        """Mean of ∇f_i(x) over the indices, regulariser included."""
        return self.gather(indices).value_and_gradient(self._point("x", x))[1]

    def gather(self, indices: Indices) -> LocalModel:
        """The same problem restricted to those rows, in this process's memory."""
        chosen = _check.row_indices(indices, self.n_samples)
        here = Here(self, chosen)
        local = here.problem()
        if np.array_equal(here.distinct, chosen):
            return local
        order = here.numbers(chosen)
        kernels = local.kernels
        weights = kernels.weights[order] if kernels.weights.size else kernels.weights
        offset = rows_of_offset(kernels.offset, order, self.n_outputs)
        rows = take_rows(kernels.rows, order)
        return LocalModel.of_rows(rows, kernels.labels[order], weights, offset, self.formulas)

    def fetch(self, indices: Indices, batch_size: int) -> Iterator[tuple[LocalModel, Indices]]:
        """Problems in this process's memory with these rows, in whole batches, and the rows' numbers in them."""
        at_once = max(1, self.rows_at_once // batch_size) * batch_size
        for begin in range(0, indices.size, at_once):
            part = indices[begin : begin + at_once]
            here = Here(self, part)
            yield here.problem(), here.numbers(part)

    def rows_of(self, indices: Any) -> Indices:
        """Indices 0 … N−1, checked."""
        return _check.row_indices(indices, self.n_samples)

    def split(self, distinct: Indices, counted: bool) -> list[Indices]:
        """Sorted numbers of rows as numbers within each block."""
        begins = self.begins if counted else self.row_begins
        cuts = np.searchsorted(distinct, begins)
        parts = [distinct[cuts[i] : cuts[i + 1]] - begins[i] for i in range(begins.size - 1)]
        # They travel with the tasks, so they should be short.
        return [part.astype(np.int32) if begins[i + 1] - begins[i] < 2**31 else part for i, part in enumerate(parts)]

    # --------------------------------------------------------------------------------------------- conveniences

    def scores(self, x: Vector) -> dict[str, float]:
        """Accuracy, or root mean square error and R², on all rows: one round."""
        rows, hits, total, squares = self.send(Order(self.formulas, self._point("x", x), scores=True)).sums()["scores"]
        if self.classes is not None:
            return {"accuracy": hits / rows}
        spread = squares / rows - (total / rows) ** 2
        return {"rmse": (hits / rows) ** 0.5, "r2": 1.0 - hits / rows / spread if spread > 0 else float("nan")}

    def fingerprint(self) -> str:
        """Hash of all rows, labels and weights, made where they lie, and of the formulas; it depends on the blocks."""
        digest = hashlib.sha256()
        classes = None if self.classes is None else self.classes.tolist()
        formulas = [fingerprint.formulas(self.loss), fingerprint.formulas(self.regularizer)]
        digest.update(repr((formulas, self.intercept, classes)).encode())
        for one in self.rounds.map(hash_block):
            digest.update(one.encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        extra = ", intercept" if self.intercept else ""
        where = "in the workers' memory" if self.persisted else "read in every round"
        return (
            f"LinearModel({self.n_samples} rows × {self.n_features} columns, {self._kind}, {self.n_blocks} blocks "
            f"{where}, {self.loss!r}, {self.regularizer!r}{extra})"
        )


class RunModel(LinearModel):
    """The model as one run sees it: the rows of coming epochs that are on their way, and those that have come."""

    coming: Draws | None  # of the epoch that comes
    pool: Pool  # rows for the adaptive mode, shared by the two views of the run
    _stream: EpochStream | None

    @classmethod
    def of(cls, model: LinearModel) -> RunModel:
        """Over the blocks of a model."""
        run = object.__new__(cls)
        run.__dict__.update(model.__dict__)
        run.coming = run._stream = None
        run.pool = Pool(run)
        return run

    def for_run(self) -> Problem:
        """Itself."""
        return self

    def curvature_view(self) -> CurvatureView:
        """What the adaptive mode looks at."""
        return DaskView(self)

    def expect(self, draws: Draws, batches: tuple[int, int] | None) -> None:
        """Learn which rows the coming epoch will ask for: they come with the next full gradient."""
        self.coming = draws
        if batches is None:
            self._stream = None
        elif self._stream is None or self._stream.begun or self._stream.key != (draws.seed, draws.epoch, *batches):
            self._stream = EpochStream(self, draws.seed, draws.epoch, *batches, rows_at_once=self.rows_at_once)

    def send(self, order: Order, own: Any = None, here: Here | None = None) -> Any:
        """Start a round; it also brings the rows of the coming epoch, if they are known and not on their way."""
        stream = self._stream
        if here is None and stream is not None and stream.ahead is not None and not stream.sent:
            here = stream.ahead[1]
            stream.sent = True
        return super().send(order, own, here)

    def fetch(self, indices: Indices, batch_size: int) -> Iterator[tuple[LocalModel, Indices]]:
        """Those that have been announced, then those that nobody has."""
        done = 0
        if self._stream is not None:
            for local, numbers in self._stream.take(indices):
                yield local, numbers
                done += numbers.size
        yield from super().fetch(indices[done:], batch_size)


def _client(client: Client | None) -> Client:
    if client is not None:
        return client
    try:
        return default_client()
    except ValueError:
        raise ValueError(
            "client must be given, or exist: distributed.Client() starts workers on this machine, "
            "distributed.Client(address) reaches a cluster"
        ) from None


def _cluster_memory(client: Client) -> float:
    """Bytes that all workers together may use."""
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"]
    except TypeError:  # before 2024.12 it has no such argument, and shows all
        workers = client.scheduler_info()["workers"]
    return float(sum(worker["memory_limit"] or np.inf for worker in workers.values()))


def _complaint(block: int, begin: int, facts: Facts) -> str:
    assert facts.bad is not None
    what, place, column, value = facts.bad
    if what in ("y", "sample_weight", "offset"):
        return f"{what} must have one entry for each of the {place} rows of block {block} of X, got shape {column}"
    where = f"row {begin + place} (row {place} of block {block})"
    if what == "X":
        return f"X must be finite, got {value} at {where}, column {column}"
    wanted = {"label": "y must be finite", "shift": "offset must be finite", "domain": f"y must be {column}"}
    return f"{wanted.get(what, 'sample_weight must be finite and >= 0')}, got {value} at {where}"


def _prototype(kind: str, columns: int, entries: int, classes: Any, loss: Any, weighted: bool, shift: int) -> Rowset:
    """One row of zeros, as long as the rows are on average."""
    dtype = np.dtype(kind.split()[1])
    if kind.startswith("dense"):
        rows: Any = DenseRows(np.zeros((1, columns), dtype))
    else:
        length = min(max(entries, 1), columns)
        rows = SparseRows(
            np.zeros(length, dtype), np.arange(length, dtype=np.uint32), np.array([0, length], dtype=np.int64), columns
        )
    label = -1.0 if labels_of(loss) == "two classes" else 0.0
    return Rowset(rows, np.array([label]), np.ones(1 if weighted else 0), np.zeros(shift))
