"""The paper's claims, one function each: it looks at the results and says what they show.

Each is restated as the paper words it, with its section. Words such as "consistently" or "significantly" are numbers
in `verdicts`. What is our own finding and judges no claim is in `findings`.
"""

from __future__ import annotations

from trsvr.experiments.claims.ablation import c7, c8
from trsvr.experiments.claims.batches import c5, c6, c14
from trsvr.experiments.claims.complexity import EPSILONS, c13, sample_costs
from trsvr.experiments.claims.conclusions import c9, c10, c11, c12, good_steps
from trsvr.experiments.claims.first_order import c1, c2, c3, c4
from trsvr.experiments.results import Results
from trsvr.experiments.specification import ALTERNATIVES
from trsvr.experiments.verdicts import CLAIMS, NOT, PARTLY, REPRODUCED, UNTESTED, Part, Verdict, judge_all

# fmt: off
__all__ = [
    "CLAIMS", "EPSILONS", "NOT", "PARTLY", "REPRODUCED", "UNTESTED", "Part", "Verdict",
    "good_steps", "judge", "sample_costs",
    "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11", "c12", "c13", "c14",
]
# fmt: on


def judge(results: Results) -> list[Verdict]:
    """All claims, also under those alternatives to our choices that were run."""
    return judge_all(results, ALTERNATIVES)
