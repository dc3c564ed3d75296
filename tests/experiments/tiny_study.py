"""A tiny study, the command as a process, and a run in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from trsvr.experiments import runner as running

TINY = """
name = "tiny"
title = "Tiny <b>study</b> & friends"
epochs = 5
seeds = 3
axes = ["epoch", "passes", "time"]
quick = { epochs = 2, seeds = 1, rows = 100 }

[objective]
l2 = 0.1

[[problem]]
data = "synthetic"
parameters = { n_samples = 300, n_features = 4, condition = 10.0, lipschitz = 1.0 }

[[problem.method]]
label = "TRSVR-EstH"
solver = "trsvr"
settings = { alpha = 0.5, batch_size = 10, inner_steps = 20, hessian = "estimated" }

[[problem.method]]
label = "SVRG </script><script>alert(1)</script>"
solver = "svrg"
role = "extra"
settings = { step = 0.5, batch_size = 10, inner_steps = 20 }

[[problem.method]]
label = "TRSVR adaptive"
solver = "trsvr"
role = "adaptive"

[grid.TRSVR-EstH]
alpha = { low = 0.01, high = 1.0, points = 3 }
"""


def command(*arguments, folder, **environment):
    """Begin ``trsvr paper …`` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "trsvr.cli", "paper", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TRSVR_QUIET": "1", "MPLBACKEND": "Agg", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_here(studies, folder: Path) -> list[running.Plan]:
    """Run studies in this process, without a report."""
    runner = running.Runner(folder)
    plans = runner.plan(studies)
    executed = runner.run([job for plan in plans for _, _, job in plan.jobs()])
    running.record(folder, plans, False, running.session(0.0, executed, 1))
    return plans
