"""The one loop that runs every solver."""

from trsvr.engine.api import minimize, resume
from trsvr.engine.checkpoint import CheckpointError
from trsvr.engine.result import Result, Status
from trsvr.engine.stopping import Tolerance

__all__ = ["minimize", "resume", "CheckpointError", "Result", "Status", "Tolerance"]
