"""What a run returns."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from trsvr import _html
from trsvr._arrays import Vector

if TYPE_CHECKING:
    import pandas as pd

TRACE_COLUMNS = (
    *("epoch", "steps", "gradient_evaluations", "hessian_products", "passes", "seconds"),  # what has been spent
    *("value", "gradient_norm_sq"),  # at the epoch's end
    *("alpha", "batch_size", "inner_steps", "radius", "boundary_fraction", "cg_iterations"),  # what the epoch did
    *("rejected", "curvature_rows", "negative_curvature"),
)


class Status(enum.Enum):
    """Why a run ended; every member carries the sentence that is shown."""

    CONVERGED = "converged: as close as asked for"
    ROUNDING_FLOOR = "at rounding floor: the value no longer changes within the precision of its numbers"
    EPOCH_LIMIT = "epoch limit reached"
    PASS_LIMIT = "pass limit reached"
    TIME_LIMIT = "time limit reached"
    CALLBACK = "stopped by callback"
    DIVERGED = "diverged: the value or the gradient is not finite, or the gradient has grown a thousandfold"
    NOT_FINITE = "not finite: a function of the problem returned NaN at a finite point"
    NO_PROGRESS = "no progress: the value no longer falls, but the gradient is not small"
    RUNNING = "still running"
    INTERRUPTED = "interrupted: this is the best point so far"
    DATA_LOST = "data lost: this is the best point so far"

    @property
    def success(self) -> bool:
        """Whether the answer is what was asked for."""
        return self in (Status.CONVERGED, Status.ROUNDING_FLOOR)

    def sentence(self, detail: str = "", gap_bound: float = math.nan, value: float = math.inf) -> str:
        """The sentence, with what is known beyond it; that losses are not negative, so that f is a bound, is not."""
        sentence = self.value
        if self is Status.CONVERGED and gap_bound < value:
            sentence = f"converged: at most {gap_bound:.1g} above the minimum"
        return f"{sentence} ({detail})" if detail else sentence


@dataclass(frozen=True)
class Result:
    """The best point of a run and how it was found.

    Attributes
    ----------
    x : array
        The point of smallest value seen (of smallest gradient norm where the problem has no values).
    value, gradient, gradient_norm
        f, ∇f and ‖∇f‖ at x.
    gap_bound : float
        f(x) is at most this much above the minimum of f, rounding included; NaN where nothing is known, as for
        functions of your own (docs/reliability.md).
    status : Status
        Why the run ended; ``message`` is its sentence, ``success`` whether it converged.
    epochs, gradient_evaluations, passes, seconds
        Cost. Passes are component gradients over N.
    trace : pandas.DataFrame
        One row per recorded epoch, row 0 is the starting point.
    fun, jac, nit, nfev
        SciPy's names for value, gradient, epochs and gradient_evaluations.
    """

    x: Vector
    value: float
    gradient: Vector
    status: Status
    message: str
    epochs: int
    gradient_evaluations: int
    passes: float
    seconds: float
    solver: Any
    rows: list[dict[str, float]] = field(repr=False)
    gap_bound: float = math.nan

    @property
    def gradient_norm(self) -> float:
        """‖∇f(x)‖."""
        with np.errstate(over="ignore"):
            return float(np.linalg.norm(self.gradient))

    @property
    def success(self) -> bool:
        """Whether the run converged."""
        return self.status.success

    @property
    def fun(self) -> float:
        """SciPy's name for the value."""
        return self.value

    @property
    def jac(self) -> Vector:
        """SciPy's name for the gradient."""
        return self.gradient

    @property
    def nit(self) -> int:
        """SciPy's name for the number of iterations: epochs."""
        return self.epochs

    @property
    def nfev(self) -> int:
        """SciPy's name for evaluations: component gradients."""
        return self.gradient_evaluations

    @cached_property
    def trace(self) -> pd.DataFrame:
        """One row per recorded epoch."""
        import pandas as pd  # only when a trace is looked at: pandas takes longer to import than we do

        return pd.DataFrame(self.rows, columns=list(TRACE_COLUMNS))

    def plot(
        self, x: str = "passes", y: str = "gradient_norm_sq", reference: float | None = None, ax: Any = None
    ) -> Any:
        """Draw the run.

        Parameters
        ----------
        x, y : str
            Columns of the trace; y may also be "gap", the value minus ``reference``.
        reference : float, optional
            The smallest value known; default: the best of this run.
        ax : matplotlib.axes.Axes, optional
            Where to draw; default: a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError("result.plot() needs matplotlib: pip install 'trsvr[plot]'") from error
        trace = self.trace
        if y == "gap":
            heights = trace["value"] - (trace["value"].min() if reference is None else reference)
        else:
            heights = trace[y]
        if ax is None:
            ax = plt.subplots(figsize=(6, 4), layout="constrained")[1]
        drawn = heights.where(heights > 0)
        ax.plot(trace[x], drawn, marker="o", markersize=3, label=type(self.solver).__name__)
        ax.set_yscale("log")
        ax.set_xlabel(x.replace("_", " "))
        ax.set_ylabel(y.replace("_", " "))
        ax.grid(alpha=0.3)
        return ax

    def __repr__(self) -> str:
        return (
            f"Result({self.message}\n"
            f"  value {self.value:.12g}, gradient norm {self.gradient_norm:.3g}, {self.epochs} epochs, "
            f"{self.passes:.4g} passes, {self.seconds:.3g} s)"
        )

    def _repr_html_(self) -> str:
        return _html.table(
            self.message,
            [
                ("value", f"{self.value:.12g}"),
                ("above the minimum by at most", "unknown" if math.isnan(self.gap_bound) else f"{self.gap_bound:.1e}"),
                ("gradient norm", f"{self.gradient_norm:.3g}"),
                ("x", f"{self.x.size} numbers"),
                ("epochs", self.epochs),
                ("passes", f"{self.passes:.4g}"),
                ("seconds", f"{self.seconds:.3g}"),
                ("solver", self.solver),
            ],
        )
