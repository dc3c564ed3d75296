"""The runs of a comparison: every method on every seed, and the smallest value that anything has found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trsvr.cli.contestants import Contestant
from trsvr.engine import Result, Status, minimize
from trsvr.engine.stopping import Limits
from trsvr.experiments.curves import upper_median
from trsvr.experiments.references import StandsStill
from trsvr.problems import LinearModel
from trsvr.solvers import LBFGS, TrustRegion

if TYPE_CHECKING:
    import pandas as pd

GAPS = (1e-3, 1e-6, 1e-9)
# A gap of so many units in the last place of f* is no gap: the run has arrived.
_ARRIVED = 64 * np.finfo(float).eps


@dataclass
class Race:
    """All runs, and the smallest value that anything has found."""

    problem: LinearModel
    contestants: list[Contestant]
    seeds: int
    start: str
    limits: Limits
    threads: int | None
    smallest: float = np.inf
    interrupted: bool = False

    def run(self, report: Callable[[Contestant | None, float, float], None]) -> None:
        """Run everybody; ``report(contestant, runs done, gap)`` is called along the way."""
        self._find_reference(lambda: report(None, 0.0, np.nan))
        # Seed by seed, so that an interrupted comparison still has all methods.
        for seed in range(self.seeds):
            for contestant in self.contestants:
                if self.interrupted:
                    return
                contestant.results[seed] = self._run_one(contestant, seed, report)
                self._look(contestant.results[seed])

    def _find_reference(self, tell: Callable[[], None]) -> None:
        """The smallest value: a trust region to the rounding floor, then L-BFGS from there."""
        tell()
        x = None
        for solver in (TrustRegion(), LBFGS()):
            watch = StandsStill()
            result = minimize(
                self.problem, solver, x0=x, max_epochs=300, tol=None, callback=watch, threads=self.threads
            )
            x = result.x
            self._look(result)
            if self.interrupted:
                return

    def _look(self, result: Result) -> None:
        self.smallest = min(self.smallest, result.value)
        self.interrupted = self.interrupted or result.status is Status.INTERRUPTED

    def _run_one(self, contestant: Contestant, seed: int, report: Callable[..., None]) -> Result:
        def watch(so_far: Result) -> None:
            row = so_far.rows[-1]
            gap = row["value"] - self.smallest
            report(contestant, seed + (self.limits.fraction(row) or 0.0), gap)
            if abs(gap) <= _ARRIVED * abs(self.smallest):
                raise StopIteration

        x0 = np.random.default_rng(seed).normal(size=self.problem.n_parameters) if self.start == "normal" else None
        result = minimize(
            self.problem,
            contestant.solver,
            x0=x0,
            max_epochs=self.limits.epochs,
            max_passes=self.limits.passes,
            max_seconds=self.limits.seconds,
            tol=None,
            seed=seed,
            callback=watch,
            threads=self.threads,
        )
        report(contestant, seed + 1.0, result.rows[-1]["value"] - self.smallest)
        return result

    def trace(self) -> pd.DataFrame:
        """All traces under one another, with the method, the seed and the gap in front."""
        import pandas as pd

        parts = []
        for contestant in self.contestants:
            for seed, result in contestant.results.items():
                part = result.trace.copy()
                part.insert(0, "method", contestant.label)
                part.insert(1, "seed", seed)
                part.insert(2, "gap", part["value"] - self.smallest)
                parts.append(part)
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def summary(self, contestant: Contestant) -> dict[str, Any]:
        """What the table says of one method: medians over the seeds, infinite where most runs never came there."""
        results = list(contestant.results.values())
        last = [result.rows[-1] for result in results]
        return {
            "method": contestant.label,
            "settings": dataclasses.asdict(contestant.solver),
            "passes_to": {
                f"{gap:g}": upper_median(self._cost(result, gap, "passes") for result in results) for gap in GAPS
            },
            "seconds_to": {
                f"{gap:g}": upper_median(self._cost(result, gap, "seconds") for result in results) for gap in GAPS
            },
            "final_gap": upper_median(row["value"] - self.smallest for row in last),
            "final_gradient_norm_sq": upper_median(row["gradient_norm_sq"] for row in last),
            "epochs": upper_median(row["epoch"] for row in last),
            "diverged": sum(result.status is Status.DIVERGED for result in results),
            "runs": len(results),
        }

    def _cost(self, result: Result, gap: float, column: str) -> float:
        """Passes or seconds until a run first had this gap; infinite if never."""
        return next((row[column] for row in result.rows if row["value"] - self.smallest <= gap), np.inf)
