"""The algorithms, one file each, made from `trsvr.parts`."""

from trsvr.solvers.svrg import SVRG
from trsvr.solvers.trsvr import TRSVR
from trsvr.solvers.trust_region_method import TrustRegionMethod

__all__ = ["TRSVR", "SVRG", "TrustRegionMethod"]
