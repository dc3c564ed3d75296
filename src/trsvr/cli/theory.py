"""``trsvr theory FILE``: the constants of a problem, and what follows from them."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
import typer

from trsvr import _check, _threads
from trsvr import theory as t
from trsvr.cli import options as o
from trsvr.cli.output import as_json, show_pairs, show_rows
from trsvr.cli.tables import Wanted, read_table
from trsvr.solvers import TRSVR

THEOREM = "Theorem"
Radius = Annotated[
    float | None,
    typer.Option(
        help="With a double well: all |w| are at most this; default: as on the level set of f(0).",
        show_default=False,
        rich_help_panel=o.OBJECTIVE,
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        help="Wanted mean of ‖∇f‖²; default: a hundredth of its value at 0.",
        show_default=False,
        rich_help_panel=THEOREM,
    ),
]
Mu0 = Annotated[float, typer.Option(help="μ₀, in (0, 1].", rich_help_panel=THEOREM)]
Mu1 = Annotated[float, typer.Option(help="μ₁, in (0, 1].", rich_help_panel=THEOREM)]
Exponent = Annotated[float, typer.Option(help="γ of the theorem, in (0, 1].", rich_help_panel=THEOREM)]


def theory(
    file: o.File,
    target: o.Target = None,
    format_: o.Format = "auto",
    header: o.Header = True,
    zero_based: o.ZeroBased = False,
    sep: o.Separator = "auto",
    drop: o.Drop = None,
    loss: o.Loss = "logistic",
    l2: o.Strength = 1e-4,
    gamma: o.Gamma = 0.0,
    a: o.WellPosition = 0.5,
    delta: o.Delta = 1.0,
    intercept: o.Intercept = False,
    radius: Radius = None,
    epsilon: Epsilon = None,
    mu0: Mu0 = 1.0,
    mu1: Mu1 = 1.0,
    exponent: Exponent = 2.0 / 3.0,
    alpha: o.Alpha = None,
    batch_size: o.BatchSize = None,
    inner_steps: o.InnerSteps = None,
    hessian: o.Hessian = None,
    threads: o.Threads = None,
    json: o.Json = False,
) -> None:
    """Print the constants of a problem and the settings that theory recommends.

    Constants: L, L_max, μ, κ_H. Recommended: the theorem's α, b and S with the guarantee that comes with them, and
    step sizes for SVRG, SARAH and SAGA. With --alpha, --batch-size and --inner-steps your own settings are judged
    instead.
    """
    kind = _check.one_of("--hessian", hessian or "estimated", o.HESSIANS)
    own = _own_settings(alpha, batch_size, inner_steps, kind)
    o.objective(loss, l2, gamma, a, delta)
    table = read_table(
        file, Wanted(target, header=header, zero_based=zero_based, separator=sep, drop=drop or ()), format_
    )
    problem = o.problem_from(table.X, table.y, loss, l2, gamma, a, delta, intercept)
    if threads is not None:
        _check.whole("--threads", threads)
    with _threads.limit(threads):
        facts = t.constants(problem, radius=radius)
        if not math.isfinite(facts.component_smoothness):
            raise ValueError(f"{file}: its numbers are so large that L is not finite; scale the columns")
        kappa = {name: t.hessian_bound(problem, name, radius=facts.radius) for name in o.HESSIANS}
        settings = own or t.theorem_settings(
            problem.n_samples, facts.component_smoothness, kappa[kind], mu0=mu0, mu1=mu1, gamma=exponent
        )
        report = t.check(problem, settings, radius=facts.radius)
        batches = sorted({1, min(10, problem.n_samples), min(200, problem.n_samples)})
        steps = {
            method: {b: t.recommended_step(problem, method, batch_size=b, radius=facts.radius) for b in batches}
            for method in ("svrg", "sarah", "saga")
        }
    goal = epsilon if epsilon is not None else max(report.start / 100.0, float(np.finfo(float).tiny))
    cost = t.complexity(
        goal,
        report.gap,
        problem.n_samples,
        report.batch_size,
        report.inner_steps,
        report.progress if report.holds else 0.0,
    )
    if json:
        print(as_json(_record(file, facts, kappa, report, settings, steps, cost)))
    else:
        _show(file.name, facts, kappa, report, own is not None, steps, cost)


def _own_settings(alpha: str | None, batch_size: str | None, inner_steps: str | None, hessian: str) -> Any:
    """The user's settings to be judged, or None."""
    texts = {"--alpha": alpha, "--batch-size": batch_size, "--inner-steps": inner_steps}
    missing = [name for name, text in texts.items() if text is None]
    if len(missing) == 3:
        return None
    if missing:
        raise ValueError(f"settings to be judged must be complete: {' and '.join(missing)} missing")
    values = [o.number(name, text or "") for name, text in texts.items()]
    return TRSVR(alpha=values[0], batch_size=values[1], inner_steps=values[2], hessian=hessian)


def _record(
    file: Any,
    facts: t.Constants,
    kappa: dict[str, float],
    report: t.Report,
    settings: Any,
    steps: dict[str, dict[int, float]],
    cost: t.Complexity,
) -> dict[str, Any]:
    theorem = {"v0": settings.v0, "v0_printed": settings.v0_printed} if isinstance(settings, t.Settings) else {}
    return {
        "file": str(file),
        "n_samples": facts.n_samples,
        "n_parameters": facts.n_parameters,
        "L": facts.smoothness,
        "L_max": facts.component_smoothness,
        "L_mean": facts.mean_smoothness,
        "mu": facts.strong_convexity,
        "lowest_curvature": facts.lowest_curvature,
        "condition_number": facts.condition_number,
        "radius": facts.radius,
        "kappa_H": kappa,
        "settings": {
            "alpha": report.alpha,
            "batch_size": report.batch_size,
            "inner_steps": report.inner_steps,
            "kappa_H": report.hessian_bound,
            "Lambda_min": report.progress,
            **theorem,
        },
        "assumptions": [vars(statement) for statement in report.statements],
        "guaranteed": report.holds,
        "guarantee": report.guarantee,
        "start": {"value": report.gap, "gradient_norm_sq": report.start},
        "complexity": vars(cost),
        "steps": steps,
    }


def _show(
    name: str,
    facts: t.Constants,
    kappa: dict[str, float],
    report: t.Report,
    own: bool,
    steps: dict[str, dict[int, float]],
    cost: t.Complexity,
) -> None:
    box = [] if facts.radius is None else [("radius", f"{facts.radius:.4g} (the constants hold for |w| up to this)")]
    show_pairs(
        f"{name}: constants",
        [
            ("rows N, parameters d", f"{facts.n_samples}, {facts.n_parameters}"),
            ("L", f"{facts.smoothness:.6g} (Lipschitz constant of ∇f)"),
            ("L_max", f"{facts.component_smoothness:.6g} (of the worst ∇f_i; mean {facts.mean_smoothness:.6g})"),
            ("μ", _modulus(facts)),
            ("L/μ", f"{facts.condition_number:.4g}"),
            ("κ_H", ", ".join(f"{kind} {value:.6g}" for kind, value in kappa.items())),
            *box,
        ],
    )
    show_pairs(
        "Your settings for TRSVR" if own else "The theorem's settings for TRSVR",
        [
            ("α, b, S", f"{report.alpha:.6g}, {report.batch_size}, {report.inner_steps}"),
            *((("holds" if s.holds else "FAILS"), f"{s.name}: {s.sentence}") for s in report.statements),
            ("guarantee", report.guarantee),
            (f"for ε = {cost.epsilon:.3g}", f"{cost.epochs:.6g} epochs, {cost.passes:.6g} passes"),
        ],
    )
    batches = list(next(iter(steps.values())))
    show_rows(
        "Recommended step sizes",
        ["method", *(f"b = {b}" for b in batches)],
        [[method, *(f"{row[b]:.4g}" for b in batches)] for method, row in steps.items()],
    )


def _modulus(facts: t.Constants) -> str:
    if facts.strong_convexity > 0.0:
        return f"{facts.strong_convexity:.6g} (strongly convex)"
    if facts.lowest_curvature < 0.0:
        return f"none: curvature may be as low as {facts.lowest_curvature:.4g}"
    return "0 (nothing penalises every direction)"
