"""Claim C13: component gradients over N and over the precision."""

from __future__ import annotations

import numpy as np

from trsvr.experiments import curves
from trsvr.experiments.results import Results, SubjectResults
from trsvr.experiments.verdicts import FACTOR, Judged, Part, claim

#: A measured power of N or of 1/ε may exceed the theorem's by this much.
POWER = 0.05


@claim(
    "C13",
    "abstract, 4.1, 7",
    "Iteration and sample complexity match those of SVRG: O(1/ε) iterations and O(N + N^{2/3}/ε) component gradients "
    "at the theorem's α, b and S.",
    "products rows",
)
def c13(results: Results) -> Judged:
    """The measured cost grows with N like N^{2/3} at most and with 1/ε like 1/ε at most, and is SVRG's."""
    study = results.study("complexity")
    parts: list[Part] = []
    costs = {} if study is None else {label: sample_costs(study.subjects, label) for label in ("TRSVR-EstH", "SVRG")}
    for label, found in costs.items():
        if len(found) < 2 or not np.all(np.isfinite(list(found.values()))):
            continue
        sizes = np.array(sorted(found))
        table = np.array([found[size] for size in sizes])
        slope = float(np.polyfit(np.log(sizes), np.log(table[:, -1]), 1)[0])
        text = f"{label}, N from {sizes[0]} to {sizes[-1]}: component gradients grow like N^{slope:.3f}"
        wanted = 2.0 / 3.0 + POWER
        parts.append(Part(f"{text} (at most {wanted:.3f})", slope <= wanted, wanted / slope))
        power = float(np.polyfit(np.log(1.0 / np.array(EPSILONS)), np.log(table / sizes[:, None]).mean(axis=0), 1)[0])
        text = (
            f"{label}: they grow like (1/ε)^{power:.3f}, ε from {EPSILONS[0]:g} to {EPSILONS[-1]:g} of the first ‖∇f‖²"
        )
        parts.append(Part(f"{text} (at most {1.0 + POWER:g})", power <= 1.0 + POWER, (1.0 + POWER) / power))
    if len(parts) == 4:
        worst = max(
            float(np.max(np.array(costs["TRSVR-EstH"][size]) / np.array(costs["SVRG"][size])))
            for size in costs["TRSVR-EstH"]
        )
        text = f"TRSVR-EstH needs at most {worst:.3g} times SVRG's component gradients (products not counted)"
        parts.append(Part(f"{text}; a match is within {FACTOR:g}", worst <= FACTOR, FACTOR / worst))
    return parts, "A point is ε-stationary, as the paper defines it, where ‖∇f‖² ≤ ε; looked at after every epoch."


#: Wanted ‖∇f‖², as parts of the first one.
EPSILONS = (1e-3, 1e-4, 1e-5)


def sample_costs(subjects: list[SubjectResults], label: str) -> dict[int, list[float]]:
    """For each N, how many component gradients a method needs for each of the `EPSILONS`: medians over the seeds."""
    found = {}
    for subject in subjects:
        line = subject.line(label)
        if line is not None:
            size = int(subject.facts["rows"])
            each = [
                [curves.cost_of(run["passes_without"], run["gradient_norm_sq"] / run["gradient_norm_sq"][0], epsilon)]
                for run in line.runs
                for epsilon in EPSILONS
            ]
            table = np.array(each).reshape(len(line.runs), len(EPSILONS))
            found[size] = [float(cost) * size for cost in np.median(table, axis=0)]
    return found
