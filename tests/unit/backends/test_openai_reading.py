"""Long answers of servers are read by another process, with all that the worker looks at unchanged."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.types import SampledSequence, ToolCall, UnparsedToolCall
from crucible_worker.backends.openai import documents, reading
from crucible_worker.backends.openai.answers import chat_answer, completion_answer
from crucible_worker.backends.openai.documents import read_document
from crucible_worker.backends.openai.reading import read_apart
from crucible_worker.backends.openai.scoring import Scorer
from tests.processes import children_of
from tests.tables import rows

PROMPT = [7, 8]
KEYS = ["choices", "text", "message", "content", "finish_reason", "logprobs", "token_logprobs", "top_logprobs", "usage"]
KEYS += ["prompt_logprobs", "logprob", "rank", "8", "token_ids", "completion_tokens", "else"]
APART = ["reasoning_content", "reasoning", "thinking", "reasoning_details", "text", "summary", "content", "refusal"]
APART += ["tool_calls", "function_call", "function", "name", "arguments", "id", "type"]


def _values(keys: list[str]) -> st.SearchStrategy[Any]:
    """Any JSON whose objects have these keys."""
    return st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-5, 5)
        | st.floats(allow_nan=False)
        | st.sampled_from(["stop", "\ud800"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(keys), inner, max_size=4),
        max_leaves=12,
    )


VALUES = _values(KEYS)
DOCUMENTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3)
TOLD = {
    "choices": [
        {
            "text": "a\n\ud800\u00e9",
            "finish_reason": "stop",
            "token_ids": [1, 2],
            "logprobs": {
                "token_logprobs": [None, -math.inf],
                "top_logprobs": [None, {"x": -0.5, "\n": -1.5}],
                "content": [{"logprob": -0.5, "token": "x"}],
            },
            "prompt_logprobs": [None, {"8": {"logprob": -0.5, "rank": 2}, "9": {"logprob": -0.25, "rank": 1}}],
        }
    ],
    "usage": {"prompt_tokens": 2, "completion_tokens": 1, "more": [[]]},
}


def _written(document: Any) -> bytes:
    return json.dumps(document).encode()


def _said(content: bytes, tokens: int) -> bytes:
    return "\n".join(reading._answer(b"%d\n%b" % (tokens, content))).encode("utf-8", "surrogatepass")


def _columns(sequence: SampledSequence) -> object:
    assert sequence.top_tokens is not None
    assert sequence.top_logprobs is not None
    return sequence, sequence.top_tokens.tolist(), sequence.top_logprobs.tolist()


def _results(document: dict[str, Any]) -> list[object]:
    """All that the worker makes of a document: results, or errors with their words."""

    async def ask(body: object, tokens: int) -> dict[str, Any]:
        return document

    readers: tuple[Callable[[], object], ...] = (
        lambda: completion_answer(document, "s"),
        lambda: chat_answer(document, "s"),
        lambda: _columns(completion_answer(document, "s", 2)),
        lambda: _columns(chat_answer(document, "s", 2)),
        lambda: asyncio.run(Scorer("s", "m", ask).score(PROMPT)),
        lambda: asyncio.run(Scorer("s", "m", ask).likeliest(PROMPT)),
    )
    found: list[object] = []
    for read in readers:
        try:
            found.append(read())
        except BridgeError as error:
            found.append((type(error), error.reason, error.message))
    return found


@given(
    DOCUMENTS
    | st.builds(lambda choice: {"choices": [choice]}, DOCUMENTS)
    | st.builds(lambda entries: {"choices": [{"prompt_logprobs": [None, entries]}]}, VALUES)
    | st.builds(lambda told: {"choices": [{"text": "", "finish_reason": "stop", "logprobs": told}]}, DOCUMENTS)
)
def test_what_the_worker_makes_of_an_answer_is_the_same(document: dict[str, Any]) -> None:
    """Results, and errors, of whatever a server says."""
    content = _written(document)

    assert _results(reading._together(_said(content, 8), "s")) == _results(read_document(content, 8, "s"))


@given(st.dictionaries(st.sampled_from(APART), _values(APART), max_size=4), st.booleans())
def test_what_an_answer_has_apart_is_the_same(told: dict[str, Any], chats: bool) -> None:
    """Reasoning, a refusal and calls of tools, in the message of a chat and next to the text of a completion."""
    choice = {"message": {"content": "46", **told}} if chats else {**told, "text": "46"}
    content = _written({"choices": [{**choice, "finish_reason": "stop"}]})

    assert _results(reading._together(_said(content, 8), "s")) == _results(read_document(content, 8, "s"))


@rows("chats", [True, False])
async def test_another_process_reads_what_an_answer_has_apart(chats: bool) -> None:
    """Calls with all of their arguments, be they an object or of another kind; reasoning in lists of parts."""
    custom = {"type": "custom", "custom": {"name": "f", "input": "x"}}
    told = {
        "reasoning_details": [{"type": "reasoning.text", "text": "12"}, {"content": [{"text": "+34"}]}],
        "refusal": "no",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"a": [1, 2], "b": {"c": 1}}}}, custom],
    }
    choice = {"message": {"content": "46", **told}} if chats else {"text": "46", **told}
    document = await read_apart(_written({"choices": [{**choice, "finish_reason": "stop"}]}), 4, "s")
    answer = (chat_answer if chats else completion_answer)(document, "s")

    assert (answer.text, answer.reasoning, answer.refusal) == ("46", "12+34", "no")
    assert answer.tool_calls == (ToolCall(name="f", arguments='{"a": [1, 2], "b": {"c": 1}}', id="c"),)
    assert answer.unparsed_tool_calls == (UnparsedToolCall(text=json.dumps(custom), error="has no name of a tool"),)


async def test_another_process_reads() -> None:
    """With every text and number; fields that no code reads are left out."""
    found = await read_apart(_written(TOLD), 4, "s")

    choice = TOLD["choices"][0]
    assert found == {
        "choices": [{**choice, "logprobs": {**choice["logprobs"], "content": [{"token": "x", "logprob": -0.5}]}}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 1},
    }


def test_no_line_takes_long_to_be_read() -> None:
    """Lists come in several lines, in their order."""
    values = [index / 7 for index in range(50_000)]
    entries = [{str(index): {"logprob": value, "rank": 1}} for index, value in enumerate(values)]
    content = _written(
        {"choices": [{"logprobs": {"token_logprobs": values, "text_offset": [0]}, "prompt_logprobs": entries}]}
    )
    said = _said(content, len(values))

    assert max(map(len, said.split(b"\n"))) <= 3 * reading._ITEM_CHARS
    assert reading._together(said, "s") == {
        "choices": [{"logprobs": {"token_logprobs": values}, "prompt_logprobs": entries}]
    }


@rows(
    ("content", "says"),
    [
        (b"[]", "not an object"),
        (b"{", "not JSON"),
        (_written({"choices": [{"prompt_logprobs": [dict.fromkeys(map(str, range(10_000)), 0)]}]}), "one token"),
        (_written({"choices": [{"token_ids": [0] * 2_000}]}), "list of token_ids"),
        (b"[" * (documents.max_parts(4) + 1), "lists, objects and keys"),
    ],
    ids=["list", "nonsense", "token", "list of many", "parts"],
)
async def test_what_is_no_answer_is_refused(content: bytes, says: str) -> None:
    """With its reason, as in the worker's own process."""
    with pytest.raises(BackendError, match=says) as caught:
        await read_apart(content, 4, "s")

    assert (caught.value.reason, caught.value.retryable) == ("BACKEND_ANSWER", True)


async def test_a_process_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves nothing."""
    before = children_of(os.getpid())
    monkeypatch.setattr(reading, "READ_SECONDS", 0)

    with pytest.raises(BackendError, match="too much time") as caught:
        await read_apart(_written(TOLD), 4, "s")

    assert caught.value.reason == "BACKEND_ANSWER"
    assert children_of(os.getpid()) == before


async def test_a_process_of_a_cancelled_call_is_ended() -> None:
    """It leaves nothing."""
    before = children_of(os.getpid())
    task = asyncio.create_task(read_apart(b'{"a":[' + b"[]," * 100_000 + b"0]}", 250_000, "s"))
    while children_of(os.getpid()) == before:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert children_of(os.getpid()) == before
