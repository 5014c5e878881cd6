"""tinker-cookbook's run_benchmark and the evaluators `accuracy` and `pass_at_k`: equal, but where theirs is wrong."""

import collections
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import BackendError, Code
from crucible_bridge.types import EvaluatorSpec, Limits, Sample, SamplingParams, Verdict
from crucible_worker.testing import ScriptedModel
from crucible_worker.testing.scripted import STALL
from tests.service.evaluation_kit import accuracy, asked, failing, refused, rig, samples_of
from tests.service.originals_kit import CodePoints, SamplingClient, originals

Grade = Callable[[str, str], float]
"""Reward of an answer to a question."""

RIGHT = {"q0": "w", "q1": "x", "q2": "y", "q3": "z"}
SAMPLES = [Sample(id=asked, input=asked, targets=(right,)) for asked, right in RIGHT.items()]


@pytest.fixture(scope="module")
def modules():
    """The modules of the runner, of its types and of environments."""
    with originals("eval.benchmarks._runner", "eval.benchmarks._types", "rl.types") as modules:
        yield modules


def _equals(asked: str, answer: str) -> float:
    return float(answer == RIGHT[asked])


@pytest.fixture
def benchmark(modules: Any):
    """Run the questions as a benchmark of one turn each."""
    import tinker

    runner, declared, rl = modules

    class Question(rl.Env):
        def __init__(self, asked: str, grade: Grade) -> None:
            self.example_id, self.grade = asked, grade

        async def initial_observation(self) -> Any:
            return tinker.ModelInput.from_ints([ord(character) for character in self.example_id]), []

        async def step(self, action: Any, *, extra: Any = None) -> Any:
            reward = self.grade(self.example_id, CodePoints().decode(action))
            return rl.StepResult(reward, True, tinker.ModelInput.empty(), [])

    class Questions(declared.BenchmarkBuilder):
        name = "questions"

        def __init__(self, grade: Grade) -> None:
            self.grade = grade

        def make_envs(self, renderer: Any, config: Any) -> Any:
            return [Question(asked, self.grade) for asked in RIGHT]

    async def run(model: ScriptedModel, *, grade: Grade = _equals, **config: Any) -> Any:
        renderer = type("Renderer", (), {"tokenizer": CodePoints()})
        settings = declared.BenchmarkConfig(max_tokens=8, **config)
        return await runner.run_benchmark(Questions(grade), SamplingClient(model), renderer, settings)

    return run


def _ours(*evaluators: EvaluatorSpec, **fields: Any) -> Any:
    sampling = fields.pop("sampling", SamplingParams(max_tokens=8, temperature=1.0))
    return asked(evaluators=evaluators, dataset=SAMPLES, sampling=sampling, **fields)


def _in_turn(said: Mapping[str, str]) -> Callable[[str], str]:
    """To each question the letters of its text, one an answer, again and again."""
    counts: collections.Counter[str] = collections.Counter()

    def answer(prompt: str) -> str:
        letters = said[prompt]
        counts[prompt] += 1
        return letters[(counts[prompt] - 1) % len(letters)]

    return answer


async def test_equal_score(benchmark: Any) -> None:
    """The share of right answers."""
    model = ScriptedModel(answer={**RIGHT, "q3": "?"}.__getitem__)
    expected = await benchmark(model)
    async with rig(model) as r:
        evaluation = await r.evaluation.evaluate(_ours(accuracy(renderer="raw")))

    assert (expected.num_correct, expected.num_examples) == (3, 4)
    assert evaluation.metrics.values["accuracy"] == expected.score == 0.75


async def test_equal_pass_at_k(benchmark: Any) -> None:
    """The same estimator over the same answers."""
    said = {"q0": "wwwww", "q1": "x????", "q2": "?yy??", "q3": "?????"}
    expected = await benchmark(ScriptedModel(answer=_in_turn(said)), num_samples=5)
    passing = EvaluatorSpec(kind="pass_at_k", options={"ks": [1, 5], "samples_per_prompt": 5, "renderer": "raw"})
    async with rig(ScriptedModel(answer=_in_turn(said))) as r:
        evaluation = await r.evaluation.evaluate(_ours(passing))

    values = evaluation.metrics.values
    assert expected.pass_at_k.keys() == {1, 5}
    for k, value in expected.pass_at_k.items():
        assert values[f"pass@{k}"] == pytest.approx(value, rel=1e-12)


async def test_a_failure_is_a_wrong_answer_there_and_none_here(benchmark: Any) -> None:
    """Its score falls with every call that the service lost."""
    model = ScriptedModel(answer=RIGHT.__getitem__, fault=failing("q1", "q2"))
    expected = await benchmark(model)
    async with rig(model) as r:
        evaluation = await r.evaluation.evaluate(_ours(accuracy(renderer="raw")))

    values = evaluation.metrics.values
    assert (expected.score, expected.num_errors) == (0.5, 2)
    assert (values["accuracy"], values["accuracy_strict"]) == (1.0, 0.5)
    assert evaluation.results[0].n_errors == 2


async def test_a_failure_that_passes_is_final_there_and_asked_again_here(benchmark: Any, tmp_path: Path) -> None:
    """Theirs writes it down as done, and a second run asks nobody."""

    def down_at_first() -> Callable[[Any], BackendError | None]:
        lost = collections.Counter[str]()

        def fault(call: Any) -> BackendError | None:
            lost[call.text] += 1
            if call.text == "q1" and lost["q1"] == 1:
                return BackendError("is busy", reason="BUSY", retryable=True, retry_after=0.0)
            return None

        return fault

    model = ScriptedModel(answer=RIGHT.__getitem__, fault=down_at_first())
    first = await benchmark(model, save_dir=str(tmp_path))
    again = await benchmark(model, save_dir=str(tmp_path))
    async with rig(ScriptedModel(answer=RIGHT.__getitem__, fault=down_at_first())) as r:
        evaluation = await r.evaluation.evaluate(_ours(accuracy(renderer="raw")))
        samples = await samples_of(r.worker.bridge)

    assert (first.score, again.score, again.num_errors) == (0.75, 0.75, 1)
    assert model.calls == len(RIGHT)
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert {sample.sample_id: sample.attempts for sample in samples}["q1"] == 2


async def test_other_settings_find_old_answers_there_and_are_refused_here(benchmark: Any, tmp_path: Path) -> None:
    """What was asked is part of what an evaluation is."""
    model = ScriptedModel(answer=RIGHT.__getitem__)
    await benchmark(model, save_dir=str(tmp_path), temperature=1.0)
    other = await benchmark(ScriptedModel(answer=lambda prompt: "?"), save_dir=str(tmp_path), temperature=0.1)
    async with rig(model) as r:
        await r.evaluation.evaluate(_ours(accuracy(renderer="raw")))
        changed = _ours(accuracy(renderer="raw"), sampling=SamplingParams(max_tokens=8, temperature=0.1))
        await refused(r.evaluation.evaluate(changed), Code.ALREADY_EXISTS, "OTHER_SPECIFICATION", "evaluation_id")

    assert other.score == 1.0


async def test_any_reward_is_right_there_alone(benchmark: Any) -> None:
    """Partly right is PARTIAL here, and only CORRECT passes."""
    said = {"q0": "w", "q1": "x or so", "q2": "?", "q3": "z"}
    model = ScriptedModel(answer=said.__getitem__)
    expected = await benchmark(model, grade=lambda asked, answer: 0.2 if RIGHT[asked] in answer.split() else 0.0)
    passing = EvaluatorSpec(
        kind="pass_at_k",
        options={"samples_per_prompt": 1, "grader": "f1", "grader_options": {"threshold": 0.9}, "renderer": "raw"},
    )
    async with rig(model) as r:
        evaluation = await r.evaluation.evaluate(_ours(passing))
        verdicts = [sample.verdict for sample in await samples_of(r.worker.bridge)]

    assert (expected.num_correct, expected.score) == (3, 0.75)
    assert verdicts == [Verdict.CORRECT, Verdict.PARTIAL, Verdict.INCORRECT, Verdict.CORRECT]
    assert evaluation.metrics.values["pass@1"] == 0.5


async def test_a_call_that_never_ends_is_wrong_there_and_an_error_here(benchmark: Any) -> None:
    """Time that ran out is said, and is no answer."""
    model = ScriptedModel(answer=RIGHT.__getitem__, fault=lambda call: STALL if call.text == "q2" else None)
    expected = await benchmark(model, timeout_seconds=0.2)
    async with rig(model) as r:
        limits = Limits(sample_timeout_ms=200, max_unscored_share=1.0)
        evaluation = await r.evaluation.evaluate(_ours(accuracy(renderer="raw"), limits=limits))
        by_id = {sample.sample_id: sample for sample in await samples_of(r.worker.bridge)}

    assert (expected.score, expected.num_errors) == (0.75, 1)
    assert by_id["q2"].verdict is Verdict.ERROR
    assert evaluation.metrics.values["accuracy"] == 1.0
