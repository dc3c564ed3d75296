"""What centred coordinates and the certificate cost: in time, and in passes on the nine data sets.

    python benchmarks/centring.py speed [--markdown FILE]     each of a pass; medians of alternating pairs
    python benchmarks/centring.py passes                      runs with both, and with both switched off

Set TRSVR_DATA_DIR for the data sets.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from unittest import mock

import numpy as np

import trsvr
from trsvr.problems import LinearModel, logistic
from trsvr.solvers.adaptive import AdaptiveTRSVR
from trsvr.solvers.adaptive.rules import Rules

TIMED = ("covtype.scale", "ijcnn1", "rcv1")
SETS = ("synthetic", "mushrooms", "phishing", "madelon", "cod-rna", "ijcnn1", "covtype", "covtype.scale", "rcv1")
PAIRS = 30
#: ends that do not wait for a certificate
UNCERTIFIED = AdaptiveTRSVR(rules=replace(Rules(), certified=math.inf, certified_small=math.inf))


def seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def at_a_copy(call: Callable[[np.ndarray], object], x: np.ndarray) -> None:
    call(x.copy())


def speed() -> Iterator[str]:
    yield "| rows, with an intercept | a pass | centred | product | centred | certificate, of a pass |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name in TIMED:
        data = trsvr.datasets.load(name)
        problem = logistic(data.X, data.y, l2=1e-4, intercept=True)
        inside = problem.centred()
        x = 0.01 * np.random.default_rng(0).normal(size=problem.n_parameters)
        plain, centred, z = problem.curvature_view(), inside.curvature_view(), inside.frame.inside(x)
        value, gradient = centred.evaluate(z)
        # Points of a run are new each time: one that stays where it is would be in every core's cache.
        calls = (
            (partial(at_a_copy, plain.evaluate, x), partial(centred.evaluate, z)),
            (partial(at_a_copy, plain.product, x), partial(centred.product, z)),
        )
        cells = []
        for one, other in calls:
            one(), other()
            pairs = [(seconds(one), seconds(other)) for _ in range(PAIRS)]
            cells.append(f"{1e3 * statistics.median(first for first, _ in pairs):.2f} ms")
            cells.append(f"{100.0 * (statistics.median(second / first for first, second in pairs) - 1.0):+.1f} %")
        certify = partial(centred.gap_bound, z, value, gradient)
        whole = [(seconds(calls[0][1]), seconds(certify)) for _ in range(PAIRS)]
        cells.append(f"{100.0 * statistics.median(bound / full for full, bound in whole):.1f} %")
        yield f"| {name} {problem.n_samples} × {problem.n_features} | {' | '.join(cells)} |"


def passes() -> Iterator[str]:
    yield "| data | λ | intercept | without | with | change | bound / f |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for name in SETS:
        data = trsvr.datasets.load(name)
        for strength in (1e-4, 1e-6):
            for intercept in (False, True):
                problem = logistic(data.X, data.y, l2=strength, intercept=intercept)
                with mock.patch.object(LinearModel, "centred", lambda self: self):
                    before = trsvr.minimize(problem, UNCERTIFIED, max_seconds=60.0)
                after = trsvr.minimize(problem, max_seconds=60.0)
                more, part = after.passes - before.passes, after.gap_bound / after.value
                cells = f"{'yes' if intercept else 'no'} | {before.passes:.1f} | {after.passes:.1f} | {more:+.1f}"
                yield f"| {name} | {strength:.0e} | {cells} | {part:.0e} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "passes"))
    parser.add_argument("--markdown", help="also write the table to this file")
    chosen = parser.parse_args()
    lines = []
    for line in {"speed": speed, "passes": passes}[chosen.what]():
        print(line, flush=True)
        lines.append(line)
    if chosen.markdown:
        with open(chosen.markdown, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
