"""Rows as people have them: which sample each shape is, what is refused, and what becomes metadata."""

import datetime
import decimal
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Dataset,
    Datum,
    InlineDataset,
    MalformedRow,
    RowReader,
    Sample,
    ToolSpec,
)
from crucible_bridge.types.rows import TEMPLATE_COLUMNS
from tests.tables import rows

GSM8K = "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n#### 72"
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
USER, ASSISTANT = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}


REASONED = ChatMessage("assistant", "4", reasoning="2 and 2")
TURNS = (ASSISTANT, USER, ASSISTANT)


def reader(columns: dict[str, str] | None = None) -> RowReader:
    """Reads rows of a data set."""
    return RowReader(columns or {}, field="dataset.file", cure="name the columns")


def asked(*messages: dict[str, str]) -> Conversation:
    """A conversation."""
    return Conversation(tuple(ChatMessage(message["role"], message["content"]) for message in messages))


@rows(
    ("row", "sample"),
    [
        ({"input": "a"}, Sample(input="a")),
        ({"input": "a", "target": "b"}, Sample(input="a", targets=("b",))),
        ({"input": "a", "output": "b"}, Sample(input="a", targets=("b",))),
        ({"input": "a", "targets": ["b", "c"]}, Sample(input="a", targets=("b", "c"))),
        ({"input": "a", "target": None, "targets": ["b"]}, Sample(input="a", targets=("b",))),
        ({"input": [USER], "target": 4}, Sample(input=asked(USER), targets=("4",))),
        ({"input": "a", "target": True}, Sample(input="a", targets=("true",))),
        ({"input": "a", "id": 7, "traget": "b"}, Sample(id="7", input="a", metadata={"traget": "b"})),
        ({"question": "a", "answer": "b"}, Sample(input="a", targets=("b",))),
        ({"question": "a", "answer": ["b", "c"]}, Sample(input="a", targets=("b", "c"))),
        ({"question": "a", "answer": GSM8K}, Sample(input="a", targets=("72",), metadata={"answer": GSM8K})),
        (
            {"question": "a", "answer": "#### -1,234"},
            Sample(input="a", targets=("-1,234",), metadata={"answer": "#### -1,234"}),
        ),
        ({"question": "a", "answer": "x #### 7"}, Sample(input="a", targets=("x #### 7",))),
        ({"question": "a", "answer": "#### Title\ntext"}, Sample(input="a", targets=("#### Title\ntext",))),
        ({"input": "a", "target": GSM8K}, Sample(input="a", targets=(GSM8K,))),
        (
            {"question": "a", "choices": ["x", "y"], "answer": 1, "subject": "law"},
            Sample(input="a", targets=("B",), choices=("x", "y"), metadata={"subject": "law"}),
        ),
        ({"prompt": "a", "completion": "b"}, Sample(input="a", targets=("b",))),
        ({"prompt": [USER], "completion": [ASSISTANT]}, Sample(input=asked(USER), targets=("4",))),
        ({"prompt": [USER], "completion": [ASSISTANT | {"name": None}]}, Sample(input=asked(USER), targets=("4",))),
        ({"prompt": [USER], "completion": [ASSISTANT, USER, ASSISTANT]}, Sample(input=asked(USER, *TURNS))),
        (
            {"prompt": [USER], "completion": [ASSISTANT | {"reasoning_content": "2 and 2"}]},
            Sample(input=Conversation((ChatMessage("user", "2+2?"), REASONED))),
        ),
        ({"messages": [USER, ASSISTANT]}, Sample(input=asked(USER, ASSISTANT))),
        ({"messages": [USER], "target": 4}, Sample(input=asked(USER), targets=("4",))),
        ({"messages": [USER, ASSISTANT], "answer": "four"}, Sample(input=asked(USER, ASSISTANT), targets=("four",))),
        ({"messages": [USER], "output": ["4", "four"]}, Sample(input=asked(USER), targets=("4", "four"))),
        ({"messages": [USER], "answer": GSM8K}, Sample(input=asked(USER), targets=("72",), metadata={"answer": GSM8K})),
        ({"messages": [USER], "completion": [ASSISTANT]}, Sample(input=asked(USER), targets=("4",))),
        ({"messages": [USER], "tools": [], "functions": None}, Sample(input=asked(USER), metadata={"tools": "[]"})),
        ({"messages": [USER], "metadata": {"tools": [1]}}, Sample(input=asked(USER), metadata={"tools": "[1]"})),
        ({"input": "a", "tools": ["saw"]}, Sample(input="a", metadata={"tools": '["saw"]'})),
        ({"prompt": "p", "messages": [USER]}, Sample(input=asked(USER), metadata={"prompt": "p"})),
        ({"text": "a", "url": "u"}, Sample(input="a", metadata={"url": "u"})),
        ({"text": "a", "input": "b"}, Sample(input="b", metadata={"text": "a"})),
        (
            {"input": "a", "level": 3, "tags": ["x", None], "nothing": None, "metadata": {"k": 1.5, "n": None}},
            Sample(input="a", metadata={"k": "1.5", "n": "null", "level": "3", "tags": '["x", null]'}),
        ),
        ({"input": "a", "id": None, "choices": None, "metadata": None}, Sample(input="a")),
    ],
)
def test_a_row_is_a_sample(row: dict[str, Any], sample: Sample) -> None:
    """The columns say of which shape it is; what is no part of it becomes metadata, as text."""
    assert reader().sample(row) == sample


@rows(
    ("row", "says", "more"),
    [
        ({}, 'has no "input"', "found: no column; known: {input, target | output | targets}, {question, answer}"),
        ({"question": "a", "answr": "b"}, 'has no "input"', "found: question, answr; known: "),
        ({"prompt": "a"}, 'has no "input"', "found: prompt; known: "),
        ({str(number): "" for number in range(12)}, 'has no "input"', "8, 9 and 2 more; known: "),
        ({"question": 3, "answer": "b"}, 'has a "question" that is a number', ""),
        ({"question": "a", "answer": None}, 'has "answer" that holds null or NaN, not text', ""),
        ({"question": "a", "answer": {"value": "b"}}, 'has "answer" that holds an object, not text', ""),
        ({"input": "a", "target": "b", "output": "c"}, 'has both "target" and "output"', ""),
        ({"messages": [{"role": "user"}]}, 'has a "messages" whose message 0, at content, is not given', ""),
        ({"messages": [USER | {"audio": "x"}]}, "whose message 0 has the key 'audio'; known are", ""),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "at content[0].type, must be", ""),
        ({"messages": [USER | {"tool_calls": [{"function": {}}]}]}, "at tool_calls[0].function.name, is not", ""),
        ({"question": "a", "choices": ["x"], "answer": 1}, "the index of a choice, and there are 1 choices", ""),
        ({"input": "a", "metadata": {"x": 1}, "x": 2}, 'has "x" as a column and in "metadata"', ""),
        ({"messages": [USER], "target": "a", "answer": "b"}, 'has both "target" and "answer"', ""),
        ({"prompt": [USER], "completion": [ASSISTANT, USER]}, 'has "completion" that ends with a message of an', ""),
        ({"prompt": "a", "completion": [ASSISTANT, USER, ASSISTANT]}, "the input must be messages", ""),
    ],
)
def test_a_row_that_is_none_says_what_was_found_and_what_is_known(row: dict[str, Any], says: str, more: str) -> None:
    """A null target is one of them: without it the sample would be measured in another way."""
    with pytest.raises(MalformedRow) as caught:
        reader().sample(row)

    assert says in str(caught.value)
    assert more in caught.value.more


@rows(
    ("row", "shapes"),
    [
        ({"input": "a", "question": "b", "answer": "c"}, "{input, target | output | targets} and {question, answer}"),
        (
            {"question": "a", "answer": "b", "prompt": "c", "completion": "d"},
            "{question, answer} and {prompt, completion}",
        ),
        (
            {"messages": [USER], "prompt": "c", "completion": "d"},
            "{prompt, completion} and {messages, target | output | targets | answer | completion}",
        ),
    ],
)
def test_a_row_of_two_shapes_refuses_the_data_set(row: dict[str, Any], shapes: str) -> None:
    """Both are named, with the columns and the cure; also in a later row."""
    rows_ = reader()
    rows_.sample({"text": "t"})
    with pytest.raises(InvalidField) as caught:
        rows_.sample(row)

    assert shapes in caught.value.message
    assert caught.value.message.endswith("; name the columns")
    assert caught.value.reason == "AMBIGUOUS_COLUMNS"


@rows(
    ("columns", "row"),
    [
        ({}, {"messages": [USER], "tools": [TOOL]}),
        ({}, {"messages": [USER], "functions": [TOOL["function"]]}),
        ({}, {"prompt": [USER], "completion": [ASSISTANT], "tools": json.dumps([TOOL])}),
        ({"input": "chat"}, {"chat": [USER], "tools": [json.dumps(TOOL)]}),
        ({"input": "chat", "tools": "those"}, {"chat": [USER], "those": [TOOL], "tools": "kept"}),
        ({"input": "row.chat"}, {"row": {"chat": [USER], "tools": [TOOL]}}),
    ],
)
def test_messages_have_the_tools_of_their_row(columns: dict[str, str], row: dict[str, Any]) -> None:
    """In a column beside them, whichever form it has; they are no metadata, unless a mapping says so."""
    sample = reader(columns).sample(row)

    assert isinstance(sample.input, Conversation)
    assert sample.input.tools == (ToolSpec(name="add", description="Adds.", parameters='{"type": "object"}'),)
    assert sample.metadata == ({"tools": "kept"} if "those" in row else {})
    if columns and "those" not in row:
        path = "tools" if "tools" in row else "row.tools"
        mapped = reader({**columns, "metadata.tools": path}).sample(row)
        assert isinstance(mapped.input, Conversation)
        assert (mapped.input.tools, list(mapped.metadata)) == ((), ["tools"])


@rows(
    ("columns", "row", "says"),
    [
        ({}, {"messages": [USER], "tools": [{"type": "function"}]}, 'of which "tools[0].name" is not given'),
        ({}, {"messages": [USER], "tools": "add"}, 'of which "tools" is not JSON'),
        ({}, {"messages": [USER], "tools": [TOOL, TOOL]}, "\"tools[1].name\" is 'add', which is there twice"),
        ({}, {"messages": [USER], "tools": [TOOL], "functions": [TOOL]}, 'has both "tools" and "functions"'),
        ({"input": "q", "tools": "t"}, {"q": "2+2?", "t": [TOOL]}, 'has tools in "t", and an input that is no list'),
    ],
)
def test_tools_that_are_none_are_malformed(columns: dict[str, str], row: dict[str, Any], says: str) -> None:
    """The row is; others stand."""
    with pytest.raises(MalformedRow) as caught:
        reader(columns).sample(row)

    assert says in str(caught.value)


@pytest.mark.parametrize("name", TEMPLATE_COLUMNS)
def test_each_column_of_a_chat_template_is_refused_by_name(name: str) -> None:
    """Its value is part of the prompt that a model was trained on."""
    with pytest.raises(InvalidField, match=f'the column "{name}"'):
        reader().sample({"messages": [USER], name: {"a": 1}})
    assert reader().sample({"messages": [USER], name: "[]"}).input == asked(USER)


def test_the_first_row_says_of_which_shape_all_are() -> None:
    """A row of another shape is malformed, also one that has a text in place of a question."""
    rows_ = reader()
    assert rows_.sample({"question": "a", "answer": "b"}) == Sample(input="a", targets=("b",))
    with pytest.raises(MalformedRow, match='has no "question"') as caught:
        rows_.sample({"text": "c"})

    assert caught.value.more == "found: text; the rows before are {question, answer}"


def test_a_misspelt_target_is_malformed() -> None:
    """A row may have no target at all; one with another column in its place, where others have targets, is misspelt."""
    rows_ = reader()
    assert rows_.sample({"input": "a", "traget": "b"}).metadata == {"traget": "b"}
    assert rows_.sample({"input": "a", "target": "b"}).targets == ("b",)
    assert rows_.sample({"input": "a", "id": "x", "choices": ["c"], "metadata": {}}).targets == ()
    with pytest.raises(MalformedRow, match='has no "target", as rows before it have') as caught:
        rows_.sample({"input": "a", "traget": "b"})

    assert caught.value.more == "found: input, traget"


@rows(
    ("columns", "row", "sample"),
    [
        ({"input": "q"}, {"q": "a", "input": "b"}, Sample(input="a", metadata={"input": "b"})),
        ({"input": "q", "target": "t"}, {"q": "a", "t": GSM8K}, Sample(input="a", targets=(GSM8K,))),
        ({"input": "q", "targets": "t"}, {"q": "a", "t": ["x", 2]}, Sample(input="a", targets=("x", "2"))),
        ({"input": "q", "id": "n"}, {"q": "a", "n": 7, "id": 8}, Sample(id="7", input="a", metadata={"id": "8"})),
        ({"input": "q", "id": "n"}, {"q": "a"}, Sample(input="a")),
        ({"input": "q.x"}, {"q": {"x": "a", "y": "b"}}, Sample(input="a")),
        ({"input": "q.x"}, {"q.x": "a", "q": "b"}, Sample(input="a", metadata={"q": "b"})),
        (
            {"input": "q", "choices": "c.text", "target": "t"},
            {"q": "a", "c": {"text": ["x", "y"], "label": ["A", "B"]}, "t": 0},
            Sample(input="a", choices=("x", "y"), targets=("A",), choice_labels=("A", "B")),
        ),
        ({"input": "q", "metadata.k": "m"}, {"q": "a", "m": [1], "k": "z"}, Sample(input="a", metadata={"k": "[1]"})),
        ({"input": "q"}, {"q": "a", "metadata": "m"}, Sample(input="a", metadata={"metadata": "m"})),
        (
            {"input": "question"},
            {"question": "a", "answer": "b", "prompt": "c", "completion": "d"},
            Sample(input="a", metadata={"answer": "b", "prompt": "c", "completion": "d"}),
        ),
    ],
)
def test_a_mapping_says_which_column_is_what(columns: dict[str, str], row: dict[str, Any], sample: Sample) -> None:
    """A field stands behind a dot; what is not named becomes metadata, whatever it is called."""
    assert reader(columns).sample(row) == sample


def test_a_mapping_of_what_no_row_has_is_refused_at_the_end() -> None:
    """Rows may lack an id; a column that none has is misspelt."""
    rows_ = reader({"input": "q", "id": "n"})
    rows_.sample({"q": "a", "m": 1})
    with pytest.raises(InvalidField, match="is 'n', which is not a column; there are q, m") as caught:
        rows_.finish()

    assert (caught.value.field, caught.value.reason) == ('dataset.file.columns["id"]', "NO_SUCH_COLUMN")
    with pytest.raises(MalformedRow, match='has no column "t" for the target'):
        reader({"input": "q", "target": "t"}).sample({"q": "a"})
    with pytest.raises(InvalidField, match="names no column for the input; the columns are q"):
        reader({"target": "q"}).sample({"q": "a"})


@rows(
    "given",
    [
        {"q": "x", "t": "y", **{f"k{number}": 1 for number in range(10_001)}},
        {"q": "x", "t": "y", "k": 1, "metadata": {f"k{number}": 1 for number in range(10_000)}},
    ],
)
def test_the_metadata_of_a_row_is_bounded(given):
    """As that of a sample in a request: 900,000 keys in a line took seconds."""
    read = reader({"input": "q", "target": "t"})
    with pytest.raises(MalformedRow, match="has 10,001 entries of metadata and other columns, at most 10,000"):
        read.sample(given)
    del given.get("metadata", given)["k1"]
    assert len(read.sample(given).metadata) == 10_000


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9)
lists = st.lists(leaves, max_size=3) | st.dictionaries(st.text(max_size=5), leaves, max_size=3)
values = leaves | lists | st.lists(lists, max_size=3) | st.dictionaries(st.text(max_size=5), lists, max_size=3)
names = st.text(max_size=5) | st.sampled_from(
    (
        *("input", "target", "output", "targets", "question", "answer", "prompt", "completion", "messages", "text"),
        *("choices", "id", "metadata", "level"),
    )
)


@given(st.dictionaries(names, values, max_size=6), st.dictionaries(st.sampled_from(["input", "target", "id"]), names))
def test_whatever_a_row_holds_it_is_a_sample_or_refused(row: dict[str, Any], columns: dict[str, str]) -> None:
    """Of a sample all parts are text."""
    try:
        sample = reader(columns).sample(row)
    except (MalformedRow, InvalidField):
        return

    assert isinstance(sample.input, str | Conversation)
    parts = [sample.id, *sample.targets, *sample.choices, *sample.metadata, *sample.metadata.values()]
    assert all(isinstance(part, str) for part in parts)


def test_a_list_may_hold_rows_samples_and_datums() -> None:
    """Rows come as other libraries hold them: numbers of numpy, dates, and NaN for what is missing."""
    datum = Datum(model_input=[1, 2], loss_fn_inputs={"target_tokens": [2, 3], "weights": [1.0, 1.0]})

    class Chunked:
        def to_ints(self) -> list[int]:
            return [1, 2]

    class OfTinker:
        model_input = Chunked()
        loss_fn_inputs = {"weights": np.array([0.5, 1.0])}  # noqa: RUF012 - as another library has it

    row = {
        "question": "2+2?",
        "answer": np.int64(4),
        "when": datetime.date(2026, 1, 2),
        "share": decimal.Decimal("0.50"),
        "grades": np.array([1, 2]),
        "missing": float("nan"),
    }
    source = Dataset.of([row, Sample(input="a"), datum, OfTinker()]).source

    assert isinstance(source, InlineDataset)
    first, second, third, fourth = source.samples
    assert first == Sample(
        input="2+2?", targets=("4",), metadata={"when": "2026-01-02", "share": "0.50", "grades": "[1, 2]"}
    )
    assert second == Sample(input="a")
    assert third.input is datum
    assert isinstance(fourth.input, Datum)
    assert fourth.input.model_input.tokens().tolist() == [1, 2]


@rows(
    ("items", "field", "says"),
    [
        ([{"input": "a"}, {"inptu": "b"}], "dataset.inline.samples[1]", "found: inptu; the rows before are {input"),
        ([{"input": "a", "messages": [USER]}], "dataset.inline", "two shapes"),
        ([{"input": "a", 3: "b"}], "dataset.inline.samples[0]", "the key 3"),
        ([{"input": "a", "raw": b"x"}], 'dataset.inline.samples[0]["raw"]', "has a value of type bytes"),
        (["text"], "dataset.inline.samples[0]", "is a str, neither a Sample"),
        ({"input": "a"}, "dataset", "is a dict"),
        (3, "dataset", "is a int"),
    ],
)
def test_what_is_no_list_of_samples_is_refused(items: Any, field: str, says: str) -> None:
    """The error names the item and what was found in it."""
    with pytest.raises(InvalidField) as caught:
        Dataset.of(items)

    assert caught.value.field == field
    assert says in caught.value.message


def test_metadata_of_rows_is_json_as_files_have_it() -> None:
    """The same row in a list and in a file is the same sample."""
    row = {"input": "a", "level": {"é": [1, 2.5, None]}}
    source = Dataset.of([row]).source

    assert isinstance(source, InlineDataset)
    assert source.samples[0] == reader().sample(json.loads(json.dumps(row)))
