"""TRSVR with nothing to choose: the radius, the batch, the length of the inner loop and the norm follow what is seen.

`iteration` is one outer iteration, read from top to bottom; `measuring` makes P and H, `judgement` says what a step has
taught, `endings` when to stop. `state` is what is carried from one iteration to
the next, `rules` every tuned number, `method` the solver. docs/adaptive.md has a drawing, and what each rule is worth.
"""

from __future__ import annotations

from trsvr.solvers.adaptive.method import AdaptiveTRSVR
from trsvr.solvers.adaptive.rules import Rules

__all__ = ["AdaptiveTRSVR", "Rules"]
