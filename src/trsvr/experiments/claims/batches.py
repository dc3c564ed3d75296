"""Claims C5, C6 and C14: batch size and inner steps."""

from __future__ import annotations

import numpy as np

from trsvr.experiments.claims.lines import subject_of
from trsvr.experiments.results import Results, SubjectResults
from trsvr.experiments.verdicts import (
    COMPARABLE,
    FACTOR,
    Judged,
    Part,
    claim,
    common_end,
    fall,
)


def _regimes(subject: SubjectResults | None, place: float | None) -> dict[str, list[tuple[str, float]]]:
    """For each regime its pairs and the log10 of their ‖∇f‖²: at equal passes, or the mean of the whole curve."""
    lines = [] if subject is None else [line for line in subject.with_roles("paper") if line.group]
    regimes: dict[str, list[tuple[str, float]]] = {}
    for line in lines:
        end = common_end(lines, "passes")
        if place is None:
            height = line.mean_decades("gradient_norm_sq", "passes", end)
        else:
            height = float(np.log10(line.at("gradient_norm_sq", "passes", place * end)))
        regimes.setdefault(line.group, []).append((line.label, height))
    return regimes if len(regimes) == 3 else {}


_WAYS = (("on average over the curve", None), ("at the end", 1.0))


def _best_regime(regimes: dict[str, list[tuple[str, float]]], wanted: str, called: str) -> Part:
    """Whether the best pair of all is of the wanted regime."""
    best = {name: min(pairs, key=lambda pair: pair[1]) for name, pairs in regimes.items()}
    other = min((pair for name, pair in best.items() if name != wanted), key=lambda pair: pair[1])
    label, height = best[wanted]
    text = f"{called}: ‖∇f‖² of {wanted}, {label}, 1e{height:.2f}; best of the others, {other[0]}, 1e{other[1]:.2f}"
    return Part(text, height < other[1], 10.0 ** (other[1] - height))


def _order(regimes: dict[str, list[tuple[str, float]]]) -> str:
    ranked = sorted((pair for pairs in regimes.values() for pair in pairs), key=lambda pair: pair[1])
    return " < ".join(label for label, _ in ranked[:3])


@claim(
    "C5",
    "5.4, figure 7",
    "On the sparse RCV1 the high-frequency regime performs best, whereas large batches make TRSVR stall at relatively "
    "high error and converge slowly (‖∇f‖² against passes).",
    "start epochs pairs products rows substitute",
)
def c5(results: Results) -> Judged:
    """The best pair is of high frequency, every pair of it is ahead of every large batch, and large batches stall."""
    subject = subject_of(results, "sensitivity", "rcv1")
    parts, finding = [], ""
    for called, place in _WAYS:
        regimes = _regimes(subject, place)
        if subject is None or not regimes:
            continue
        parts.append(_best_regime(regimes, "high frequency", f"rcv1 {called}"))
        worst = max(height for _, height in regimes["high frequency"])
        large = min(height for _, height in regimes["large batch"])
        text = f"rcv1 {called}: worst of high frequency 1e{worst:.2f}, best of large batch 1e{large:.2f}"
        parts.append(Part(text, worst < large, 10.0 ** (large - worst)))
        finding = f"Best at the end: {_order(regimes)}"
    if subject is not None and parts:
        lines = [line for line in subject.with_roles("paper") if line.group == "large batch"]
        least = max(fall(line, "gradient_norm_sq", 0.0) for line in lines)
        text = f"rcv1: the best of large batch fell by a factor of {least:.2g} in all (a stall is below {FACTOR:g})"
        parts.append(Part(text, least < FACTOR, FACTOR / least))
        gaps = [line.final("gap") for line in subject.with_roles("paper")]
        finding += f"; gaps at the end from {min(gaps):.1e} to {max(gaps):.1e}."
    return parts, finding


@claim(
    "C6",
    "5.4, figure 8",
    "On the dense Covertype the balanced regime performs best, and high frequency noticeably worse.",
    "start scaling epochs pairs products rows",
)
def c6(results: Results) -> Judged:
    """The best pair is balanced, and the best of high frequency at least twice as high."""
    parts, finding = [], ""
    for called, place in _WAYS:
        regimes = _regimes(subject_of(results, "sensitivity", "covtype"), place)
        if not regimes:
            continue
        parts.append(_best_regime(regimes, "balanced", f"covtype {called}"))
        frequent, balanced = (min(h for _, h in regimes[name]) for name in ("high frequency", "balanced"))
        times = 10.0 ** (frequent - balanced)
        text = f"covtype {called}: the best of high frequency is {times:.2g} times as high as the best of balanced"
        parts.append(Part(f"{text} (required: {FACTOR:g})", times >= FACTOR, times / FACTOR))
        finding = f"Best at the end: {_order(regimes)}."
    return parts, finding


@claim(
    "C14",
    "1 (contribution iii) and 5.4",
    "The choice of batch size and inner-loop length plays a critical role in efficiency.",
    "start scaling epochs pairs products rows substitute",
)
def c14(results: Results) -> Judged:
    """At equal passes the best and the worst pair of (b, S) are at least a decade of ‖∇f‖² apart."""
    parts = []
    for data in ("rcv1", "covtype"):
        heights = [pair for pairs in _regimes(subject_of(results, "sensitivity", data), 1.0).values() for pair in pairs]
        if heights:
            (low, least), (high, most) = (end(heights, key=lambda pair: pair[1]) for end in (min, max))
            factor = 10.0 ** (most - least)
            text = f"{data} at the end: ‖∇f‖² of {high} is {factor:.2g} times that of {low} (critical: {COMPARABLE:g})"
            parts.append(Part(text, factor >= COMPARABLE, factor / COMPARABLE))
    return parts, ""
