"""Answers of OpenAI-compatible servers: what is read from them, and that nonsense is an error, never an answer."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import BackendError
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    ImageAssetChunk,
    ImageChunk,
    SamplingParams,
    ToolCall,
    ToolSpec,
    UnparsedToolCall,
)
from crucible_worker.backends.base import MAX_TEXT_BYTES, ToolChoice
from crucible_worker.backends.metering import Meter
from crucible_worker.backends.openai.answers import chat_answer, completion_answer, report_usage
from crucible_worker.backends.openai.bodies import MAX_SEED, chat_body, completion_body, seeded
from crucible_worker.backends.openai.documents import parse, read_document
from tests.tables import rows

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["text", "message", "content", "logprobs", "token_logprobs", "finish_reason", "usage"]),
            inner,
        )
    ),
    max_leaves=6,
)


ENCODINGS = ["utf-8-sig", "utf-16", "utf-32-le"]


def completion(**fields):
    """An answer of /completions, with these fields of its choice."""
    return {"choices": [{"text": "hi", "finish_reason": "stop", **fields}]}


def chat(**fields):
    """An answer of /chat/completions, with these fields of its choice."""
    return {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop", **fields}]}


@rows(
    "value",
    [
        b"[NaN, -Infinity, 1e400, -0, -0.0, 1E5, 0.30000000000000004]",
        b"[18446744073709551616, " + b"9" * 4_300 + b"]",
        b'"\\ud800 \\udc00\\ud83d\\ude00 \xed\xa0\x80 \xc3\xa9"',
        b'{"x": 1, "x": 2, "\\ud800": 3}',
        b"[" * 900 + b"]" * 900,
    ],
)
def test_an_answer_has_the_values_that_python_reads(value: bytes):
    """Also what the standard of JSON does not have, and texts that are no Unicode: what refuses them names them."""
    content = b' {"a": %b}\n' % value
    assert repr(parse(content, 0)) == repr(json.loads(content))
    for encoded in (content.decode("utf-8", "surrogatepass").encode(name, "surrogatepass") for name in ENCODINGS):
        assert repr(parse(encoded, 0)) == repr(json.loads(encoded))


@rows(
    ("finish_reason", "stop_reason"),
    [
        *[(reason, "stop") for reason in ("stop", "eos", "eos_token", "stop_sequence", "end_turn", "tool_calls")],
        *[(reason, "stop") for reason in ("STOP", " Stop ", "COMPLETE", "END_TURN", "function_call", "tool_use")],
        *[(reason, "length") for reason in ("length", "max_tokens", "MAX_TOKENS", "model_length", "Length")],
        # What no one knows stays as it is, and what is not reported is never guessed.
        ("repetition", "repetition"),
        ("FINISH_REASON\x1b[31m", "finish_reason [31m"),
        ("x" * 1000, "x" * 40),
        *[(reason, "") for reason in (None, "", "  ", 1, True, ["stop"], {"type": "stop"}, 10**400)],
    ],
)
def test_why_an_answer_ended(finish_reason, stop_reason):
    """An answer that was truncated says "length", whatever its server calls that; an odd reason costs no answer."""
    for sequence in (
        completion_answer(completion(finish_reason=finish_reason), "s"),
        chat_answer(chat(finish_reason=finish_reason), "s"),
    ):
        assert (sequence.text, sequence.stop_reason) == ("hi", stop_reason)


@rows(
    ("character", "size"), [("x", 1), ("\u00e9", 2), ("\ud800", 3), ("\U0001f600", 4)], ids=["1", "2", "surrogate", "4"]
)
def test_an_answer_that_no_page_could_carry_is_an_error(character, size):
    """As long as there may be, in bytes of UTF-8, a text is taken, halves of pairs counted as what they become."""
    longest = character * (MAX_TEXT_BYTES // size) + "x" * (MAX_TEXT_BYTES % size)

    assert completion_answer(completion(text=longest), "s").text == longest
    for read, document in (
        (completion_answer, completion(text=longest + "x")),
        (chat_answer, chat(message={"content": longest + "x"})),
    ):
        with pytest.raises(BackendError, match="16,777,216 bytes of text") as caught:
            read(document, "s")
        assert (caught.value.reason, caught.value.retryable) == ("BACKEND_ANSWER", False)


@pytest.mark.parametrize(
    ("finish_reason", "reason", "retryable"),
    [
        *[(each, "BACKEND_FILTERED", False) for each in ("content_filter", "SAFETY", "RECITATION", "refusal")],
        *[(each, "BACKEND_ANSWER", True) for each in ("abort", "ERROR", "cancelled", "insufficient_system_resource")],
    ],
)
def test_an_answer_that_is_not_the_models_is_an_error(finish_reason, reason, retryable):
    """What a filter truncated, or the server broke off, is never judged; the error names the reason."""
    with pytest.raises(BackendError) as caught:
        completion_answer(completion(finish_reason=finish_reason), "s")
    assert (caught.value.reason, caught.value.retryable) == (reason, retryable)
    assert repr(finish_reason.lower()) in caught.value.message


def test_a_finish_reason_may_be_missing():
    """A server that reports none gets no guess."""
    assert completion_answer({"choices": [{"text": "hi"}]}, "s").stop_reason == ""
    assert chat_answer({"choices": [{"message": {"content": "hi"}}]}, "s").stop_reason == ""


@rows(
    ("content", "text"),
    [
        ("hi", "hi"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "h"}, {"type": "text", "text": "i"}], "hi"),
        ([{"type": "output_text", "text": "hi", "annotations": []}], "hi"),
        ({"type": "text", "text": "hi"}, "hi"),
        ([{"text": "hi"}], "hi"),
        (["h", "i"], "hi"),
        ([{"type": "text", "text": None}], ""),
        ([{"type": "thinking", "thinking": "so"}, {"type": "text", "text": "hi"}], "hi"),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}, {"type": "text", "text": "hi"}], "hi"),
        ([{"type": "refusal", "refusal": "no"}], ""),
    ],
)
def test_content_is_text_or_parts_of_text(content, text):
    """Parts of text are one text; reasoning and refusals are not part of it."""
    assert chat_answer(chat(message={"content": content}), "s").text == text
    if content is not None:
        assert completion_answer(completion(text=content), "s").text == text


@rows(
    ("content", "named", "retryable"),
    [
        (3, "content that is int", True),
        (True, "content that is bool", True),
        ([3], "a part that is int", True),
        ([{"type": ["text"]}], "a part whose type is list", True),
        ([{"type": "text", "text": 3}], "whose text is int", True),
        ([{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {}}], "a part of type 'image_url'", False),
        ([{"type": "audio"}], "a part of type 'audio'", False),
    ],
)
def test_content_that_is_no_text_is_named(content, named, retryable):
    """A part that no text can stand for is an error that names it: it is not dropped."""
    with pytest.raises(BackendError) as caught:
        chat_answer(chat(message={"content": content}), "s")
    assert named in caught.value.message
    assert (caught.value.reason, caught.value.retryable) == ("BACKEND_ANSWER", retryable)


@rows(
    ("value", "count"),
    [
        (12, 12),
        (0, 0),
        (12.0, 12),
        ("12", 12),
        ((1 << 31) - 1, (1 << 31) - 1),
        *[(value, None) for value in (None, -1, -1.0, 12.5, True, "", "many", "-1", "12.0", "\u0661", [12], {"n": 12})],
        *[(value, None) for value in (1 << 31, 10**400, "9" * 5000, float("nan"), float("inf"), 1e300)],
    ],
)
def test_a_count_that_is_none_is_absent(value, count):
    """Whole floats and digits are counts; anything else is no count, which is absent, and costs no answer."""
    usage = {
        "prompt_tokens": value,
        "completion_tokens": value,
        "prompt_tokens_details": {"cached_tokens": value},
        "completion_tokens_details": {"reasoning_tokens": value},
    }
    sequence = completion_answer(completion() | {"usage": usage}, "s")
    found = (sequence.prompt_tokens, sequence.token_count, sequence.cached_prompt_tokens, sequence.reasoning_tokens)
    assert found == (count,) * 4
    meter = Meter()
    report_usage(meter, completion() | {"usage": usage}, {"prompt": "hi"})
    assert (meter.prompt_tokens, meter.output_tokens) == (count, count)
    assert meter.unreported_calls == (count is None)


@rows("usage", [None, 4, [], "x", {}, {"prompt_tokens_details": None, "completion_tokens_details": [1]}])
def test_a_usage_that_is_none_is_absent(usage):
    """Whatever stands in its place, there are no counts, and the answer stays."""
    sequence = completion_answer(completion() | {"usage": usage}, "s")
    assert (sequence.text, sequence.prompt_tokens, sequence.token_count) == ("hi", None, None)
    assert (sequence.cached_prompt_tokens, sequence.reasoning_tokens) == (None, None)


def test_tokens_are_counted_by_what_is_known():
    """Token ids where they are told, else the server's count, else the number of log-probabilities."""
    with_ids = completion_answer(completion(token_ids=[4, 5]) | {"usage": {"completion_tokens": 9}}, "s")
    assert (with_ids.tokens, with_ids.token_count, with_ids.output_tokens) == ((4, 5), None, 2)
    assert completion_answer(completion() | {"usage": {"completion_tokens": 3}}, "s").output_tokens == 3
    assert completion_answer(completion(logprobs={"token_logprobs": [-1, -2.5]}), "s").output_tokens == 2
    assert completion_answer(completion(), "s").output_tokens is None
    assert completion_answer(completion() | {"usage": {"prompt_tokens": 7}}, "s").prompt_tokens == 7
    assert completion_answer(completion(), "s").prompt_tokens is None


def test_logprobs_are_read_in_both_forms():
    """Log-probabilities come as numbers or as entries with a number; without any there are none."""
    content = {"content": [{"token": "h", "logprob": -0.5}, {"token": "i", "logprob": -1}]}
    assert chat_answer(chat(logprobs=content), "s").logprobs == (-0.5, -1.0)
    assert completion_answer(completion(logprobs=content), "s").logprobs == (-0.5, -1.0)
    assert completion_answer(completion(logprobs={"token_logprobs": [-0.5]}), "s").logprobs == (-0.5,)
    assert completion_answer(completion(logprobs=None), "s").logprobs is None


def test_a_chat_that_only_calls_a_tool_has_no_text():
    """A message without content is an empty answer, not nonsense."""
    assert chat_answer(chat(message={"content": None, "tool_calls": []}), "s").text == ""


@rows(
    "document",
    [
        {},
        {"choices": []},
        {"choices": [{}, {}]},
        {"choices": "no"},
        completion(text=None),
        completion(text=3),
        completion(logprobs=[1]),
        completion(logprobs={"token_logprobs": ["x"]}),
        completion(logprobs={"token_logprobs": [True]}),
        completion(logprobs={"content": ["x"]}),
        completion(token_ids=["4"]),
    ],
)
def test_nonsense_is_an_error(document):
    """Anything that is not what it should be is garbage."""
    with pytest.raises(BackendError) as caught:
        completion_answer(document, "s")
    assert caught.value.reason == "BACKEND_ANSWER"


@given(json_values, json_values)
def test_no_answer_is_too_odd(choice, usage):
    """Whatever JSON arrives, it is an answer with a text or a BackendError."""
    document = {"choices": [choice], "usage": usage}
    for read in (completion_answer, chat_answer):
        with contextlib.suppress(BackendError):
            assert isinstance(read(document, "s").text, str)


odd_fields = {
    name: json_values | st.sampled_from([10**400, 1 << 31, -1, [10**400], {"token_logprobs": [10**400]}])
    for name in ("finish_reason", "logprobs", "token_ids")
}


@given(st.fixed_dictionaries({}, optional=odd_fields), json_values | st.just({"completion_tokens": 10**30}))
def test_no_field_is_too_odd(fields, usage):
    """One field that is odd in an answer that is else in order does not get further than its reader."""
    with contextlib.suppress(BackendError):
        sequence = completion_answer(completion(**fields) | {"usage": usage}, "s")
        assert isinstance(sequence.stop_reason, str)
        assert len(sequence.stop_reason) <= 40
        assert 0 <= (sequence.output_tokens or 0) < 1 << 31


def test_what_holds_anyway_is_not_sent():
    """Greedy sampling sends the fewest fields; some servers refuse those that they do not know."""
    params = SamplingParams(max_tokens=4)
    assert completion_body("m", "hi", params, logprobs=False) == {
        "model": "m",
        "prompt": "hi",
        "max_tokens": 4,
        "temperature": 0.0,
    }


def test_every_parameter_is_sent():
    """Temperature, nucleus, top k, seed, stop strings and log-probabilities go by the API's names."""
    params = SamplingParams(max_tokens=4, temperature=0.7, top_p=0.9, top_k=5, seed=3, stop=("\n",))
    rest = {"model": "m", "max_tokens": 4, "temperature": 0.7, "top_p": 0.9, "top_k": 5, "seed": 3, "stop": ["\n"]}
    assert completion_body("m", [1, 2], params, logprobs=True) == {**rest, "prompt": [1, 2], "logprobs": 1}
    conversation = Conversation((ChatMessage("system", "be brief"), ChatMessage("user", "hi")))
    assert chat_body("m", conversation, params, logprobs=True) == {
        **rest,
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        "logprobs": True,
    }


def test_images_and_calls_are_sent_in_the_apis_form():
    """What our JSON adds about an image or for training is left out; a message that only calls a tool has no content.

    Servers that render reasoning read it from `reasoning_content`.
    """
    image = ImageChunk(data=b"\0\1", format="png", expected_tokens=4)
    asset = ImageAssetChunk(location="https://x/y", format="jpeg")
    call = ToolCall(name="f", arguments='{"a": 1}', id="c1")
    conversation = Conversation(
        (
            ChatMessage("user", parts=("See", image, asset)),
            ChatMessage("assistant", tool_calls=(call,)),
            ChatMessage("tool", "2", tool_call_id="c1", name="f"),
            ChatMessage("assistant", "2", reasoning="It says so.", weight=0.0),
        )
    )
    function = {"name": "f", "arguments": '{"a": 1}'}
    assert chat_body("m", conversation, SamplingParams(max_tokens=4), logprobs=False)["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAE="}},
                {"type": "image_url", "image_url": {"url": "https://x/y"}},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "id": "c1", "function": function}]},
        {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "f"},
        {"role": "assistant", "content": "2", "reasoning_content": "It says so."},
    ]


def test_samples_of_one_prompt_have_seeds_of_their_own():
    """Sample i has a seed derived from the first and i, never wider than what every server takes."""
    params = SamplingParams(max_tokens=4, seed=(1 << 63) - 2)
    seeds = [seeded(params, index).seed for index in range(4)]
    assert len(set(seeds)) == 4
    assert all(seed is not None and 0 <= seed <= MAX_SEED for seed in seeds)
    assert seeded(SamplingParams(max_tokens=4), 3).seed is None


@rows(
    ("message", "found"),
    [
        ({"content": "46", "reasoning_content": "12+34"}, ("46", "12+34", "", ())),
        ({"content": "46", "reasoning": " 12+34\n"}, ("46", "12+34", "", ())),
        ({"content": "46", "reasoning": None, "reasoning_content": ""}, ("46", "", "", ())),
        ({"content": "46", "reasoning": [{"text": "12"}, "+34"]}, ("46", "12+34", "", ())),
        (
            {"content": "46", "reasoning_details": [{"type": "reasoning.text", "text": "12+34"}]},
            ("46", "12+34", "", ()),
        ),
        ({"content": "46", "reasoning_content": 7, "refusal": {}}, ("46", "", "", ())),
        ({"content": None, "refusal": "I cannot"}, ("", "", "I cannot", ())),
        (
            {"content": None, "tool_calls": [{"id": "c", "function": {"name": "show", "arguments": '{"n": 1}'}}]},
            ("", "", "", (ToolCall(name="show", arguments='{"n": 1}', id="c"),)),
        ),
        (
            {"content": None, "function_call": {"name": "show", "arguments": {"n": 1}}},
            ("", "", "", (ToolCall(name="show", arguments='{"n": 1}', id=""),)),
        ),
    ],
)
def test_what_a_server_returns_apart_from_the_text_is_read(message, found):
    """Reasoning under any of its names, as text or in parts, a refusal, calls of tools; none of it is an error."""
    answer = chat_answer(chat(message=message), "s")

    assert (answer.text, answer.reasoning, answer.refusal, answer.tool_calls) == found


@rows(
    ("call", "text", "error"),
    [
        ("show", '"show"', "has no name of a tool"),
        ({"function": {"name": "", "arguments": "{}"}}, "{}", "has no name of a tool"),
        (
            {"function": {"name": "f", "arguments": "[1]"}},
            '{"name": "f", "arguments": "[1]"}',
            "has arguments that are no object",
        ),
        (
            {"function": {"name": "f", "arguments": '{"a": '}},
            json.dumps({"name": "f", "arguments": '{"a": '}),
            "has arguments that are not JSON: Expecting value: line 1 column 7 (char 6)",
        ),
    ],
)
def test_a_call_of_a_server_that_is_none_is_kept_with_its_reason(call, text, error):
    """It is no call of a tool, and no error of the answer."""
    answer = chat_answer(chat(message={"content": None, "tool_calls": [call, {"function": {"name": "g"}}]}), "s")

    assert answer.unparsed_tool_calls == (UnparsedToolCall(text=text, error=error),)
    assert answer.tool_calls == (ToolCall(name="g"),)


def test_tools_are_sent_in_the_apis_form():
    """With the choice of a tool, if the item has one; what a tool returns is for templates alone."""
    tool = ToolSpec(name="f", description="Adds.", parameters='{"type": "object"}', strict=True, returns='{"a": 1}')
    function = {"name": "f", "description": "Adds.", "parameters": {"type": "object"}, "strict": True}
    asked = Conversation((ChatMessage("user", "q"),), (tool,))

    def body(conversation):
        made = chat_body("m", conversation, SamplingParams(max_tokens=4), logprobs=False)
        return {key: value for key, value in made.items() if key.startswith("tool")}

    assert body(asked) == {"tools": [{"type": "function", "function": function}]}
    assert body(ToolChoice(asked.messages, asked.tools, choice="required"))["tool_choice"] == "required"
    named = {"type": "function", "function": {"name": "f"}}
    assert body(ToolChoice(asked.messages, asked.tools, choice="f"))["tool_choice"] == named
    assert body(Conversation(asked.messages)) == {}


def streamed(*choices):
    """A stream of events, each with one choice."""
    events = (f"data: {json.dumps({'choices': [{'index': 0, **choice}]})}\n\n" for choice in choices)
    return "".join((*events, "data: [DONE]\n\n")).encode()


@rows(
    ("choices", "read"),
    [
        ([{"delta": {"reasoning_content": "1"}}, {"delta": {"reasoning_content": "2"}}], ("46", "12", "")),
        ([{"delta": {"thinking": "1"}}, {"delta": {"thinking": "2"}}], ("46", "12", "")),
        ([{"delta": {"reasoning_details": [{"text": text}]}} for text in "12"], ("46", "12", "")),
        ([{"delta": {"refusal": "n"}}, {"delta": {"refusal": "o"}}], ("46", "", "no")),
        ([{"delta": {"content": ""}, "message": {"content": "4"}}], ("46", "", "")),
        ([], ("46", "", "")),
    ],
)
def test_pieces_of_a_stream_are_joined(choices, read):
    """Each key in its order; a message that is sent whole next to its pieces, or after them, counts once."""
    whole = {"content": "46"}
    ends = [
        [{"delta": {"content": "4"}}, {"delta": {"content": "6"}, "finish_reason": "stop"}],
        [
            {"delta": {"content": "4"}, "message": {"content": "4"}},
            {"delta": {"content": "6"}, "message": whole, "finish_reason": "stop"},
        ],
    ]
    for end in ends:
        answer = chat_answer(read_document(streamed(*choices, *end), 100, "s"), "s")
        assert (answer.text, answer.reasoning, answer.refusal) == read
    last = {"delta": {}, "message": whole, "finish_reason": "stop"}
    answer = chat_answer(
        read_document(streamed({"delta": {"content": "4"}}, {"delta": {"content": "6"}}, last), 100, "s"), "s"
    )
    assert answer.text == "46"
