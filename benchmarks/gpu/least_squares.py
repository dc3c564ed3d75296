"""Nonlinear least squares on one GPU: ``python benchmarks/gpu/least_squares.py [--part 0.01] [--out FOLDER]``.

`trsvr.torch.least_squares` on the CPU and on the device, from the same start: five peaks on a line (17 unknowns, 2·10⁶
residuals; ours and with all rows of J), and a net 4-32-32-1 (1249 unknowns, 10⁵ residuals, J of 1 GB that is never
whole) for so many epochs. A warm run on some rows comes first; seconds are wall clock of the second, from an idle
device to an idle device. Memory is the most that torch has held on the device, data included. Values must agree to
1e-9 where the run ends at a minimum, and to a tenth after so many epochs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from common import DEVICE, about, wait, write  # isort: skip  # before trsvr

import numpy as np
import torch

import trsvr.torch
from trsvr.torch import ModelResiduals


class Peaks(torch.nn.Module):
    """Five Gaussian peaks on a line."""

    def __init__(self, x):
        super().__init__()
        self.x = torch.nn.Parameter(torch.from_numpy(x.copy()))

    def forward(self, t):
        """Heights at t."""
        x = self.x
        peaks = [x[k] * torch.exp(-0.5 * ((t - x[k + 1]) / x[k + 2]) ** 2) for k in range(0, 15, 3)]
        return sum(peaks) + x[15] + x[16] * t


class AllRows(ModelResiduals):
    """Every row of J in every step."""

    def sampled(self, x, residuals):
        """No sample."""


def peaks(part):
    """Model, inputs and targets, and the options of the run."""
    n, random = max(int(2_000_000 * part), 1000), np.random.default_rng(0)
    t = np.linspace(0, 10, n)
    each = [1 + random.random(5), np.arange(1, 10, 2), 0.3 + 0.3 * random.random(5)]
    truth = np.concatenate([np.column_stack(each).ravel(), [0.5, 0.1]])
    with torch.no_grad():
        y = Peaks(truth)(torch.from_numpy(t)).numpy() + 0.05 * random.normal(size=n)
    start = truth * (1 + 0.1 * np.random.default_rng(1).normal(size=17))
    return Peaks(start), torch.from_numpy(t), torch.from_numpy(y), {}


def net(part):
    """The same for a net, whose targets come from a smaller one."""
    n = max(int(100_000 * part), 2000)
    generator = torch.Generator().manual_seed(0)
    inputs = 2.0 * torch.rand(n, 4, generator=generator, dtype=torch.float64) - 1.0
    targets = torch.sin(3.0 * inputs[:, :2].sum(1, keepdim=True)) * torch.cos(2.0 * inputs[:, 2:].sum(1, keepdim=True))
    torch.manual_seed(0)
    widths = [4, 32, 32, 1]
    layers = [each for k in range(3) for each in (torch.nn.Linear(widths[k], widths[k + 1]), torch.nn.Tanh())]
    return torch.nn.Sequential(*layers[:-1]).double(), inputs, targets, {"max_epochs": 30, "weight_decay": 1e-6}


PROBLEMS = (("peaks", peaks, ModelResiduals), ("peaks, all rows", peaks, AllRows), ("net", net, ModelResiduals))


def fit(make, kind, device, part):
    """Result, seconds and the device's memory in MB."""
    model, inputs, targets, options = make(part)
    weight_decay = options.pop("weight_decay", 0.0)
    problem = kind(model.to(device), (inputs.to(device), targets.to(device)), weight_decay=weight_decay)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    wait()
    begun = time.perf_counter()
    result = trsvr.minimize(problem, x0=problem.start(), **options)
    wait()
    seconds = time.perf_counter() - begun
    return result, seconds, torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=float, default=1.0, help="of the rows")
    parser.add_argument("--out")
    chosen = parser.parse_args()
    print(about(), f"\n{torch.get_num_threads()} threads on the CPU")
    print("problem           device  seconds  passes  epochs     MB                   value  status")
    found = {}
    for name, make, kind in PROBLEMS:
        for device in dict.fromkeys(("cpu", DEVICE)):
            fit(make, kind, device, 0.01 * chosen.part)
            result, seconds, memory = fit(make, kind, device, chosen.part)
            found[f"{name}, {device}"] = {
                "seconds": seconds,
                "passes": result.passes,
                "value": result.value,
                "memory": memory,
                "status": result.message,
            }
            print(
                f"{name:17} {device:6} {seconds:8.3f} {result.passes:7.1f} {result.epochs:7} {memory:6.0f} "
                f"{result.value:23.16e}  {result.status.name}",
                flush=True,
            )
        ends = [found[f"{name}, {device}"] for device in dict.fromkeys(("cpu", DEVICE))]
        apart = abs(ends[-1]["value"] / ends[0]["value"] - 1.0)
        faster = ends[0]["seconds"] / ends[-1]["seconds"]
        print(f"  {faster:.1f} times faster there; the values differ by {apart:.1e}")
        assert apart <= (1e-9 if make is peaks else 0.1), "the values do not agree"
    write(found, chosen.out, "least_squares")


if __name__ == "__main__":
    main()
