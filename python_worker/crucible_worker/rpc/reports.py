"""Decodes requests of GenerateReport."""

from __future__ import annotations

from crucible_bridge.codec.evaluation import report_format_from_v1
from crucible_bridge.codec.fields import at_least, at_most_bytes, at_most_count
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Metrics, bounds
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_worker.reports.chosen_samples import MAX_SAMPLES
from crucible_worker.reports.writing import ReportRequest

__all__ = ["report_request"]

_EITHER = "evaluation_ids, run_id or metrics"


def report_request(request: pb.GenerateReportRequest) -> ReportRequest:
    """Decode a request.

    Raises:
        InvalidField: a field is wrong, or not one of evaluation_ids, run_id and metrics is given.
    """
    given = [name for name in ("evaluation_ids", "run_id", "metrics") if getattr(request, name)]
    if not given:
        raise InvalidField("evaluation_ids", f"is empty: give one of {_EITHER}")
    if len(given) > 1:
        raise InvalidField(given[1], f"is given together with {given[0]}: give only one of {_EITHER}")
    at_least(request.max_samples, bounds.GENERATE_REPORT_REQUEST_MAX_SAMPLES_LEAST, "max_samples")
    at_most_bytes(request.title, bounds.GENERATE_REPORT_REQUEST_TITLE_MAX_BYTES, "title")
    at_most_count(request.metrics, bounds.GENERATE_REPORT_REQUEST_METRICS_MAX_COUNT, "metrics")
    for key in request.metrics:
        at_most_bytes(key, bounds.GENERATE_REPORT_REQUEST_METRICS_MAX_BYTES, "metrics")
    return ReportRequest(
        report_format=report_format_from_v1(request.format, "format"),
        evaluation_ids=tuple(request.evaluation_ids),
        run_id=request.run_id or None,
        metrics=Metrics.of(dict(sorted(request.metrics.items()))) if request.metrics else None,
        title=request.title,
        max_samples=request.max_samples or MAX_SAMPLES,
    )
