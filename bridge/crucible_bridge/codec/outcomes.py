"""Metrics and problems <-> v1.

Text in them can come from models: what UTF-8 cannot encode becomes U+FFFD, so that encoding never fails.
"""

from __future__ import annotations

from crucible_bridge.codec.fields import child, finite_map, unicode_text
from crucible_bridge.types import Metrics, Problem
from crucible_bridge.v1 import types_pb2

__all__ = ["fill_metrics", "metrics_from_v1", "metrics_to_v1", "problem_from_v1", "problem_to_v1"]


def problem_to_v1(problem: Problem | None) -> types_pb2.Problem | None:
    """Encode a problem, if there is one."""
    if problem is None:
        return None
    return types_pb2.Problem(
        reason=problem.reason,
        message=unicode_text(problem.message),
        field=unicode_text(problem.field),
        retryable=problem.retryable,
    )


def problem_from_v1(message: types_pb2.Problem, field: str = "") -> Problem:
    """Decode a problem; check `HasField` first."""
    return Problem(reason=message.reason, message=message.message, field=message.field, retryable=message.retryable)


def metrics_to_v1(metrics: Metrics) -> types_pb2.Metrics:
    """Encode metrics. As part of another message they are copied, slow if they are many: see `fill_metrics`."""
    message = types_pb2.Metrics()
    fill_metrics(message, metrics)
    return message


def fill_metrics(message: types_pb2.Metrics, metrics: Metrics) -> None:
    """Encode metrics in place: protobuf copies a map in its own order, which costs quadratic time."""
    message.values.update({unicode_text(key): value for key, value in metrics.values.items()})
    message.undefined.update({unicode_text(key): unicode_text(reason) for key, reason in metrics.undefined.items()})


def metrics_from_v1(message: types_pb2.Metrics, field: str) -> Metrics:
    """Decode metrics: finite values, keys in alphabetical order."""
    return Metrics(finite_map(message.values, child(field, "values")), dict(sorted(message.undefined.items())))
