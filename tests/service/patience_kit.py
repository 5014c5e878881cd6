"""Runs whose checkpoints answer more or fewer samples right, and what is reported of their best step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crucible_bridge.client import Bridge
from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import (
    Dataset,
    EvaluationPlan,
    EvaluatorSpec,
    Goal,
    Limits,
    Patience,
    PlannedEvaluation,
    Sample,
    SamplingParams,
)
from crucible_worker.testing import ScriptedModel
from tests.service.evaluation_kit import log_of

__all__ = ["SAMPLES", "answering", "best_and_plateau", "models", "patient_plan", "right", "steps_of"]

COUNT = 200
"""Samples: enough that 20 % more right answers are no chance, and 1 % may be."""
SAMPLES = tuple(Sample(id=f"s{index}", input=f"q{index}", targets=(f"Q{index}",)) for index in range(COUNT))


def right(share: float) -> Callable[[str], str]:
    """Answers the first samples right, up to this share of all."""
    return lambda prompt: prompt.upper() if int(prompt[1:]) < share * COUNT else "no"


def models(**shares: float) -> dict[str, ScriptedModel]:
    """Models by name that answer this share of the samples right."""
    return {name: ScriptedModel(answer=right(share), fingerprint=name) for name, share in shares.items()}


def answering(count: int, name: str) -> ScriptedModel:
    """A model that gets every sample right that it answers: the first so many. The others are errors."""

    def fault(call: Any) -> BridgeError | None:
        return BackendError("is out of order", reason="BACKEND_DOWN") if int(call.text[1:]) >= count else None

    return ScriptedModel(fault=fault, fingerprint=name)


def patient_plan(*, metric: str = "accuracy", patience: int = 2, **fields: Any) -> EvaluationPlan:
    """Plan `p` of run `run`: `accuracy` at every step, and the best step by it."""
    own = {name: fields.pop(name) for name in ("goal", "min_delta", "confidence") if name in fields}
    wanted = Patience(**{"metric": metric, "goal": Goal.HIGHER, "patience": patience, **own})
    evaluation = PlannedEvaluation(
        evaluators=(EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"}),),
        dataset=Dataset.of(SAMPLES),
        sampling=SamplingParams(max_tokens=8),
        limits=Limits(max_unscored_share=1.0),
    )
    defaults = {"plan_id": "p", "run_id": "run", "eval_every": 1, "evaluations": (evaluation,), "patience": wanted}
    return EvaluationPlan(**{**defaults, **fields})


async def best_and_plateau(bridge: Bridge) -> list[Event]:
    """The two kinds of events that are in the log now, in order."""
    return await log_of(bridge, kinds=[EventKind.RUN_BEST, EventKind.RUN_PLATEAU])


def steps_of(events: list[Event]) -> list[tuple[str, int | None]]:
    """Kinds and steps, short."""
    return [(event.telemetry_name[2], event.step) for event in events]
