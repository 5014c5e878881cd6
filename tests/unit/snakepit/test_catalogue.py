"""Which tools there are."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis.strategies as st
import jsonschema
import pytest
from hypothesis import given, settings

from crucible_bridge import codec
from crucible_bridge.errors import InvalidField
from crucible_bridge.v1 import (
    evaluation_pb2,
    events_pb2,
    experiments_pb2,
    grading_pb2,
    metrics_pb2,
    models_pb2,
    rendering_pb2,
    worker_pb2,
)
from crucible_worker.snakepit.arguments import Arguments
from crucible_worker.snakepit.catalogue import NO_TOOLS, TOOLS, Tool, parameters_schema
from crucible_worker.snakepit.results import Output, to_json
from crucible_worker.snakepit.tools import LIST_TOOLS
from tests.tables import rows
from tests.unit.snakepit.examples import PAGE, examples
from tests.unit.snakepit.strategies import messages_of

WORDS = st.sampled_from(
    ["dtype", "shape", "f32", "binary", "tokens", "chunks", "NaN", "items", "targets", "id", "input"]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3) | WORDS | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=3),
    max_leaves=9,
)
"""What JSON and msgpack can hold."""
MODULES = (evaluation_pb2, events_pb2, experiments_pb2, grading_pb2, metrics_pb2, models_pb2, rendering_pb2, worker_pb2)


def test_every_call_is_a_tool():
    """A call is a tool, once, or it is said why it is none."""
    calls = [
        f"/{service.full_name}/{method.name}"
        for module in MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]

    assert sorted((*(tool.path for tool in TOOLS), *NO_TOOLS)) == sorted(calls)


def test_the_page_has_every_tool():
    """The page has an example of each tool, and a line in its table."""
    names = sorted((*(tool.name for tool in TOOLS), LIST_TOOLS))
    lines = PAGE.read_text().splitlines()

    assert sorted(example.name for example in examples()) == names
    assert all(any(line.startswith(("| `" + name, "| *`" + name)) for line in lines) for name in names)


@rows("tool", TOOLS, ids=lambda tool: tool.name)
def test_the_schema_takes_the_example(tool: Tool):
    """A tool's schema is one, takes the page's example, and refuses a parameter that the tool does not have."""
    schema = parameters_schema(tool)
    (example,) = [example for example in examples() if example.name == tool.name]

    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(example.parameters)
    assert not validator.is_valid({**example.parameters, "no_such_parameter": 1})


BEYOND = (
    ("compare_evaluations", {"evaluation_ids": ["a", "b"], "confidence": 0.4}, codec.compare_request_from_v1),
    ("compare_evaluations", {"evaluation_ids": ["a", ""]}, codec.compare_request_from_v1),
    ("grade_math", {}, codec.grade_math_request_from_v1),
    ("score", {"items": [{"answer": "1", "targets": ["1"]}]}, codec.score_request_from_v1),
    (
        "score",
        {"items": [{"answer": "1", "targets": ["1"]}], "options": {"numeric": {"absolute_tolerance": "NaN"}}},
        codec.score_request_from_v1,
    ),
    (
        "grade_rubric",
        {
            "judge": "embedded:arithmetic@320",
            "items": [{"question": "a", "response": "b"}],
            "criteria": [{"name": "a" * 101, "description": "b"}],
        },
        codec.grade_rubric_request_from_v1,
    ),
)
"""By tool: parameters of which one is out of its bounds, and what decodes the request."""


@rows(("name", "parameters", "decode"), BEYOND)
def test_the_schema_refuses_what_the_call_refuses(name: str, parameters: dict[str, Any], decode: Any):
    """What the protos' bounds exclude fits no schema, and the call refuses it."""
    (tool,) = [tool for tool in TOOLS if tool.name == name]

    assert not jsonschema.Draft202012Validator(parameters_schema(tool)).is_valid(parameters)
    with pytest.raises(InvalidField):
        decode(tool.read(Arguments(parameters, {})))


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
@settings(max_examples=10)
@given(data=st.data())
def test_the_schema_takes_what_is_read(tool: Tool, data: st.DataObject):
    """Whatever request keeps the protos' bounds, its JSON fits the tool's schema, and is read."""
    descriptor = tool.request.DESCRIPTOR
    part = descriptor.fields_by_name[tool.part].message_type if tool.part else descriptor
    parameters = to_json(data.draw(messages_of(part, bounded=True)), Output("json"))

    jsonschema.Draft202012Validator(parameters_schema(tool)).validate(parameters)
    with contextlib.suppress(InvalidField):  # of arrays, which are looked at together
        tool.read(Arguments(parameters, {}))


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
@settings(max_examples=25)
@given(data=st.data())
def test_whatever_is_asked_is_read_or_refused(tool: Tool, data: st.DataObject):
    """Any JSON and any bytes under a tool's own names are a request, or refused as an InvalidField."""
    names = sorted(parameters_schema(tool)["properties"])
    parameters = data.draw(st.dictionaries(st.sampled_from(names), ANYTHING, max_size=4))
    binary = data.draw(st.dictionaries(st.sampled_from([*names, "msgpack"]), st.binary(max_size=9), max_size=1))

    with contextlib.suppress(InvalidField):
        tool.read(Arguments(parameters, binary))
