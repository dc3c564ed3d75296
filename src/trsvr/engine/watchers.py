"""Those who look at every recorded epoch: callback, progress bar, printed lines."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass

from trsvr.engine.progress import ProgressBar
from trsvr.engine.result import Status
from trsvr.engine.run import Best, Run
from trsvr.engine.signals import Stop
from trsvr.engine.stopping import Limits


class StoppedByCallback(Exception):
    """The callback has raised StopIteration."""


@dataclass
class Watchers:
    """Those who look at every recorded epoch: callback, progress bar, printed lines."""

    callback: Callable[..., None] | None
    bar: ProgressBar | None
    verbose: int

    def show(self, run: Run, best: Best, limits: Limits, status: Status | None, stop: Stop) -> None:
        """Show the newest row."""
        row = run.rows[-1]
        if self.bar is not None:
            self.bar.update(row, limits.fraction(row), force=status is not None)
        if self.verbose:
            print(_line(row), flush=True)
        if self.callback is not None:
            so_far = run.result(best, Status.RUNNING)
            try:
                with stop.armed():
                    if "intermediate_result" in inspect.signature(self.callback).parameters:
                        self.callback(intermediate_result=so_far)
                    else:
                        self.callback(so_far)
            except StopIteration:
                if status is None:  # a run that has ended keeps its own reason
                    raise StoppedByCallback from None

    def close(self) -> None:
        """End the progress bar's line."""
        if self.bar is not None:
            self.bar.close()


def _line(row: dict[str, float]) -> str:
    parts = [
        f"epoch {row['epoch']:4.0f}",
        f"passes {row['passes']:8.2f}",
        f"{row['seconds']:8.3f} s",
        f"f {row['value']:.10g}",
        f"|g|^2 {row['gradient_norm_sq']:.2e}",
    ]
    if row["batch_size"]:
        parts.append(f"b {row['batch_size']:.0f} S {row['inner_steps']:.0f}")
    if not math.isnan(row["boundary_fraction"]):
        parts.append(f"alpha {row['alpha']:.3g} boundary {row['boundary_fraction']:.0%} cg {row['cg_iterations']:.1f}")
    if row["rejected"]:
        parts.append("rejected")
    return "  ".join(parts)
