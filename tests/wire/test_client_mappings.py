"""A mapping where a sequence is wanted: refused by its field, as reading it would keep its keys and lose its values."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import SamplingParams, TrajectoryBatch
from tests.tables import rows

NOBODY = "127.0.0.1:1"
ONE: Any = {"one": 1}
PARAMS = SamplingParams(max_tokens=1)

CALLS: list[tuple[str, Callable[[Bridge], Awaitable[Any]]]] = [
    ("items", lambda bridge: bridge.grading.grade_math(ONE)),
    ("responses", lambda bridge: bridge.grading.extract_answers(ONE)),
    ("responses", lambda bridge: bridge.grading.extract_code(ONE)),
    ("names", lambda bridge: bridge.grading.extract_code(["x"], ONE)),
    ("items[0].targets", lambda bridge: bridge.grading.grade_math([(ONE, "1")])),
    ("criteria", lambda bridge: bridge.grading.grade_rubric("embedded:a@1", [], ONE)),
    ("k", lambda bridge: bridge.grading.grade_code([], k=ONE)),
    ("items", lambda bridge: bridge.models.sample("embedded:a@1", ONE, PARAMS)),
    ("sequences", lambda bridge: bridge.models.compute_logprobs("embedded:a@1", ONE)),
    ("evaluation_ids", lambda bridge: bridge.evaluation.generate_report(ONE)),
    ("states", lambda bridge: bridge.evaluation.list_evaluations(states=ONE)),
    ("predictions", lambda bridge: bridge.metrics.compute_classification_metrics(ONE, ["a"])),
]


@rows(("field", "call"), CALLS)
async def test_a_mapping_is_no_sequence(field: str, call: Callable[[Bridge], Awaitable[Any]]):
    """No request is sent, and the error names the field."""
    async with crucible_bridge.connect(NOBODY) as bridge:
        with pytest.raises(InvalidField) as refused:
            await call(bridge)
    assert refused.value.field == field
    assert "dict" in refused.value.message


async def test_a_mapping_is_no_sequence_of_evaluations_or_kinds():
    """Comparisons and subscriptions refuse it as well."""
    async with crucible_bridge.connect(NOBODY) as bridge:
        with pytest.raises(InvalidField, match="evaluation_ids is a dict"):
            await bridge.evaluation.compare_evaluations(ONE)
        with pytest.raises(InvalidField, match="kinds is a dict"):
            bridge.telemetry.subscribe(kinds=ONE)


def test_a_mapping_is_no_list_of_tags():
    """Tags of a group are a list."""
    with pytest.raises(InvalidField, match=r"tags\[0\] is a dict"):
        TrajectoryBatch.of([], tags=[ONE])
