"""What a request consists of is counted before protobuf parses it: its bytes do not show what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from crucible_bridge.codec import elements
from crucible_bridge.codec.elements import (
    LARGE_BYTES,
    MAX_ELEMENTS,
    memory_of_elements,
    request_parsed,
)
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import MAX_MAP_ENTRIES
from crucible_bridge.v1 import evaluation_pb2, grading_pb2, metrics_pb2, models_pb2, worker_pb2
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
        memory_of_elements(evaluation_pb2.StartEvaluationRequest, pieces)


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


def test_what_is_small_or_has_no_elements_is_not_counted() -> None:
    """Most calls."""
    small = grading_pb2.GradeMathRequest(items=[grading_pb2.GradeItem()] * 1_000)
    assert memory_of_elements(grading_pb2.GradeMathRequest, small.SerializeToString()) == 0
    assert memory_of_elements(worker_pb2.GetInfoRequest, b"\x7a\x00" * LARGE_BYTES) == 0


def times(message: Any, count: int) -> bytes:
    """A message with one field, so many times."""
    return message.SerializeToString() * count


def of_items(count: int) -> tuple[bytes, str]:
    """Items without anything."""
    return times(grading_pb2.GradeMathRequest(items=[grading_pb2.GradeItem()]), count), "items"


def of_targets(count: int) -> tuple[bytes, str]:
    """Empty targets of one item."""
    return inside((1,), times(grading_pb2.GradeItem(targets=[""]), count - 1)), "items[].targets"


def of_both(count: int) -> tuple[bytes, str]:
    """Items with a target each, and one without."""
    one = grading_pb2.GradeMathRequest(items=[grading_pb2.GradeItem(targets=[""])])
    items, rest = divmod(count, 2)
    return times(one, items) + of_items(rest)[0], "items[].targets" if rest == 0 else "items"


def inside(numbers: Any, data: bytes) -> bytes:
    """The bytes of a message as the content of a field, of a field of that, and so on."""
    for number in numbers:
        size, length = len(data), b""
        while size > 0x7F:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        data = bytes([number << 3 | 2]) + length + bytes([size]) + data
    return data


@pytest.mark.parametrize("made", [of_items, of_targets, of_both])
def test_the_elements_of_a_request_are_limited_at_all_depths_together(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most of them are fine and have a size in memory; one more is refused where it is."""
    request, most = grading_pb2.GradeMathRequest, LARGE_BYTES // 2
    assert most < MAX_ELEMENTS
    monkeypatch.setattr(elements, "MAX_ELEMENTS", most)
    assert memory_of_elements(request, made(most)[0]) == 100 * most

    data, field = made(most + 1)
    with pytest.raises(InvalidField, match=f"more than {most:,}") as caught:
        memory_of_elements(request, data)
    assert caught.value.field == field


def test_members_of_enumerations_and_dimensions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of a request becomes eight of them in memory; a token does not count."""
    monkeypatch.setattr(elements, "MAX_ELEMENTS", LARGE_BYTES // 2)
    many = bytes(LARGE_BYTES)
    for message, places, field in (
        (evaluation_pb2.ListEvaluationsRequest, ("states",), "states"),
        (evaluation_pb2.StartEvaluationRequest, SHAPE, "[].datum.loss_fn_inputs[].value.shape"),
    ):
        with pytest.raises(InvalidField, match="more than 32,768") as caught:
            memory_of_elements(message, inside(reversed(numbers_of(message, places)), many))
        assert caught.value.field.endswith(field)

    tokens = numbers_of(models_pb2.ComputeLogprobsRequest, ("items", "continuation"))
    assert memory_of_elements(models_pb2.ComputeLogprobsRequest, inside(reversed(tokens), many)) == 100


SHAPE = ("request", "dataset", "inline", "samples", "datum", "loss_fn_inputs", "value", "shape")


def numbers_of(message: Any, names: tuple[str, ...]) -> list[int]:
    """The numbers of the fields of a path."""
    found, descriptor = [], message.DESCRIPTOR
    for name in names:
        field = descriptor.fields_by_name[name]
        found.append(field.number)
        descriptor = field.message_type
    return found


def test_a_content_beyond_its_message_is_no_message() -> None:
    """Each would be read to the end of the request, and what follows it once more: quadratic time."""
    item = inside((1,), b"\x22\xff\xff\x03")  # a target of 65,535 bytes in an item of four
    with pytest.raises(InvalidField, match="not a message"):
        memory_of_elements(grading_pb2.GradeMathRequest, item * LARGE_BYTES)


def test_the_fields_of_a_request_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that need no memory, such as numbers that a parser puts over each other."""
    monkeypatch.setattr(elements, "MAX_FIELDS", LARGE_BYTES // 2)
    number = b"\x78\x01"  # field 15, which no version has
    assert memory_of_elements(grading_pb2.GradeMathRequest, number * (LARGE_BYTES // 2)) == 0
    with pytest.raises(InvalidField, match="more than 32,768 fields"):
        memory_of_elements(grading_pb2.GradeMathRequest, number * (LARGE_BYTES // 2 + 1))
