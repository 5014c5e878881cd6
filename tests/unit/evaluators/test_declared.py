"""Evaluators that are a class with fields: what they do without more, and packages of the release before."""

import dataclasses
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta

from crucible_bridge.errors import FailedPrecondition, InternalError, InvalidField
from crucible_bridge.types import (
    EvaluatorKind,
    EvaluatorSpec,
    Goal,
    OpenAIModel,
    Sample,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.evaluators import installed, registry
from crucible_worker.evaluators.accuracy import Accuracy
from crucible_worker.evaluators.base import (
    HasAuxiliaryModels,
    HoldsProcesses,
    Outcome,
    SampleContext,
    likelihood_cure,
    measures_auxiliary_models,
    measures_likelihoods,
    wants_answers,
)
from crucible_worker.evaluators.declared import AnswerEvaluator, BaseEvaluator, DeclaredKind
from crucible_worker.evaluators.installed import GuardedEvaluator
from crucible_worker.evaluators.multiple_choice import MultipleChoice
from crucible_worker.evaluators.preference import Preference
from crucible_worker.evaluators.registry import EvaluatorParts
from crucible_worker.evaluators.rl_test_set import RLTestSet
from crucible_worker.grading import registry as graders
from crucible_worker.grading.registry import GradingParts
from crucible_worker.testing import ScriptedModel
from tests.distributions import lay_out_packages_of_before
from tests.unit.evaluators.doubles import Double, Sampling, context

SAMPLING = SamplingParams(max_tokens=4, temperature=1.0)


class ShortOne(AnswerEvaluator):
    """Says how short answers are.

    Nothing else.
    """

    most: Annotated[int, Meta(ge=1)] = 3
    """Words at most."""

    def judge(self, answer: str, sample: Sample) -> Outcome:
        """Count words."""
        return Outcome.of(len(answer.split()) <= self.most, words=len(answer.split()))


class Plain(BaseEvaluator, kinds=(EvaluatorKind.TRAINING,), keys={"plain": "ones", "seen": "ones"}, score_goal=None):
    """Gives one number."""

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Give it."""
        return Outcome.of(2.5, seen=1)


def _results(scores: Sequence[float | None], **measurements: float) -> list[SampleResult]:
    return [
        SampleResult(
            evaluator="e",
            sample_id=str(place),
            verdict=Verdict.ERROR if score is None else Verdict.MEASURED,
            score=score,
            measurements={} if score is None else measurements,
        )
        for place, score in enumerate(scores)
    ]


def test_a_class_says_what_it_is() -> None:
    """Its name is the kind, the first line of its docstring the description, its fields are the options."""
    info = DeclaredKind(ShortOne).info

    assert (info.kind, info.description, info.kinds) == (
        "short_one",
        "Says how short answers are.",
        (EvaluatorKind.SAMPLING,),
    )
    assert dict(info.keys) == {"short_one": "mean score", "short_one_stderr": "its standard error"}
    assert list(info.options_schema["properties"]) == ["renderer", "most"]
    assert (info.score_goal, DeclaredKind(Plain).info.score_goal) == (Goal.HIGHER, None)
    assert DeclaredKind(Plain).info.kinds == (EvaluatorKind.TRAINING,)


async def test_an_answer_is_sampled_and_judged_by_the_class() -> None:
    """The answer without its reasoning is judged; the outcome has what the model said."""
    evaluator = ShortOne(sampling=SAMPLING, most=2)
    model = Double(sampling=Sampling(answers=("<think>x y z</think>one two",)))
    evaluator.check(model)

    outcome = await evaluator.run(Sample(input="a"), context(model))

    assert (outcome.verdict, outcome.score, outcome.measurements) == (Verdict.CORRECT, 1.0, {"words": 2})
    assert outcome.output == "<think>x y z</think>one two"


async def test_judge_may_be_a_coroutine() -> None:
    """An outcome that is awaited is the same as one that is returned."""

    class Later(AnswerEvaluator):
        """Judges later."""

        async def judge(self, answer: str, sample: Sample) -> Outcome:
            return Outcome.of(answer == "one two")

    model = Double(sampling=Sampling(answers=("one two",)))

    outcome = await Later(sampling=SAMPLING).run(Sample(input="a"), context(model))

    assert (outcome.verdict, outcome.output) == (Verdict.CORRECT, "one two")


async def test_judge_that_returns_another_type_is_named() -> None:
    """The error names the evaluator, the type that `judge` returned, and what to return."""

    class Bare(AnswerEvaluator):
        """Returns a number."""

        def judge(self, answer: str, sample: Sample) -> Any:
            return True

    model = Double(sampling=Sampling(answers=("one two",)))

    with pytest.raises(InternalError, match=r"'bare' returned bool, not Outcome: return Outcome\.of") as caught:
        await Bare(sampling=SAMPLING).run(Sample(input="a"), context(model))
    assert caught.value.reason == "EVALUATOR_FAILED"


def test_a_class_that_lacks_a_method_is_refused_when_it_is_loaded() -> None:
    """The error names the methods that are missing, before a request tries to make one."""

    class Unjudged(AnswerEvaluator):
        """Lacks `judge`."""

    with pytest.raises(FailedPrecondition, match="is the class Unjudged at 'a:Unjudged', which lacks judge") as caught:
        installed.kind_of("unjudged", "a:Unjudged", Unjudged)
    assert caught.value.reason == "BAD_EVALUATOR"


def test_means_are_over_scored_samples() -> None:
    """The mean score, its standard error, and means of measurements that are announced; undefined with the reason."""
    found = ShortOne(sampling=SAMPLING).aggregate(_results([1.0, 0.0, None]))
    plain = Plain().aggregate(_results([2.5, 2.5], seen=3.0))
    nothing = Plain().aggregate(_results([None]))
    unseen = Plain().aggregate(_results([2.5]))

    assert found.values == {"short_one": 0.5, "short_one_stderr": pytest.approx(0.5)}
    assert plain.values == {"plain": 2.5, "seen": 3.0}
    assert dict(nothing.undefined) == {"plain": "no sample was scored", "seen": "no sample was scored"}
    assert dict(unseen.undefined) == {"seen": "no sample has the measurement seen"}


def test_a_measurement_that_is_not_declared_is_named() -> None:
    """Where a declared key has no value: as a rule one of the two is misspelt."""
    found = Plain().aggregate(_results([2.5], sean=3.0))

    assert dict(found.undefined) == {
        "seen": "no sample has the measurement seen; samples have 'sean', which `keys` of the class Plain does not"
        " declare"
    }


def test_what_a_class_needs_is_refused_before_anything_runs() -> None:
    """A request without sampling, a model that cannot generate."""
    with pytest.raises(InvalidField, match="short_one samples answers") as missing:
        DeclaredKind(ShortOne).create({"renderer": "auto", "most": 3}, None)
    with pytest.raises(FailedPrecondition, match="short_one needs a sampling client"):
        ShortOne(sampling=SAMPLING).check(Double())

    assert missing.value.field == "sampling"
    assert not isinstance(ShortOne(sampling=SAMPLING), HasAuxiliaryModels | HoldsProcesses)


def test_a_class_may_extend_one_of_ours() -> None:
    """It has the options and keys of that one; a field that it declares again has its own default."""

    class Strict(Accuracy):
        """Judges numbers."""

        grader: str = "numeric"

    kind = DeclaredKind(Strict)

    assert kind.info.options_schema["properties"]["grader"]["default"] == "numeric"
    assert set(kind.info.options_schema["properties"]) == set(registry.info("accuracy").options_schema["properties"])
    assert (kind.info.kind, kind.info.keys) == ("strict", registry.info("accuracy").keys)


class Judged(Accuracy):
    """Accuracy, as a judge says."""

    grader: str = "rubric"


class Likely(MultipleChoice):
    """The likeliest choice."""


class Preferred(Preference):
    """The likelier answer of a pair."""

    likelihood_cure = 3
    """No text."""


class Acting(RLTestSet):
    """An environment that is extended."""


def _guarded(evaluator: type[BaseEvaluator], parts: EvaluatorParts, **options: Any) -> GuardedEvaluator:
    kind = installed.kind_of(evaluator.kind, "mine.py", evaluator)
    spec = EvaluatorSpec(kind=evaluator.kind, options=options)
    made = registry.create(spec, 0, SAMPLING, dataclasses.replace(parts, custom_evaluators={evaluator.kind: kind}))
    assert isinstance(made, GuardedEvaluator)
    return made


def test_what_a_users_class_measures_is_known() -> None:
    """Whether it measures likelihoods, also of its further models, and what to evaluate by instead, if that is text."""
    parts = EvaluatorParts()
    likely, preferred, plain = (_guarded(each, parts) for each in (Likely, Preferred, Plain))
    assert [measures_likelihoods(each) for each in (likely, preferred, plain)] == [True, True, False]
    assert [measures_auxiliary_models(each) for each in (likely, preferred, plain)] == [False, True, False]
    assert "{choices}" in likelihood_cure(likely)
    assert (likelihood_cure(preferred), likelihood_cure(plain)) == ("", "")


def test_a_users_class_has_what_ours_have() -> None:
    """The worker's parts, the judges of its grader, and samples as an evaluator gets them that wants answers."""
    parts = EvaluatorParts()
    judged = _guarded(Judged, parts, grader_options={"judge": "openai:s/m"})
    with pytest.raises(FailedPrecondition) as no_pool:
        _guarded(Judged, parts, grader="math")

    assert isinstance(judged, HasAuxiliaryModels)
    assert dict(judged.auxiliary_models) == {"grader_options.judge": OpenAIModel("s", "m")}
    assert judged.needs_auxiliary_models
    with pytest.raises(FailedPrecondition, match="judged needs a sampling client, which the judge lacks"):
        judged.check_auxiliary_models({"grader_options.judge": ScriptedModel(sampled=False)})
    assert not isinstance(_guarded(ShortOne, parts), HasAuxiliaryModels)
    assert wants_answers(judged)
    assert wants_answers(_guarded(ShortOne, parts))
    assert not wants_answers(_guarded(Plain, parts))
    assert no_pool.value.reason == "NO_GRADING_POOL"
    with_pool: Any = object()
    assert _guarded(Judged, EvaluatorParts(grading=GradingParts(pool=with_pool)), grader="math").repeats == 1


def test_a_users_class_has_no_processes() -> None:
    """One that extends an evaluator with processes is refused before anything is started."""
    with pytest.raises(FailedPrecondition, match="extends an evaluator with separate processes"):
        _guarded(Acting, EvaluatorParts())


@pytest.fixture
def of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the packages of the release before."""
    monkeypatch.syspath_prepend(tmp_path)
    lay_out_packages_of_before(tmp_path)
    importlib.invalidate_caches()
    for module in ("brevity", "sorted_words"):
        monkeypatch.delitem(sys.modules, module, raising=False)


@pytest.mark.usefixtures("of_before")
async def test_an_evaluator_of_the_release_before_loads_unchanged() -> None:
    """It is listed, refuses options at their path, judges and counts."""
    made = registry.create(EvaluatorSpec(kind="brevity", options={"max_words": 2}), 0, SAMPLING)
    outcome = await made.run(Sample(input="a"), context(Double(sampling=Sampling(answers=("one two",)))))
    with pytest.raises(InvalidField) as caught:
        registry.create(EvaluatorSpec(kind="brevity", options={"max_wrods": 2}), 0, SAMPLING)

    assert (outcome.verdict, outcome.measurements) == (Verdict.CORRECT, {"words": 2.0})
    assert caught.value.field == 'evaluators[0].options["max_wrods"]'
    results = _results([1.0, 0.0], words=2.0)
    assert made.aggregate(results).values == {"brevity": 0.5, "words": 2.0}
    assert registry.keys_of(EvaluatorSpec(kind="brevity")) == ("brevity", "words")


@pytest.mark.usefixtures("of_before")
async def test_a_grader_of_the_release_before_loads_unchanged() -> None:
    """By the name of its entry point."""
    fields: dict[str, Any] = {"name_field": "grader", "options_field": "options"}
    made = graders.create("sorted", {}, **fields)

    assert (await made.grade("a b", [])).verdict is Verdict.CORRECT
    assert (await made.grade("b a", [])).verdict is Verdict.INCORRECT
