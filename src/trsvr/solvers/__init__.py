"""The algorithms, one file each, made from `trsvr.parts`."""

from typing import Any

from trsvr import _check
from trsvr.solvers.adam import Adam
from trsvr.solvers.lbfgs import LBFGS
from trsvr.solvers.saga import SAGA
from trsvr.solvers.sarah import SARAH
from trsvr.solvers.sdca import SDCA
from trsvr.solvers.sgd import SGD
from trsvr.solvers.svrg import SVRG
from trsvr.solvers.trish import TRish
from trsvr.solvers.trsvr import TRSVR
from trsvr.solvers.trust_region import TrustRegion
from trsvr.solvers.trust_region_method import TrustRegionMethod

#: Names for the command line.
BY_NAME: dict[str, Any] = {
    "trsvr": TRSVR,
    "svrg": SVRG,
    "saga": SAGA,
    "sarah": SARAH,
    "sdca": SDCA,
    "sgd": SGD,
    "adam": Adam,
    "trust-region": TrustRegion,
    "trish": TRish,
    "lbfgs": LBFGS,
}


_DEFAULT = TRSVR()


def solver_from(given: Any) -> Any:
    """The solver that a user asks for: None is `TRSVR`, a text one of the names above, anything else itself."""
    if given is None:
        return _DEFAULT
    return BY_NAME[_check.one_of("solver", given, BY_NAME)]() if isinstance(given, str) else given


__all__ = [
    "TRSVR",
    "SVRG",
    "SAGA",
    "SARAH",
    "SDCA",
    "SGD",
    "Adam",
    "TrustRegion",
    "TRish",
    "LBFGS",
    "TrustRegionMethod",
    "BY_NAME",
    "solver_from",
]
