"""The backend of models that stay with their orchestrator: it is used only by calls that cannot reach such a model."""

from __future__ import annotations

from typing import NoReturn

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import BackendInfo, ModelRef
from crucible_worker.backends.base import Backend

__all__ = ["OrchestratorBackend"]


class OrchestratorBackend(Backend):
    """Refuses to open a model of an orchestrator: only a call from the orchestrator itself can use it."""

    def info(self) -> BackendInfo:
        """Its name; every worker can use it."""
        return BackendInfo(name="orchestrator")

    async def open(self, model: ModelRef) -> NoReturn:
        """Refuse.

        Raises:
            FailedPrecondition: names the call that reaches such a model (HELD_BY_ORCHESTRATOR).
        """
        raise FailedPrecondition(
            "stays with its orchestrator: only EvaluationService.EvaluateWithOrchestratorModel can use it",
            reason=Reason.HELD_BY_ORCHESTRATOR,
            field="model",
        )
