"""Options that several sub-commands have, and how their texts are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from trsvr import _check, problems
from trsvr._device import linear_model
from trsvr.cli.tables import FORMATS
from trsvr.solvers import BY_NAME

DATA, OBJECTIVE, METHOD, LIMITS, OUTPUT = "Data", "Objective", "Method", "Limits", "Output"
CLUSTER = "Cluster"

LOSSES = {
    "logistic": problems.Logistic,
    "squared-hinge": problems.SquaredHinge,
    "squared": problems.Squared,
    "pseudo-huber": problems.PseudoHuber,
    "softmax": problems.Softmax,
    "poisson": problems.Poisson,
    "gamma": problems.Gamma,
    "tweedie": problems.Tweedie,
    "negative-binomial": problems.NegativeBinomial,
    "binomial": problems.Binomial,
}
HESSIANS = ("estimated", "exact", "identity")


def _one_of(*names: str) -> Any:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


File = Annotated[
    Path,
    typer.Argument(help="LIBSVM (plain or compressed), CSV, Parquet or NPZ file.", metavar="FILE", show_default=False),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        help="auto, libsvm, csv, parquet or npz; auto looks at the file's name.",
        autocompletion=_one_of(*FORMATS),
        rich_help_panel=DATA,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        help="Column of the target, by name (CSV, Parquet), or name of the array (NPZ); "
        "default: the only one called target, label, class or y.",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Header = Annotated[
    bool, typer.Option("--header/--no-header", help="Whether a CSV file begins with names.", rich_help_panel=DATA)
]
ZeroBased = Annotated[
    bool, typer.Option("--zero-based", help="LIBSVM indices count from 0, not from 1.", rich_help_panel=DATA)
]
Separator = Annotated[
    str,
    typer.Option(
        "--sep",
        help="Between the columns of a CSV file: a character, tab or space; auto looks at its first line.",
        rich_help_panel=DATA,
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        help="Column that is not used (CSV, Parquet); may be given several times; default: all are used, but for one "
        "without a name that only counts the rows.",
        metavar="COLUMN",
        show_default=False,
        rich_help_panel=DATA,
    ),
]
Loss = Annotated[
    str,
    typer.Option(
        help="logistic, squared-hinge (two classes), softmax (classes), squared or pseudo-huber (numbers), poisson or "
        "negative-binomial (counts), gamma (> 0), tweedie (>= 0), binomial (shares; weights are trials).",
        autocompletion=_one_of(*LOSSES),
        rich_help_panel=OBJECTIVE,
    ),
]
Strength = Annotated[
    float, typer.Option("--l2", "--lambda", "--penalty", help="λ of (λ/2)‖w‖².", rich_help_panel=OBJECTIVE)
]
Power = Annotated[float, typer.Option(help="p of tweedie's variance μᵖ, from 1 to 2.", rich_help_panel=OBJECTIVE)]
Dispersion = Annotated[
    float, typer.Option(help="α of negative-binomial's variance μ + αμ².", rich_help_panel=OBJECTIVE)
]
Gamma = Annotated[float, typer.Option(help="γ of the double well (γ/d) Σ (w² − a²)².", rich_help_panel=OBJECTIVE)]
WellPosition = Annotated[float, typer.Option("--a", help="a of the double well.", rich_help_panel=OBJECTIVE)]
Delta = Annotated[float, typer.Option(help="Where pseudo-huber turns linear.", rich_help_panel=OBJECTIVE)]
Intercept = Annotated[
    bool, typer.Option("--intercept/--no-intercept", help="Add an unpenalised intercept.", rich_help_panel=OBJECTIVE)
]
Alpha = Annotated[
    str | None,
    typer.Option(
        help="Radius over gradient norm (trsvr, trish); default: chosen for you.",
        metavar="NUMBER",
        show_default=False,
        rich_help_panel=METHOD,
    ),
]
BatchSize = Annotated[
    str | None,
    typer.Option(
        help="Rows per step; default: chosen for you.", metavar="NUMBER", show_default=False, rich_help_panel=METHOD
    ),
]
InnerSteps = Annotated[
    str | None,
    typer.Option(
        help="Steps per epoch; default: chosen for you.", metavar="NUMBER", show_default=False, rich_help_panel=METHOD
    ),
]
Hessian = Annotated[
    str | None,
    typer.Option(
        help="estimated, exact or identity; default: chosen for you.",
        autocompletion=_one_of(*HESSIANS),
        show_default=False,
        rich_help_panel=METHOD,
    ),
]
Method = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(BY_NAME)}.",
        autocompletion=_one_of(*BY_NAME),
        rich_help_panel=METHOD,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(help="Threads; default: the cores this process may use.", show_default=False, rich_help_panel=LIMITS),
]
Device = Annotated[
    str,
    typer.Option(
        help="Where the sums are made: cpu, or cuda for a GPU (needs PyTorch).",
        metavar="cpu|cuda",
        autocompletion=_one_of("cpu", "cuda"),
        rich_help_panel=LIMITS,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.", rich_help_panel=OUTPUT)]


def loss_from(loss: str, delta: float = 1.0, power: float = 1.5, dispersion: float = 1.0) -> Any:
    """The loss that the options name."""
    kind = LOSSES[_check.one_of("--loss", loss, LOSSES)]
    _check.positive("--delta", delta)
    _check.positive("--dispersion", dispersion)
    if not 1.0 <= power <= 2.0:
        raise ValueError(f"--power must be a number from 1 (Poisson) to 2 (Gamma), got {power}")
    settings: dict[Any, float] = {
        problems.PseudoHuber: delta,
        problems.Tweedie: power,
        problems.NegativeBinomial: dispersion,
    }
    return kind(settings[kind]) if kind in settings else kind()


def objective(
    loss: str, l2: float, gamma: float, a: float, delta: float, power: float = 1.5, dispersion: float = 1.0
) -> tuple[Any, Any]:
    """Loss and regulariser from the options."""
    formula = loss_from(loss, delta, power, dispersion)
    regularizer: Any = problems.L2(_check.positive("--l2", l2, zero=True))
    _check.positive("--a", a, zero=True)
    if _check.positive("--gamma", gamma, zero=True) > 0.0:
        regularizer = regularizer + problems.DoubleWell(gamma, a)
    return formula, regularizer


def problem_from(
    X: Any, y: Any, loss: str, l2: float, gamma: float, a: float, delta: float, intercept: bool, device: str = "cpu"
) -> Any:
    """The problem that the options describe."""
    return model_of(X, y, *objective(loss, l2, gamma, a, delta), intercept, device)


def model_of(
    X: Any,
    y: Any,
    loss: Any,
    regularizer: Any,
    intercept: bool,
    device: str = "cpu",
    weights: Any = None,
    offset: Any = None,
) -> Any:
    """The problem of a loss and a regulariser, where it is to be solved."""
    more = {} if offset is None else {"offset": offset}
    return linear_model(device)(X, y, loss, regularizer, intercept=intercept, sample_weight=weights, **more)


def number(name: str, text: str, *words: str) -> Any:
    """A whole number, a number, or one of the words (such as "auto")."""
    word = text.strip().lower()
    if word in words:
        return word
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    accepted = " or ".join(["a number", *words])
    raise ValueError(f"{name} must be {accepted}, got {text!r}")
