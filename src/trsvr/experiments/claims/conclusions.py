"""Claims C9 to C12: what the comparisons are said to show."""

from __future__ import annotations

import numpy as np

from trsvr.experiments.claims.lines import BASELINES, first_order_problems, lines_of, subject_of
from trsvr.experiments.results import Results, SubjectResults
from trsvr.experiments.verdicts import (
    COMPARABLE,
    FACTOR,
    HIGH_PRECISION,
    Judged,
    Part,
    arrived,
    claim,
    decades_ahead,
    fall,
    faster,
    ratio,
)


@claim(
    "C9",
    "5, 6 and 7",
    "TRSVR converges more stably than first-order baselines and existing stochastic trust-region methods.",
    "start epochs baselines batch rows",
)
def c9(results: Results) -> Judged:
    """Over seeds its band is no wider than theirs; over α its range of good values is at least as wide."""
    parts = []
    compared = [(subject, ours, rivals) for subject, ours, rivals in first_order_problems(results)]
    study = results.study("ablation")
    for subject in [] if study is None else study.subjects:
        lines = lines_of(subject, "TRSVR-EstH", "TRish")
        if len(lines) == 2:
            compared.append((subject, lines[0], lines[1:]))
    for subject, ours, rivals in compared:
        for rival in rivals:
            mine, other = (max(line.spread("gradient_norm_sq", "epoch"), 1e-3) for line in (ours, rival))
            text = f"{subject.data}, seeds: the band of ‖∇f‖² is {mine:.2f} decades wide, {rival.label}'s {other:.2f}"
            parts.append(Part(text, mine <= other, other / mine))
    study = results.study("step-size")
    for subject in [] if study is None else study.subjects:
        good = good_steps(subject)
        for label in ("SVRG", "TRish"):
            if "TRSVR-EstH" in good and label in good:
                width, its = good["TRSVR-EstH"], good[label]
                text = (
                    f"{subject.data}, α: TRSVR-EstH comes within ten times of the best gap at {width} values of α, "
                    f"{label} at {its}"
                )
                parts.append(Part(text, width >= its, ratio(width, its)))
    return parts, ""


def good_steps(subject: SubjectResults) -> dict[str, int]:
    """At how many values of α each method comes within ten times of the best gap of all methods, or arrives."""
    lines = [line for line in subject.lines if line.runs and line.group]
    if not lines:
        return {}
    ends = {id(line): np.inf if line.diverged else line.final("gap") for line in lines}
    allowed = max(10.0 * min(ends.values()), arrived(lines[0]))
    groups = dict.fromkeys(line.group for line in lines)
    return {group: sum(ends[id(line)] <= allowed for line in lines if line.group == group) for group in groups}


@claim(
    "C10",
    "5.2.1",
    "First-order methods converge slowly under large condition numbers; curvature information mitigates the "
    "ill-conditioning.",
    "L epochs curvature rows tuned",
)
def c10(results: Results) -> Judged:
    """At the same α EstH is ahead of the first-order method, since it takes other steps; and so it is tuned alike."""
    parts = []
    subject = subject_of(results, "convex", "synthetic")
    for ours in lines_of(subject, "TRSVR-EstH"):
        for svrg in lines_of(subject, "SVRG at EstH's α", role="extra"):
            parts += [faster(ours, svrg, "gap", "epoch", "the same α, gap, epochs")]
        inside = 1.0 - ours.mean("boundary_fraction")
        text = f"curvature changes the step in {inside:.2%} of the steps (required: one in ten)"
        parts.append(Part(text, inside >= 0.1, inside / 0.1))
    for ours in lines_of(subject, "TRSVR-EstH", role="tuned"):
        for rival in lines_of(subject, *BASELINES, role="tuned"):
            parts += [faster(ours, rival, "gap", "passes", "tuned alike, gap, passes")]
    return parts, "The parts with the same α compare EstH with the same method without curvature."


@claim(
    "C11",
    "5.2.1",
    "Since TRSVR-Id is only comparable to the baselines, the gains of TRSVR-EstH arise from second-order geometry "
    "rather than from the trust-region framework alone.",
    "L start epochs curvature rows substitute",
)
def c11(results: Results) -> Judged:
    """With the same α, which is the framework, EstH is ahead of Id (which is SVRG with step α) in epochs."""
    parts = []
    for subject, ours, _ in first_order_problems(results):
        for identity in lines_of(subject, "SVRG at EstH's α", role="extra"):
            _, lead, _ = decades_ahead(ours, identity, "gap", "epoch")
            factor = 10.0**lead
            text = f"{subject.data}: EstH's gap is {factor:.3g} times below Id's at the same α, on average over epochs"
            parts.append(Part(f"{text} (a gain: {FACTOR:g})", factor >= FACTOR, factor / FACTOR))
    return parts, "For α ≤ 1 TRSVR-Id is SVRG with step α, which was run with EstH's α."


@claim(
    "C12",
    "6",
    "In ill-conditioned and nonconvex settings first-order variance-reduced methods converge slowly or plateau at "
    "suboptimal solutions; TRSVR converges faster to high precision.",
    "L start epochs baselines rows substitute",
)
def c12(results: Results) -> Judged:
    """Each baseline ends on a plateau above 1e-6, or ten times above TRSVR; TRSVR itself comes to 1e-6."""
    parts = []
    for subject, ours, rivals in first_order_problems(results):
        mine = ours.final("gap")
        text = f"{subject.data}: TRSVR-EstH ends at a gap of {mine:.1e}, required: {HIGH_PRECISION:g}"
        parts.append(Part(text, mine <= HIGH_PRECISION, ratio(HIGH_PRECISION, mine)))
        for rival in rivals:
            end, falls = rival.final("gap"), fall(rival, "gap", 0.75)
            slow = ratio(end, max(mine, arrived(ours)))
            plateau = end > HIGH_PRECISION and falls < FACTOR
            text = (
                f"{subject.data}: {rival.label} ends at {end:.1e}, {slow:.2g} times TRSVR's, and fell by a factor of "
                f"{falls:.3g} in its last quarter"
            )
            margin = max(slow / COMPARABLE, FACTOR / falls if end > HIGH_PRECISION else 0.0)
            parts.append(Part(text, plateau or slow >= COMPARABLE, margin))
    return parts, "A plateau is a fall below a factor of two in the last quarter, above a gap of 1e-6."
