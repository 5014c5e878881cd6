"""Records of samples: every value comes back, however it is kept, and what is too long is truncated and says so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    ImageAssetChunk,
    ImageChunk,
    ModelInput,
    Sample,
    SampleResult,
    TokenPrompt,
    TokensChunk,
    ToolCall,
    ToolSpec,
    TruncatedPart,
    Turn,
    Verdict,
)
from crucible_worker.journal import contents
from crucible_worker.journal.contents import RecordParts
from crucible_worker.journal.records import with_record
from crucible_worker.util.message_values import further_bytes

TEXTS = st.text(st.characters(), max_size=40)  # lone surrogates included
CONVERSATIONS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4).map(
    lambda messages: Conversation(tuple(ChatMessage(*message) for message in messages))
)
PARTS = (
    TEXTS
    | st.builds(ImageChunk, data=st.binary(max_size=9), format=st.just("png"), expected_tokens=st.none() | st.just(4))
    | st.builds(ImageAssetChunk, location=TEXTS, format=st.just("jpeg"))
)
CALLS = st.builds(ToolCall, name=TEXTS, arguments=TEXTS, id=TEXTS)
WITH_PARTS = st.lists(
    st.builds(
        ChatMessage,
        TEXTS,
        parts=st.lists(PARTS, max_size=3).map(tuple),
        tool_calls=st.lists(CALLS, max_size=2).map(tuple),
        tool_call_id=TEXTS,
    ),
    min_size=1,
    max_size=3,
)
TOOLS = st.lists(
    st.builds(ToolSpec, name=TEXTS, description=TEXTS, parameters=TEXTS, strict=st.none() | st.booleans()), max_size=2
)
WITH_PARTS = st.builds(lambda messages, tools: Conversation(tuple(messages), tuple(tools)), WITH_PARTS, TOOLS)
SAMPLES = st.builds(
    Sample,
    id=st.just("s"),
    input=TEXTS | CONVERSATIONS,
    targets=st.lists(TEXTS, max_size=3).map(tuple),
    choices=st.lists(TEXTS, max_size=3).map(tuple),
    choice_labels=st.lists(TEXTS, max_size=3).map(tuple),
    metadata=st.dictionaries(TEXTS, TEXTS, max_size=3),
)
PROMPTS = TEXTS | CONVERSATIONS | st.integers(0, 2**40).map(TokenPrompt)
TURNS = st.builds(
    Turn,
    role=TEXTS,
    text=TEXTS,
    reward=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    tokens=st.none() | st.integers(0, 2**31 - 1),
    rollout=st.integers(0, 300),
    model=TEXTS,
)
DATUM = Datum(
    model_input=ModelInput(
        (
            TokensChunk(tokens=np.array([1, 2, 3], np.int32)),
            ImageChunk(data=b"\x89", format="png", expected_tokens=2),
            ImageAssetChunk(location="there", format="jpeg"),
        )
    ),
    loss_fn_inputs={"target_tokens": np.array([4, 5]), "weights": np.array([0.5, 1.0], np.float32)},
)


def turn_fields(turn: Turn) -> tuple[object, ...]:
    """What a turn says, to be compared: arrays have no truth value."""
    return (turn.role, turn.text, turn.reward, turn.tokens, turn.rollout, turn.model)


def no_frame(number: int) -> contents.Frame:
    """For records that refer to none."""
    raise AssertionError(f"frame {number} was looked for")


@given(sample=SAMPLES)
def test_a_sample_comes_back(sample):
    """Input, targets, choices and metadata are as they were, and nothing is said to be left out."""
    record = contents.opened(contents.closed(contents.content_to_record(sample, 10**6)))
    assert contents.content_from_record(record, "s") == (sample, ())


def test_a_datum_comes_back():
    """Tokens, images and arrays of a Datum are as they were, to the bit and the dtype."""
    sample, left_out = contents.content_from_record(contents.content_to_record(Sample(id="d", input=DATUM), 10**6), "d")
    assert left_out == ()
    assert isinstance(sample.input, Datum)
    tokens, *others = sample.input.model_input.chunks
    assert isinstance(tokens, TokensChunk)
    assert (tokens.tokens.tolist(), tokens.tokens.dtype) == ([1, 2, 3], np.int32)
    assert others == list(DATUM.model_input.chunks[1:])
    for name, array in DATUM.loss_fn_inputs.items():
        found = sample.input.loss_fn_inputs[name]
        assert isinstance(found, np.ndarray)
        assert isinstance(array, np.ndarray)
        assert (found.tobytes(), found.dtype) == (array.tobytes(), array.dtype)


@given(sample=SAMPLES, most=st.integers(0, 200))
def test_a_sample_is_truncated_within_its_bound(sample, most):
    """What is kept and what is said to be left out are all of the text, and what is kept has room in the bound."""
    found, left_out = contents.content_from_record(contents.content_to_record(sample, most), "s")

    def texts(of: Sample) -> list[str]:
        assert not isinstance(of.input, Datum)
        asked = [of.input] if isinstance(of.input, str) else [message.content for message in of.input.messages]
        return [*asked, *of.targets, *of.choices, *of.metadata.values(), *of.choice_labels]

    kept, whole = (sum(map(contents.text_bytes, texts(each))) for each in (found, sample))
    assert kept + sum(part.bytes for part in left_out) == whole
    # What is short of its bound may be so by the heads of its parts alone.
    assert kept <= most
    assert all(part.bytes > 0 and part.limit == contents.SAMPLE_LIMIT for part in left_out)


@pytest.mark.parametrize(("most", "short"), [(1003, False), (1002, True)])
def test_a_sample_is_truncated_beyond_its_bound_alone(most, short):
    """A record of as many bytes as the bound is whole; one byte less, and its end is missing."""
    sample = Sample(id="s", input="x" * 996)
    assert len(contents.content_to_record(sample, 10**6)) == 1003
    found, left_out = contents.content_from_record(contents.content_to_record(sample, most), "s")
    assert (found != sample, bool(left_out)) == (short, short)


@given(prompt=st.none() | PROMPTS, turns=st.lists(TURNS, max_size=4), output=TEXTS, kernel=TEXTS)
def test_prompt_and_turns_come_back(prompt, turns, output, kernel):
    """Whatever repeats prompt, output or input is kept as a reference, and reads as it was."""
    turns = [*turns, *(Turn(role="r", text=text) for text in (output, kernel, prompt) if isinstance(text, str))]
    parts = contents.RecordParts(prompt=prompt, turns=tuple(turns), left_out=())
    record = contents.parts_to_record(parts, frame=None, kernel=kernel, output=output, most=10**6)
    found = contents.parts_from_record(record, frame=no_frame, kernel=kernel, output=output)
    assert (found.prompt, found.left_out) == (prompt, ())
    assert list(map(turn_fields, found.turns)) == list(map(turn_fields, turns))


@given(before=TEXTS, kernel=TEXTS, behind=TEXTS, earlier=st.none() | CONVERSATIONS)
def test_a_frame_and_what_it_is_around_are_the_prompt(before, kernel, behind, earlier):
    """A prompt with the sample's input in it is the frame around that, and comes back of the two."""
    text = f"{before}{kernel}{behind}"
    prompt = text if earlier is None else Conversation((*earlier.messages, ChatMessage("user", text)))
    frame = contents.frame_of(prompt, kernel)
    if not kernel:
        assert frame is None
        return
    assert frame is not None
    frame = contents.frame_from_record(contents.frame_to_record(frame))
    parts = contents.RecordParts(prompt=prompt, turns=(), left_out=())
    record = contents.parts_to_record(parts, frame=3, kernel=kernel, output="", most=10**6)
    found = contents.parts_from_record(record, frame={3: frame}.__getitem__, kernel=kernel, output="")
    assert (found.prompt, found.framed) == (prompt, True)
    assert len(record) < 10


@given(prompt=TEXTS | CONVERSATIONS, turns=st.lists(TURNS, max_size=6), most=st.integers(60, 400))
def test_prompt_and_turns_are_truncated_within_their_bound(prompt, turns, most):
    """The record has room in the bound, but for what says what is missing; a part that is not whole is named."""
    parts = contents.RecordParts(prompt=prompt, turns=tuple(turns), left_out=())
    record = contents.parts_to_record(parts, frame=None, kernel="", output="", most=most)
    found = contents.parts_from_record(record, frame=no_frame, kernel="", output="")
    assert len(record) <= most + 100
    named = {part.part for part in found.left_out}
    assert (found.prompt != prompt) <= (contents.PROMPT in named)
    whole = sum(contents.text_bytes(turn.text) for turn in turns)
    kept = sum(contents.text_bytes(turn.text) for turn in found.turns)
    lost = sum(part.bytes for part in found.left_out if part.part == contents.TURNS)
    assert kept + lost == whole


def test_arrays_of_turns_go_before_their_texts():
    """Token ids and log-probabilities are left out where there is no room for all; the texts stay."""
    ids, logprobs = np.arange(100, dtype=np.int32), np.zeros(100, np.float32)
    turn = Turn(role="assistant", text="said", token_ids=ids, logprobs=logprobs)
    parts = contents.RecordParts(prompt=None, turns=(turn,), left_out=())
    whole = contents.parts_to_record(parts, frame=None, kernel="", output="", most=10**6)
    (found,) = contents.parts_from_record(whole, frame=no_frame, kernel="", output="").turns
    assert found.token_ids is not None
    assert found.logprobs is not None
    assert (found.token_ids.tolist(), found.logprobs.tolist()) == (ids.tolist(), logprobs.tolist())

    short = contents.parts_to_record(parts, frame=None, kernel="", output="", most=len(whole) - 1)
    read = contents.parts_from_record(short, frame=no_frame, kernel="", output="")
    assert (read.turns[0].text, read.turns[0].token_ids) == ("said", None)
    assert read.left_out == (
        TruncatedPart(part="turns", bytes=ids.nbytes + logprobs.nbytes, limit="max_sample_record_bytes"),
    )


def test_long_records_are_compressed():
    """A record that repeats itself takes a fraction of its size, and comes back."""
    record = contents.content_to_record(Sample(id="s", input="the same again " * 1000), 10**6)
    kept = contents.closed(record)
    assert len(kept) < len(record) / 10
    assert contents.opened(kept) == record


def test_turns_that_repeat_a_truncated_input_are_truncated():
    """Turns that refer to the input, or to the prompt around it, lack what it lacks, and the record says so."""
    text = "x" * 5_000
    sample = Sample(id="s", input=text)
    frame = contents.frame_of(f"Q: {text}", text)
    assert frame is not None
    turns = tuple(
        Turn(role=role, text=said) for role, said in (("user", f"Q: {text}"), ("assistant", "y"), ("user", text))
    )
    parts = contents.RecordParts(prompt=f"Q: {text}", turns=turns, left_out=())
    record = contents.parts_to_record(parts, frame=0, kernel=text, output="y", most=10_000)
    result = SampleResult(evaluator="nll", sample_id="s", verdict=Verdict.MEASURED, output="y")

    for most in (10_000, 1_000):
        content = contents.content_to_record(sample, most)
        found, _ = with_record(result, record, content, lambda number: frame)
        assert found.sample is not None
        lost = len(text) - len(str(found.sample.input))
        assert (lost > 0) == (most < len(text))
        assert [len(turn.text) for turn in found.turns] == [5_003 - lost, 1, 5_000 - lost]
        told = {part.part: part.bytes for part in found.truncated}
        assert told == ({"sample.input": lost, "prompt": lost, "turns": 2 * lost} if lost else {})


@given(conversation=WITH_PARTS, most=st.integers(0, 400))
def test_images_and_calls_come_back_or_are_counted(conversation, most):
    """A record that has no room for a conversation keeps its text, and says how much it left out."""
    sample = Sample(id="s", input=conversation)
    found, left_out = contents.content_from_record(contents.content_to_record(sample, most), "s")
    whole = RecordParts(prompt=conversation, turns=(), left_out=())
    record = contents.parts_to_record(whole, frame=None, kernel="", output="", most=most)
    parts = contents.parts_from_record(record, frame=lambda number: pytest.fail("no frame"), kernel="", output="")

    further = sum(map(further_bytes, conversation.messages))
    assert found == sample or sum(part.bytes for part in left_out) >= further
    assert parts.prompt == conversation or sum(part.bytes for part in parts.left_out) >= further


def test_a_prompt_with_an_image_has_no_frame():
    """A frame is text around text."""
    image = ImageChunk(data=b"", format="png")
    prompt = Conversation((ChatMessage("user", parts=("a", image)),))

    assert contents.frame_of(prompt, "a") is None
