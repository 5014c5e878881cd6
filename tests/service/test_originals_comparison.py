"""tinker-cookbook's ComparisonEvaluator and the evaluator `comparison`: equal, but where theirs is wrong."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest

from crucible_bridge.types import EvaluatorSpec, Sample, Verdict
from crucible_worker.evaluators.comparison import preference_prompt
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.evaluation_kit import asked, samples_of
from tests.service.originals_kit import CodePoints, SamplingClient, originals

POLICY = ScriptedModel(answer=lambda prompt: "mine")
"""The model that is compared."""

Judgements = Mapping[str, tuple[str, str]]
"""By question: what the judge says where the model's answer is B, and where it is A."""


class OneTokenTies(CodePoints):
    """Theirs samples one token of the judge, which has to be able to say "Tie" by it."""

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
        return super().decode(tokens).replace("=", "Tie")


@pytest.fixture(scope="module")
def modules():
    """The modules of the original, and of the preference model that asks a judge."""
    with originals("preference.comparison_policy_evaluator", "preference.types") as modules:
        yield modules


@pytest.fixture
def theirs(modules: Any, monkeypatch: pytest.MonkeyPatch):
    """The original's metrics over these judgements."""
    evaluator, preference = modules
    monkeypatch.setattr(evaluator, "get_tokenizer", lambda name: CodePoints())

    async def evaluated(said: Judgements, **options: Any) -> tuple[dict[str, float], ScriptedModel]:
        in_one_token = {asked: (a.replace("tie", "="), b.replace("tie", "=")) for asked, (a, b) in said.items()}
        judge = ScriptedModel(
            answer=_judge(in_one_token, "System: ==== Completion A ====\n\n", "\n\nSystem: ==== Completion")
        )
        renderer = evaluator.get_renderer("role_colon", OneTokenTies())
        created = evaluator.ComparisonEvaluator(
            lambda: preference.PreferenceModelFromChatRenderer(renderer, SamplingClient(judge)),
            [evaluator.Comparison([_turn("user", asked)], [_turn("assistant", "reference")], []) for asked in said],
            renderer_name="role_colon",
            model_name_for_tokenizer="m",
            **options,
        )
        return await created(SamplingClient(POLICY)), judge

    return evaluated


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _judge(said: Judgements, opens: str, closes: str) -> Callable[[str], str]:
    """Says what is said of the question in the prompt; answer A stands between these marks."""

    def answer(prompt: str) -> str:
        question = next(each for each in said if each in prompt)
        first = prompt.split(opens, 1)[1].split(closes, 1)[0]
        return said[question]["mine" in first]

    return answer


@contextlib.asynccontextmanager
async def _ours(said: Judgements) -> AsyncIterator[tuple[Any, Sequence[Any], ScriptedModel]]:
    """An evaluation over the same judgements, its samples and the judge that was asked."""
    judge = ScriptedModel(answer=_judge(said, "answer A\n", "answer B\n"))
    samples = [Sample(id=asked, input=asked, targets=("reference",)) for asked in said]
    spec = EvaluatorSpec(kind="comparison", options={"judge": "embedded:j"})
    async with run_worker({"m": POLICY, "j": judge}) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(asked(evaluators=[spec], dataset=samples))
        yield evaluation, await samples_of(worker.bridge), judge


async def test_equal_values(theirs: Any) -> None:
    """The same judgements give the same win rate; its standard error has a key that says of what it is."""
    said = {"Q0": ("B", "A"), "Q1": ("A", "A"), "Q2": ("tie", "A"), "Q3": ("A", "B"), "Q4": ("B", "tie")}
    expected, _ = await theirs(said)
    async with _ours(said) as (evaluation, _, _):
        values = evaluation.metrics.values

    assert expected.keys() == {"win_rate", "stderr"}
    assert values.keys() == {"win_rate", "win_rate_stderr"}
    assert values["win_rate"] == pytest.approx(expected["win_rate"], abs=1e-15)
    assert values["win_rate_stderr"] == pytest.approx(expected["stderr"], abs=1e-15)


def test_a_preference_model_gets_the_same_conversation(modules: Any) -> None:
    """Turn for turn: one that was trained there is at home here."""
    _, preference = modules
    comparison = preference.Comparison([_turn("user", "Q")], [_turn("assistant", "a")], [_turn("assistant", "b")])

    expected = preference.ComparisonRendererFromChatRenderer(None)._comparison_to_convo(comparison)

    found = preference_prompt("Q", "a", "b").messages
    assert [_turn(message.role, message.content) for message in found] == expected


async def test_both_orders_are_judged_whatever_theirs_is_told(theirs: Any) -> None:
    """`both_ways=False` is never read there; here is no such option, and each pair is judged twice."""
    said = {"Q0": ("B", "A"), "Q1": ("A", "A")}
    (one_way, once), (two_ways, twice) = [await theirs(said, both_ways=both) for both in (False, True)]
    async with _ours(said) as (evaluation, _, judge):
        assert evaluation.metrics.values["win_rate"] == 0.75

    assert one_way == two_ways
    assert once.counts["sample"] == twice.counts["sample"] == judge.counts["sample"] == 4


async def test_one_score_has_a_spread_of_nothing_there_and_none_here(theirs: Any) -> None:
    """A standard error of 0 would say that the win rate is certain."""
    said = {"Q0": ("B", "A")}
    expected, _ = await theirs(said)
    async with _ours(said) as (evaluation, _, _):
        metrics = evaluation.metrics

    assert expected == {"win_rate": 1.0, "stderr": 0.0}
    assert metrics.values == {"win_rate": 1.0}
    assert metrics.undefined.keys() == {"win_rate_stderr"}


async def test_what_cannot_be_read_is_a_tie_there_alone(theirs: Any) -> None:
    """Here it is an ERROR, and has no part in the win rate."""
    said = {"Q0": ("B", "A"), "Q1": ("B", "A"), "Q2": ("?", "!")}
    expected, _ = await theirs(said)
    async with _ours(said) as (evaluation, samples, _):
        (result,) = evaluation.results

    assert expected["win_rate"] == pytest.approx(2.5 / 3)
    assert result.metrics.values["win_rate"] == 1.0
    assert (result.n, result.n_scored, result.n_errors) == (3, 2, 1)
    assert [sample.verdict for sample in samples] == [Verdict.MEASURED, Verdict.MEASURED, Verdict.ERROR]
    assert samples[2].problem is not None
    assert samples[2].problem.reason == "INVALID_JUDGEMENT"
