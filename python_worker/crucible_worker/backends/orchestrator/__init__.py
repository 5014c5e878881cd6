"""Models that their orchestrator holds: it is asked over the stream on which it asked for the evaluation."""

from crucible_worker.backends.orchestrator.backend import OrchestratorBackend
from crucible_worker.backends.orchestrator.model import HeldModel
from crucible_worker.backends.orchestrator.session import PendingQuestion, Session, Withdrawn

__all__ = ["HeldModel", "OrchestratorBackend", "PendingQuestion", "Session", "Withdrawn"]
