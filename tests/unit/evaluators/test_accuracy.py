"""The evaluator accuracy: how an answer is asked for and judged, and what the judgements make together."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from crucible_bridge.errors import BackendError, FailedPrecondition, InternalError, InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    EvaluatorSpec,
    Sample,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.accuracy import Accuracy
from crucible_worker.evaluators.answering import NO_ANSWER, NO_ANSWER_CUT, NO_ANSWER_OPEN
from crucible_worker.evaluators.base import Evaluator
from crucible_worker.grading.base import MAX_EXTRACTED_CHARS, Grade, GraderType
from crucible_worker.grading.registry import GradingParts
from tests.tables import rows
from tests.unit.evaluators.doubles import Double, Sampling, Training, context

SAMPLE = Sample(id="a", input="12+34=", targets=("46",))
GREEDY = SamplingParams(max_tokens=4, seed=3)


def _accuracy(sampling: SamplingParams = GREEDY, **options: Any) -> Evaluator:
    return registry.create(EvaluatorSpec(kind="accuracy", options=options), 0, sampling)


def _result(sample_id: str, verdict: Verdict, score: float | None = None, repeat: int = 0) -> SampleResult:
    return SampleResult(evaluator="accuracy", sample_id=sample_id, repeat=repeat, verdict=verdict, score=score)


@dataclasses.dataclass
class _Says:
    """A grader that says one thing."""

    grade_: Grade

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        return self.grade_


def _judged_by(grade: Grade) -> Accuracy:
    """What has a user's own grader judge."""
    says = GraderType(name="says", description="It says one thing.", make=lambda options: _Says(grade))
    return Accuracy(grader="says", sampling=GREEDY, grading=GradingParts(custom_graders={"says": says}))


async def test_an_answer_is_sampled_and_graded() -> None:
    """The input is the prompt, the request's parameters are used, and the outcome keeps what was said and found."""
    sampling = Sampling(answers=[" 46\n"])

    outcome = await _accuracy().run(SAMPLE, context(Double(sampling=sampling)))

    assert sampling.asked == [([ord(character) for character in "12+34="], GREEDY)]
    assert (outcome.verdict, outcome.score) == (Verdict.CORRECT, 1.0)
    assert (outcome.output, outcome.extracted, outcome.method) == (" 46\n", "46", "exact")
    assert (outcome.stop_reason, outcome.output_tokens, outcome.problem) == ("stop", 4, None)


@pytest.mark.parametrize(("temperature", "seed"), [(0.0, 3), (0.7, 99)])
async def test_random_sampling_uses_the_samples_own_seed(temperature: float, seed: int) -> None:
    """Above temperature 0 the seed is the one that the sample and the repeat determine."""
    sampling = Sampling()

    await _accuracy(dataclasses.replace(GREEDY, temperature=temperature)).run(
        SAMPLE, context(Double(sampling=sampling), seed=99)
    )

    assert sampling.asked[0][1].seed == seed


async def test_the_grader_and_its_options_are_those_asked_for() -> None:
    """Another grader finds the answer in a sentence, within its tolerance."""
    evaluator = _accuracy(grader="numeric", grader_options={"absolute_tolerance": 1})

    outcome = await evaluator.run(SAMPLE, context(Double(sampling=Sampling(answers=["It is 47."]))))

    assert (outcome.verdict, outcome.extracted, outcome.method) == (Verdict.CORRECT, "47", "number")


async def test_an_undecided_answer_says_why() -> None:
    """Without a target nothing is right or wrong: the sample is unscored, with the reason as its problem."""
    outcome = await _accuracy().run(Sample(id="a", input="?"), context(Double(sampling=Sampling())))

    assert (outcome.verdict, outcome.score) == (Verdict.UNDECIDED, None)
    assert outcome.problem is not None
    assert (outcome.problem.reason, outcome.problem.message) == ("UNDECIDED", "there is no target")


async def test_hedges_count_as_wrong() -> None:
    """Of four answers of which three name several choices or deny one, a quarter is right; the method says which."""
    sample = Sample(id="s", input="?", targets=("B",), choices=("red", "blue", "green"))
    evaluator = _accuracy(grader="multiple_choice")
    answers = ["B or C", "It is not B.", "blue or green", "B"]

    outcomes = [await evaluator.run(sample, context(Double(sampling=Sampling(answers=[each])))) for each in answers]

    assert [outcome.score for outcome in outcomes] == [0.0, 0.0, 0.0, 1.0]
    assert [outcome.method for outcome in outcomes] == ["several_choices", "choice_denied", "several_choices", "choice"]
    assert all(outcome.problem is None for outcome in outcomes)


async def test_a_grader_that_fails_leaves_an_error() -> None:
    """A grader's own failure is ERROR, never a wrong answer."""
    evaluator = _judged_by(Grade(verdict=Verdict.ERROR, score=0.0, reason="it broke"))

    outcome = await evaluator.run(SAMPLE, context(Double(sampling=Sampling())))

    assert (outcome.verdict, outcome.score) == (Verdict.ERROR, None)
    assert outcome.problem is not None
    assert outcome.problem.reason == "GRADER_FAILED"


@rows("score", [None, -0.1, 1.1, float("nan")])
async def test_a_score_that_is_none_is_not_counted(score: float | None) -> None:
    """A scored verdict with a score outside of 0 to 1 is a bug of the grader, not a metric."""
    evaluator = _judged_by(Grade(verdict=Verdict.PARTIAL, score=score))

    with pytest.raises(InternalError) as caught:
        await evaluator.run(SAMPLE, context(Double(sampling=Sampling())))

    assert caught.value.reason == "BAD_SCORE"


async def test_invalid_code_points_are_replaced() -> None:
    """What is no text in the model's output becomes U+FFFD, and is counted."""
    outcome = await _accuracy().run(SAMPLE, context(Double(sampling=Sampling(answers=["4\ud800\udc00\udfff6"]))))

    assert outcome.output == "4\ufffd\ufffd\ufffd6"
    assert outcome.measurements == {"replaced_code_points": 3.0}


@rows(
    ("output", "stop_reason", "verdict", "extracted", "method"),
    [
        ("<think>12+34</think>\n46", "stop", Verdict.CORRECT, "46", "exact"),
        ("<think>46</think>47", "stop", Verdict.INCORRECT, "47", "exact"),
        ("so it is 46</think>46", "stop", Verdict.CORRECT, "46", "exact"),
        ("<think>46", "length", Verdict.INCORRECT, "", NO_ANSWER_CUT),
        ("<think>46", "stop", Verdict.INCORRECT, "", NO_ANSWER_OPEN),
        ("<think>46</think>", "stop", Verdict.INCORRECT, "", NO_ANSWER),
    ],
)
async def test_thoughts_are_kept_but_not_graded(
    output: str, stop_reason: str, verdict: Verdict, extracted: str, method: str
) -> None:
    """The record holds the whole output; an answer that is not there is wrong, and whether it was cut is said."""
    sampling = Sampling(answers=[output], stop_reason=stop_reason)

    outcome = await _accuracy().run(SAMPLE, context(Double(sampling=sampling)))

    assert (outcome.verdict, outcome.score) == (verdict, float(verdict is Verdict.CORRECT))
    assert (outcome.extracted, outcome.method) == (extracted, method)
    assert (outcome.output, outcome.stop_reason, outcome.output_tokens) == (output, stop_reason, len(output))


async def test_thoughts_are_no_answer_though_an_empty_one_were_right() -> None:
    """A target that is empty is met by an empty answer, not by thought; where there is none, nothing is decided."""
    thought = Double(sampling=Sampling(answers=["<think>"]))
    silence = Double(sampling=Sampling(answers=[""]))
    empty = Sample(id="a", input="?", targets=("",))

    expected = (await _accuracy().run(empty, context(silence))).verdict
    assert (await _accuracy().run(Sample(id="a", input="?"), context(thought))).verdict is Verdict.UNDECIDED
    assert (await _accuracy().run(empty, context(thought))).verdict is not Verdict.CORRECT
    assert expected in (Verdict.CORRECT, Verdict.UNDECIDED)


async def test_thoughts_are_graded_where_they_are_kept() -> None:
    """Whoever grades the thoughts themselves has them."""
    sampling = Sampling(answers=["<think>12+34</think>46"])

    outcome = await _accuracy(thinking="keep").run(SAMPLE, context(Double(sampling=sampling)))

    assert (outcome.verdict, outcome.extracted) == (Verdict.INCORRECT, "<think>12+34</think>46")


async def test_the_renderer_says_how_to_ask_and_what_the_answer_is() -> None:
    """role_colon: the form, its stop sequence, and an answer without what surrounds it; the record has it all."""
    sampling = Sampling(answers=[" 46\n\nUser: 1+1="])

    outcome = await _accuracy(renderer="role_colon").run(SAMPLE, context(Double(sampling=sampling)))

    ((tokens, params),) = sampling.asked
    assert "".join(map(chr, tokens)) == "User: 12+34=\n\nAssistant:"
    assert params == dataclasses.replace(GREEDY, stop=("\n\nUser:",))
    assert (outcome.verdict, outcome.extracted) == (Verdict.CORRECT, "46")
    assert outcome.output == " 46\n\nUser: 1+1="


def test_a_conversation_that_is_never_asked_is_refused_at_the_start() -> None:
    """The renderer raw takes no roles, whatever the model."""
    sample = Sample(id="a", input=Conversation((ChatMessage("system", "be"), ChatMessage("user", "hi"))))

    _accuracy().check_sample(sample)
    with pytest.raises(InvalidField, match=r"^conversation"):
        _accuracy(renderer="raw").check_sample(sample)


@pytest.mark.parametrize("size", [MAX_EXTRACTED_CHARS - 1, MAX_EXTRACTED_CHARS, MAX_EXTRACTED_CHARS + 1])
async def test_what_is_extracted_is_cut(size: int) -> None:
    """The output is kept whole; what the grader took of it is kept up to the limit."""
    outcome = await _accuracy().run(SAMPLE, context(Double(sampling=Sampling(answers=["x" * size]))))

    assert len(outcome.output) == size
    assert len(outcome.extracted) == min(size, MAX_EXTRACTED_CHARS)
    assert outcome.extracted.endswith("…") is (size > MAX_EXTRACTED_CHARS)


@pytest.mark.parametrize("answers", [[], ["46", "46"]])
async def test_another_number_of_answers_is_an_error(answers: list[str]) -> None:
    """One answer is asked for: none, or two, is nonsense."""
    with pytest.raises(BackendError) as caught:
        await _accuracy().run(SAMPLE, context(Double(sampling=Sampling(answers=answers))))

    assert (caught.value.reason, caught.value.retryable) == ("BACKEND_ANSWER", False)


def test_a_model_that_cannot_generate_is_refused() -> None:
    """The evaluator says so before the first sample."""
    with pytest.raises(FailedPrecondition) as caught:
        _accuracy().check(Double(training=Training([])))

    assert caught.value.reason == "MISSING_CLIENT"
    _accuracy().check(Double(sampling=Sampling()))


def test_sampling_must_be_given() -> None:
    """How long an answer may be is for the request to say."""
    with pytest.raises(InvalidField, match="max_tokens") as caught:
        registry.create(EvaluatorSpec(kind="accuracy"), 2, None)

    assert caught.value.field == "sampling"


def test_unscored_samples_are_not_wrong() -> None:
    """ERROR and UNDECIDED count in accuracy_strict alone, even where a score came along."""
    results = [
        _result("a", Verdict.CORRECT, 1.0),
        _result("b", Verdict.PARTIAL, 0.5),
        _result("c", Verdict.UNDECIDED, 0.0),
        _result("d", Verdict.ERROR),
    ]

    values = _accuracy().aggregate(iter(results)).values

    assert (values["accuracy"], values["accuracy_strict"]) == (1.5 / 2, 1.5 / 4)


def test_every_sample_failing_leaves_accuracy_undefined() -> None:
    """No answer scored is no accuracy; only the strict one, where they count as wrong, has a number."""
    metrics = _accuracy().aggregate([_result("a", Verdict.ERROR), _result("b", Verdict.ERROR)])

    keys = set(registry.info("accuracy").keys) - {"accuracy_strict"}
    assert metrics.values == {"accuracy_strict": 0.0}
    assert metrics.undefined == dict.fromkeys(keys, "no sample was scored")


def test_repeats_are_clustered_by_sample() -> None:
    """Four equal answers to each of two samples are no more certain than one answer to each."""
    evaluator = _accuracy(samples_per_prompt=4)
    once = [_result("a", Verdict.CORRECT, 1.0), _result("b", Verdict.INCORRECT, 0.0)]
    often = [_result(one.sample_id, one.verdict, one.score, repeat) for one in once for repeat in range(4)]

    assert evaluator.repeats == 4
    assert evaluator.aggregate(often).values["accuracy_stderr"] == pytest.approx(
        evaluator.aggregate(once).values["accuracy_stderr"]
    )


@pytest.mark.parametrize(("labels", "verdict"), [(("1", "2"), Verdict.CORRECT), ((), Verdict.UNDECIDED)])
async def test_the_grader_gets_the_labels_of_the_choices(labels: tuple[str, ...], verdict: Verdict) -> None:
    """A target that is a label is its choice; without labels it names none."""
    sample = Sample(id="s", input="q", targets=("2",), choices=("x", "y"), choice_labels=labels)

    outcome = await _accuracy(grader="multiple_choice").run(sample, context(Double(sampling=Sampling(answers=["y"]))))

    assert outcome.verdict is verdict
