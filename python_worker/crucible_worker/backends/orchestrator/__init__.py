"""What stays with the caller of an evaluation: questions go over the stream on which it requested the evaluation."""

from crucible_worker.backends.orchestrator.backend import OrchestratorBackend
from crucible_worker.backends.orchestrator.caller import Caller, chosen
from crucible_worker.backends.orchestrator.model import RemoteOrchestratorModel
from crucible_worker.backends.orchestrator.session import CallerSession, ClosedEpisode, PendingQuestion, Withdrawn

__all__ = [
    "Caller",
    "CallerSession",
    "ClosedEpisode",
    "OrchestratorBackend",
    "PendingQuestion",
    "RemoteOrchestratorModel",
    "Withdrawn",
    "chosen",
]
