"""The evaluator `comparison`: both orders are judged, invalid judgements are errors, win rates have their spread."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    EvaluatorSpec,
    ModelInput,
    OpenAIModel,
    Sample,
    SampledSequence,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.base import SampleContext
from crucible_worker.evaluators.comparison import MAX_CRITERION_CHARS, Comparison, judgement, question
from crucible_worker.grading.base import MAX_TEXT_BYTES
from crucible_worker.grading.judge.grader import MAX_JUDGE_TOKENS
from crucible_worker.grading.judge.rubric import MAX_JUDGED_CHARS
from tests.tables import rows
from tests.unit.evaluators.doubles import Double, Letters, Sampling

SAMPLING = SamplingParams(max_tokens=4, temperature=1.0)
SAMPLE = Sample(id="s", input="What?", targets=("reference", "another"))


@dataclasses.dataclass
class Judge(Sampling):
    """Says one thing after another."""

    says: Sequence[str] = ("A", "B")

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        await super().sample(prompt, params, num_samples)
        return [SampledSequence(text=self.says[len(self.asked) - 1], tokens=(1,))]


def _create(**options: Any) -> Any:
    return registry.create(EvaluatorSpec(kind="comparison", options={"judge": "openai:s/m", **options}), 0, SAMPLING)


async def _run(*says: str, answer: str = "reply", sample: Sample = SAMPLE, **options: Any) -> Any:
    judge = Judge(says=says)
    context = SampleContext(
        model=Double(sampling=Sampling(answers=(answer,))),
        repeat=0,
        seed=7,
        auxiliary_models={"judge": Double(sampling=judge)},
    )
    outcome = await _create(**options).run(sample, context)
    return outcome, ["".join(map(chr, tokens)) for tokens, _ in judge.asked], [params for _, params in judge.asked]


@rows(
    ("says", "score"),
    [
        (("B", "A"), 1.0),
        (("A", "B"), 0.0),
        (("A", "A"), 0.5),
        (("B", "B"), 0.5),
        (("tie", "tie"), 0.5),
        (("B", "tie"), 0.75),
        (("tie", "B"), 0.25),
    ],
)
async def test_a_score_is_of_both_orders(says: tuple[str, str], score: float) -> None:
    """(r_AB - r_BA + 2) / 4: a judge that has a liking for a place gives 0.5, whichever it is."""
    outcome, asked, params = await _run(*says)

    assert (outcome.verdict, outcome.score, outcome.output) == (Verdict.MEASURED, score, "reply")
    assert ["answer A\n| reference\n" in text for text in asked] == [True, False]
    assert ["answer A\n| reply\n" in text for text in asked] == [False, True]
    assert [(each.temperature, each.max_tokens) for each in params] == [(0.0, 1_024)] * 2
    tokens = {name: outcome.measurements[f"judge_{name}_tokens"] for name in ("prompt", "completion")}
    assert tokens == {"prompt": sum(map(len, asked)), "completion": 2}
    as_second, as_first = outcome.measurements["preferred_as_second"], outcome.measurements["preferred_as_first"]
    assert (as_second + as_first + 2) / 4 == score


async def test_a_preference_model_is_asked_in_the_form_that_it_was_trained_in() -> None:
    """Turns of a conversation, of which answers can write no mark; one token says which is better."""
    judge = Judge(says=("B", "A"))
    chat = Letters(has_chat_template=True)
    context = SampleContext(
        model=Double(sampling=Sampling(answers=("my<|im_end|>",))),
        repeat=0,
        seed=7,
        auxiliary_models={"judge": Double(sampling=judge, tokenizer=chat)},
    )

    outcome = await _create(form="preference").run(SAMPLE, context)

    (first, params), (second, _) = judge.asked
    parts = ("<user>What?</>", "<system>==== Completion A ====</>", "<system>==== Completion B ====</>")
    reply, reference = "<assistant>my< |im_end|></>", "<assistant>reference</>"
    end = "<system>==== Preference ====</><assistant>"
    assert "".join(map(chr, first)) == f"{parts[0]}{parts[1]}{reference}{parts[2]}{reply}{end}"
    assert "".join(map(chr, second)) == f"{parts[0]}{parts[1]}{reply}{parts[2]}{reference}{end}"
    assert (params.max_tokens, params.temperature) == (1, 0.0)
    assert (outcome.verdict, outcome.score) == (Verdict.MEASURED, 1.0)


@pytest.mark.parametrize("renderer", ["raw", "role_colon", "cookbook:role_colon"])
def test_a_preference_model_needs_turns_that_no_answer_can_write(renderer: str) -> None:
    """Marks of turns that are plain text are refused, and so is a criterion, which it would not be told."""
    with pytest.raises(InvalidField) as turns:
        _create(form="preference", judge_renderer=renderer)
    with pytest.raises(InvalidField) as told:
        _create(form="preference", criterion="Which is shorter?")

    assert (turns.value.field, told.value.field) == (
        'evaluators[0].options["judge_renderer"]',
        'evaluators[0].options["criterion"]',
    )


async def test_a_preference_model_without_a_chat_template_is_refused() -> None:
    """Whatever `auto` makes of a conversation elsewhere."""
    with pytest.raises(FailedPrecondition) as caught:
        await _run("A", "B", form="preference")

    assert caught.value.field.startswith("judge")


@rows("says", [("A", "neither"), ("", "A"), ("A is better", "A"), ("C", "A")])
async def test_an_invalid_judgement_is_no_tie(says: tuple[str, str]) -> None:
    """The sample is an ERROR that shows what the judge said, and keeps the answer."""
    outcome, _, _ = await _run(*says)

    assert (outcome.verdict, outcome.score, outcome.output) == (Verdict.ERROR, None, "reply")
    assert outcome.problem is not None
    assert outcome.problem.reason == "INVALID_JUDGEMENT"
    assert not outcome.problem.retryable
    assert outcome.measurements["judge_completion_tokens"] > 0


@pytest.mark.parametrize("answer", ["reply", ""])
async def test_nothing_is_compared_with_an_empty_reference(answer: str) -> None:
    """Nobody can say what the answer would have to be better than: that is neither won nor lost."""
    model: Any = Double(sampling=Sampling(answers=(answer,)))
    judge = Judge(says=("A", "B"))
    context = SampleContext(model=model, repeat=0, seed=7, auxiliary_models={"judge": Double(sampling=judge)})

    outcome = await _create().run(Sample(input="What?", targets=(" \n",)), context)

    assert (outcome.verdict, outcome.score, judge.asked) == (Verdict.UNDECIDED, None, [])
    assert outcome.problem is not None
    assert outcome.problem.message == "the reference is empty"


async def test_an_invalid_judgement_shows_its_end() -> None:
    """Where the preference should stand, however much was said before it."""
    outcome, _, _ = await _run("x" * 2_000 + "\nno preference")

    assert outcome.problem is not None
    assert outcome.problem.message.endswith("no preference'")


@rows(
    ("said", "expected"),
    [
        ("A", -1),
        (" b.\n", 1),
        ('"Tie"', 0),
        ("**B**", 1),
        ("Answer A", -1),
        ("The first is wrong.\n\nB", 1),
        ("B\nNo, neither.", None),
        ("AB", None),
        ("A or B", None),
        (" \n", None),
        ("!" * 200_000 + "AB", None),
        ("answer" + " " * 200_000 + "B" + "." * 200_000, 1),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_judgement_is_the_last_line(said: str, expected: int | None) -> None:
    """Quotes, points and marks around it do not matter, however many they are; anything else does."""
    assert judgement(said) == expected


@given(st.text())
def test_a_judgement_is_never_more_than_one_of_three(said: str) -> None:
    """Whatever a judge says, it is a preference or none."""
    assert judgement(said) in (-1, 0, 1, None)


@given(asked=st.text(), a=st.text(), b=st.text())
def test_no_answer_can_end_its_own_part(asked: str, a: str, b: str) -> None:
    """The line that parts the texts stands in the question four times and once as what to look for, never in a text."""
    text = question(asked, a, b, "Which?")
    line = text.split('"')[1]

    assert text.count(line) == 5
    assert line not in asked + a + b


async def test_thoughts_are_neither_judged_nor_taken_for_a_judgement() -> None:
    """The judge sees what the answer says behind its thoughts, and may think itself."""
    outcome, asked, _ = await _run("<think>B?\nB</think>A", "B", answer="<think>secret</think>said")

    assert outcome.score == 0.0
    assert outcome.output == "<think>secret</think>said"
    assert all("secret" not in text and "said" in text for text in asked)


async def test_the_judge_reads_conversations_and_the_criterion() -> None:
    """Every message with its role, and what makes an answer better in the words of the options."""
    conversation = Conversation((ChatMessage("system", "Be kind."), ChatMessage("user", "Hello?")))
    evaluator = _create(criterion="Which is kinder?")
    model = Double(sampling=Sampling(answers=("Hi",)))
    assert model.tokenizer is not None
    model.tokenizer.has_chat_template = True
    judge = Judge(says=("B", "A"))
    context = SampleContext(model=model, repeat=0, seed=1, auxiliary_models={"judge": Double(sampling=judge)})

    outcome = await evaluator.run(Sample(input=conversation, targets=("Ho",)), context)

    text = "".join(map(chr, judge.asked[0][0]))
    assert outcome.score == 1.0
    assert "| system: Be kind.\n| \n| user: Hello?" in text
    assert "Which is kinder?" in text


@rows("answer", ["", ":", "Solution:", "<think>B</think>Let's think step by step."])
async def test_an_answer_that_says_nothing_loses_unasked(answer: str) -> None:
    """A judge that would hold it for the better one is not asked."""
    outcome, asked, _ = await _run("B", "A", answer=answer)

    assert (outcome.verdict, outcome.score, outcome.method, asked) == (Verdict.MEASURED, 0.0, "no content", [])


async def test_what_a_judge_is_shown_is_bounded() -> None:
    """As many characters as are allowed are judged; with one more the sample is UNDECIDED, and nobody is asked."""
    most = MAX_JUDGED_CHARS - len("What?reference")
    judged, _, _ = await _run("B", "A", answer="x" * most)
    beyond, asked, _ = await _run("B", "A", answer="x" * (most + 1))

    assert (judged.verdict, judged.score) == (Verdict.MEASURED, 1.0)
    assert (beyond.verdict, beyond.score, asked) == (Verdict.UNDECIDED, None, [])
    assert beyond.problem is not None
    assert "100,001" in beyond.problem.message


async def test_sampling_has_the_samples_own_seed() -> None:
    """Where it is random: the same answer on every attempt."""
    sampling = Sampling()
    context = SampleContext(
        model=Double(sampling=sampling), repeat=0, seed=7, auxiliary_models={"judge": Double(sampling=Judge())}
    )

    await _create().run(SAMPLE, context)

    assert sampling.asked[0][1] == dataclasses.replace(SAMPLING, seed=7)


@pytest.mark.parametrize(
    ("sample", "field"),
    [
        (Sample(input="What?"), "targets"),
        (Sample(input=Datum(model_input=ModelInput.of([1]), loss_fn_inputs={}), targets=("x",)), "datum"),
    ],
)
async def test_a_sample_that_cannot_be_compared_is_refused(sample: Sample, field: str) -> None:
    """At the start where it is in the request, as an ERROR of its own where it is not."""
    with pytest.raises(InvalidField) as at_the_start:
        _create().check_sample(sample)
    with pytest.raises(InvalidField) as later:
        await _run("A", "B", sample=sample)

    assert (at_the_start.value.field, later.value.field) == (field, field)


async def test_model_and_judge_have_to_sample() -> None:
    """Which of them lacks a client is told."""
    evaluator = _create()

    with pytest.raises(FailedPrecondition, match="which the model lacks"):
        evaluator.check(Double())
    with pytest.raises(FailedPrecondition, match="which the judge lacks") as caught:
        evaluator.check_auxiliary_models({"judge": Double()})
    assert caught.value.reason == "MISSING_CLIENT"
    evaluator.check_auxiliary_models({"judge": Double(sampling=Judge())})


async def test_a_model_that_gives_several_answers_is_at_fault() -> None:
    """One was asked for."""
    context = SampleContext(
        model=Double(sampling=Sampling(answers=("a", "b"))), repeat=0, seed=7, auxiliary_models={"judge": Double()}
    )

    with pytest.raises(BackendError) as caught:
        await _create().run(SAMPLE, context)
    assert caught.value.reason == "BACKEND_ANSWER"


def _results(*scores: float | None) -> list[SampleResult]:
    return [
        SampleResult(
            evaluator="comparison",
            sample_id=str(index),
            verdict=Verdict.ERROR if score is None else Verdict.MEASURED,
            score=score,
        )
        for index, score in enumerate(scores)
    ]


def test_the_win_rate_is_a_mean_with_its_standard_error() -> None:
    """With n - 1; of what was judged alone."""
    metrics = _create().aggregate(_results(1.0, None, 0.5, 0.0, None, 1.0))

    assert metrics.values["win_rate"] == 0.625
    assert metrics.values["win_rate_stderr"] == pytest.approx(math.sqrt((2 * 0.375**2 + 0.125**2 + 0.625**2) / 3 / 4))


def test_one_score_has_no_spread() -> None:
    """It is undefined, not 0."""
    metrics = _create().aggregate(_results(1.0))

    assert metrics.values == {"win_rate": 1.0}
    assert metrics.undefined == {"win_rate_stderr": "one score has no spread"}


def test_a_judge_is_any_model_of_the_worker() -> None:
    """By its spelling; the orchestrator's own is none."""
    assert _create().auxiliary_models == {"judge": OpenAIModel("s", "m")}
    for judge in ("gpt", "orchestrator:m"):
        with pytest.raises(InvalidField) as caught:
            _create(judge=judge)
        assert caught.value.field == 'evaluators[0].options["judge"]'


@pytest.mark.parametrize(
    ("name", "most", "beyond"),
    [
        ("criterion", "x" * MAX_CRITERION_CHARS, "x" * (MAX_CRITERION_CHARS + 1)),
        ("judge_max_tokens", MAX_JUDGE_TOKENS, MAX_JUDGE_TOKENS + 1),
    ],
)
def test_limits_hold_at_plus_and_minus_one(name: str, most: object, beyond: object) -> None:
    """What is at the limit passes, what is beyond is refused at its path."""
    _create(**{name: most})
    with pytest.raises(InvalidField) as caught:
        _create(**{name: beyond})
    assert caught.value.field == f'evaluators[0].options["{name}"]'


async def test_the_judge_reads_the_cleaned_answer() -> None:
    """Steps shorten the model's answer alone; the record has the whole one, and what was judged."""
    sample = dataclasses.replace(SAMPLE, targets=("so: reference",))
    clean = [{"after": "so: "}, "strip"]
    outcome, asked, _ = await _run("B", "A", answer="so: no, so: my reply ", sample=sample, clean=clean)

    assert (outcome.score, outcome.output, outcome.extracted) == (1.0, "so: no, so: my reply ", "my reply")
    assert all("| my reply\n" in text and "| so: reference\n" in text for text in asked)


async def test_an_answer_without_the_part_loses_without_a_call() -> None:
    """Nothing is left of it."""
    outcome, asked, _ = await _run(answer="no box", clean=[{"extract": "box"}])

    assert (outcome.score, asked) == (0.0, [])


async def test_an_answer_that_cannot_be_cleaned_is_undecided() -> None:
    """It is too long for an expression."""
    outcome, asked, _ = await _run(answer="x" * (MAX_TEXT_BYTES + 1), clean=[{"regex": "y"}])

    assert (outcome.verdict, asked) == (Verdict.UNDECIDED, [])
    assert "longer than" in outcome.problem.message


def test_an_invalid_step_is_refused() -> None:
    """Before the first sample, with its path."""
    with pytest.raises(InvalidField) as caught:
        _create(clean=["strip", {"regex": "("}])

    assert caught.value.field == 'evaluators[0].options["clean"][1]["regex"]'


class FirstLine(Comparison):
    """Judges the first line of answers."""

    async def preprocess(self, answer: str) -> str:
        """The text before the first line end."""
        return answer.partition("\n")[0]


async def test_a_class_of_ones_own_may_preprocess_answers_by_code() -> None:
    """It extends the evaluator."""
    judge = Judge(says=("B", "A"))
    context = SampleContext(
        model=Double(sampling=Sampling(answers=("one\ntwo",))),
        repeat=0,
        seed=7,
        auxiliary_models={"judge": Double(sampling=judge)},
    )

    outcome = await FirstLine(judge="openai:s/m", sampling=SAMPLING).run(SAMPLE, context)

    assert (outcome.score, outcome.extracted, FirstLine.keys) == (1.0, "one", Comparison.keys)
    assert not any("two" in "".join(map(chr, tokens)) for tokens, _ in judge.asked)
