"""Tools that a model may call: the forms of data sets, and what is refused before any model gets it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crucible_bridge.codec.data import conversation_from_v1, conversation_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ChatMessage, Conversation, ToolSpec, tool_to_json, tools_from_json
from crucible_bridge.types.tools import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH, MAX_TOOLS, MAX_TOOLS_BYTES, check_tools
from crucible_bridge.v1 import types_pb2
from tests.tables import rows

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
ADD = ToolSpec(name="add", description="Adds.", parameters=json.dumps(SCHEMA))
FUNCTION = {"name": "add", "description": "Adds.", "parameters": SCHEMA}
FRAMED = {"type": "function", "function": FUNCTION}


@rows(
    ("given", "tools"),
    [
        (None, ()),
        ([], ()),
        ("", ()),
        ([FRAMED], (ADD,)),
        ([FUNCTION], (ADD,)),
        ([{"type": "function", **FUNCTION}], (ADD,)),
        ([{"name": "add", "description": "Adds.", "input_schema": SCHEMA}], (ADD,)),
        (json.dumps([FRAMED]), (ADD,)),
        ([json.dumps(FRAMED)], (ADD,)),
        ([{"name": "f", "parameters": "{}"}], (ToolSpec(name="f", parameters="{}"),)),
        ([{"name": "f", "strict": True, "description": None}], (ToolSpec(name="f", strict=True),)),
        ([{"name": "f", "return": {"type": "string"}}], (ToolSpec(name="f", returns='{"type": "string"}'),)),
        (
            [{"name": "f", "parameters": {"properties": {"a": {"default": None, "enum": [None, 1]}, "b": None}}}],
            (ToolSpec(name="f", parameters='{"properties": {"a": {"default": null, "enum": [null, 1]}}}'),),
        ),
    ],
)
def test_every_usual_form_is_a_list_of_tools(given: Any, tools: tuple[ToolSpec, ...]) -> None:
    """A null of a table is no keyword; the order of a schema's keys stays."""
    assert tools_from_json(given, "tools") == tools


def test_a_tool_has_one_form_for_models() -> None:
    """The keys have one order, whichever the row had; what it returns is for templates."""
    (tool,) = tools_from_json([{"return": {"type": "string"}, "strict": False, **FUNCTION}], "tools")

    assert json.dumps(tool_to_json(tool)) == json.dumps({"type": "function", "function": {**FUNCTION, "strict": False}})
    assert list(tool_to_json(tool, returns=True)["function"]) == [
        "name",
        "description",
        "parameters",
        "strict",
        "return",
    ]


def _nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@rows(
    ("given", "field", "says"),
    [
        ({"name": "f"}, "tools", "is no list of tools"),
        ([1], "tools[0]", "is no object"),
        ([{}], "tools[0].name", "is not given"),
        ([{"name": "a b"}], "tools[0].name", "which has white space"),
        ([{"name": "x" * 129}], "tools[0].name", "has more than 128 bytes"),
        ([{"name": "f", "cost": 1}], "tools[0]", "has the key 'cost'; known are name, description"),
        ([{**FRAMED, "cost": 1}], "tools[0]", "has the key 'cost'"),
        ([{"type": "web_search"}], "tools[0].type", 'must be "function"'),
        ([{"name": "f", "strict": "yes"}], "tools[0].strict", "is neither true nor false"),
        ([{"name": "f", "parameters": []}], "tools[0].parameters", "is no object"),
        ([{"name": "f", "parameters": "[]"}], "tools[0].parameters", "is no JSON object"),
        ([{"name": "f", "parameters": '{"a": NaN}'}], "tools[0].parameters", "is not JSON: "),
        ([{"name": "f", "parameters": {"a": float("inf")}}], "tools[0].parameters", "is not JSON: "),
        ([{"name": "f", "parameters": _nested(MAX_SCHEMA_DEPTH + 1)}], "tools[0].parameters", "nested more than 32"),
        ([{"name": "f", "parameters": json.loads(_nested(40))}], "tools[0].parameters", "nested more than 32"),
        ("[" * 100_000, "tools", "nested more than 32"),
        ([{"name": "f", "parameters": " " * (MAX_SCHEMA_BYTES + 1)}], "tools[0].parameters", "more than 262,144 bytes"),
        ([FRAMED] * (MAX_TOOLS + 1), "tools", "has 129 tools, at most 128"),
        ([FRAMED, FUNCTION], "tools[1].name", "is 'add', which is there twice"),
        ([{"name": "f", "description": "x" * MAX_TOOLS_BYTES}], "tools", "bytes of tools, at most 1,048,576"),
    ],
)
def test_what_is_no_tool_is_refused_at_its_place(given: Any, field: str, says: str) -> None:
    """Count, size and depth are bounded before a model, or a template, gets any of it."""
    with pytest.raises(InvalidField) as caught:
        tools_from_json(given, "tools")

    assert caught.value.field == field
    assert says in caught.value.message


def test_brackets_in_texts_are_no_depth() -> None:
    """A description may have any number of them."""
    check_tools([ToolSpec(name="f", parameters=json.dumps({"description": '[{"\\' * 100}))], "tools")


def test_tools_cross_the_wire_and_are_checked_there() -> None:
    """As those of rows are."""
    asked = Conversation((ChatMessage("user", "q"),), (ADD, ToolSpec(name="f", strict=False, returns="{}")))
    assert conversation_from_v1(conversation_to_v1(asked), "c") == asked

    twice = types_pb2.Conversation(messages=[{"role": "user"}], tools=[{"name": "f"}, {"name": "f"}])
    with pytest.raises(InvalidField, match="twice") as caught:
        conversation_from_v1(twice, "c")
    assert caught.value.field == "c.tools[1].name"
    many = types_pb2.Conversation(messages=[{"role": "user"}], tools=[{"name": str(n)} for n in range(MAX_TOOLS + 1)])
    with pytest.raises(InvalidField, match="129 tools"):
        conversation_from_v1(many, "c")
