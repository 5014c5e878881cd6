"""What the worker and a process of environments say arrives as it was; what is nonsense from the process is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.arrays import to_tensor
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    Dtype,
    ImageAssetChunk,
    ImageChunk,
    ModelInput,
    Problem,
    Sample,
    SampledSequence,
    Tensor,
    TokensChunk,
    Trajectory,
    TrajectoryGroup,
    Transition,
    Verdict,
)
from crucible_worker.children.frames import HEADER, TooLong
from crucible_worker.children.messages import unpack
from crucible_worker.evaluators.answering import Answer
from crucible_worker.evaluators.base import Outcome
from crucible_worker.evaluators.environments import wire
from crucible_worker.evaluators.environments.group import FailurePolicy, GroupState, Strategy
from tests.tables import rows

TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
METRICS = st.dictionaries(TEXTS, NUMBERS, max_size=3)
IDS = st.lists(st.integers(0, 2**31 - 1), max_size=4)


def _floats(count: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(width=32), min_size=count, max_size=count)


@st.composite
def _transitions(draw: st.DrawFn) -> Transition:
    seen, said = draw(IDS), draw(IDS)
    kept = draw(st.booleans())
    return Transition(
        observation_tokens=len(seen),
        action_tokens=len(said),
        reward=draw(NUMBERS),
        metrics=draw(METRICS),
        stop_reason=draw(TEXTS),
        observation=np.array(seen, np.int32) if kept else None,
        action=np.array(said, np.int32) if kept else None,
        action_logprobs=np.array(
            draw(st.lists(st.floats(width=32), min_size=len(said), max_size=len(said))), np.float32
        )
        if kept
        else None,
        cached_observation_tokens=draw(st.none() | st.integers(0, 2**31 - 1)),
    )


TRAJECTORIES = st.builds(
    Trajectory,
    transitions=st.lists(_transitions(), max_size=3).map(tuple),
    final_reward=NUMBERS,
    metrics=METRICS,
)
STANDING = st.builds(
    Outcome,
    verdict=st.just(Verdict.MEASURED),
    score=NUMBERS,
    output=TEXTS,
    stop_reason=TEXTS,
    output_tokens=st.integers(0, 9),
    measurements=METRICS,
    group=st.builds(TrajectoryGroup, trajectories=st.lists(TRAJECTORIES, max_size=3).map(tuple), tags=st.tuples(TEXTS)),
)
FALLEN = st.builds(
    Outcome,
    verdict=st.sampled_from([Verdict.ERROR, Verdict.UNDECIDED]),
    problem=st.none() | st.builds(Problem, reason=TEXTS, message=TEXTS, field=TEXTS, retryable=st.booleans()),
    measurements=METRICS,
)


INPUTS = st.one_of(
    TEXTS,
    st.builds(Conversation, messages=st.lists(st.builds(ChatMessage, TEXTS, TEXTS), max_size=3).map(tuple)),
)
SAMPLES = st.builds(
    Sample,
    id=TEXTS,
    input=INPUTS,
    targets=st.lists(TEXTS, max_size=3).map(tuple),
    choices=st.lists(TEXTS, max_size=3).map(tuple),
    metadata=st.dictionaries(TEXTS, TEXTS, max_size=3),
)
SEQUENCES = st.builds(
    SampledSequence,
    text=TEXTS,
    tokens=IDS.map(tuple),
    logprobs=st.none() | st.lists(st.floats(allow_nan=False), max_size=3).map(tuple),
    stop_reason=TEXTS,
    token_count=st.none() | st.integers(0, 9),
)


def _ordered(message: dict[str, Any]) -> dict[str, Any]:
    return wire.received(wire.order(message)[HEADER.size :])


def _sent(message: dict[str, Any]) -> dict[str, Any]:
    frame = wire.pack(message)
    (length,) = HEADER.unpack(frame[: HEADER.size])
    assert length == len(frame) - HEADER.size
    return unpack(frame[HEADER.size :])


@given(
    SAMPLES,
    st.builds(
        FailurePolicy,
        strategy=st.sampled_from(Strategy),
        max_retries=st.integers(0, 9),
        min_successful=st.none() | st.integers(0, 9),
    ),
)
def test_orders_arrive_as_they_were(sample: Sample, tolerance: FailurePolicy) -> None:
    """Text that is no Unicode included, and whole numbers of any size among the options."""
    options = {"depth": 10**300, "words": ["a", None, 0.5], "of": {"b": -(10**30)}}
    order = {"op": "order", "sample": sample, "options": options, "tolerance": tolerance, "seed": 2**63, "course": None}

    assert _ordered(order) == order


def test_tokens_of_a_sample_arrive_to_the_last_bit() -> None:
    """Arrays of every type, also of the one that numpy does not have, with their shape."""
    arrays = {
        "target_tokens": np.array([[1, -2]], np.int64),
        "weights": np.array([np.nan, -0.0, np.inf], np.float32),
        "mask": np.array([True, False]),
        "half": Tensor(dtype=Dtype.BF16, shape=(2,), data=b"\x00\x3f\x80\x7f"),
    }
    sample = Sample(input=Datum(model_input=[1, 2, 3], loss_fn_inputs=arrays))

    found = _ordered({"op": "order", "sample": sample})["sample"].input

    assert wire.observation_to_map(found.model_input) == wire.observation_to_map(ModelInput.of([1, 2, 3]))
    assert found.loss_fn_inputs.keys() == arrays.keys()
    for name, array in arrays.items():
        assert to_tensor(found.loss_fn_inputs[name]) == to_tensor(array)


@given(SEQUENCES, st.none() | IDS.map(ModelInput.of), TEXTS, TEXTS)
def test_answers_arrive_as_they_were(
    sequence: SampledSequence, prompt: ModelInput | None, output: str, said: str
) -> None:
    """What a model generated, with its log-probabilities, infinite ones too."""
    answer = Answer(prompt=prompt, sequence=sequence, output=output, replaced=1, text=said, after_stop=2)

    found = _ordered({"op": "answer", "id": 7, "answer": answer, "error": None})["answer"]

    assert dataclasses.replace(found, prompt=None) == dataclasses.replace(answer, prompt=None)
    assert (found.prompt is None) is (prompt is None)
    if prompt is not None and found.prompt is not None:
        assert wire.observation_to_map(found.prompt) == wire.observation_to_map(prompt)


@given(STANDING | FALLEN)
def test_outcomes_arrive_as_they_were(outcome: Outcome) -> None:
    """To the last bit, arrays and text that is no Unicode included."""
    told = wire.outcome_to_map(outcome)

    found = wire.outcome_from_map(_sent(told))

    assert wire.outcome_to_map(found) == told
    assert (found.verdict, found.problem, found.measurements) == (
        outcome.verdict,
        outcome.problem,
        outcome.measurements,
    )
    if outcome.group is not None and found.group is not None:
        for ours, theirs in zip(found.group.trajectories, outcome.group.trajectories, strict=True):
            for turn, other in zip(ours.transitions, theirs.transitions, strict=True):
                for name in ("observation", "action", "action_logprobs"):
                    array, expected = getattr(turn, name), getattr(other, name)
                    assert (array is None) is (expected is None)
                    assert array is None or array.dtype == expected.dtype


@given(
    st.builds(
        GroupState,
        size=st.integers(0, 9),
        alive=IDS.map(tuple),
        todo=IDS.map(tuple),
        round_=st.integers(0, 9),
        retries=st.integers(0, 9),
        failures=st.dictionaries(TEXTS, st.integers(0, 9)),
    )
)
def test_courses_arrive_as_they_were(course: GroupState) -> None:
    """Whatever they are."""
    assert wire.course_from_map(_sent(wire.course_to_map(course))) == course


@rows(
    "shown",
    [
        "a\ud800",
        Conversation((ChatMessage("user", "a"), ChatMessage("assistant", ""))),
        ModelInput.of([1, 2**40]),
        ModelInput((TokensChunk(tokens=np.array([1, 2], np.int32)), ImageChunk(data=b"x", format="png"))),
        ModelInput((ImageAssetChunk(location="there", format="jpeg", expected_tokens=4),)),
        ModelInput(()),
    ],
)
def test_observations_arrive_as_they_were(shown: Any) -> None:
    """Text, messages, tokens of either width, images."""
    told = wire.observation_to_map(shown)

    found = wire.observation_from_map(_sent(told))

    assert type(found) is type(shown)
    assert wire.observation_to_map(found) == told
    if isinstance(found, ModelInput) and all(isinstance(chunk, TokensChunk) for chunk in shown.chunks):
        assert found.tokens().tolist() == shown.tokens().tolist()


@rows(
    "wrong",
    [
        {"text": 3},
        {"chunks": [["Problem", {"reason": "a", "message": "b"}]]},
        {"chunks": [["TokensChunk", {"tokens": ["<f4", b"abcd"]}]]},
        {"chunks": [["ImageChunk", {"data": "x", "format": "png"}]]},
        {"messages": [{"role": "user"}]},
        {"messages": "abc"},
        {},
    ],
)
def test_what_is_no_observation_is_refused(wrong: dict[str, Any]) -> None:
    """Foreign code may have said it."""
    with pytest.raises((ValueError, TypeError, LookupError)):
        wire.observation_from_map(_sent(wrong))


@pytest.mark.parametrize(
    "shown",
    [
        Conversation((ChatMessage("user", 3),)),  # type: ignore[arg-type] - it is wrong
        ModelInput((object(),)),  # type: ignore[arg-type] - likewise
        ModelInput((Problem(reason="A", message="b"),)),  # type: ignore[arg-type] - likewise
        ModelInput((ImageChunk(data=b"x", format=3),)),  # type: ignore[arg-type] - likewise
    ],
)
def test_what_is_no_observation_is_not_sent(shown: Any) -> None:
    """Nothing but data crosses."""
    with pytest.raises(TypeError):
        wire.observation_to_map(shown)


GOOD = wire.outcome_to_map(
    Outcome(
        verdict=Verdict.MEASURED,
        score=1.0,
        group=TrajectoryGroup(
            trajectories=(
                Trajectory(
                    transitions=(
                        Transition(
                            observation_tokens=1, action_tokens=1, reward=1.0, observation=np.array([1], np.int32)
                        ),
                    )
                ),
            )
        ),
    )
)


def _group(**turn: Any) -> dict[str, Any]:
    """The group of `GOOD`, with another turn."""
    (good,) = GOOD["group"]["trajectories"][0]["transitions"]
    return {"tags": [], "trajectories": [{"transitions": [{**good, **turn}]}]}


def _nested() -> list[Any]:
    """As deeply as a message can be."""
    value: list[Any] = []
    for _ in range(600):
        value = [value]
    return value


@rows(
    "wrong",
    [
        {"verdict": "glorious"},
        {"score": None},
        {"score": "1"},
        {"score": float("nan")},
        {"group": None},
        {"output": 3},
        {"output_tokens": -1},
        {"measurements": {"a": None}},
        {"problem": ["a"]},
        {"group": {"tags": [3], "trajectories": []}},
        {"group": _group(observation_tokens=2)},
        {"group": _group(observation=["<f4", b"abcd"])},
        {"group": _group(observation=["<c8", b"abcdefgh"])},
        {"group": _group(observation=["<i4", b"abc"])},
        {"group": _group(observation=b"abcd")},
        {"group": _group(reward=float("inf"))},
        {"group": _group(metrics={"a": float("nan")})},
        {"group": _group(action_tokens=-1)},
        {"group": _group(action_tokens=True)},
        {"group": _group(stop_reason=b"stop")},
        {"group": {"tags": [], "trajectories": [[1.0, {}, []]]}},
        {"measurements": {"a": _nested()}},
    ],
)
def test_outcomes_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    """Foreign code may have said them."""
    wire.outcome_from_map(_sent(GOOD))
    wire.outcome_from_map(_sent({**GOOD, "group": _group()}))

    with pytest.raises((ValueError, TypeError, KeyError)):
        wire.outcome_from_map(_sent({**GOOD, **wrong}))


def test_messages_are_maps() -> None:
    """Of msgpack."""
    for body in (msgpack.packb([1]), b"\xc1", b""):
        assert isinstance(body, bytes)
        with pytest.raises((ValueError, msgpack.FormatError)):
            unpack(body)


def test_a_message_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its length it is sent, above it is not."""
    length = len(msgpack.packb({"text": "a" * 100}))  # pyright: ignore[reportArgumentType]: None is for streaming alone
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", length)
    wire.pack({"text": "a" * 100})

    with pytest.raises(TooLong):
        wire.pack({"text": "a" * 101})
