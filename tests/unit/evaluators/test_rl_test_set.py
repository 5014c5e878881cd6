"""The evaluator `rl_test_set`: what is recorded of a group, and what is counted of the records."""

import dataclasses
from typing import Any

import pytest

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    EvaluatorSpec,
    ModelInput,
    Problem,
    Sample,
    SampledSequence,
    SampleResult,
    SamplingParams,
    Trajectory,
    TrajectoryGroup,
    Transition,
    Verdict,
)
from crucible_worker.backends.base import Rendered
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.environments.records import outcome_of
from crucible_worker.evaluators.rl_test_set import RLTestSet
from crucible_worker.inference.retries import RetryingModel, RetryPolicy
from crucible_worker.testing import ScriptedModel
from tests.unit.evaluators.environments.playing import Scripts, grouped, step

SAMPLING = SamplingParams(max_tokens=32, temperature=1.0)


def _made(**options: Any) -> RLTestSet:
    made = registry.create(EvaluatorSpec(kind="rl_test_set", options=options), 0, SAMPLING)
    assert isinstance(made, RLTestSet)
    return made


async def _run(model: Any, sample: Sample | None = None, **options: Any) -> Outcome:
    asked = Sample(id="s", input="a", targets=("A",)) if sample is None else sample
    return await _made(**options).run(asked, SampleContext(model=model, repeat=0, seed=3))


def _result(outcome: Outcome | None = None, **fields: Any) -> SampleResult:
    if outcome is not None:
        fields = {"verdict": outcome.verdict, "group": outcome.group, "measurements": outcome.measurements, **fields}
    return SampleResult(evaluator="rl_test_set", **{"sample_id": "s", **fields})


@dataclasses.dataclass(kw_only=True)
class Server(ScriptedModel):
    """A model whose server makes the tokens, and tells their number at most."""

    reports: bool = True
    """Whether it tells the number of what it generated."""
    tokenizer = None  # type: ignore[assignment] - it lies with the server

    @property
    def sampling(self) -> "Server":
        return self

    async def sample_text(
        self, input: Any, params: SamplingParams, num_samples: int = 1, *, plain: bool = False
    ) -> Any:
        text = input if isinstance(input, str) else input.messages[-1].content
        return [SampledSequence(text=text.upper(), tokens=(), token_count=len(text) if self.reports else None)]


async def test_tokens_that_nobody_counted_leave_their_keys_undefined() -> None:
    """Of prompts that a server makes of words; what it counts is reported, and nothing is 0."""
    outcome = await _run(Server())

    metrics = _made().aggregate([_result(outcome)])

    assert outcome.measurements == {"unseen_turns": 1.0}
    assert set(metrics.undefined) == {"env/all/total_ob_tokens", "env/all/ob_tokens_per_turn"}
    assert "server" in metrics.undefined["env/all/total_ob_tokens"]
    assert metrics.values["env/all/total_ac_tokens"] == 1.0
    assert metrics.values["env/all/reward/total"] == 1.0


async def test_answers_that_nobody_counted_leave_their_keys_undefined() -> None:
    """A server that reports no usage at all."""
    outcome = await _run(Server(reports=False))

    metrics = _made().aggregate([_result(outcome)])

    assert outcome.output_tokens is None
    assert outcome.measurements == {"unseen_turns": 1.0, "unreported_turns": 1.0}
    assert {"env/all/total_ac_tokens", "env/all/ac_tokens_per_turn"} <= metrics.undefined.keys()
    assert metrics.values["env/all/total_turns"] == 1.0


class Caching(ScriptedModel):
    """A model whose service tells how much of a prompt came from its cache."""

    async def sample(self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1) -> Any:
        answers = await super().sample(prompt, params, num_samples)
        return [dataclasses.replace(answer, cached_prompt_tokens=prompt.tokens().size) for answer in answers]

    @property
    def sampling(self) -> "Caching":
        return self


async def test_cached_tokens_of_observations_are_summed() -> None:
    """Over all turns, in rollouts and in the keys; a model that reports none has no such key."""
    cached, plain = await _run(Caching()), await _run(ScriptedModel())

    assert cached.group is not None
    turn = cached.group.trajectories[0].transitions[0]
    assert turn.cached_observation_tokens == turn.observation_tokens > 0
    values = _made().aggregate([_result(cached)]).values
    assert values["env/all/total_cached_ob_tokens"] == values["env/all/total_ob_tokens"]
    assert "env/all/total_cached_ob_tokens" not in _made().aggregate([_result(plain)]).values


async def test_intermediates_need_tokens() -> None:
    """A server that tells their number alone has none: the sample is an error that says so."""
    outcome = await _run(Server(), intermediates=True)

    assert (outcome.verdict, outcome.group) == (Verdict.ERROR, None)
    assert outcome.problem is not None
    assert "reports only their number" in outcome.problem.message


@pytest.mark.parametrize(("said", "score"), [("<think>A</think>", 0.0), ("<think>x</think>A", 1.0)])
async def test_a_thought_is_no_answer(said: str, score: float) -> None:
    """One that holds nothing else is wrong, whatever a grader makes of nothing; the record shows it."""
    model = ScriptedModel(answer=lambda text: said)

    outcome = await _run(model, Sample(input="a", targets=("A|^$",)), grader="regex", thinking="remove")

    assert (outcome.score, outcome.output) == (score, said)
    assert (await _run(ScriptedModel(answer=lambda text: "<think>A"), thinking="keep")).score == 0.0


@pytest.mark.parametrize(
    ("stop_reason", "formed", "reward"), [("stop", "A!", 1.0), ("stop", "A", 0.5), ("length", "A!", 0.5)]
)
async def test_the_reward_of_a_problem(stop_reason: str, formed: str, reward: float) -> None:
    """A wrong form costs format_coef, and so does an answer that was cut."""

    class Model(ScriptedModel):
        @property
        def sampling(self) -> "Model":
            return self

        async def sample(self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1) -> Any:
            return [SampledSequence(text=formed, tokens=(1,), stop_reason=stop_reason)]

    outcome = await _run(
        Model(),
        grader="contains",
        format_grader="format",
        format_options={"form": "marks", "marks": ["!"]},
        format_coef=0.5,
    )

    assert outcome.score == reward


async def test_a_form_is_not_judged_without_knowing_how_the_answer_ended() -> None:
    """A server that does not say whether an answer was truncated gives no reward: it is neither well formed nor not."""

    class Model(ScriptedModel):
        @property
        def sampling(self) -> "Model":
            return self

        async def sample(self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1) -> Any:
            return [SampledSequence(text="A!", tokens=(1,), stop_reason="")]

    outcome = await _run(
        Model(), grader="contains", format_grader="format", format_options={"form": "marks", "marks": ["!"]}
    )

    assert outcome.score is None
    assert outcome.problem is not None
    assert "does not report whether the answer was truncated" in outcome.problem.message


class Chat(ScriptedModel):
    """Its template writes `END` after an answer; `EOS` is its end-of-sequence token. Both are special."""

    END, EOS = "\x01", "\x02"
    eos_token_id = ord(EOS)

    def __init__(self, ending: str, **fields: Any) -> None:
        super().__init__(**fields)
        self.ending = ending

    async def sample(self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1) -> Any:
        return [SampledSequence(text="A", tokens=tuple(map(ord, f"A{self.ending}")), stop_reason="stop")]

    async def render_chat(self, messages: Any, *, generation_prompt: bool, tools: Any = ()) -> Rendered:
        text = "".join(f"{message.content}{self.END}" for message in messages)
        return Rendered(tokens=await self.encode(text), text=text)

    async def decode(self, tokens: Any) -> str:
        return (await self.show(tokens)).translate(dict.fromkeys(map(ord, (self.END, self.EOS))))

    async def show(self, tokens: Any) -> str:
        return "".join(map(chr, tokens))


@pytest.mark.parametrize(
    ("ending", "stop", "lenient", "strict"),
    [
        (Chat.END, (), 1.0, 1.0),
        (Chat.EOS, (), 1.0, 0.5),
        ("\n", ("\n",), 1.0, 1.0),
        (Chat.EOS, (Chat.EOS,), 1.0, 1.0),
    ],
)
async def test_a_stop_sequence_may_be_required(
    ending: str, stop: tuple[str, ...], lenient: float, strict: float
) -> None:
    """Of the chat template or of the request; the end-of-sequence token is then none, unless the request names it."""
    options: dict[str, Any] = {"format_coef": 0.5}
    asked = Sample(id="s", input="a", targets=("A",))
    sampling = dataclasses.replace(SAMPLING, stop=stop)
    for required, expected in ((False, lenient), (True, strict)):
        spec = EvaluatorSpec(kind="rl_test_set", options={**options, "require_stop_sequence_for_format": required})
        context = SampleContext(model=RetryingModel(Chat(ending), RetryPolicy(1)), repeat=0, seed=3)

        outcome = await registry.create(spec, 0, sampling).run(asked, context)

        assert outcome.score == expected


async def test_a_server_that_gives_no_tokens_ends_answers_by_its_chat_template_alone() -> None:
    """What ended the answer to a plain text cannot be known: the sample is an error that says so."""
    required: dict[str, Any] = {"require_stop_sequence_for_format": True}

    assert (await _run(Server(), renderer="chat_template", **required)).score == 1.0
    outcome = await _run(Server(), renderer="raw", **required)
    assert outcome.problem is not None
    assert (outcome.verdict, outcome.problem.reason) == (Verdict.ERROR, "NO_TOKENS")


def _of_tokens() -> Sample:
    return Sample(input=Datum(model_input=[97], loss_fn_inputs={}), targets=("A",))


async def test_conversations_and_tokens_are_problems() -> None:
    """They are asked as every other evaluator asks them."""
    chat = Sample(input=Conversation((ChatMessage("user", "a"),)), targets=("A",))

    assert (await _run(ScriptedModel(), chat)).score == 1.0
    assert (await _run(ScriptedModel(), _of_tokens())).score == 1.0


def test_a_judge_is_one_of_the_others() -> None:
    """A grader's judge is opened by the engine; that of a form is refused."""
    judged = {"grader": "rubric", "grader_options": {"judge": "openai:s/m"}}

    made = _made(**judged)
    assert set(made.auxiliary_models) == {"grader_options.judge"}
    with pytest.raises(InvalidField, match="a judge reads text"):
        made.check_sample(_of_tokens())
    assert not _made().auxiliary_models
    with pytest.raises(InvalidField) as caught:
        _made(format_grader="rubric", format_options={"judge": "openai:s/m"})
    assert caught.value.field == 'evaluators[0].options["format_grader"]'


def test_a_model_that_cannot_generate_is_refused() -> None:
    """Before the first sample."""
    with pytest.raises(FailedPrecondition) as caught:
        _made().check(ScriptedModel(sampled=False))

    assert caught.value.reason == "MISSING_CLIENT"


def test_everything_that_failed_is_counted() -> None:
    """By kind: rollouts of groups that stand and of those that do not, and what the engine found of a sample."""
    turn = Transition(observation_tokens=1, action_tokens=1, reward=1.0)
    group = TrajectoryGroup(trajectories=(Trajectory(transitions=(turn,)),))
    results = [
        _result(verdict=Verdict.MEASURED, group=group, measurements={"rollout_errors/ValueError": 2.0}),
        _result(verdict=Verdict.ERROR, measurements={"rollout_errors/ValueError": 1.0, "rollout_errors/X": 1.0}),
        _result(verdict=Verdict.ERROR, problem=Problem(reason="SAMPLE_TIMEOUT", message="too long")),
    ]

    metrics = _made(strategy="min_viable_group").aggregate(results)

    assert {key: value for key, value in metrics.values.items() if key.startswith("rollout_errors/")} == {
        "rollout_errors/ValueError": 3.0,
        "rollout_errors/X": 1.0,
        "rollout_errors/SAMPLE_TIMEOUT": 1.0,
        "rollout_errors/total": 5.0,
        "rollout_errors/groups_skipped": 2.0,
    }
    assert metrics.values["env/all/total_episodes"] == 1.0


@pytest.mark.parametrize("name", ["total", "groups_skipped"])
async def test_a_class_may_be_called_like_what_is_counted_beside_the_kinds(name: str) -> None:
    """Both counts stand."""
    error = type(name, (Exception,), {})("no luck")

    outcome = outcome_of(
        await grouped(Scripts(lambda made, index: lambda turn: error), max_retries=0), intermediates=False
    )
    metrics = _made(strategy="retry").aggregate([_result(outcome)])

    assert {key: value for key, value in metrics.values.items() if key.startswith("rollout_errors/")} == {
        f"rollout_errors/{name}_": 3.0,
        "rollout_errors/total": 3.0,
        "rollout_errors/groups_skipped": 1.0,
    }


async def test_rewards_beyond_all_numbers_are_an_error() -> None:
    """It is told, and counted."""
    group = await grouped(Scripts(lambda made, index: lambda turn: step(reward=1e308, episode_done=turn == 1)))

    outcome = outcome_of(group, intermediates=False)

    assert outcome.problem is not None
    assert (outcome.verdict, outcome.problem.reason) == (Verdict.ERROR, "NOT_FINITE")
    assert outcome.measurements == {"rollout_errors/NOT_FINITE": 1.0}


def test_fail_fast_reads_every_result_before_it_fails() -> None:
    """So that the counts of the evaluator are whole; the first sample that failed is named."""
    left = iter(
        [
            _result(verdict=Verdict.ERROR, sample_id="x", problem=Problem(reason="R", message="why")),
            _result(verdict=Verdict.ERROR, sample_id="y"),
        ]
    )

    with pytest.raises(BackendError, match="sample 'x' failed: R: why"):
        _made(strategy="fail_fast").aggregate(left)
    assert list(left) == []
