"""Maps of requests are counted before protobuf parses them, as it would take quadratic time to fill large ones."""

from __future__ import annotations

from typing import Any

import pytest

from crucible_bridge.codec.maps import LARGE_BYTES, MAX_MAP_ENTRIES, has_maps, refuse_large_maps, request_parsed
from crucible_bridge.errors import InvalidField
from crucible_bridge.v1 import evaluation_pb2, grading_pb2, metrics_pb2, worker_pb2
from tests.tables import rows


def filled(map_field: Any, count: int, value: Any = "") -> None:
    """Put entries with long keys into a map."""
    for number in range(count):
        map_field[f"key {number:07}"] = value


def labelled(count: int) -> evaluation_pb2.EvaluateRequest:
    """An evaluation with labels."""
    request = evaluation_pb2.EvaluateRequest()
    filled(request.labels, count)
    return request


def of_a_sample(count: int) -> evaluation_pb2.StartEvaluationRequest:
    """An evaluation of two samples, the second with metadata."""
    request = evaluation_pb2.StartEvaluationRequest()
    for _ in range(2):
        request.request.dataset.inline.samples.add(id="s")
    filled(request.request.dataset.inline.samples[1].metadata, count)
    return request


def of_metrics(count: int) -> metrics_pb2.ComputeTrajectoryMetricsRequest:
    """Metrics of environments."""
    request = metrics_pb2.ComputeTrajectoryMetricsRequest()
    for number in range(count):
        request.batch.transition_metrics[f"key {number:07}"].data = b""
    return request


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (labelled, "labels"),
        (of_a_sample, "request.dataset.inline.samples[].metadata"),
        (of_metrics, "batch.transition_metrics"),
    ],
)
def test_a_map_has_a_limited_number_of_entries(made: Any, field: str) -> None:
    """Wherever it is in a request; the error says where."""
    fine = made(MAX_MAP_ENTRIES)
    assert request_parsed(type(fine), fine.SerializeToString()) == fine

    request = made(MAX_MAP_ENTRIES + 1)
    with pytest.raises(InvalidField, match="10,000 entries") as caught:
        request_parsed(type(request), request.SerializeToString())
    assert caught.value.field == field


def test_parts_that_a_parser_puts_together_count_together() -> None:
    """A message in pieces, each of which is small."""
    pieces = b""
    for part in range(20):
        request = evaluation_pb2.StartEvaluationRequest()
        for number in range(1_000):
            request.request.labels[f"{part} {number}"] = ""
        pieces += request.SerializeToString()

    with pytest.raises(InvalidField, match="10,000 entries"):
        refuse_large_maps(evaluation_pb2.StartEvaluationRequest, pieces)


def test_many_small_maps_are_fine() -> None:
    """Those of many samples, together far beyond the limit of one."""
    request = evaluation_pb2.StartEvaluationRequest()
    for _ in range(200):
        filled(request.request.dataset.inline.samples.add().metadata, 100)

    assert request_parsed(type(request), request.SerializeToString()) == request


@rows("end", [b"\x0b", b"\x0c", b"\x00", b"\x52\xff", b"\xff" * 11])
def test_what_hides_entries_is_no_message(end: bytes) -> None:
    """Groups, which no field of these messages is, and bytes that end amid a field."""
    data = labelled(LARGE_BYTES // 16).SerializeToString() + end

    with pytest.raises(InvalidField, match="not a message"):
        request_parsed(evaluation_pb2.EvaluateRequest, data)


def test_requests_without_maps_are_not_looked_at() -> None:
    """Most calls have none."""
    assert has_maps(evaluation_pb2.EvaluateRequest)
    assert not has_maps(grading_pb2.GradeMathRequest)
    assert not has_maps(worker_pb2.GetInfoRequest)
