"""tinker-cookbook's CustomEvaluator and the evaluator `accuracy`: equal, but where theirs is wrong."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from crucible_bridge.errors import BackendError, Code
from crucible_bridge.types import EvaluatorSpec, Limits, Sample, SamplingParams, Verdict
from crucible_worker.testing import ScriptedModel
from tests.service.evaluation_kit import accuracy, asked, failing, refused, rig, samples_of
from tests.service.originals_kit import CodePoints, SamplingClient, originals

SAMPLING = SamplingParams(max_tokens=100, temperature=0.7)
"""What theirs has built in."""

CAPITALS = (("France", "Paris"), ("Germany", "Berlin"), ("Italy", "Rome"), ("Norway", "Oslo"))


def _asked_of(country: str) -> str:
    """The prompt of both, as text."""
    return f"User: {country}\n\nAssistant:"


def _says(answers: dict[str, str]) -> Callable[[str], str]:
    """A model that ends its turn behind these answers."""
    return {_asked_of(country): f" {answer}\n\nUser:" for country, answer in answers.items()}.__getitem__


@pytest.fixture(scope="module")
def module():
    """The module of the original."""
    with originals("eval.custom_evaluators") as (module,):
        yield module


@pytest.fixture
def theirs(module: Any, monkeypatch: pytest.MonkeyPatch):
    """The original over pairs of question and target, asked as a role and a colon."""
    monkeypatch.setattr(module, "get_tokenizer", lambda name: CodePoints())

    def create(pairs: Sequence[tuple[str, str]]) -> Any:
        rows = [{"input": country, "output": capital} for country, capital in pairs]
        return module.CustomEvaluator(rows, module.grader_fn, model_name="m", renderer_name="role_colon")

    return create


def _ours() -> EvaluatorSpec:
    return accuracy(renderer="role_colon", grader="contains", grader_options={"fold_case": True})


def _samples(pairs: Sequence[tuple[str, str]]) -> list[Sample]:
    return [Sample(id=country, input=country, targets=(capital,)) for country, capital in pairs]


async def test_equal_key_and_value(theirs: Any) -> None:
    """The same questions, answers and grader give the same `accuracy`."""
    model = ScriptedModel(
        answer=_says({"France": "It is paris.", "Germany": "Bonn", "Italy": "Rome, of course", "Norway": "Oslo"})
    )
    expected = await theirs(CAPITALS)(SamplingClient(model))
    async with rig(model) as r:
        evaluation = await r.evaluation.evaluate(
            asked(evaluators=[_ours()], dataset=_samples(CAPITALS), sampling=SAMPLING)
        )

    assert expected == {"accuracy": 0.75}
    assert evaluation.metrics.values["accuracy"] == expected["accuracy"]


async def test_one_failure_ends_theirs_alone(theirs: Any) -> None:
    """Here it is an ERROR of its sample, which counts as wrong in `accuracy_strict` alone."""
    model = ScriptedModel(answer=_says(dict(CAPITALS)), fault=failing(_asked_of("Italy")))
    with pytest.raises(BackendError, match="out of order"):
        await theirs(CAPITALS)(SamplingClient(model))
    async with rig(model) as r:
        evaluation = await r.evaluation.evaluate(
            asked(evaluators=[_ours()], dataset=_samples(CAPITALS), sampling=SAMPLING)
        )
        by_id = {sample.sample_id: sample.verdict for sample in await samples_of(r.worker.bridge)}

    assert by_id.pop("Italy") is Verdict.ERROR
    assert set(by_id.values()) == {Verdict.CORRECT}
    assert evaluation.results[0].n_errors == 1
    assert (evaluation.metrics.values["accuracy"], evaluation.metrics.values["accuracy_strict"]) == (1.0, 0.75)


async def test_theirs_waits_for_each_answer(theirs: Any) -> None:
    """One call at a time there; here as many as the limit lets."""
    answers = _says(dict(CAPITALS))
    one_by_one, together = ScriptedModel(answer=answers, latency=0.01), ScriptedModel(answer=answers, latency=0.01)
    await theirs(CAPITALS)(SamplingClient(one_by_one))
    async with rig(together) as r:
        await r.evaluation.evaluate(
            asked(
                evaluators=[_ours()],
                dataset=_samples(CAPITALS),
                sampling=SAMPLING,
                limits=Limits(concurrency=len(CAPITALS)),
            )
        )

    assert (one_by_one.counts["peak"], together.counts["peak"]) == (1, len(CAPITALS))


async def test_no_data_is_wrong_there_and_refused_here(theirs: Any) -> None:
    """An accuracy of nothing is no 0."""
    assert await theirs(())(SamplingClient(ScriptedModel())) == {"accuracy": 0.0}
    async with rig() as r:
        await refused(
            r.evaluation.evaluate(asked(evaluators=[_ours()], dataset=[])),
            Code.INVALID_ARGUMENT,
            "EMPTY_DATASET",
            "dataset.inline",
        )


async def test_a_target_within_a_word_is_right_there_alone(theirs: Any) -> None:
    """What `contains` looks for are whole words: "Romeo" does not hold "Rome"."""
    model = ScriptedModel(answer=_says({"Italy": "Romeo"}))
    pairs = [("Italy", "Rome")]
    expected = await theirs(pairs)(SamplingClient(model))
    async with rig(model) as r:
        evaluation = await r.evaluation.evaluate(
            asked(evaluators=[_ours()], dataset=_samples(pairs), sampling=SAMPLING)
        )

    assert (expected["accuracy"], evaluation.metrics.values["accuracy"]) == (1.0, 0.0)
