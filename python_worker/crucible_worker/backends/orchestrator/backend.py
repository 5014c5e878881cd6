"""The backend of models that are held elsewhere: it is asked for one only by a call that cannot reach it."""

from __future__ import annotations

from typing import NoReturn

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import BackendInfo, ModelRef
from crucible_worker.backends.base import Backend

__all__ = ["OrchestratorBackend"]


class OrchestratorBackend(Backend):
    """Refuses to open a model that its orchestrator holds: whoever holds it brings it along."""

    def info(self) -> BackendInfo:
        """What it is called; it can be used wherever there is a worker."""
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
