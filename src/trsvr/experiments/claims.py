"""The paper's claims, one small function each: it looks at the results and says what they show.

A claim is taken apart into *parts*, single statements that either hold or do not, each with its numbers and by what
factor it holds. The rule for the verdict is the same for every claim: *reproduced* if all parts hold, *partly* if at
least half of them do, *not reproduced* otherwise. Where a claim does not hold, the finding says what holds instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trsvr.experiments.results import Line, Results, SubjectResults

REPRODUCED, PARTLY, NOT, UNTESTED = "reproduced", "partly reproduced", "not reproduced", "not tested"
BASELINES = ("SVRG", "SARAH", "SAGA")
#: Two gaps "match" within this factor; "clearly worse" and "stall" are beyond it.
FACTOR = 2.0
#: TRSVR is "comparable" to the classic method within one decade.
COMPARABLE = 10.0
HIGH_PRECISION = 1e-6
PLATEAU = (1e-5, 1e-2)
#: A gap of so many units in the last place of f* is none.
ARRIVED = 64


@dataclass(frozen=True)
class Part:
    """A statement, whether it holds, and its number."""

    text: str  # with the numbers it rests on
    holds: bool
    margin: float  # by what factor it holds (above 1) or fails (below 1)


@dataclass(frozen=True)
class Verdict:
    """What became of a claim."""

    claim: str
    says: str
    verdict: str
    parts: tuple[Part, ...]
    finding: str

    @property
    def margin(self) -> float:
        """The smallest margin of its parts: how nearly the verdict is another one."""
        return min((part.margin for part in self.parts), default=np.nan)


def _verdict(claim: str, says: str, parts: list[Part], finding: str) -> Verdict:
    if not parts:
        return Verdict(claim, says, UNTESTED, (), "The data or the methods that it speaks of were not run.")
    held = sum(part.holds for part in parts)
    word = REPRODUCED if held == len(parts) else PARTLY if 2 * held >= len(parts) else NOT
    return Verdict(claim, says, word, tuple(parts), finding)


def _subject(results: Results, study: str, data: str) -> SubjectResults | None:
    found = results.study(study)
    return None if found is None else found.subject(data)


def _ratio(above: float, below: float) -> float:
    if below == 0.0 or not np.isfinite(above):
        return np.inf
    return above / below


def _common_end(lines: list[Line], axis: str) -> float:
    """As far as all of them go."""
    return min(line.end(axis) for line in lines)


def _paper(subject: SubjectResults, *labels: str) -> list[Line]:
    found = [subject.line(label, "paper") for label in labels]
    return [line for line in found if line is not None]


def _same_as_svrg(subject: SubjectResults, label: str, svrg: str) -> tuple[float, float] | None:
    """Largest relative difference of f between TRSVR and SVRG with the same α, b, S; and TRSVR's boundary fraction."""
    ours, theirs = subject.line(label, "paper"), subject.line(svrg)
    if ours is None or theirs is None:
        return None
    difference = 0.0
    for mine, other in zip(ours.runs, theirs.runs, strict=False):
        size = min(mine["objective_value"].size, other["objective_value"].size)
        a, b = mine["objective_value"][:size], other["objective_value"][:size]
        with np.errstate(invalid="ignore"):
            difference = max(difference, float(np.nanmax(np.abs(a - b) / np.abs(b))))
    return difference, ours.mean("boundary_fraction")


# ------------------------------------------------------------------------------------------------------- the claims


def c1(results: Results) -> Verdict:
    """EstH is ahead of every baseline at equal passes, whichever way passes are counted."""
    says = "On the convex set TRSVR-EstH beats SVRG, SARAH and SAGA per effective pass."
    subject = _subject(results, "convex", "synthetic")
    if subject is None:
        return _verdict("C1", says, [], "")
    ours = subject.line("TRSVR-EstH", "paper")
    rivals = _paper(subject, *BASELINES)
    parts = []
    if ours is not None:
        for axis, counted in (("passes", "counted"), ("passes_without", "not counted")):
            for rival in rivals:
                place = _common_end([ours, *rivals], axis)
                mine, other = ours.at("gap", axis, place), rival.at("gap", axis, place)
                text = f"at {place:.0f} passes (Hessian products {counted}): EstH {mine:.1e}, {rival.label} {other:.1e}"
                parts.append(Part(text, mine < other, _ratio(other, mine)))
    finding = ""
    same = _same_as_svrg(subject, "TRSVR-EstH", "SVRG at EstH's α")
    if same is not None:
        finding = (
            f"Its steps are SVRG's: the boundary was hit in {same[1]:.1%} of them, and SVRG with step α gives the same "
            f"values of f to {same[0]:.0e} (relative) while spending no Hessian products. What is measured is the "
            "step size."
        )
    return _verdict("C1", says, parts, finding)


def c2(results: Results) -> Verdict:
    """Id and SVRG at their own tuned values have gaps within a factor of two, and with the same step are the same."""
    says = "On the convex set TRSVR-Id matches SVRG."
    subject = _subject(results, "convex", "synthetic")
    lines = [] if subject is None else _paper(subject, "TRSVR-Id", "SVRG")
    if subject is None or len(lines) < 2:
        return _verdict("C2", says, [], "")
    ours, svrg = lines
    place = _common_end(lines, "passes")
    mine, other = ours.at("gap", "passes", place), svrg.at("gap", "passes", place)
    apart = max(_ratio(mine, other), _ratio(other, mine))
    text = f"at {place:.0f} passes: Id (α = {ours.alpha:g}) {mine:.1e}, SVRG (step {svrg.alpha:g}) {other:.1e}"
    parts = [Part(text, apart <= FACTOR, FACTOR / apart)]
    same = _same_as_svrg(subject, "TRSVR-Id", "SVRG at Id's α")
    if same is not None:
        text = f"with the same step α = {ours.alpha:g} their values of f differ by {same[0]:.0e} (relative) at most"
        parts.append(Part(text, same[0] < 1e-6, _ratio(1e-6, max(same[0], 1e-16))))
    return _verdict("C2", says, parts, "TRSVR-Id is SVRG with step α; any difference is one of step size.")


def c3(results: Results) -> Verdict:
    """EstH's curve of ‖∇f‖² lies below all others on the whole, per epoch and per pass, on both sets."""
    says = "With the double well (RCV1, Mushroom) TRSVR-EstH is faster than TRSVR-Id, SVRG, SARAH and SAGA."
    parts, found = [], []
    for data in ("rcv1", "mushrooms"):
        subject = _subject(results, "double-well", data)
        ours = None if subject is None else subject.line("TRSVR-EstH", "paper")
        if subject is None or ours is None:
            continue
        for rival in _paper(subject, "TRSVR-Id", *BASELINES):
            for axis in ("epoch", "passes"):
                until = _common_end([ours, rival], axis)
                mine = ours.mean_decades("gradient_norm_sq", axis, until)
                other = rival.mean_decades("gradient_norm_sq", axis, until)
                text = (
                    f"{data}, mean height of ‖∇f‖² up to {until:.0f} {'epochs' if axis == 'epoch' else 'passes'}: "
                    f"EstH 1e{mine:.2f}, {rival.label} 1e{other:.2f}"
                )
                parts.append(Part(text, mine < other, 10.0 ** (other - mine)))
        same = _same_as_svrg(subject, "TRSVR-EstH", "SVRG at EstH's α")
        if same is not None:
            alpha_L = (ours.alpha or np.nan) * subject.facts["component_smoothness"]
            found.append(
                f"on {data} α·L_max = {alpha_L:.2g}, the boundary was hit in {same[1]:.1%} of the steps and SVRG with "
                f"step α gives the same f to {same[0]:.0e}"
            )
    finding = f"EstH is SVRG with a larger step: {'; '.join(found)}." if found else ""
    return _verdict("C3", says, parts, finding)


def c4(results: Results) -> Verdict:
    """TRSVR is ahead at equal time and reaches 1e-6; SGD and Adam end between 1e-5 and 1e-2 and no longer fall."""
    says = "TRSVR reaches high precision sooner in wall-clock time; SGD and Adam plateau at gaps of 1e-2 to 1e-5."
    parts, found = [], []
    for data in ("covtype", "ijcnn1"):
        subject = _subject(results, "sgd-adam", data)
        lines = [] if subject is None else _paper(subject, "TRSVR-EstH", "SGD", "Adam")
        if subject is None or len(lines) < 3:
            continue
        ours, *rivals = lines
        best = ours.final("gap")
        text = f"{data}: TRSVR ends at {best:.1e}, wanted {HIGH_PRECISION:g}"
        parts.append(Part(text, best <= HIGH_PRECISION, _ratio(HIGH_PRECISION, best)))
        for rival in rivals:
            place = _common_end([ours, rival], "time")
            mine, other = ours.at("gap", "time", place), rival.at("gap", "time", place)
            text = f"{data} after {place:.2g} s: TRSVR {mine:.1e}, {rival.label} {other:.1e}"
            parts.append(Part(text, mine < other, _ratio(other, mine)))
            end = rival.final("gap")
            fall = _ratio(rival.at("gap", "epoch", 0.75 * rival.end("epoch")), end)
            inside = PLATEAU[0] <= end <= PLATEAU[1]
            text = (
                f"{data}: {rival.label} ends at {end:.1e}, between {PLATEAU[0]:g} and {PLATEAU[1]:g}, and fell by a "
                f"factor {fall:.3g} in its last quarter (a plateau is below {FACTOR:g})"
            )
            parts.append(Part(text, inside and fall < FACTOR, FACTOR / fall if inside else _outside(end)))
        adaptive = subject.line("TRSVR adaptive")
        if adaptive is not None:
            found.append(
                f"on {data} α·L_max = {(ours.alpha or np.nan) * subject.facts['component_smoothness']:.2g}; the "
                f"adaptive TRSVR is at 1e-6 after {adaptive.cost('time', 1e-6):.2g} s"
            )
    return _verdict("C4", says, parts, "; ".join(found)[:1].upper() + "; ".join(found)[1:] + "." if found else "")


def _outside(gap: float) -> float:
    """How far a gap is from the range of the plateau, as a factor below one."""
    return PLATEAU[0] and (gap / PLATEAU[0] if gap < PLATEAU[0] else PLATEAU[1] / gap)


def _regimes(subject: SubjectResults) -> dict[str, list[tuple[str, float]]]:
    """For each regime its pairs and their ‖∇f‖² at equal passes."""
    lines = [line for line in subject.with_roles("paper") if line.group]
    if not lines:
        return {}
    place = _common_end(lines, "passes")
    regimes: dict[str, list[tuple[str, float]]] = {}
    for line in lines:
        regimes.setdefault(line.group, []).append((line.label, line.at("gradient_norm_sq", "passes", place)))
    return regimes


def _best_regime(regimes: dict[str, list[tuple[str, float]]], wanted: str, data: str) -> tuple[Part, str]:
    """Whether the best pair of all is of the wanted regime, and which one is."""
    best = {name: min(pairs, key=lambda pair: pair[1]) for name, pairs in regimes.items()}
    others = min((pair for name, pair in best.items() if name != wanted), key=lambda pair: pair[1])
    text = (
        f"{data}: the best pair of the {wanted} regime ({best[wanted][0]}) ends at ‖∇f‖² {best[wanted][1]:.1e}, "
        f"the best of the others ({others[0]}) at {others[1]:.1e}"
    )
    winner = min(best, key=lambda name: best[name][1])
    ranked = sorted((pair for pairs in regimes.values() for pair in pairs), key=lambda pair: pair[1])
    order = " < ".join(f"{label} {height:.1e}" for label, height in ranked[:3])
    return Part(text, winner == wanted, _ratio(others[1], best[wanted][1])), f"Best on {data}: {winner} ({order})"


def c5(results: Results) -> Verdict:
    """The best pair is of high frequency, every pair of it is ahead of every large batch, and large batches stall."""
    says = "On RCV1 the high-frequency regime is best and large batches stall."
    subject = _subject(results, "sensitivity", "rcv1")
    regimes = {} if subject is None else _regimes(subject)
    if subject is None or len(regimes) < 3:
        return _verdict("C5", says, [], "")
    first, finding = _best_regime(regimes, "high frequency", "rcv1")
    worst = max(height for _, height in regimes["high frequency"])
    large = min(height for _, height in regimes["large batch"])
    start = subject.with_roles("paper")[0].at("gradient_norm_sq", "passes", 0.0)
    fall = start / large
    text = f"worst of high frequency {worst:.1e}, best of large batch {large:.1e}"
    ahead = Part(text, worst < large, _ratio(large, worst))
    text = f"large batches stall: the best of them fell by a factor {fall:.2g} from {start:.1e}"
    stalls = Part(f"{text} (a stall is below {FACTOR:g})", fall < FACTOR, FACTOR / fall)
    gaps = [line.final("gap") for line in subject.with_roles("paper")]
    spread = f"between {min(gaps):.1e} and {max(gaps):.1e}"
    finding += f"; after all epochs the gaps are {spread}, so no pair came near the minimum."
    return _verdict("C5", says, [first, ahead, stalls], finding)


def c6(results: Results) -> Verdict:
    """The best pair is balanced, and the best of high frequency is at least twice as high."""
    says = "On Covertype the balanced regime is best and high frequency clearly worse."
    subject = _subject(results, "sensitivity", "covtype")
    regimes = {} if subject is None else _regimes(subject)
    if subject is None or len(regimes) < 3:
        return _verdict("C6", says, [], "")
    first, finding = _best_regime(regimes, "balanced", "covtype")
    frequent = min(height for _, height in regimes["high frequency"])
    balanced = min(height for _, height in regimes["balanced"])
    times = frequent / balanced
    text = f"best of high frequency {frequent:.1e}, best of balanced {balanced:.1e}: {times:.2g} times as high"
    second = Part(text, frequent >= FACTOR * balanced, frequent / (FACTOR * balanced))
    return _verdict("C6", says, [first, second], f"{finding}.")


def c7(results: Results) -> Verdict:
    """On each set: TRSVR's ‖∇f‖² is the smallest, TRish stagnates, TRSVR is no decade behind the classic per pass."""
    says = (
        "On all six sets TRSVR reaches the highest precision, TRish stagnates, and TRSVR is comparable to or better "
        "than the classic method with fewer full gradients."
    )
    parts, best, behind = [], [], []
    study = results.study("ablation")
    for subject in [] if study is None else study.subjects:
        lines = _paper(subject, "TRSVR-EstH", "Classic TR", "TRish")
        if len(lines) < 3:
            continue
        ours, classic, trish = lines
        ends = {line.label: line.final("gradient_norm_sq") for line in lines}
        other = min(ends["Classic TR"], ends["TRish"])
        winner = min(ends, key=lambda label: ends[label])
        best.append(f"{subject.data}: {winner}")
        told = ", ".join(f"{label} {height:.1e}" for label, height in ends.items())
        mine = ends["TRSVR-EstH"]
        arrived = ours.final("gap") <= ARRIVED * subject.floor
        text = f"{subject.data}, ‖∇f‖² at the end: {told}{' (TRSVR is at the rounding floor of f)' if arrived else ''}"
        parts.append(Part(text, mine <= other or arrived, 1.0 if arrived else _ratio(other, mine)))
        fall = _ratio(trish.at("gradient_norm_sq", "epoch", 0.5 * trish.end("epoch")), ends["TRish"])
        text = f"{subject.data}: TRish fell by a factor {fall:.3g} in its second half (stagnation is below {FACTOR:g})"
        parts.append(Part(text, fall < FACTOR, FACTOR / fall))
        place = _common_end([ours, classic], "passes")
        per_pass, classic_gap = ours.at("gap", "passes", place), classic.at("gap", "passes", place)
        text = f"{subject.data} at {place:.0f} passes: gap of TRSVR {per_pass:.1e}, of the classic {classic_gap:.1e}"
        allowed = max(COMPARABLE * classic_gap, ARRIVED * subject.floor)
        parts.append(Part(text, per_pass <= allowed, _ratio(allowed, per_pass)))
        if per_pass > allowed:
            behind.append(subject.data)
    finding = f"Smallest ‖∇f‖² at the end: {'; '.join(best)}."
    if behind:
        finding += f" Per pass TRSVR is more than a decade behind the classic method on {', '.join(behind)}."
    return _verdict("C7", says, parts, finding)


def c8(results: Results) -> Verdict:
    """The objective of studies 2 to 5 has negative curvature somewhere."""
    says = "The objective of studies 2 to 5 is nonconvex."
    parts, met = [], 0
    seen: set[str] = set()
    for study, subject in results.subjects():
        if study.name not in ("double-well", "sgd-adam", "sensitivity", "ablation"):
            continue
        met += sum(int(run["negative_curvature"].sum()) for line in subject.with_roles("paper") for run in line.runs)
        if subject.facts["problem"] in seen:
            continue
        seen.add(subject.facts["problem"])
        lowest = float(subject.facts["strong_convexity"])
        text = f"{subject.data}: no eigenvalue of any ∇²f_i lies below {lowest:.3g}"
        parts.append(Part(text, lowest < 0, lowest / subject.facts["l2"] if lowest < 0 else 0.0))
    finding = (
        "At λ = γ and a = ½ the second derivative of the regulariser is at least λ(1 − 1/d) > 0: the objective is "
        f"strongly convex with one minimiser. All runs of these studies together met negative curvature {met} "
        f"times{' (rounding of the finite differences)' if met else ''}."
    )
    return _verdict("C8", says, parts, finding)


CLAIMS: tuple[Callable[[Results], Verdict], ...] = (c1, c2, c3, c4, c5, c6, c7, c8)


def judge(results: Results) -> list[Verdict]:
    """All claims."""
    return [claim(results) for claim in CLAIMS]
