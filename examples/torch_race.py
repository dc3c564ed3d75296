"""What the torch examples share: methods tuned with the same effort, run on the same budget, drawn in one style.

A budget is a number of passes: gradient evaluations of single samples over N. A step on b samples costs b for SGD and
Adam, 2b for TRSVR (at x and at the reference) and b more for each Hessian product; a full gradient costs N. Losses and
accuracies that are only drawn cost nothing, for anybody. Every method has one number to choose, from as many
candidates; the one with the lowest final training loss, the higher of two seeds, runs again on fresh seeds, and only
those are shown.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import trsvr.torch

TUNING_SEEDS = (100, 101)
FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"


@dataclass
class Task:
    """What is learnt. ``loss_on_batch(model, batch)`` returns the mean loss and the outputs it came from."""

    name: str
    title: str
    build: Callable[[], torch.nn.Module]
    loss_on_batch: Callable[[torch.nn.Module, Any], tuple[torch.Tensor, torch.Tensor]]
    tensors: tuple[torch.Tensor, ...]
    batch_size: int
    budget: float
    metric: Callable[[torch.nn.Module], float]
    metric_name: str
    metric_scale: str = "linear"
    floor: float = 1e-300  # logarithmic axes end here: below there is only rounding

    @property
    def record_every(self) -> int:
        """Passes between two points of a curve, so that drawing does not take longer than learning."""
        return max(1, int(self.budget // 60))


@dataclass
class Curve:
    """Passes, training loss and metric along one run."""

    passes: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    metric: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def record(self, task: Task, model: torch.nn.Module, passes: float) -> bool:
        """Add a point; returns whether the run may go on."""
        with torch.enable_grad():  # a physics-informed loss differentiates by itself
            loss = float(task.loss_on_batch(model, task.tensors)[0].detach())
        self.passes.append(passes)
        self.loss.append(loss)
        self.metric.append(task.metric(model))
        return math.isfinite(loss) and loss < 1e6 and passes < task.budget


@dataclass
class Method:
    """A method with one number to choose."""

    name: str
    candidates: list[float]
    run: Callable[[Task, torch.nn.Module, float, Curve], None]


def shuffled(task: Task) -> list[tuple[torch.Tensor, ...]]:
    """All samples once, in random order, in batches."""
    order = torch.randperm(len(task.tensors[0]))
    return [tuple(part[rows] for part in task.tensors) for rows in order.split(task.batch_size)]


def first_order(make: Callable[[Any, float], torch.optim.Optimizer]) -> Callable[..., None]:
    """SGD, Adam and their like."""

    def run(task: Task, model: torch.nn.Module, rate: float, curve: Curve) -> None:
        optimizer = make(model.parameters(), rate)
        passes = 0
        while passes % task.record_every or curve.record(task, model, passes):
            for batch in shuffled(task):
                optimizer.zero_grad()
                task.loss_on_batch(model, batch)[0].backward()
                optimizer.step()
            passes += 1

    return run


def variance_reduced(hessian: str, falling: bool = False, max_cg: int = 10) -> Callable[..., None]:
    """TRSVR; ``falling`` lets the coefficient of the control variate go from 1 to 0 along the budget."""

    def run(task: Task, model: torch.nn.Module, alpha: float, curve: Curve) -> None:
        n, evaluations = len(task.tensors[0]), 0
        optimizer = trsvr.torch.TRSVR(model.parameters(), alpha, hessian, max_cg=max_cg, probe=False)
        while curve.record(task, model, evaluations / n):
            used = min(evaluations / n / task.budget, 1.0)
            optimizer.param_groups[0]["coefficient"] = 1.0 - used if falling else 1.0
            try:
                optimizer.set_reference(lambda batch: task.loss_on_batch(model, batch), [task.tensors])
                evaluations += n
                for batch in shuffled(task):
                    optimizer.step(lambda batch=batch: task.loss_on_batch(model, batch))
                    evaluations += (2 + optimizer.last_step.products) * len(batch[0])
            except FloatingPointError:
                curve.loss[-1] = math.inf
                return

    return run


def lbfgs(task: Task, model: torch.nn.Module, history: float, curve: Curve) -> None:
    """PyTorch's L-BFGS on all samples, with its strong Wolfe line search; its number is the history."""
    optimizer = torch.optim.LBFGS(
        model.parameters(),
        max_iter=10,
        history_size=int(history),
        line_search_fn="strong_wolfe",
        tolerance_grad=0.0,
        tolerance_change=0.0,
    )
    passes = 0

    def closure() -> torch.Tensor:
        nonlocal passes
        passes += 1
        optimizer.zero_grad()
        loss = task.loss_on_batch(model, task.tensors)[0]
        loss.backward()
        return loss

    while curve.record(task, model, passes):
        before = passes
        optimizer.step(closure)
        if passes == before or (len(curve.loss) > 3 and curve.loss[-1] == curve.loss[-3]):
            break  # it has stopped by itself


def nothing_to_choose(targets: torch.Tensor) -> Callable[..., None]:
    """`trsvr.torch.minimize`, the adaptive mode, on least squares of the model's outputs to these targets."""

    def run(task: Task, model: torch.nn.Module, _: float, curve: Curve) -> None:
        watcher = copy.deepcopy(model)

        def record(so_far: trsvr.Result) -> None:
            torch.nn.utils.vector_to_parameters(torch.from_numpy(so_far.x.copy()), watcher.parameters())
            if not curve.record(task, watcher, so_far.passes):
                raise StopIteration

        limits = {"max_epochs": None, "max_passes": task.budget, "tol": None, "callback": record}
        loss = torch.nn.functional.mse_loss
        trsvr.torch.minimize(model, loss, (task.tensors[0], targets), **limits)

    return run


def grid(lowest: float, highest: float, count: int) -> list[float]:
    """Numbers at equal ratios."""
    return [float(number) for number in np.geomspace(lowest, highest, count)]


def one_run(task: Task, method: Method, setting: float, seed: int) -> Curve:
    """One curve."""
    torch.manual_seed(seed)
    model, curve = task.build(), Curve()
    begun = time.perf_counter()
    method.run(task, model, setting, curve)
    curve.seconds = time.perf_counter() - begun
    return curve


def race(task: Task, methods: list[Method], seeds: int) -> dict[str, tuple[float, list[Curve]]]:
    """Tune every method, run the best settings on fresh seeds, and print what came out."""
    print(f"{task.title}: {len(task.tensors[0])} samples, batches of {task.batch_size}, {task.budget:g} passes")
    print(
        f"{'method':28}{'setting':>10}{'training loss':>15}{'lowest … highest':>24}{task.metric_name:>22}{'seconds':>9}"
    )
    found = {}
    for method in methods:
        finals = []
        for setting in method.candidates:
            losses = [one_run(task, method, setting, seed).loss[-1] for seed in TUNING_SEEDS]
            finals.append((max(loss if math.isfinite(loss) else math.inf for loss in losses), setting))
        best = min(finals)[1]
        curves = [one_run(task, method, best, seed) for seed in range(1, seeds + 1)]
        found[method.name] = best, curves
        losses, metrics = [curve.loss[-1] for curve in curves], [curve.metric[-1] for curve in curves]
        at_edge = "*" if len(finals) > 2 and best in (method.candidates[0], method.candidates[-1]) else " "
        print(
            f"{method.name:28}{best:9.3g}{at_edge}{np.median(losses):15.3e}{min(losses):13.2e} …{max(losses):9.2e}"
            f"{np.median(metrics):22.4g}{np.median([curve.seconds for curve in curves]):9.1f}",
            flush=True,
        )
    print("* the best setting lies at the end of its grid")
    return found


def draw(task: Task, found: dict[str, tuple[float, list[Curve]]], folder: Path) -> None:
    """Median over the seeds, with the band from lowest to highest, against passes."""
    import matplotlib.pyplot as plt

    from drawing import save
    from trsvr.experiments.figures import pen, style

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    for place, (name, (_, curves)) in enumerate(found.items()):
        passes = np.linspace(0.0, min(max(curve.passes[-1] for curve in curves), task.budget), 200)
        for axes, attribute, logarithmic in (
            (left, "loss", True),
            (right, "metric", task.metric_scale == "log"),
        ):
            heights = np.array([np.interp(passes, curve.passes, getattr(curve, attribute)) for curve in curves])
            if logarithmic:
                heights = np.maximum(heights, task.floor)
            (line,) = axes.plot(passes, np.median(heights, axis=0), label=name, **pen(style(place)))
            band = heights.min(axis=0), heights.max(axis=0)
            axes.fill_between(passes, *band, color=line.get_color(), alpha=0.15, linewidth=0)
            axes.set_yscale("log" if logarithmic else "linear")
            axes.set_xlabel("passes (gradient evaluations / N)")
            axes.grid(alpha=0.3)
    left.set_ylim(top=3.0 * max(curve.loss[0] for _, curves in found.values() for curve in curves))  # some runs diverge
    left.set_ylabel("training loss")
    right.set_ylabel(task.metric_name)
    where = {"loc": "outside lower center", "ncols": 3, "frameon": False, "handlelength": 3.6}  # so that dashes show
    figure.legend(*left.get_legend_handles_labels(), **where)
    figure.suptitle(task.title)
    save(figure, folder, task.name)
    plt.close(figure)


def options(description: str | None) -> argparse.Namespace:
    """The command line of every example."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--fast", action="store_true", help="a few passes, two candidates, one seed: only to see it run"
    )
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the figure (default: docs/figures)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)  # the models are small: more threads would only wait for one another
    return chosen


def main(task: Task, methods: list[Method], chosen: argparse.Namespace, seeds: int = 3) -> None:
    """Race and draw."""
    if chosen.fast:
        task.budget, seeds = 3.0, 1
        for method in methods:
            method.candidates = method.candidates[len(method.candidates) // 2 :][:2]
    draw(task, race(task, methods, seeds), chosen.out)
