"""Environments that stay with the caller of an evaluation: episodes over the stream."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from crucible_bridge.errors import BridgeError, Code
from crucible_bridge.types import (
    AnsweredEnvironment,
    ChatMessage,
    Conversation,
    EnvironmentQuestion,
    EpisodeAction,
    EvaluationState,
    Limits,
    ModelInput,
    OpenEpisode,
    SamplingParams,
    Verdict,
)
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_bridge.v1 import orchestrator_pb2
from crucible_worker.backends.base import MAX_MESSAGES
from crucible_worker.rpc import evaluation
from tests.robustness.harness import until
from tests.service.caller_kit import Guess, asked, game
from tests.service.evaluation_kit import SHOUT, accuracy, numbered, refused, rig, samples_of
from tests.service.orchestrator_kit import Shouter, opened, stands
from tests.service.test_caller_graders import run, start_of
from tests.tables import rows

ENVIRONMENT = 'evaluators[0].options["environment"]'


def games(log: list[tuple[str, int]]) -> Any:
    """A factory of games that note what happens to them."""
    return lambda opened: Guess(opened, log)


def played(**fields: Any) -> Any:
    """Evaluation `e` by `rl_test_set` in the caller's only environment."""
    options = fields.pop("options", {})
    return asked(**{"evaluators": [game(**options)], **fields})


async def test_an_episode_is_played_at_the_caller():
    """The model sees each observation; rewards, metrics, tags and the transcript are the environment's."""
    log: list[tuple[str, int]] = []
    async with rig() as it:
        evaluation = await run(it, played(dataset=SHOUT[:1]), environments={"games": games(log)})
        (result,) = await samples_of(it.worker.bridge)
    assert log == [("open", 0), ("A?", 0), ("A1", 0), ("A2", 0), ("closed", 0)]
    assert result.verdict is Verdict.MEASURED
    assert result.group is not None
    (trajectory,) = result.group.trajectories
    assert result.group.tags == ("games",)
    assert [turn.metrics for turn in trajectory.transitions] == [{"turns": 1.0}, {"turns": 2.0}, {"turns": 3.0}]
    assert result.score == sum(turn.reward for turn in trajectory.transitions)
    assert [(turn.role, turn.text) for turn in result.turns] == [
        ("user", "a?"),
        ("assistant", "A?"),
        ("user", "a1"),
        ("assistant", "A1"),
        ("user", "a2"),
        ("assistant", "A2"),
    ]
    assert evaluation.metrics.values["env/all/reward/total"] == result.score


async def test_seeds_are_the_same_on_every_attempt_and_different_for_every_rollout():
    """What an environment draws is a function of the evaluation's seed, the sample and the rollout."""
    sampling = SamplingParams(max_tokens=8, temperature=1.0, seed=7)
    rewards = []
    async with rig() as it:
        for name in ("one", "two"):
            request = played(options={"group_size": 3}, sampling=sampling, evaluation_id=name)
            await run(it, request, environments={"games": games([])})
            results = await samples_of(it.worker.bridge, name)
            rewards.append(
                [[one.total_reward for one in result.group.trajectories] for result in results if result.group]
            )
    assert rewards[0] == rewards[1]
    assert len({reward for group in rewards[0] for reward in group}) == 6


class _Cookbook:
    """An environment in the shape of tinker-cookbook's."""

    async def initial_observation(self) -> Any:
        return Conversation((ChatMessage("user", "go"),)), ["\n"]

    async def step(self, action: list[int], *, extra: Any = None) -> Any:
        assert action
        return SimpleNamespace(reward=1.5, episode_done=True, next_observation="", metrics={"said": len(extra["text"])})


class _Tokens:
    """An environment whose observations are tokens."""

    def initial_observation(self) -> Any:
        return ModelInput.of([97, 98]), ()

    def step(self, action: list[int], *, extra: Any = None) -> Any:
        return AnsweredEnvironment(reward=-2.0, done=True)


class _Unasked:
    """An episode that is over before the model is asked."""

    def initial_observation(self) -> Any:
        return SimpleNamespace(reward=0.25, metrics={"stop/overlong_prompt": 1.0})

    def step(self, action: list[int], *, extra: Any = None) -> Any:
        raise AssertionError("the model was asked")


@rows(("kind", "reward"), [(_Cookbook, 1.5), (_Tokens, -2.0), (_Unasked, 0.25)])
async def test_environments_may_have_the_shape_of_tinker_cookbooks(kind: Any, reward: float):
    """Pairs of observation and stop, steps with `episode_done`, tokens, and episodes that are over at once."""
    async with rig() as it:
        await run(it, played(dataset=SHOUT[:1]), environments={"e": lambda opened: kind()})
        (result,) = await samples_of(it.worker.bridge)
    assert (result.verdict, result.score) == (Verdict.MEASURED, reward)


async def test_options_go_to_the_environment():
    """The worker does not look at them; the sample and the rollout are there as well."""
    seen: list[OpenEpisode] = []

    async def make(opened: OpenEpisode) -> Any:
        seen.append(opened)
        return _Tokens()

    async with rig() as it:
        options = {"environment_options": {"depth": 3, "names": ["x"]}}
        await run(it, played(dataset=SHOUT[:1], options=options), environments={"e": make})
    (opening,) = seen
    assert opening.options == {"depth": 3, "names": ["x"]}
    assert (opening.evaluator, opening.sample.id, opening.rollout) == ("rl_test_set", "0", 0)


async def test_a_rollout_that_fails_is_repeated_from_its_beginning():
    """Not the step is asked again, but the episode, with another seed; a group that keeps failing is ERROR."""
    seeds: list[int] = []

    class Fails:
        def __init__(self, opened: OpenEpisode) -> None:
            seeds.append(opened.seed)

        def initial_observation(self) -> Any:
            return "x", ()

        def step(self, action: list[int], *, extra: Any = None) -> Any:
            if len(seeds) < 3:
                raise OSError("lost")
            return AnsweredEnvironment(reward=1.0, done=True)

    def broken(opened: OpenEpisode) -> Any:
        raise ValueError("secret")

    async with rig() as it:
        await run(it, played(dataset=SHOUT[:1]), environments={"e": Fails})
        (result,) = await samples_of(it.worker.bridge)
        await run(it, played(dataset=SHOUT[:1], evaluation_id="b"), environments={"e": broken})
        (failed,) = await samples_of(it.worker.bridge, "b")
    assert len(set(seeds)) == 3
    assert result.score == 1.0
    assert result.measurements["rollout_errors/BACKEND_FAILED"] == 2.0
    assert failed.verdict is Verdict.ERROR
    assert failed.problem is not None
    assert "ValueError in the caller's environment 'e'" in failed.problem.message
    assert "secret" not in failed.problem.message


async def test_a_limit_of_turns_closes_the_episode():
    """The caller is told that nothing is asked of it any more, although it did not say that it is done."""
    log: list[tuple[str, int]] = []
    async with rig() as it:
        await run(it, played(dataset=SHOUT[:1], options={"max_turns": 2}), environments={"games": games(log)})
        (result,) = await samples_of(it.worker.bridge)
    assert log[-1] == ("closed", 0)
    assert result.group is not None
    assert result.group.trajectories[0].transitions[-1].metrics["stop/max_turns"] == 1.0


async def test_model_and_environment_may_both_stay_with_the_caller():
    """Both are asked over one stream."""
    log: list[tuple[str, int]] = []
    async with rig() as it:
        evaluation = await run(it, played(), model=Shouter(), name="policy", environments={"games": games(log)})
    assert evaluation.state is EvaluationState.COMPLETED
    assert log.count(("closed", 0)) == 2


async def test_an_environment_that_the_caller_does_not_have_is_refused():
    """The error names the option, and what the caller has."""
    async with rig() as it:
        request = played(options={"environment": "caller:chess"})
        call = run(it, request, environments={"go": games([])})
        error = await refused(call, Code.INVALID_ARGUMENT, "UNKNOWN_ENVIRONMENT", ENVIRONMENT)
        assert "caller:go" in error.message
        with pytest.raises(BridgeError) as caught:
            await run(it, played(options={"grader": "numeric"}), environments={"go": games([])})
    assert caught.value.field == 'evaluators[0].options["grader"]'


async def test_an_episode_in_the_middle_begins_again_from_its_seed():
    """A caller that comes back is asked to open it again; samples that are done are not played again."""
    seeds: dict[str, list[int]] = {}
    stuck = asyncio.Event()

    class Stuck(Guess):
        def __init__(self, opened: OpenEpisode, log: list[tuple[str, int]]) -> None:
            super().__init__(opened, log)
            seeds.setdefault(opened.sample.id, []).append(opened.seed)

    class First(Stuck):
        async def step(self, action: list[int], *, extra: Any = None) -> Any:  # pyright: ignore
            if self._turn == 1 and self._sample.id == "s4":
                stuck.set()
                await asyncio.Event().wait()
            return super().step(action, extra=extra)

    request = played(dataset=numbered(8))
    async with rig() as it:
        log: list[tuple[str, int]] = []
        call = asyncio.create_task(run(it, request, environments={"g": lambda opened: First(opened, log)}))
        await stuck.wait()
        while (await it.evaluation.get_evaluation("e")).done < 7:
            await asyncio.sleep(0.01)
        call.cancel()
        await stands(it.worker.bridge, EvaluationState.INTERRUPTED)
        resumed = await run(it, request, environments={"g": lambda opened: Stuck(opened, [])})
        whole = await run(it, played(dataset=numbered(8), evaluation_id="w"), environments={"g": games([])})
    assert {name: len(given) for name, given in seeds.items() if len(given) > 1} == {"s4": 2}
    assert len(set(seeds["s4"])) == 1
    assert log.count(("closed", 0)) == 8
    assert resumed.metrics == whole.metrics


def _environment(**fields: Any) -> orchestrator_pb2.OrchestratorAnswer:
    return orchestrator_pb2.OrchestratorAnswer(environment=orchestrator_pb2.AnsweredEnvironment(**fields))


@rows(
    ("answer", "message"),
    [
        (_environment(), "has no observation"),
        (_environment(text="x", reward=float("inf")), "answer.environment.reward"),
        (_environment(done=True, metrics={"m": float("nan")}), 'answer.environment.metrics["m"]'),
        (_environment(text="x", stop=[""]), "answer.environment.stop[0]"),
        (_environment(text="x", stop_tokens=[-1]), "answer.environment.stop_tokens[0]"),
        (orchestrator_pb2.OrchestratorAnswer(grade=orchestrator_pb2.AnsweredGrade(score=1)), "another kind"),
    ],
)
async def test_a_foreign_answer_is_checked(answer: orchestrator_pb2.OrchestratorAnswer, message: str):
    """What does not follow in an episode fails its rollout, with the field; its episode is closed."""
    request = played(dataset=SHOUT[:1], options={"strategy": "retry", "max_retries": 0})
    start = start_of(request)
    start.start.environments.append("g")
    async with rig() as it, opened(it.worker.address, start) as stream:
        await stream.accepted()
        number, question = await stream.question()
        assert isinstance(question, EnvironmentQuestion)
        assert isinstance(question.question, OpenEpisode)
        answer.id = number
        await stream.raw_answer(answer)
        frame = await stream.read()
        assert frame is not None
        assert frame.closed == question.episode == 1
        ended = await stream.ended()
        (result,) = await samples_of(it.worker.bridge)
    assert ended.evaluation.state == pb.EVALUATION_STATE_COMPLETED
    assert result.problem is not None
    assert result.problem.reason == "BACKEND_ANSWER"
    assert message in result.problem.message


async def test_actions_have_text_tokens_and_their_end():
    """What the model did comes in order, with the turn's number, and the episode's."""
    request = played(dataset=SHOUT[:1])
    start = start_of(request)
    start.start.environments.append("g")
    async with rig() as it, opened(it.worker.address, start) as stream:
        await stream.accepted()
        number, _ = await stream.question()
        await stream.answer(number, AnsweredEnvironment(observation="ab", stop=("!",)))
        for turn in range(2):
            number, question = await stream.question()
            assert isinstance(question, EnvironmentQuestion)
            action = question.question
            assert isinstance(action, EpisodeAction)
            assert (question.environment, question.episode, action.turn, action.text) == ("g", 1, turn, "AB")
            assert len(action.tokens) >= 2
            assert action.stop_reason == "stop"
            await stream.answer(number, AnsweredEnvironment(observation="ab", done=turn == 1))
        frame = await stream.read()
        assert frame is not None
        assert frame.closed == 1
        await stream.ended()


async def test_a_large_answer_is_decoded_by_a_thread(monkeypatch: pytest.MonkeyPatch):
    """Other calls of the worker go on meanwhile; a small one takes no thread."""
    decode, threads = evaluation.answer_from_v1, []

    def noted(message: orchestrator_pb2.OrchestratorAnswer) -> Any:
        threads.append((message.ByteSize() > 100_000, threading.get_ident()))
        return decode(message)

    monkeypatch.setattr(evaluation, "answer_from_v1", noted)
    long = Conversation(tuple(ChatMessage(role="user", content="x" * 100) for _ in range(2_000)))

    class Talkative(Guess):
        async def initial_observation(self) -> Any:
            return AnsweredEnvironment(observation=long)

    async with rig() as it:
        await run(it, played(dataset=SHOUT[:1]), environments={"g": lambda opened: Talkative(opened, [])})
    assert [(large, thread == threading.get_ident()) for large, thread in threads[:2]] == [(True, False), (False, True)]


async def test_an_observation_of_too_many_messages_fails_its_rollout():
    """The error has their number and the most."""
    endless = Conversation((ChatMessage(role="user", content="x"),) * (MAX_MESSAGES + 1))

    class Endless(Guess):
        async def initial_observation(self) -> Any:
            return AnsweredEnvironment(observation=endless)

    async with rig() as it:
        await run(it, played(dataset=SHOUT[:1]), environments={"g": lambda opened: Endless(opened, [])})
        (result,) = await samples_of(it.worker.bridge)
    assert result.problem is not None
    assert "10,001 messages, at most 10,000" in result.problem.message


async def test_an_environment_that_is_made_after_its_question_was_withdrawn_is_closed():
    """A slow factory in a thread ends after the sample's time: what it made is closed once, and not left behind."""
    log: list[tuple[str, int]] = []
    go_on = threading.Event()

    def slow(opened: OpenEpisode) -> Guess:
        assert go_on.wait(60)
        return Guess(opened, log)

    async with rig() as it:
        request = played(dataset=SHOUT[:1], limits=Limits(sample_timeout_ms=200))
        await run(it, request, environments={"g": slow})
        assert log == []
        go_on.set()
        await until(lambda: log == [("open", 0), ("closed", 0)])


async def test_an_environment_is_not_closed_while_a_thread_uses_it():
    """A step whose question was withdrawn goes on; the environment is closed after it."""
    log: list[tuple[str, int]] = []
    go_on = threading.Event()

    class Slow(Guess):
        def step(self, action: list[int], *, extra: Any = None) -> AnsweredEnvironment:
            assert go_on.wait(60)
            log.append(("stepped", 0))
            return super().step(action, extra=extra)

    async with rig() as it:
        request = played(dataset=SHOUT[:1], limits=Limits(sample_timeout_ms=200))
        await run(it, request, environments={"g": lambda opened: Slow(opened, log)})
        assert log == [("open", 0)]
        go_on.set()
        await until(lambda: ("closed", 0) in log)
    assert log == [("open", 0), ("stepped", 0), ("A?", 0), ("closed", 0)]


async def test_a_grader_that_hangs_holds_up_no_end_of_an_episode():
    """All threads of the window are taken: the episode is closed all the same, and the call returns."""
    log: list[tuple[str, int]] = []
    go_on = threading.Event()

    class Unhurried(Guess):
        async def step(self, action: list[int], *, extra: Any = None) -> AnsweredEnvironment:  # pyright: ignore
            return super().step(action, extra=extra)

    async def make(opened: OpenEpisode) -> Guess:
        return Unhurried(opened, log)

    def hangs(question: Any) -> bool:
        return go_on.wait(60)

    async with rig() as it:
        request = asked(
            evaluators=[accuracy("a", grader="caller:g"), game("caller:e")],
            dataset=SHOUT[:1],
            limits=Limits(sample_timeout_ms=500),
        )
        try:
            call = run(it, request, graders={"g": hangs}, environments={"e": make}, window=1)
            await asyncio.wait_for(call, 30)
        finally:
            go_on.set()
    assert log[-1] == ("closed", 0)
