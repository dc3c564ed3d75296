"""What the report says: results turned into tables and sentences."""

from __future__ import annotations

from typing import Any

import numpy as np

from trsvr.experiments import findings, profiles
from trsvr.experiments.claims import EPSILONS, Verdict, judge, sample_costs
from trsvr.experiments.document import (
    Bullets,
    Document,
    Figure,
    Heading,
    Paragraph,
    Table,
    cost,
    duration,
    plain,
    small,
)
from trsvr.experiments.figures import beside_paper, drawn_lines, groups
from trsvr.experiments.paper_figures import places
from trsvr.experiments.results import GAPS, Line, Results, StudyResults, SubjectResults
from trsvr.experiments.verdicts import CHOICES

_HOW = (
    "A component gradient ∇f_i counts one. A full gradient counts N, a step of an SVRG or SARAH estimator 2b, one of "
    "SAGA, SGD, Adam and TRish b, a product with the Hessian of b rows b. Passes are component gradients over N. "
    "Figures and curves are drawn with and without counting the products.",
    "An epoch is one outer iteration for methods with a reference point and one iteration of the classic trust region; "
    "for the others it is ⌈N/b⌉ steps. Evaluations that only draw a curve are neither counted nor timed.",
    "A run ends with its budget, or earlier at the rounding floor: ten epochs in which f stays the same to its last "
    "bits and the gradient does not become smaller. From there on figures continue its curve with its last value.",
    "f* comes from two solvers that share no code, TRSVR on compiled kernels and SciPy's trust region on a NumPy "
    "objective. Only where the objective is not convex the gap is to the best value that any run found.",
    "Numbers are medians over the seeds; brackets and bands go from 20 to 80 %.",
)


def document(results: Results) -> Document:
    """The whole report."""
    papers = any(study.study["paper"] for study in results.studies.values())
    made = Document("The TRSVR paper, run again" if papers else f"Studies: {', '.join(results.studies)}")
    made.add(*_what_was_run(results))
    if papers:
        made.add(*_claims(judge(results)), *_findings(results), *_map())
    made.add(Figure("Curves", "Gap and squared gradient norm of every study", interactive=True))
    for study in results.studies.values():
        if not study.runs:
            continue
        if study.name.startswith("step-size"):
            made.add(*_step_sizes(study))
        elif study.name.startswith("defaults"):
            made.add(*_defaults(study))
        elif study.name.startswith("complexity"):
            made.add(*_complexity(study))
        else:
            made.add(*_study(study))
    if beside_paper(results):
        made.add(*_adaptive(results))
    made.add(Heading("How it was done"), Bullets(list(_HOW)))
    made.add(Heading("Machine and versions"))
    made.add(Table(["what", "value"], [[name, value] for name, value in results.machine.items()], words=(0, 1)))
    return made


# ------------------------------------------------------------------------------------------------------ the opening


def _what_was_run(results: Results) -> list[Any]:
    blocks: list[Any] = []
    studies = list(results.studies.values())
    quick = [study.name for study in studies if study.quick]
    if quick:
        blocks.append(
            Paragraph(
                f"Quick run of {', '.join(quick)}: fewer epochs and seeds than the paper's budget, and of large data "
                "sets only some rows, as the tables say. Verdicts on claims are provisional.",
                notice=True,
            )
        )
    stand_ins = sorted(
        {f"{s.data} is replaced by {s.facts['name']}" for _, s in results.subjects() if s.facts["name"] != s.data}
    )
    if stand_ins:
        blocks.append(Paragraph(f"Substitutes: {'; '.join(stand_ins)}. Tables and figures name them.", notice=True))
    missing = {data: reason for study in studies for data, reason in study.missing.items()}
    if missing:
        blocks.append(Paragraph("These data sets are missing, and the studies ran without them:", notice=True))
        blocks.append(Bullets([f"{data}: {reason}" for data, reason in missing.items()]))
    unfinished = [f"{study.name} {study.wanted - study.runs}" for study in studies if study.runs < study.wanted]
    if unfinished:
        blocks.append(Paragraph(f"Not finished yet, runs still to be made: {', '.join(unfinished)}.", notice=True))
    head = ["study", "data sets", "runs", "budget", "seeds", "time of its runs"]
    rows = []
    for study in studies:
        spec = study.study
        budget = _budget(study)
        sets = ", ".join(subject.title for subject in study.subjects) or "–"
        rows.append([study.name, sets, str(study.runs), budget, str(spec["seeds"]), duration(study.wall_time)])
    blocks.append(Table(head, rows, words=(0, 1)))
    spent = sum(float(session["seconds"]) for session in results.sessions)
    runs = sum(int(session["jobs"]) for session in results.sessions)
    if results.sessions:
        workers = max(int(session["workers"]) for session in results.sessions)
        blocks.append(
            Paragraph(
                f"{runs} runs were made in {duration(spent)}, {workers} at a time. The last column adds up the runs' "
                "own times; a run that two studies share was made once and appears in both."
            )
        )
    return blocks


def _budget(study: StudyResults) -> str:
    spec = study.study
    return f"{spec['epochs']} epochs" if spec["epochs"] else f"{spec['passes']:g} passes"


def _grid_budget(study: StudyResults) -> str:
    """That of a point, and that of the chosen value where it had more."""
    own = _budget(study) if study.grid_epochs is None else f"{study.grid_epochs} epochs"
    return own if own == _budget(study) else f"{own} (the chosen value for {_budget(study)})"


def _claims(verdicts: list[Verdict]) -> list[Any]:
    blocks: list[Any] = [
        Heading("The paper's claims"),
        Paragraph(
            "Each claim is taken apart into statements that hold or do not, judged along the whole curve where it is "
            "about a curve. Reproduced: all hold. Partly: at least half. Not reproduced: fewer. The margin is the "
            "factor by which the weakest statement holds (above 1) or fails (below 1)."
        ),
        Table(
            ["claim", "what the paper says (section)", "verdict", "holds", "margin"],
            [[v.claim, f"{v.says} ({v.section})", v.verdict, v.held, _margin(v.margin)] for v in verdicts],
            words=(0, 1, 2),
        ),
        Paragraph(
            "Verdicts rest on choices of our own where the paper says nothing, or contradicts itself. The last column "
            "judges the same claim with another choice, where that was run (trsvr paper run --alternative):"
        ),
        Table(
            ["claim", "rests on", "otherwise"],
            [
                [
                    verdict.claim,
                    ", ".join(verdict.rests_on),
                    "; ".join(f"{called}: {v.verdict} ({v.held})" for called, v in verdict.alternatives.items()),
                ]
                for verdict in verdicts
                if verdict.rests_on
            ],
            words=(0, 1, 2),
        ),
        Table(["choice", "what was chosen"], [[name, text] for name, text in CHOICES.items()], words=(0, 1)),
    ]
    for verdict in verdicts:
        if verdict.parts:
            items = [f"{'holds' if part.holds else 'fails'}: {part.text}" for part in verdict.parts]
            items += [verdict.finding] if verdict.finding else []
            blocks.append(Bullets(items, summary=f"{verdict.claim}, {verdict.verdict}: the numbers"))
    return blocks


def _findings(results: Results) -> list[Any]:
    blocks: list[Any] = [Heading("What we found besides"), Paragraph("None of this judges the paper.")]
    for finding in findings.find(results):
        names = ("study", "data", "method", "the paper's")
        words = tuple(place for place, name in enumerate(finding.head) if name in names)
        blocks += [Paragraph(finding.text), Table(list(finding.head), [list(row) for row in finding.rows], words)]
    return blocks


def _map() -> list[Any]:
    rows = [[place.paper, place.shows, f"`{place.file}`", place.panel, f"`{place.command}`"] for place in places()]
    return [
        Heading("The paper's figures and tables"),
        Paragraph("Where each is found among ours; passes are drawn twice, with and without Hessian products."),
        Table(["in the paper", "what it shows", "our file", "where in it", "command"], rows, words=(0, 1, 2, 3, 4)),
    ]


def _margin(factor: float) -> str:
    if np.isnan(factor):
        return "–"
    if factor >= 1e6:
        return "> 1e6"
    return "< 1e-6" if factor < 1e-6 else plain(factor, 2)


# -------------------------------------------------------------------------------------------------------- one study


def settings_text(line: Line) -> str:
    """What was chosen, in the paper's letters."""
    letters = {
        "alpha": "α",
        "step": "step",
        "batch_size": "b",
        "inner_steps": "S",
        "initial_radius": "Δ₀",
        "gamma1": "γ₁",
        "gamma2": "γ₂",
        "momentum": "momentum",
        "hessian": "H",
        "max_cg": "CG ≤",
    }
    words = {"estimated": "EstH", "identity": "Id"}
    order = [*(key for key in letters if key in line.settings), *(key for key in line.settings if key not in letters)]
    told = [f"{letters.get(key, key)} {words.get(line.settings[key], line.settings[key])}" for key in order]
    return ", ".join(told) or "all by itself"


def _study(study: StudyResults) -> list[Any]:
    spec = study.study
    blocks: list[Any] = [Heading(spec["title"])]
    if spec["about"]:
        blocks.append(Paragraph(spec["about"]))
    for subject in study.subjects:
        if any(line.runs for line in subject.lines):
            blocks += _subject(study, subject)
    blocks += _tuning(study)
    return blocks


def _subject(study: StudyResults, subject: SubjectResults) -> list[Any]:
    facts = subject.facts
    well = f" + (γ/d) Σ (w² − a²)², γ = {facts['gamma']:g}, a = {facts['a']:g}" if facts["gamma"] else ""
    told = (
        f"{facts['rows']} × {facts['columns']}, {facts['description']}. Logistic loss, λ = {facts['l2']:g}{well}. "
        f"L = {facts['smoothness']:.4g}, L_max = {facts['component_smoothness']:.4g}. "
    )
    if facts["value"] is None:
        others, runs = subject.other_basins()
        told += (
            f"Nonconvex: the gap is to the best value found, {subject.reference:.12g}; {others} of {runs} runs ended "
            "in another basin."
        )
    else:
        told += f"f* = {facts['value']:.15g}; TRSVR and SciPy agree to {facts['relative_difference']:.0e} (relative)."
    return [
        Heading(f"{subject.title}", 3),
        Paragraph(told),
        _lines_table(study, subject),
        Figure(f"{study.name}-{subject.data}", f"{study.study['title']}: {subject.title}"),
    ]


def _lines_table(study: StudyResults, subject: SubjectResults) -> Table:
    axis, unit = ("time", "s to") if study.study["timed"] else ("passes", "passes to")
    head = ["method", "settings", "α·L_max", "boundary", "CG", "final gap", "20–80 %", "final ‖∇f‖²"]
    head += ["runs", "passes", "without H·v"]
    head += [f"{unit} {gap:.0e}".replace("e-0", "e-") for gap in GAPS]
    # Elsewhere several runs share the cores, and seconds say little.
    head += ["seconds"] if study.study["timed"] else []
    rows = []
    for line in drawn_lines(subject):
        low, high = line.band_at_end("gap")
        alpha = np.nan if line.alpha is None else line.alpha * subject.facts["component_smoothness"]
        final = f"diverged ({line.diverged} of {len(line.runs)})" if line.diverged else small(line.final("gap"))
        show = plain if axis == "time" else cost
        rows.append(
            [
                line.shown,
                settings_text(line),
                plain(alpha),
                plain(line.mean("boundary_fraction"), 4),
                plain(line.mean("cg_iterations")),
                final,
                f"{small(low)} … {small(high)}",
                small(line.final("gradient_norm_sq")),
                str(len(line.runs)),
                cost(line.end("passes")),
                cost(line.end("passes_without")),
                *(show(line.cost(axis, gap)) for gap in GAPS),
                *([plain(line.end("time"))] if study.study["timed"] else []),
            ]
        )
    return Table(head, rows, words=(0, 1))


def _tuning(study: StudyResults) -> list[Any]:
    if not study.grid:
        return []
    blocks: list[Any] = [
        Heading(f"{study.study['title']}: tuned again", 3),
        Paragraph(
            f"Every method had the same number of grid points, each run for {_grid_budget(study)} on "
            f"{study.grid_seeds} {'seed' if study.grid_seeds == 1 else 'seeds'} of the grid's own. The best by final "
            "gap was run again on the study's seeds, together with the values it was given. A choice at the end of "
            "its grid is marked."
        ),
    ]
    rows = []
    for subject in study.subjects:
        for line in subject.with_roles("tuned"):
            points = [p for p in study.grid if p["problem"] == subject.facts["problem"] and p["label"] == line.label]
            chosen: dict[str, float] = next((p["chosen"] for p in points if p["best"]), {})
            tried = {key: sorted({point["chosen"][key] for point in points}) for key in chosen}
            edge = any(len(values) > 2 and chosen[key] in (values[0], values[-1]) for key, values in tried.items())
            paper = subject.line(line.label, "paper")
            rows.append(
                [
                    subject.title,
                    line.label,
                    str(len(points)),
                    "" if paper is None else _chosen(paper.settings, chosen),
                    "–" if paper is None else small(paper.final("gap")),
                    _chosen(line.settings, chosen) + (" (end of the grid)" if edge else ""),
                    small(line.final("gap")),
                    plain(line.mean("boundary_fraction"), 4),
                ]
            )
    given = "the paper's" if study.study["paper"] else "as given"
    head = ["data", "method", "points", given, "final gap", "re-tuned", "final gap", "boundary"]
    blocks.append(Table(head, rows, words=(0, 1, 3, 5)))
    return blocks


def _chosen(settings: dict[str, Any], keys: dict[str, Any]) -> str:
    return ", ".join(f"{key} {settings[key]:.3g}" for key in keys if key in settings)


# ------------------------------------------------------------------------------------------------- beyond the paper


def _step_sizes(study: StudyResults) -> list[Any]:
    rows = []
    alphas: set[float] = set()
    for subject in study.subjects:
        for group, lines in groups(subject).items():
            alphas |= {line.alpha for line in lines if line.alpha is not None}
            ends = {line.alpha or np.nan: (np.inf if line.diverged else line.final("gap")) for line in lines}
            best = min(ends, key=lambda alpha: ends[alpha])
            # An α is good if it comes within a factor ten of the best, or to rounding.
            good = [alpha for alpha, gap in ends.items() if gap <= max(10 * ends[best], 64 * subject.floor)]
            rows.append(
                [
                    subject.title,
                    group,
                    f"{best:.3g}",
                    plain(best * subject.facts["component_smoothness"]),
                    small(ends[best]),
                    f"{min(good):.3g} … {max(good):.3g}",
                    str(len(good)),
                    str(sum(line.diverged > 0 for line in lines)),
                ]
            )
    head = ["data", "method", "best α", "α·L_max", "gap there", "within ten times of it", "points", "diverged"]
    return [
        Heading(f"Beyond the paper: {study.study['title'].lower()}"),
        Paragraph(
            f"{study.study['about']} {study.study['epochs']} epochs, {len(alphas)} values of α from "
            f"{min(alphas, default=0):g} to {max(alphas, default=0):g}."
        ),
        Table(head, rows, words=(0, 1, 5)),
        Figure(study.name, "Final gap against α"),
    ]


def _complexity(study: StudyResults) -> list[Any]:
    rows = []
    for label in ("TRSVR-EstH", "SVRG"):
        for size, costs in sorted(sample_costs(study.subjects, label).items()):
            rows.append([label, str(size), *(f"{found:.3g}" for found in costs)])
    head = ["method", "N", *(f"ε = {epsilon:.0e}" for epsilon in EPSILONS)]
    return [
        Heading(f"The theorem: {study.study['title']}"),
        Paragraph(
            f"{study.study['about']} Component gradients, products not counted, until ‖∇f‖² is ε times its first value."
        ),
        Table(head, rows),
        Figure(study.name, "Component gradients against N"),
    ]


def _defaults(study: StudyResults) -> list[Any]:
    head = ["method", *(subject.title for subject in study.subjects)]
    best = []
    for target in (1e-3, 1e-6):
        labels, costs = profiles.costs(study, "passes", target)
        for label, row in zip(labels, profiles.ratios(costs), strict=True):
            best.append([label, f"{target:g}", _share(row <= 1), _share(np.isfinite(row))])
    rows = []
    for label in labels:
        found = [subject.line(label) for subject in study.subjects]
        told = ["–" if line is None else cost(line.cost("passes", 1e-6, relative=True)) for line in found]
        rows.append([label, *told])
    return [
        Heading("Beyond the paper: performance profiles"),
        Paragraph(
            f"{study.study['about']} Passes until the gap is a millionth of the first one, at most "
            f"{study.study['passes']:g}; a dash is never."
        ),
        Table(head, rows),
        Paragraph("How often a method is the cheapest in passes, and how often it gets there:"),
        Table(["method", "gap down to", "cheapest", "gets there"], best, words=(0,)),
        Figure(f"{study.name}-profiles", "Performance profiles (Dolan & Moré)"),
    ]


def _share(true: Any) -> str:
    return f"{true.mean():.0%}" if true.size else "–"


def _adaptive(results: Results) -> list[Any]:
    rows = []
    for study, subject, rival, adaptive in beside_paper(results):
        rows.append(
            [
                f"{study.name}: {subject.title}",
                rival.label,
                small(rival.final("gap")),
                small(adaptive.final("gap")),
                *(f"{cost(rival.cost('passes', gap))} / {cost(adaptive.cost('passes', gap))}" for gap in GAPS),
                f"{plain(rival.end('time'), 2)} / {plain(adaptive.cost('time', GAPS[-1]), 2)}"
                if study.study["timed"]
                else "",
            ]
        )
    head = ["study", "the paper's version (its best)", "its final gap", "adaptive"]
    head += [f"passes to {gap:.0e}".replace("e-0", "e-") for gap in GAPS] + ["s: whole budget / adaptive to 1e-9"]
    return [
        Heading("The default, adaptive TRSVR and the paper's version"),
        Paragraph(
            "`trsvr.TRSVR()` has nothing to choose: it measures steps in the curvature's own norm and finds batch and "
            "inner loop by itself. Where two numbers stand in a column, the paper's version comes first; a dash is "
            "never within the budget. Seconds are given for studies of time."
        ),
        Table(head, rows, words=(0, 1)),
        Figure("adaptive", "Gap against passes: the paper's version of TRSVR and the adaptive one"),
    ]
