"""The evaluator `rl_test_set` over the wire: problems of one turn, environments of users, and what those do wrong."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crucible_bridge
from crucible_bridge.errors import BackendError, Code
from crucible_bridge.types import EvaluationState, EvaluatorSpec, Limits, Sample, SamplingParams, Verdict
from crucible_worker.evaluators.environments import processes
from crucible_worker.evaluators.environments.entry_points import GROUP
from crucible_worker.testing import ScriptedModel, run_worker
from tests.distributions import install, lay_out, lay_out_environment_package
from tests.service.evaluation_kit import SHOUT, HeldModel, asked, refused, rig, samples_of
from tests.service.serving import serving

SAMPLING = SamplingParams(max_tokens=8, temperature=1.0)

ODD = """
import asyncio, os, sys, threading
from pathlib import Path
from crucible_worker.evaluators.environments import StepResult

CLEANED = Path(__file__).with_name("cleaned")

class Panic(BaseException): pass

class Odd:
    def __init__(self, what): self.what = what
    async def initial_observation(self): return "q", ()
    async def step(self, action, *, extra=None):
        if self.what == "blocks": threading.Event().wait()
        if self.what == "waits": await asyncio.Event().wait()
        if self.what == "raises": raise ValueError("no luck")
        if self.what == "exits": raise SystemExit(1)
        if self.what == "panics": raise Panic("out of bounds")
        if self.what == "cancels": raise asyncio.CancelledError()
        if self.what == "nonsense": return None
        if self.what == "nan": return StepResult(reward=float("nan"), episode_done=True)
        if self.what == "goes on": return StepResult(reward=1.0, episode_done=False, next_observation="q")
        return StepResult(reward=1.0, episode_done=True)

class Group:
    def __init__(self, what): self.what = what
    async def make_envs(self): return [Odd(self.what)]
    def logging_tags(self): return ["all"] if self.what == "tags" else []
    async def cleanup(self):
        with CLEANED.open("a") as file:
            print(self.what, file=file)
        if self.what == "unclean": raise ValueError("not clean")

class Environment:
    description = "Does what a sample says."
    options_schema = {
        "type": "object",
        "properties": {"once": {"type": "boolean", "default": True}},
        "additionalProperties": False,
    }
    def group(self, sample, options, size):
        assert options.pop("once")
        return Group(sample.input)

ODD = Environment()
"""


SPINS = """
from pathlib import Path

class Environment:
    description = "Blocks when it has said so in a file."
    options_schema = {"type": "object", "properties": {}, "additionalProperties": False}
    def group(self, sample, options, size):
        Path(sample.input).touch()
        while True:
            pass

SPINS = Environment()
"""


def rl_test_set(name: str | None = None, **options: Any) -> EvaluatorSpec:
    """The evaluator with options."""
    return EvaluatorSpec(kind="rl_test_set", name=name, options=options)


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., EvaluatorSpec]:
    """Installs the environment above."""
    folder = tmp_path / "installed"
    lay_out(folder, "users_odd", ODD, GROUP, {"odd": "users_odd:ODD"})
    install(monkeypatch, folder)
    return lambda **options: rl_test_set(environment="odd", **options)


def does(*what: str) -> list[Sample]:
    """Samples of which the environment does these things."""
    return [Sample(id=f"{index} {each}", input=each, targets=(each.upper(),)) for index, each in enumerate(what)]


async def test_the_example_package_works_in_a_worker_as_it_is_started(tmp_path: Path) -> None:
    """Turns, rewards, tags and tokens come from a model that computes; one that spins keeps no worker from draining."""
    lay_out_environment_package(tmp_path / "installed")
    lay_out(tmp_path / "installed", "users_spins", SPINS, GROUP, {"spins": "users_spins:SPINS"})
    spinning = tmp_path / "spinning"
    path = os.pathsep.join([str(tmp_path / "installed"), *filter(None, [os.environ.get("PYTHONPATH")])])
    samples = [Sample(id="a", input="12+34+5"), Sample(id="b", input="1+2"), Sample(id="c", input="no sum")]
    async with (
        serving(tmp_path / "worker", "", environment={"PYTHONPATH": path}) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        evaluation = await bridge.evaluation.evaluate(
            model="embedded:arithmetic@600",
            evaluators=[
                rl_test_set(environment="chain", environment_options={"bonus": 0.25}, group_size=2, intermediates=True)
            ],
            dataset=samples,
            sampling=SamplingParams(max_tokens=4, temperature=0.01),
            limits=Limits(max_unscored=1),
        )
        results = [sample async for sample in bridge.evaluation.all_samples(evaluation.evaluation_id)]
        started = await bridge.evaluation.start_evaluation(
            model="embedded:arithmetic@600",
            evaluators=[rl_test_set(environment="spins")],
            dataset=[Sample(input=str(spinning))],
            sampling=SAMPLING,
        )
        async with asyncio.timeout(60):
            while not spinning.exists():
                await asyncio.sleep(0.01)
        found = await bridge.evaluation.get_evaluation(started.evaluation.evaluation_id)
        assert await worker.drained() == 0

    assert found.state is EvaluationState.RUNNING
    first, second, third = results
    values = evaluation.metrics.values
    assert values["env/3_numbers/turns_per_episode"] == 2.0
    assert values["env/2_numbers/turns_per_episode"] == 1.0
    assert values["env/all/total_episodes"] == 4.0
    assert values["env/all/reward/total"] == sum(sample.score or 0.0 for sample in (first, second)) / 2
    assert values["rollout_errors/INVALID_FIELD"] == values["rollout_errors/groups_skipped"] == 1.0
    assert first.group is not None
    turn = first.group.trajectories[0].transitions[1]
    assert first.group.tags == ("3_numbers",)
    assert turn.observation is not None
    assert turn.action_logprobs is not None
    assert (turn.observation.size, turn.action_logprobs.dtype) == (turn.observation_tokens, np.float32)
    assert (third.verdict, third.group) == (Verdict.ERROR, None)
    assert third.problem is not None
    assert third.problem.message == "is no sum of numbers"


async def test_problems_over_any_data_set() -> None:
    """Rewards of answers and their form, a group for each sample, tags from the samples, and no tokens unless asked."""
    dataset = [
        Sample(id="a", input="a", targets=("A",), metadata={"subject": "letters"}),
        Sample(id="long", input="long" * 3, targets=("LONG" * 3,), metadata={"subject": "words"}),
        Sample(id="c", input="c", targets=("x",)),
    ]
    spec = rl_test_set(group_size=2, tag_by="subject", format_coef=0.5)
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[spec], dataset=dataset, sampling=SAMPLING))
        results = await samples_of(r.worker.bridge)

    assert [result.score for result in results] == [1.0, -0.5, 0.0]
    assert [result.verdict for result in results] == [Verdict.MEASURED] * 3
    assert [result.stop_reason for result in results] == ["stop", "length", "stop"]
    assert [result.output for result in results] == ["A", "LONGLONG", "C"]
    assert [result.output_tokens for result in results] == [2, 16, 2]
    values = evaluation.metrics.values
    assert values["env/all/reward/total"] == 0.5 / 3
    assert values["env/all/format"] == 2 / 3
    assert values["env/letters/correct"] == 1.0
    assert values["env/words/by_group/frac_all_bad"] == 1.0
    assert evaluation.results[0].n_truncated == 1
    assert not any(key.startswith("rollout_errors/") for key in values)
    assert all(
        turn.observation is turn.action is turn.action_logprobs is None
        for result in results
        if result.group is not None
        for trajectory in result.group.trajectories
        for turn in trajectory.transitions
    )


async def test_an_answer_that_cannot_be_graded_is_undecided() -> None:
    """It is not sampled again, nor counted as wrong; the others stand."""
    dataset = [Sample(id="a", input="a", targets=()), Sample(id="b", input="b", targets=("B",))]
    model = ScriptedModel()
    async with rig(model) as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[rl_test_set()], dataset=dataset, sampling=SAMPLING))
        first, second = await samples_of(r.worker.bridge)

    assert (first.verdict, second.verdict) == (Verdict.UNDECIDED, Verdict.MEASURED)
    assert model.counts["sample"] == 2
    assert evaluation.metrics.values["env/all/correct"] == 1.0
    assert evaluation.metrics.values["rollout_errors/UNDECIDED"] == 1.0
    assert (evaluation.results[0].n_scored, evaluation.results[0].n_errors) == (1, 0)


async def test_a_judge_grades_problems() -> None:
    """It is opened for the evaluator, its score is the reward, and what it measures are metrics of the environment."""

    def judges(prompt: str) -> str:
        return json.dumps({"correct": {"reason": "So it is.", "score": int("| A\n" in prompt)}})

    spec = rl_test_set(grader="rubric", grader_options={"judge": "embedded:j"}, group_size=2)
    judge = ScriptedModel(answer=judges)
    async with run_worker({"m": ScriptedModel(), "j": judge}) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(
            asked(evaluators=[spec], sampling=SamplingParams(max_tokens=100, temperature=1.0))
        )
        scores = [result.score for result in await samples_of(worker.bridge)]

    assert scores == [1.0, 0.0]
    assert judge.counts["sample"] == 4
    assert evaluation.metrics.values["env/all/correct"] == 0.5
    assert evaluation.metrics.values["env/all/judge_completion_tokens"] > 0


@pytest.mark.parametrize(
    ("what", "reason", "made"),
    [
        ("raises", "ValueError", 4),
        ("exits", "SystemExit", 4),
        ("panics", "Panic", 4),
        ("cancels", "CancelledError", 4),
        ("nan", "NOT_FINITE", 4),
        ("nonsense", "BAD_ENVIRONMENT", 1),
        ("tags", "BAD_ENVIRONMENT", 1),
    ],
)
async def test_what_an_environment_does_wrong_is_its_samples_error(
    odd: Callable[..., EvaluatorSpec], what: str, reason: str, made: int
) -> None:
    """Counted by kind as often as it was tried; the other groups stand."""
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(
            asked(evaluators=[odd()], dataset=does(what, "ends"), sampling=SAMPLING)
        )
        broken, sound = await samples_of(r.worker.bridge)

    assert broken.problem is not None
    assert (broken.problem.reason, sound.score) == (reason, 1.0)
    assert evaluation.metrics.values[f"rollout_errors/{reason}"] == made
    assert evaluation.metrics.values["rollout_errors/total"] == made
    assert evaluation.metrics.values["env/all/total_episodes"] == 1.0


@pytest.mark.parametrize("what", ["blocks", "waits"])
async def test_an_environment_that_hangs_holds_up_nobody(
    odd: Callable[..., EvaluatorSpec], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its sample ends with its time; the worker answers, and the others go on meanwhile."""
    monkeypatch.setattr(processes, "CLEANUP_SECONDS", 0.1)
    monkeypatch.setattr(processes, "SETTLE_SECONDS", 0.1)
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(
            asked(
                evaluators=[odd(), "accuracy"],
                dataset=does(what, *["ends"] * 5),
                sampling=SAMPLING,
                limits=Limits(sample_timeout_ms=1_500, concurrency=2, max_unscored=1),
            )
        )
        results = await samples_of(r.worker.bridge, evaluator="rl_test_set")

    hung, *others = results
    assert hung.problem is not None
    assert (hung.problem.reason, hung.problem.retryable) == ("SAMPLE_TIMEOUT", True)
    assert [result.score for result in others] == [1.0] * 5
    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.metrics.values["rollout_errors/SAMPLE_TIMEOUT"] == 1.0


async def test_what_a_group_holds_is_given_back_whatever_happens(
    odd: Callable[..., EvaluatorSpec], tmp_path: Path
) -> None:
    """Once for each group, also where rollouts fail; and what goes wrong with it harms no result."""
    what = ["ends", "raises", "tags", "unclean", "waits"]
    async with rig() as r:
        await r.evaluation.evaluate(
            asked(
                evaluators=[odd(strategy="min_viable_group")],
                dataset=does(*what),
                sampling=SAMPLING,
                limits=Limits(sample_timeout_ms=2_000),
            )
        )
        scores = [result.score for result in await samples_of(r.worker.bridge)]
        async with asyncio.timeout(60):
            while len(cleaned := (tmp_path / "installed" / "cleaned").read_text().split()) < len(what):
                await asyncio.sleep(0.01)

    assert sorted(cleaned) == sorted(what)
    assert scores == [1.0, None, None, 1.0, None]


async def test_an_environment_that_never_ends_is_ended(odd: Callable[..., EvaluatorSpec]) -> None:
    """After max_turns, with what it has earned; it says so."""
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(
            asked(evaluators=[odd(max_turns=3)], dataset=does("goes on"), sampling=SAMPLING)
        )

    assert evaluation.metrics.values["env/all/reward/total"] == 3.0
    assert evaluation.metrics.values["env/all/stop/max_turns"] == 1.0


async def test_fail_fast_fails_the_evaluator_and_begins_no_further_group(odd: Callable[..., EvaluatorSpec]) -> None:
    """It says which sample it was and why; another evaluator stands."""
    model = ScriptedModel()
    async with rig(model) as r:
        evaluation = await r.evaluation.evaluate(
            asked(
                evaluators=[odd(strategy="fail_fast"), rl_test_set("problems")],
                dataset=does("raises", *["ends"] * 20),
                sampling=SAMPLING,
                limits=Limits(concurrency=1),
            )
        )
        reasons = [
            result.problem and result.problem.reason
            for result in await samples_of(r.worker.bridge, evaluator="rl_test_set")
        ]

    broken, sound = evaluation.results
    assert broken.problem is not None
    assert broken.problem.reason == "ROLLOUT_FAILED"
    assert broken.problem.message.startswith("sample '0 raises' failed: ValueError: 0 of 1 rollouts succeeded")
    assert reasons == ["ValueError", *["FAILED_FAST"] * 20]
    assert (sound.problem, sound.n_scored) == (None, 21)
    assert model.counts["sample"] == 1 + 21


async def test_a_backend_that_is_down_ends_and_is_counted() -> None:
    """Nothing is silently zero: the keys are undefined."""
    down = BackendError("is out of order", reason="BACKEND_DOWN", retryable=False)
    async with rig(ScriptedModel(fault=lambda call: down)) as r:
        evaluation = await r.evaluation.evaluate(
            asked(evaluators=[rl_test_set(max_retries=1)], dataset=SHOUT, sampling=SAMPLING)
        )

    assert evaluation.metrics.undefined["env/all/reward/total"] == "no group succeeded"
    assert evaluation.metrics.values == {
        "rollout_errors/BACKEND_DOWN": 4.0,
        "rollout_errors/total": 4.0,
        "rollout_errors/groups_skipped": 2.0,
    }


async def test_an_interrupted_evaluation_comes_to_the_same_numbers(tmp_path: Path) -> None:
    """Seeds are functions of the sample, the rollout, the turn and the try."""
    dataset = [Sample(id=f"s{index}", input=f"q{index}", targets=(f"Q{index}",)) for index in range(6)]
    request = asked(evaluators=[rl_test_set(group_size=2)], dataset=dataset, sampling=SAMPLING)
    async with rig() as r:
        expected = await r.evaluation.evaluate(request)
    held = HeldModel()
    async with rig(held, state_dir=tmp_path) as r:
        await r.evaluation.start_evaluation(request)
        await held.asked.wait()
    async with rig(state_dir=tmp_path) as r:
        found = await r.evaluation.evaluate(request)

    assert found.attempt == 2
    assert found.metrics == expected.metrics


@pytest.mark.parametrize(
    ("options", "field", "reason"),
    [
        ({"environment": "nowhere"}, 'options["environment"]', "UNKNOWN_ENVIRONMENT"),
        ({"environment_options": {"x": 1}}, 'options["environment_options"]', "INVALID_FIELD"),
        (
            {"environment": "odd", "environment_options": {"x": 1}},
            'options["environment_options"]["x"]',
            "UNKNOWN_OPTION",
        ),
        ({"environment": "odd", "grader": "math"}, 'options["grader"]', "INVALID_FIELD"),
        ({"environment": "odd", "tag_by": "x"}, 'options["tag_by"]', "INVALID_FIELD"),
        ({"grader": "oracle"}, 'options["grader"]', "UNKNOWN_GRADER"),
        ({"format_grader": "oracle"}, 'options["format_grader"]', "UNKNOWN_GRADER"),
        (
            {"format_grader": "format", "format_options": {"form": "x"}},
            'options["format_options"]["form"]',
            "INVALID_FIELD",
        ),
        ({"group_size": 257}, 'options["group_size"]', "INVALID_FIELD"),
        ({"max_turns": 1_001}, 'options["max_turns"]', "INVALID_FIELD"),
        ({"strategy": "hope"}, 'options["strategy"]', "INVALID_FIELD"),
        ({"min_successful": 1}, 'options["min_successful"]', "INVALID_FIELD"),
        (
            {"strategy": "min_viable_group", "group_size": 2, "min_successful": 3},
            'options["min_successful"]',
            "INVALID_FIELD",
        ),
    ],
)
@pytest.mark.usefixtures("odd")
async def test_wrong_options_are_refused_before_anything_starts(
    options: dict[str, Any], field: str, reason: str
) -> None:
    """At their path."""
    async with rig() as r:
        await refused(
            r.evaluation.start_evaluation(asked(evaluators=[rl_test_set(**options)], sampling=SAMPLING)),
            Code.INVALID_ARGUMENT,
            reason,
            f"evaluators[0].{field}",
        )


async def test_equal_rollouts_and_missing_sampling_are_refused() -> None:
    """Several rollouts of a problem need a temperature."""
    async with rig() as r:
        start = r.evaluation.start_evaluation
        greedy = asked(evaluators=[rl_test_set(group_size=2)])
        await refused(start(greedy), Code.INVALID_ARGUMENT, "INVALID_FIELD", "sampling.temperature")
        unsampled = asked(evaluators=[rl_test_set()], sampling=None)
        await refused(start(unsampled), Code.INVALID_ARGUMENT, "INVALID_FIELD", "sampling")
