"""Responses as messages: any text is parsed, and what a message is made of comes back from its text."""

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import RawResponse, Termination
from crucible_worker.rendering.answers import Stops, parse_text
from crucible_worker.rendering.tool_calls import MAX_CALL_CHARS

STOPS = Stops(texts=("<|im_end|>",), end="<|endoftext|>")
PIECES = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<|im_end|>",
    "<|endoftext|>",
    "{",
    '"name"',
    "\n\nUser:",
)
PLAIN = st.text("abc 1{}\n", min_size=1, max_size=20).map(str.strip).filter(bool)


def parse(text, renderer="chat_template", stop_reason="", stops=STOPS):
    """A response of text alone."""
    return parse_text(RawResponse(text=text, stop_reason=stop_reason), text, stops, renderer)


@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=12).map("".join),
    st.sampled_from(["chat_template", "raw", "role_colon"]),
    st.sampled_from(["", "stop", "length"]),
)
def test_any_text_is_parsed(text, renderer, stop_reason):
    """Nothing raises, and no renderer leaves a stop sequence of its own in the answer."""
    parsed = parse(text, renderer, stop_reason)

    assert parsed.termination is not None
    if renderer != "role_colon":
        assert not any(stop in parsed.text for stop in STOPS.texts)


@given(PLAIN, PLAIN, PLAIN, st.dictionaries(PLAIN, PLAIN, max_size=3))
def test_a_message_comes_back(reasoning, answer, tool, arguments):
    """Reasoning, text and a call that a template wrote."""
    call = json.dumps({"name": tool, "arguments": arguments})
    parsed = parse(f"<think>{reasoning}</think>{answer}<tool_call>{call}</tool_call><|im_end|>")

    assert (parsed.reasoning, parsed.text, parsed.termination) == (reasoning, answer, Termination.STOP)
    assert [(one.name, json.loads(one.arguments)) for one in parsed.tool_calls] == [(tool, arguments)]


def test_the_first_end_counts():
    """The end-of-sequence token is another end than the renderer's; text after either is malformed."""
    assert parse("a<|endoftext|>").termination is Termination.EOS
    assert parse("a<|im_end|>\n").termination is Termination.STOP
    assert parse("a<|endoftext|>b<|im_end|>").termination is Termination.MALFORMED
    assert parse("a<|endoftext|>b<|im_end|>").text == "a"


def test_without_an_end_the_stop_reason_decides():
    """Samplers remove the stop sequence."""
    assert [parse("a", stop_reason=reason).termination for reason in ("", "length", "stop")] == [
        Termination.TRUNCATED,
        Termination.TRUNCATED,
        Termination.STOP,
    ]


def test_calls_that_are_no_calls():
    """Each is kept as it was written, with what is wrong."""
    for text, error in (
        ("{", "is not JSON"),
        ("[]", "has no name"),
        ('{"arguments": {}}', "has no name"),
        ('{"name": "f", "arguments": 1}', "has arguments that are no object"),
        ("[" * 100_000, "is not JSON"),
    ):
        parsed = parse(f"<tool_call>{text}</tool_call><|im_end|>")
        (unparsed,) = parsed.unparsed_tool_calls
        assert unparsed.text == f"<tool_call>{text}</tool_call>"
        assert error in unparsed.error
        assert parsed.termination is Termination.MALFORMED
    assert parse("<tool_call>{}").unparsed_tool_calls[0].error == "is not closed"


def test_a_call_has_a_bound():
    """A longer one is not parsed: no other thread would run meanwhile."""
    longest = f'{{"name": "a"{" " * (MAX_CALL_CHARS - 13)}}}'
    (short,) = parse(f"<tool_call>{longest}</tool_call>").tool_calls
    (refused,) = parse(f"<tool_call>{longest} </tool_call>").unparsed_tool_calls

    assert short.name == "a"
    assert refused.error == "has 262,145 characters; at most 262,144 are parsed"


def test_an_answer_in_json_is_text():
    """A response does not say whether its model was shown tools: forms without marks are calls only behind one."""
    for form, text in (
        ("llama", '{"name": "Paris", "population": 2100000}'),
        ("llama", '{"type": "object", "properties": {}}'),
        ("pythonic", "[see(above)] for details"),
    ):
        parsed = parse(f"{text}<|im_end|>", stops=dataclasses.replace(STOPS, tool_form=form))
        assert (parsed.text, parsed.tool_calls, parsed.termination) == (text, (), Termination.STOP)

    marked = parse('<|python_tag|>{"name": "f"}<|im_end|>', stops=dataclasses.replace(STOPS, tool_form="llama"))
    assert [call.name for call in marked.tool_calls] == ["f"]
