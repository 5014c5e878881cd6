"""Models that stay with their orchestrator: questions go over the stream on which it requested the evaluation."""

from crucible_worker.backends.orchestrator.backend import OrchestratorBackend
from crucible_worker.backends.orchestrator.model import RemoteOrchestratorModel
from crucible_worker.backends.orchestrator.session import PendingQuestion, Session, Withdrawn

__all__ = ["OrchestratorBackend", "PendingQuestion", "RemoteOrchestratorModel", "Session", "Withdrawn"]
