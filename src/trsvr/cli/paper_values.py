"""The values that the TRSVR paper tuned for its studies, for ``trsvr compare --paper``.

Where the paper leaves the batch and the inner steps of a baseline open, they are TRSVR's of the same study.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Settings = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """How the paper treats one data set.

    Attributes
    ----------
    gamma : float
        Strength of the double well; λ is 1e-4 throughout, a is 0.5, and the start has standard normal entries.
    methods : dict
        Settings of the methods it tuned.
    """

    gamma: float
    methods: dict[str, Settings]


def _variance_reduced(
    b: int, s: int, *, identity: float, estimated: float, svrg: float, sarah: float, saga: float
) -> dict[str, Settings]:
    loop = {"batch_size": b, "inner_steps": s}
    return {
        "trsvr-id": {"alpha": identity, **loop},
        "trsvr-esth": {"alpha": estimated, **loop},
        "svrg": {"step": svrg, **loop},
        "sarah": {"step": sarah, **loop},
        "saga": {"step": saga, "batch_size": b},
    }


def _first_order(b: int, s: int, *, estimated: float, sgd: float, adam: float) -> dict[str, Settings]:
    return {
        "trsvr-esth": {"alpha": estimated, "batch_size": b, "inner_steps": s},
        "sgd": {"step": sgd, "momentum": 0.9, "batch_size": b},
        "adam": {"step": adam, "batch_size": b},
    }


def _ablation(
    b: int, s: int, *, estimated: float, radius: float, trish: float, gammas: tuple[float, float]
) -> dict[str, Settings]:
    return {
        "trsvr-esth": {"alpha": estimated, "batch_size": b, "inner_steps": s},
        "trust-region": {"initial_radius": radius, "hessian": "estimated"},
        "trish": {"alpha": trish, "gamma1": gammas[0], "gamma2": gammas[1], "batch_size": b, "hessian": "estimated"},
    }


# A set that stands in two studies takes TRSVR's values from the earlier one: the later entries come first here.
_RCV1 = Study(
    1e-4,
    {
        **_ablation(20, 2000, estimated=0.10, radius=30.0, trish=0.40, gammas=(4.91, 0.03)),
        **_variance_reduced(200, 200, identity=0.10, estimated=0.15, svrg=0.045, sarah=0.005, saga=0.08),
    },
)

STUDIES = {
    "synthetic": Study(
        0.0, _variance_reduced(200, 100, identity=0.05, estimated=0.06, svrg=3.04e-2, sarah=1e-3, saga=1.31e-2)
    ),
    "rcv1": _RCV1,
    "rcv1-subset-union": _RCV1,
    "mushrooms": Study(
        1e-4,
        {
            **_ablation(100, 400, estimated=0.01, radius=14.09, trish=0.40, gammas=(3.22, 0.04)),
            **_variance_reduced(200, 200, identity=0.08, estimated=0.09, svrg=0.015, sarah=0.005, saga=0.05),
        },
    ),
    "covtype": Study(1e-4, _first_order(100, 400, estimated=0.0043, sgd=3.7e-5, adam=9.5e-5)),
    "ijcnn1": Study(
        1e-4,
        {
            **_ablation(20, 2000, estimated=0.08, radius=14.09, trish=9e-4, gammas=(4.91, 0.13)),
            **_first_order(100, 400, estimated=0.005, sgd=2.3e-4, adam=2.3e-4),
        },
    ),
    "phishing": Study(1e-4, _ablation(100, 400, estimated=0.09, radius=6.62, trish=0.007, gammas=(4.91, 0.49))),
    "madelon": Study(1e-4, _ablation(100, 400, estimated=0.08, radius=0.32, trish=0.14, gammas=(0.59, 0.008))),
    "cod-rna": Study(1e-4, _ablation(100, 400, estimated=0.26, radius=0.07, trish=0.14, gammas=(0.25, 0.002))),
}
