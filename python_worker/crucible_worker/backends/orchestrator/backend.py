"""The backend of models that stay with their orchestrator: only calls that cannot reach such a model use it."""

from __future__ import annotations

from typing import NoReturn

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import BackendInfo, ModelRef
from crucible_worker.backends.base import Backend

__all__ = ["OrchestratorBackend"]


class OrchestratorBackend(Backend):
    """Refuses to open a model of an orchestrator: its caller has to bring it along."""

    def info(self) -> BackendInfo:
        """Its name; every worker can use it."""
        return BackendInfo(name="orchestrator")

    async def open(self, model: ModelRef) -> NoReturn:
        """Refuse.

        Raises:
            FailedPrecondition: names the call that reaches such a model (HELD_BY_ORCHESTRATOR).
        """
        raise FailedPrecondition(
            "is held by its orchestrator: only EvaluationService.EvaluateWithOrchestratorModel can ask it",
            reason=Reason.HELD_BY_ORCHESTRATOR,
            field="model",
        )
