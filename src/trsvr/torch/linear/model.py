"""Linear models on tensors: `trsvr.problems.LinearModel` for CPU and CUDA devices."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from trsvr import _check
from trsvr._arrays import Indices, Matrix, Vector
from trsvr.problems.base import LinearProblem, Problem
from trsvr.problems.centring import CentredProblem, Centring, centring_by_product
from trsvr.problems.columns import bulk_of, evenly
from trsvr.problems.families import FAMILIES
from trsvr.problems.linear import LinearModel as CompiledModel
from trsvr.problems.linear import _labels, _weights, check_domain, checked_offset, responses
from trsvr.problems.losses import Logistic, Softmax, labels_of
from trsvr.problems.matrix import as_rows
from trsvr.problems.regularizers import L2, fitted
from trsvr.problems.rows import DenseRows as HostRows
from trsvr.torch.linear import formulas, outputs, wide
from trsvr.torch.linear.penalty import Penalty
from trsvr.torch.linear.rows import DenseRows, Rows, SparseRows
from trsvr.torch.linear.sums import Sums
from trsvr.torch.linear.view import CentredTensorView, TensorView

_log = logging.getLogger("trsvr")
_FLOATS = (torch.float32, torch.float64)
# Deviations from zero beyond which the rows of a matrix are centred first: products have lost half of their digits, and
# where they are made in float32 more than a sample of rows costs.
_FAR, _FAR_IN_FLOAT32 = 1e3, 1e2


class LinearModel(LinearProblem):
    """f(x) = (1/N) Σ loss(x_iᵀw + intercept, y_i) + r(w), with X on a device.

    The parameters are those of `trsvr.problems.LinearModel`, and so are the values, to rounding; x and every result
    are NumPy vectors. ``trsvr.minimize(problem)`` needs no other word.

    Parameters
    ----------
    X : tensor, array, data frame, memory map or sparse matrix of shape (N, p)
        A contiguous float32 or float64 tensor on the device is used in place; all else is copied there.
    y : tensor or array of length N
        Labels or numbers, as the loss wants them.
    loss : Logistic, SquaredHinge, Squared, PseudoHuber, Softmax or a family (Poisson, Gamma, …)
    regularizer : L2, DoubleWell, a sum of them, or one of your own
        The intercept is not penalised.
    device : str or torch.device, optional
        Where the sums are made; by default where X lies: a tensor's own device, else the CPU.
    intercept : bool
        Whether x has an entry more (K more with `Softmax`).
    sample_weight : tensor or array of length N, optional
        Row i counts N w_i / Σw times; rows of weight zero are dropped.
    classes : array, optional
        All labels there are, in ascending order, where y may lack some of them; default: those in y.
    offset : tensor or array of length N, optional
        A number for each row that is added to its margin; with K outputs N × K numbers.
    fused : bool, optional
        Whether Triton kernels are used; by default on CUDA devices. They know no offset.
    streamed : bool or int
        Keep X in the host's memory and pass it through the device in blocks, so many rows at a time (True: as many as
        256 MiB hold). For data that the device cannot hold.
    memory : int, optional
        Bytes of the device that streamed rows may take: so much of them is copied once and stays there. By default
        half of what is free; nothing on a CPU.

    Attributes
    ----------
    n_samples, n_parameters : int
        N, and the length of x = (w, intercept). With K outputs w is the flattened p × K matrix.
    classes : array or None
        The labels as given.
    """

    defined_at_zero = True

    def __init__(
        self,
        X: Any,
        y: Any,
        loss: Any = None,
        regularizer: Any = None,
        device: Any = None,
        intercept: bool = False,
        sample_weight: Any = None,
        classes: Any = None,
        offset: Any = None,
        *,
        fused: bool | None = None,
        streamed: bool | int = False,
        memory: int | None = None,
    ) -> None:
        if memory is not None:
            _check.whole("memory", memory, at_least=0)
            if not streamed:
                raise ValueError("memory is a bound for streamed rows: it needs streamed=True")
        loss = Logistic() if loss is None else loss
        regularizer = L2() if regularizer is None else regularizer
        CompiledModel._check_formulas(loss, regularizer)
        formulas.check_loss(loss)
        place = X.device if device is None and isinstance(X, Tensor) else checked_device(device)
        rows = _rows_on(X, torch.device("cpu") if streamed else place)
        if rows.n_rows == 0 or rows.columns == 0:
            raise ValueError(f"X must have at least one row and one column, got shape {(rows.n_rows, rows.columns)}")
        bad = rows.first_bad()
        if bad is not None:
            raise ValueError(f"X must be finite, got {bad[2]} at row {bad[0]}, column {bad[1]}")
        y, sample_weight = responses(_on_host(y), loss, None if sample_weight is None else _on_host(sample_weight))
        labels, self.classes = _labels(y, rows.n_rows, labels_of(loss), classes)
        weights, chosen = _weights(sample_weight, rows.n_rows)
        check_domain(loss, labels, chosen)
        outputs = len(self.classes) if isinstance(loss, Softmax) and self.classes is not None else 1
        offsets = checked_offset(_on_host(offset), rows.n_rows, outputs).reshape(-1, outputs)
        if offset is not None and fused:
            raise ValueError("fused must be False with an offset, got True: the Triton kernels know none")
        if isinstance(loss, FAMILIES) and fused:
            raise ValueError(f"fused must be False with {type(loss).__name__}: the Triton kernels do not know it")
        fused = False if offset is not None or isinstance(loss, FAMILIES) else fused
        if chosen is not None:
            _log.info("rows of weight zero are dropped: X is copied")
            rows = rows.take(torch.as_tensor(chosen, device=rows.device))
            labels, weights, offsets = labels[chosen], weights[chosen], offsets[chosen] if offsets.size else offsets
        there = rows.device
        sums = Sums(
            rows,
            _compact(labels).to(there),
            torch.as_tensor(weights, device=there) if weights.size else None,
            loss,
            bool(intercept),
            outputs,
            torch.as_tensor(offsets, device=there) if offsets.size else None,
        )
        if streamed:
            from trsvr.torch.linear.streaming import StreamedSums

            sums = StreamedSums.of(sums, place, streamed, _wants_fused(fused, place), memory)
        elif _wants_fused(fused, place):
            from trsvr.torch.linear.fused import fuse

            sums = fuse(sums)
        self._build(sums, loss, regularizer, bool(intercept))

    def _build(self, sums: Any, loss: Any, regularizer: Any, intercept: bool) -> None:
        self.n_samples, self.n_features, self.n_outputs = sums.n_rows, sums.rows.columns, sums.outputs
        regularizer = fitted(regularizer, self.n_features, self.n_outputs)
        self.sums, self.loss, self.regularizer, self.intercept = sums, loss, regularizer, intercept
        self.device = sums.device
        self.n_parameters, self.n_entries = sums.n_parameters, sums.rows.n_entries
        self._mean_squared_row: float | None = None
        self.penalty = Penalty(regularizer, self.n_features * self.n_outputs)

    # ------------------------------------------------------------------------------------------ host and device

    def to_device(self, x: Vector) -> Tensor:
        """The vector as a float64 tensor on the problem's device."""
        return torch.from_numpy(np.array(x, dtype=np.float64)).to(self.device)

    def _mean(self, total: Tensor, count: int) -> Vector:
        return total.cpu().numpy() / count

    # -------------------------------------------------------------------------------------------------- protocol

    def curvature_view(self) -> TensorView:
        """What the adaptive mode looks at."""
        if outputs.suits(self.sums):
            return outputs.OutputTensorView(self)
        return wide.WideTensorView(self) if wide.suits(self.sums) else TensorView(self)

    @property
    def mean_squared_row(self) -> float:
        """Mean of weight_i (‖x_i‖² + 1 if there is an intercept): one pass, once."""
        if self._mean_squared_row is None:
            self._mean_squared_row = self.sums.mean_squared_row() + float(self.intercept)
        return self._mean_squared_row

    def centred(self) -> Problem:
        """The same model in centred coordinates, where it has an intercept; not with several outputs.

        Their conjugate gradients stay on the device, in the coordinates of the rows.
        """
        if not self.intercept or self.n_outputs > 1:
            return self
        frame, rows = centring_by_product(self), self.sums.rows
        if isinstance(rows, DenseRows):
            some = rows.values[torch.from_numpy(evenly(self.n_samples)).to(rows.device)]
            far = _FAR if some.dtype == torch.float64 else _FAR_IN_FLOAT32
            middles, is_far = bulk_of(frame.means, some.double().cpu().numpy(), far)
            frame = Centring(middles, 1, frame.exact and bool((middles == frame.means).all()), is_far)
        return CentredProblem(self, frame, CentredTensorView)

    def value_and_gradient(self, x: Vector) -> tuple[float, Vector]:
        """f(x) and ∇f(x): one pass over the data."""
        x = self._point("x", x)
        value, gradient, _ = self.sums.evaluate(self.to_device(x))
        mean = self._mean(gradient, self.n_samples)
        return value / self.n_samples + self.penalty.value(x), mean + self.penalty.slopes(x)

    def batch_gradient(self, x: Vector, indices: Indices) -> Vector:
        """Mean of ∇f_i(x) over the indices, regulariser included."""
        batch, x = self._batch(indices), self._point("x", x)
        total = self.sums.batch_gradient(self.to_device(x), batch)
        return self._mean(total, batch.numel()) + self.penalty.slopes(x)

    def hessian_product(self, x: Vector, indices: Indices | None, v: Vector) -> Vector:
        """Mean of ∇²f_i(x) v over the indices; over all rows for ``indices=None``."""
        x, v = self._point("x", x), self._point("v", v)
        at, along = self.to_device(x), self.to_device(v)
        if indices is None:
            mean = self._mean(self.sums.product(at, along), self.n_samples)
        else:
            batch = self._batch(indices)
            mean = self._mean(self.sums.batch_product(at, batch, along), batch.numel())
        return mean + self.penalty.curvatures(x) * v

    def with_regularizer(self, regularizer: Any) -> LinearModel:
        """The same rows under another regulariser; nothing is copied."""
        CompiledModel._check_formulas(self.loss, regularizer)
        other = object.__new__(LinearModel)
        other.classes = self.classes
        other._build(self.sums, self.loss, regularizer, self.intercept)
        return other

    def gather(self, indices: Indices) -> LinearModel:
        """The same problem restricted to those rows, copied. Weights keep their scale."""
        part = object.__new__(LinearModel)
        part.classes = self.classes
        part._build(self.sums.take(self._batch(indices)), self.loss, self.regularizer, self.intercept)
        return part

    def _batch(self, indices: Any) -> Tensor:
        return torch.from_numpy(_check.row_indices(indices, self.n_samples)).to(self.sums.rows.device)

    # ---------------------------------------------------------------------------------------------- conveniences

    def _times(self, W: Matrix) -> Matrix:
        rows = self.sums.rows
        products = rows.products(torch.from_numpy(W.copy()).to(rows.device))
        return (products if self.sums.offset is None else products + self.sums.offset).cpu().numpy()

    def decision(self, x: Vector, X: Any = None) -> NDArray[np.float64]:
        """Margins of the rows of X (default: the problem's own), shape (N,) or (N, K)."""
        return super().decision(x, _on_host(X))

    def __repr__(self) -> str:
        kind = "CSR" if isinstance(self.sums.rows, SparseRows) else "dense"
        extra = ", intercept" if self.intercept else ""
        return (
            f"LinearModel({self.n_samples} rows × {self.n_features} columns, {kind}, on {self.device}, "
            f"{self.loss!r}, {self.regularizer!r}{extra})"
        )


# ------------------------------------------------------------------------------------------------------- the door


def checked_device(device: Any) -> torch.device:
    """A device that is there and has float64 arithmetic; None is the CPU."""
    if device is None:
        return torch.device("cpu")
    try:
        place = torch.device(device)
    except (RuntimeError, TypeError) as error:
        known = f"device must be one that torch knows, such as 'cpu' or 'cuda', got {device!r}"
        raise ValueError(f"{known}: {error}") from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device must be one that this machine has, got {device!r}, and torch finds no CUDA device")
    if place.type == "mps":
        raise ValueError("device must have float64 arithmetic, got 'mps', which has none; 'cpu' works")
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    return place


def _wants_fused(fused: bool | None, place: torch.device) -> bool:
    if fused is None:
        if place.type != "cuda":
            return False
        try:
            import triton  # noqa: F401  # only looked for
        except ImportError:
            _log.info("Triton is not installed: plain torch operations are used")
            return False
        return True
    return fused


def _on_host(array: Any) -> Any:
    return array.detach().cpu().numpy() if isinstance(array, Tensor) else array


def _rows_on(X: Any, place: torch.device) -> Rows:
    """X as rows on the device."""
    if isinstance(X, Tensor):
        if X.layout == torch.sparse_csr:
            data, indices, indptr = X.values(), X.col_indices(), X.crow_indices()
            host = scipy.sparse.csr_array((_on_host(data), _on_host(indices), _on_host(indptr)), shape=tuple(X.shape))
            return _rows_on(host, place)
        if X.layout != torch.strided:
            raise ValueError(f"X must be a dense or CSR tensor, got layout {X.layout}")
        if X.ndim != 2:
            raise ValueError(f"X must be two-dimensional (rows are samples), got shape {tuple(X.shape)}")
        if X.is_complex():
            raise ValueError(f"X must be a matrix of real numbers, got dtype {X.dtype}")
        values = X.detach() if X.dtype in _FLOATS else X.detach().double()
        return DenseRows(values.to(place).contiguous())
    rows, _, columns = as_rows(X)
    if isinstance(rows, HostRows):
        return DenseRows(torch.from_numpy(rows.values).to(place))
    return SparseRows(
        torch.from_numpy(rows.data).to(place),
        torch.from_numpy(rows.indices.astype(np.int64)).to(place),
        torch.from_numpy(rows.indptr).to(place),
        columns,
    )


def _compact(labels: Vector) -> Tensor:
    """Labels in the smallest number type that holds them: they are read in every pass."""
    whole = torch.from_numpy(labels)
    for kind in (torch.int8, torch.float32):
        small = whole.to(kind)
        if bool((small.double() == whole).all()):
            return small
    return whole
