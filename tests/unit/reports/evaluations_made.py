"""Evaluations and results as tests of reports need them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from crucible_bridge.types import (
    BuiltinDataset,
    Dataset,
    EmbeddedModel,
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    EvaluatorInfo,
    EvaluatorKind,
    EvaluatorResult,
    EvaluatorSpec,
    Goal,
    Metrics,
    Sample,
    SampleResult,
    Verdict,
)

__all__ = ["INFOS", "ended", "info", "sampled"]


def info(kind: str, keys: Mapping[str, str], goal: Goal | None = Goal.HIGHER) -> EvaluatorInfo:
    """What an evaluator declares."""
    kinds = (EvaluatorKind.SAMPLING,)
    return EvaluatorInfo(kind=kind, kinds=kinds, description="", options_schema={}, keys=keys, score_goal=goal)


INFOS = {
    "right": info("right", dict.fromkeys(("right", "right_stderr", "right_strict", "miscalibration"), "fraction of 1")),
    "loss": info("loss", {"loss": "nats"}, Goal.LOWER),
}


def ended(
    evaluation_id: str,
    values: Mapping[str, float],
    *,
    kind: str = "right",
    name: str | None = None,
    undefined: Mapping[str, str] | None = None,
    step: int | None = None,
    run_id: str = "run-1",
    metric_prefix: str = "",
    **changes: Any,
) -> Evaluation:
    """An evaluation of one evaluator that has ended with these metrics."""
    spec = EvaluatorSpec(kind=kind, name=name)
    request = EvaluateRequest(
        run_id=run_id,
        step=step,
        model=EmbeddedModel("arithmetic@400"),
        evaluators=(spec,),
        dataset=Dataset(source=BuiltinDataset("arithmetic")),
        metric_prefix=metric_prefix,
    )
    metrics = Metrics(dict(values), undefined or {})
    made = Evaluation(
        evaluation_id=evaluation_id,
        state=EvaluationState.COMPLETED,
        request=request,
        metrics=metrics,
        results=(EvaluatorResult(evaluator=spec, metrics=metrics),),
        dataset_fingerprint="d",
    )
    return dataclasses.replace(made, **changes)


def sampled(sample_id: str = "12+34", text: str = "12+34=", target: str = "46", **changes: Any) -> SampleResult:
    """A result with its record."""
    fields: dict[str, Any] = {
        "evaluator": "right",
        "verdict": Verdict.CORRECT,
        "score": 1.0,
        "output": "46",
        "extracted": "46",
        "stop_reason": "stop",
        "output_tokens": 2,
        "duration_ns": 500_000_000,
        "sample": Sample(id=sample_id, input=text, targets=(target,), metadata={"level": "3"}),
    }
    return SampleResult(sample_id=sample_id, **{**fields, **changes})
