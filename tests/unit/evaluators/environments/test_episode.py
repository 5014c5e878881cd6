"""One rollout: what a model is asked, what the environment gets, and what ends an episode."""

import math
import types
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import BridgeError, FailedPrecondition
from crucible_bridge.types import ChatMessage, Conversation, ModelInput, SampledSequence, SamplingParams
from crucible_worker.evaluators.environments.episode import MAX_METRICS, MAX_NAME_CHARS, play, seed_of
from crucible_worker.evaluators.environments.threaded_loop import ForeignFailure
from crucible_worker.metrics.trajectory import BUILT_IN_KEYS
from crucible_worker.testing import ScriptedModel
from tests.tables import rows
from tests.unit.evaluators.environments.playing import Scripted, asker, here, step


async def _played(env: Scripted, model: ScriptedModel | None = None, max_turns: int = 4, **params: Any) -> Any:
    return await play(env, here, asker(model, **params), seed=lambda turn: turn, max_turns=max_turns)


@rows(
    "observation",
    [
        "ab",
        [97, 98],
        np.array([97, 98], np.int32),
        ModelInput.of([97, 98]),
        Conversation((ChatMessage("user", "ab"),)),
        types.SimpleNamespace(to_ints=lambda: [97, 98]),
    ],
)
async def test_text_conversations_and_tokens_are_observations(observation: Any) -> None:
    """Each is what the model is asked; the environment gets the tokens of the answer, its text and why it ended."""
    env = Scripted(begins=(observation, []))

    rollout = await _played(env)

    (turn,) = rollout.transitions
    assert turn.seen.tokens().tolist() == [97, 98]
    assert env.taken == [([65, 66], {"stop_reason": "stop", "text": "AB", "no_answer": ""})]
    assert (turn.ob, turn.ac.tokens, turn.ac.logprobs) == (observation, [65, 66], list(turn.said.logprobs))


async def test_turns_go_on_until_the_environment_ends_them() -> None:
    """Rewards and metrics belong to their turns; a stop reason that the environment tells is the rollout's."""
    ends = {"stop/completed": 1.0}
    env = Scripted(
        lambda turn: step(
            reward=turn, episode_done=turn == 2, next_observation=f"q{turn}", metrics=ends if turn == 2 else {"x": turn}
        )
    )

    rollout = await _played(env)

    assert [turn.reward for turn in rollout.transitions] == [0, 1, 2]
    assert [turn.metrics for turn in rollout.transitions] == [{"x": 0}, {"x": 1}, ends]
    assert [turn.episode_done for turn in rollout.transitions] == [False, False, True]
    assert rollout.stop_reason == "completed"
    assert [extra["text"] for _, extra in env.taken] == ["GO", "Q0", "Q1"]


@pytest.mark.parametrize("max_turns", [1, 3])
async def test_an_environment_that_never_ends_is_ended(max_turns: int) -> None:
    """After so many turns; the last one says so, and what was earned stands."""
    env = Scripted(lambda turn: step(episode_done=False, next_observation="on", metrics={"stop/x": 1, "y": 2}))

    rollout = await _played(env, max_turns=max_turns)

    assert len(rollout.transitions) == max_turns
    assert rollout.transitions[-1].metrics == {"y": 2.0, "stop/max_turns": 1.0}
    assert (rollout.stop_reason, rollout.transitions[-1].episode_done) == ("max_turns", True)


async def test_a_context_that_is_full_ends_the_episode() -> None:
    """What was earned until then stands."""
    env = Scripted(lambda turn: step(reward=0.5, episode_done=False, next_observation="x" * 10))

    rollout = await _played(env, ScriptedModel(context_length=9))

    assert len(rollout.transitions) == 1
    assert rollout.transitions[0].metrics == {"stop/context_overflow": 1.0}
    assert rollout.stop_reason == "context_overflow"


async def test_a_first_observation_that_does_not_fit_is_a_failure() -> None:
    """There is nothing that could stand."""
    with pytest.raises(BridgeError) as caught:
        await _played(Scripted(begins=("x" * 10, ())), ScriptedModel(context_length=9))

    assert caught.value.reason == "PROMPT_TOO_LONG"


async def test_an_environment_that_cannot_begin_has_one_turn_without_a_call() -> None:
    """As tinker-cookbook's InitialObservationOverflow has it."""
    model = ScriptedModel()
    overflow = types.SimpleNamespace(reward=-1.0, metrics={"stop/max_tokens": 1.0}, logs={})

    rollout = await _played(Scripted(begins=overflow), model)

    (turn,) = rollout.transitions
    assert (turn.reward, turn.ac.tokens, turn.seen.tokens().size) == (-1.0, [], 0)
    assert (rollout.stop_reason, model.calls) == ("max_tokens", 0)


async def test_stop_texts_come_beside_those_of_the_request() -> None:
    """Each once, and those of the turn alone."""
    seen: list[SamplingParams] = []

    class Model(ScriptedModel):
        @property
        def sampling(self) -> "Model":
            return self

        async def sample(self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1) -> Any:
            seen.append(params)
            return await super().sample(prompt, params, num_samples)

    env = Scripted(
        lambda turn: step(episode_done=turn == 1, next_observation="x", next_stop_condition=["a", "c"]),
        begins=("x", ("b", "a")),
    )
    await _played(env, Model(), stop=("a",))

    assert [params.stop for params in seen] == [("a", "b"), ("a", "c")]
    assert [params.seed for params in seen] == [0, 1]


@pytest.mark.parametrize(
    ("ids", "tokens", "reason", "text"),
    [([66], [65, 66], "stop", ""), ([67], [65, 66, 67], "stop", "ABC"), ([99], [65, 66, 67], "length", "ABC")],
)
async def test_a_stop_token_ends_an_answer(ids: list[int], tokens: list[int], reason: str, text: str) -> None:
    """It is the last one that the environment gets; of a part nobody has told the text."""
    env = Scripted(begins=("abcd", ids))

    rollout = await _played(env, max_tokens=3)

    assert env.taken == [(tokens, {"stop_reason": reason, "text": text, "no_answer": ""})]
    assert len(rollout.transitions[0].ac.logprobs) == len(tokens)


async def test_stop_tokens_need_tokens() -> None:
    """A server that tells their number alone cannot be cut by them."""

    class Model(ScriptedModel):
        @property
        def sampling(self) -> "Model":
            return self

        async def sample(self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1) -> Any:
            return [SampledSequence(text="A", tokens=(), token_count=1)]

    with pytest.raises(FailedPrecondition) as caught:
        await _played(Scripted(begins=("a", [1])), Model())

    assert caught.value.reason == "NO_TOKENS"


async def test_an_array_may_be_written_to_when_it_was_observed() -> None:
    """What is recorded is what was asked."""
    tokens = np.array([65, 66])

    def steps(turn: int) -> Any:
        tokens[0] += 1
        return step(episode_done=turn == 1, next_observation=tokens)

    rollout = await _played(Scripted(steps, begins=(tokens, ())))

    assert [turn.seen.tokens().tolist() for turn in rollout.transitions if turn.seen] == [[65, 66], [66, 66]]


BAD = [
    (("a", "ab"), step(), "stop condition"),
    (("a", [""]), step(), "stop condition"),
    (("a", [1.5]), step(), "stop condition"),
    ("no pair", step(), "began with a str"),
    ((object(), []), step(), "observed a object"),
    ((["x"], []), step(), "observed a list"),
    (("a", []), None, "stepped to a NoneType"),
    (("a", []), types.SimpleNamespace(reward=1.0), "no episode_done"),
    (("a", []), step(reward="1"), "a str as the reward"),
    (("a", []), step(reward=np.array([1.0])), "a ndarray as the reward"),
    (("a", []), step(metrics=[1]), "metrics that are not"),
    (("a", []), step(metrics={"x": "1"}), "the turn's metric 'x'"),
    (("a", []), step(metrics={1: 1.0}), "not text"),
    (("a", []), step(metrics={"": 1.0}), "not text"),
    (("a", []), step(metrics={"x" * (MAX_NAME_CHARS + 1): 1.0}), "not text"),
    (("a", []), step(metrics={str(index): 1.0 for index in range(MAX_METRICS + 1)}), "at most 256"),
    (("a", []), step(episode_done=False, next_observation=3.5), "observed a float"),
    *((("a", []), step(metrics={key: 1.0}), repr(key)) for key in sorted(BUILT_IN_KEYS)),
]


@rows(("begins", "found", "told"), BAD)
async def test_what_no_environment_may_give_is_its_mistake(begins: Any, found: Any, told: str) -> None:
    """Each is told, and no other rollout would be better."""
    with pytest.raises(ForeignFailure) as caught:
        await _played(Scripted(lambda turn: found, begins=begins))

    assert caught.value.kind == "BAD_ENVIRONMENT"
    assert told in caught.value.message


@pytest.mark.parametrize("fields", [{"reward": math.nan}, {"reward": -math.inf}, {"metrics": {"x": math.inf}}])
async def test_numbers_that_are_not_finite_are_a_failure(fields: dict[str, Any]) -> None:
    """They are nothing that could be added up."""
    with pytest.raises(ForeignFailure) as caught:
        await _played(Scripted(lambda turn: step(**fields)))

    assert caught.value.kind == "NOT_FINITE"


async def test_metrics_at_the_limits_are_taken() -> None:
    """None is no metric; whole numbers, truth values and numpy's are numbers, as are its arrays of no dimension."""
    metrics = {str(index): 1 for index in range(MAX_METRICS - 6)}
    odd = {
        "x" * MAX_NAME_CHARS: np.float32(0.5),
        "none": None,
        "true": True,
        "int": np.int64(3),
        "equal": np.array([1, 2]).any(),
        "array": np.array(0.25),
    }

    rollout = await _played(Scripted(lambda turn: step(metrics={**metrics, **odd})))

    found = rollout.transitions[0].metrics
    assert len(found) == MAX_METRICS - 1
    assert (found["x" * MAX_NAME_CHARS], found["true"], found["int"]) == (0.5, 1.0, 3.0)
    assert (found["equal"], found["array"]) == (1.0, 0.25)
    assert {type(value) for value in found.values()} == {float}


def test_seeds_are_functions_of_their_places() -> None:
    """The same one gives the same seed, another one another seed, within 63 bits."""
    seeds = {seed_of(seed, *places) for seed in (0, 1) for places in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1,))}

    assert len(seeds) == 10
    assert seed_of(1, 2, 3) == seed_of(1, 2, 3)
    assert all(0 <= seed < 2**63 for seed in seeds)


@rows(
    ("limits", "told"),
    [
        ({"rollout_timeout_seconds": 1.0}, "rollout_limits.rollout_timeout_seconds"),
        ({"sampling_turn_timeout_seconds": 1.0}, "rollout_limits.sampling_turn_timeout_seconds"),
        ({"max_turns": 0}, "has 0 as rollout_limits.max_turns"),
        ({"max_turn_tokens": 1.5}, "has 1.5 as rollout_limits.max_turn_tokens"),
        ({"max_trajectory_tokens": 9}, "for observations in tokens"),
    ],
)
async def test_limits_that_are_not_kept_are_refused(limits: dict[str, Any], told: str) -> None:
    """An environment that brings them would otherwise earn what it does not elsewhere."""
    env = Scripted()
    vars(env)["rollout_limits"] = types.SimpleNamespace(**limits)

    with pytest.raises(ForeignFailure) as caught:
        await _played(env)

    assert caught.value.kind == "BAD_ENVIRONMENT"
    assert told in caught.value.message


@pytest.mark.parametrize(("brought", "asked", "turns"), [(2, 4, 2), (4, 2, 2), (3, 3, 3)])
async def test_the_fewer_turns_count(brought: int, asked: int, turns: int) -> None:
    """Of those that the environment brings and those that the request allows; tool calls are its own matter."""
    env = Scripted(lambda turn: step(episode_done=False, next_observation="on"))
    calls: list[int] = []
    vars(env).update(
        rollout_limits=types.SimpleNamespace(max_turns=brought, max_tool_calls=7), set_max_tool_calls=calls.append
    )

    rollout = await _played(env, max_turns=asked)

    assert (len(rollout.transitions), rollout.stop_reason, calls) == (turns, "max_turns", [7])


async def test_a_limit_of_generated_tokens_needs_their_number() -> None:
    """Of a server that reports none the limit could not be kept."""

    class Server(ScriptedModel):
        tokenizer = None  # type: ignore[assignment] - it lies with the server

        async def sample_text(self, *args: Any, **kwargs: Any) -> Any:
            return [SampledSequence(text="x", tokens=())]

    class Limited(Scripted):
        rollout_limits = types.SimpleNamespace(max_sampled_tokens=4)

    env = Limited(lambda turn: step(episode_done=False, next_observation="more"), begins=("ab", []))

    with pytest.raises(FailedPrecondition, match="reports no tokens") as caught:
        await _played(env, Server())
    assert caught.value.reason == "NO_TOKENS"
