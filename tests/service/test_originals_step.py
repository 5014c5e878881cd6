"""tinker-cookbook's run_evaluations_parallel and the evaluators of one request: equal, but where theirs is wrong."""

import dataclasses
import types
from typing import Any

import pytest

from crucible_bridge.errors import Code
from crucible_bridge.types import Dataset, EvaluationState, Limits, Prompt, SamplingParams
from crucible_worker.testing import ScriptedModel
from tests.service.evaluation_kit import SHOUT, accuracy, asked, nll, refused, rig
from tests.service.originals_kit import CodePoints, SamplingClient, originals


@pytest.fixture(scope="module")
def modules():
    """The modules of the loop, and of two evaluators that it runs."""
    with originals("rl.train", "eval.custom_evaluators", "supervised.nll_evaluator") as modules:
        yield modules


@pytest.fixture
def step(modules: Any, monkeypatch: pytest.MonkeyPatch):
    """What the loop makes of these evaluators at a step: "accuracy", or a name of an nll."""
    import tinker

    train, custom, supervised = modules
    monkeypatch.setattr(custom, "get_tokenizer", lambda name: CodePoints())
    config = types.SimpleNamespace(log_path=None, num_groups_to_log=0)
    data = [
        tinker.Datum(
            model_input=tinker.ModelInput.from_ints([ord(str(sample.input))]),
            loss_fn_inputs={
                "target_tokens": tinker.TensorData(data=[ord(sample.targets[0])], dtype="int64", shape=[1]),
                "weights": tinker.TensorData(data=[1.0], dtype="float32", shape=[1]),
            },
        )
        for sample in SHOUT
    ]
    rows = [{"input": sample.input, "output": sample.targets[0]} for sample in SHOUT]

    def create(name: str) -> Any:
        if name == "accuracy":
            return custom.CustomEvaluator(rows, custom.grader_fn, model_name="m", renderer_name="role_colon")
        return supervised.SamplerNLLEvaluator(data, name=name)

    async def run(model: ScriptedModel, *names: str) -> dict[str, float]:
        client: Any = SamplingClient(model)
        return await train.run_evaluations_parallel([create(name) for name in names], client, config, 7)

    return run


def _ours(*names: str, **fields: Any) -> Any:
    specs = [accuracy(renderer="role_colon") if name == "accuracy" else nll(name, renderer="raw") for name in names]
    # The original's Datums have no space before the target.
    fields.setdefault("dataset", dataclasses.replace(Dataset.of(SHOUT), prompt=Prompt(target_delimiter="")))
    return asked(evaluators=specs, step=7, sampling=SamplingParams(max_tokens=100, temperature=0.7), **fields)


def _answer(prompt: str) -> str:
    """The letter behind the role, as a capital."""
    return f" {prompt.removeprefix('User: ')[0].upper()}\n\nUser:"


async def test_equal_keys_and_values(step: Any) -> None:
    """One dictionary of all metrics, each under its own key."""
    model = ScriptedModel(answer=_answer)
    expected = await step(model, "accuracy", "held_out")
    async with rig(model) as r:
        evaluation = await r.evaluation.evaluate(_ours("accuracy", "held_out"))

    values = evaluation.metrics.values
    uncertainty = {"accuracy_strict", "accuracy_stderr", "accuracy_ci95_low", "accuracy_ci95_high"}
    assert expected.keys() == {"accuracy", "held_out/nll"}
    assert values.keys() == expected.keys() | uncertainty
    assert {key: values[key] for key in expected} == pytest.approx(expected, rel=2.0**-20)


async def test_one_that_fails_takes_all_along_there_and_nobody_here(step: Any) -> None:
    """It has its problem, the others their metrics."""

    def broken(prompt: str) -> str:
        raise RuntimeError("the model has a bug")

    with pytest.raises(RuntimeError, match="has a bug"):
        await step(ScriptedModel(answer=broken), "accuracy", "held_out")
    async with rig(ScriptedModel(answer=broken)) as r:
        evaluation = await r.evaluation.evaluate(_ours("accuracy", "held_out", limits=Limits(max_unscored=0)))

    failed, sound = evaluation.results
    assert evaluation.state is EvaluationState.FAILED
    assert failed.problem is not None
    assert sound.problem is None
    assert evaluation.metrics.values.keys() == {"held_out/nll"}


async def test_equal_keys_overwrite_there_and_are_refused_here(step: Any) -> None:
    """Which of two numbers it was, nobody could tell; here nothing starts."""
    expected = await step(ScriptedModel(), "test", "test")
    async with rig() as r:
        await refused(
            r.evaluation.evaluate(_ours("test", "test")), Code.INVALID_ARGUMENT, "EQUAL_KEYS", "evaluators[1].name"
        )

    assert expected.keys() == {"test/nll"}
    assert r.model.calls == 0
