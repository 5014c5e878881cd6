"""A row for each result of a sample, of JSON lines and of Parquet: where it belongs, then the fields of its record."""

from __future__ import annotations

from typing import Any

from crucible_bridge.types import Evaluation, SampleResult
from crucible_worker.exports.record_data import record_data
from crucible_worker.util.model_refs import format_own_model

__all__ = ["EVALUATION_COLUMNS", "row_of"]

EVALUATION_COLUMNS = {
    "evaluation_id": ("str", "Its evaluation."),
    "run_id": ("str", "The orchestrator's run; empty if there is none."),
    "step": ("int | None", "The training step."),
    "model": ("str", "The model as `--model` spells it."),
}
"""By name, the type and the meaning of what each row has before the fields of `SampleResult`."""


def row_of(evaluation: Evaluation, result: SampleResult) -> dict[str, Any]:
    """A result of a sample as plain data."""
    request = evaluation.request
    values = (evaluation.evaluation_id, request.run_id, request.step, format_own_model(request.model))
    return {**dict(zip(EVALUATION_COLUMNS, map(record_data, values), strict=True)), **record_data(result)}
