"""The one loop that runs every solver."""

from trsvr.engine.loop import minimize
from trsvr.engine.result import Result, Status
from trsvr.engine.stopping import Tolerance

__all__ = ["minimize", "Result", "Status", "Tolerance"]
