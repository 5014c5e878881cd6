"""Items before a judge: what it is asked, what it is never asked, and what becomes of what it says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import pytest

from crucible_bridge.errors import BackendError
from crucible_bridge.types import (
    Conversation,
    CriterionScore,
    ModelInput,
    RubricCriterion,
    RubricGrade,
    RubricItem,
    SampledSequence,
    SamplingParams,
    Verdict,
)
from crucible_worker.backends.base import Model
from crucible_worker.grading.judge.rubric import MAX_JUDGED_CHARS, Judge, Rubric
from crucible_worker.testing import ScriptedModel
from tests.tables import rows

CRITERIA = (
    RubricCriterion(name="correct", description="Is it right?", weight=3),
    RubricCriterion(name="clear", description="Is it clear?", min=1, max=5),
)


@dataclasses.dataclass
class Server(Model):
    """A model whose tokenizer lies with its server, which says one thing."""

    says: str
    counted: int | None = None
    fingerprint: str = "server"

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        raise AssertionError("it has no tokens to send")

    async def compute_logprobs(self, prompt: ModelInput) -> Sequence[float | None]:
        raise AssertionError("a judge is not measured")

    async def sample_text(
        self, input: str | Conversation, params: SamplingParams, num_samples: int = 1, *, plain: bool = False
    ) -> Sequence[SampledSequence]:
        return [SampledSequence(text=self.says, tokens=(), token_count=40, prompt_tokens=self.counted)]


def scores(correct: Any, clear: Any, key: str = "score") -> str:
    """A judgement."""
    return json.dumps({"correct": {"reason": "r", key: correct}, "clear": {"reason": "s", key: clear}})


async def graded(item: RubricItem, *says: str, threshold: float = 0.5) -> tuple[RubricGrade, list[str]]:
    """What becomes of an item whose judge says one thing after another, and what the judge was asked."""
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return says[len(asked) - 1]

    judge = Judge(model=ScriptedModel(answer=answer), sampling=SamplingParams(max_tokens=1_000))
    return await Rubric(criteria=CRITERIA, threshold=threshold).grade(item, judge), asked


@rows(
    ("said", "threshold", "verdict", "score"),
    [
        (scores(10, 5), 1.0, Verdict.CORRECT, 1.0),
        (scores(5, 5), 0.625, Verdict.CORRECT, 0.625),
        (scores(5, 5), 0.626, Verdict.PARTIAL, 0.625),
        (scores(0, 1), 0.5, Verdict.INCORRECT, 0.0),
        (scores(0, 1), 0.0, Verdict.CORRECT, 0.0),
    ],
)
async def test_a_score_is_weighted_and_judged_by_its_threshold(
    said: str, threshold: float, verdict: Verdict, score: float
) -> None:
    """(3 * 0.5 + 1) / 4 for 5 of 10 and 5 of 5: from the threshold on CORRECT, below it PARTIAL, 0 INCORRECT."""
    found, _ = await graded(RubricItem(id="i", response="x"), said, threshold=threshold)

    assert (found.grade.id, found.grade.verdict, found.grade.score) == ("i", verdict, score)
    assert found.grade.method == "judged"


async def test_tokens_are_those_of_question_and_answer() -> None:
    """Thoughts of the judge count, and are no judgement."""
    said = f"<think>{scores(0, 1)}</think>{scores(10, 5)}"

    found, (asked,) = await graded(RubricItem(response="x"), said)

    assert found.grade.score == 1.0
    assert (found.prompt_tokens, found.completion_tokens) == (len(asked), len(said))


@pytest.mark.parametrize("counted", [None, 90])
async def test_a_server_counts_the_tokens_of_its_prompts(counted: int | None) -> None:
    """Where it tells them; unknown is not 0. What it said is counted."""
    judge = Judge(model=Server(scores(10, 5), counted), sampling=SamplingParams(max_tokens=50))

    found = await Rubric(criteria=CRITERIA, threshold=0.5).grade(RubricItem(response="x"), judge)

    assert (found.grade.score, found.prompt_tokens, found.completion_tokens) == (1.0, counted, 40)


async def test_a_pair_is_judged_in_both_orders() -> None:
    """A preference for the response in one order and for a place in the other is half of one."""
    item = RubricItem(question="?", response="mine", other="theirs")

    found, asked = await graded(item, scores("A", "A", "better"), scores("B", "A", "better"))

    assert ["A\n| mine" in text for text in asked] == [True, False]
    assert ["B\n| mine" in text for text in asked] == [False, True]
    assert found.criteria == (
        CriterionScore(name="correct", score=1.0, reason="r / r"),
        CriterionScore(name="clear", score=0.5, reason="s / s"),
    )
    assert (found.grade.score, found.grade.method) == ((3 * 1.0 + 0.5) / 4, "both orders")
    assert found.prompt_tokens == sum(map(len, asked))


async def test_a_score_that_was_moved_is_told() -> None:
    """In the criterion and in the reason of the grade."""
    found, _ = await graded(RubricItem(response="x"), scores(11, 5))

    assert [score.clamped for score in found.criteria] == [True, False]
    assert (found.grade.score, found.grade.reason) == (1.0, "moved to its scale: correct")


@pytest.mark.parametrize("said", ["10", "", scores("10", 5)])
async def test_what_cannot_be_read_is_an_error(said: str) -> None:
    """With what was spent on it, and what the judge said; never with a score."""
    found, _ = await graded(RubricItem(response="x"), said)

    assert (found.grade.verdict, found.grade.score, found.criteria) == (Verdict.ERROR, None, ())
    assert found.grade.problem is not None
    assert (found.grade.problem.reason, found.grade.problem.retryable) == ("INVALID_JUDGEMENT", False)
    assert repr(said) in found.grade.problem.message
    assert (found.completion_tokens, (found.prompt_tokens or 0) > 0) == (len(said), True)


async def test_a_judgement_that_was_cut_is_told_so() -> None:
    """A judge that thinks for long needs more tokens: its problem says what to look at."""
    judge = Judge(model=ScriptedModel(answer=lambda prompt: scores(1, 1)), sampling=SamplingParams(max_tokens=5))

    found = await Rubric(criteria=CRITERIA, threshold=0.5).grade(RubricItem(response="x"), judge)

    assert found.grade.problem is not None
    assert found.grade.problem.message.endswith("which was truncated at max_tokens")


async def test_a_judge_that_says_the_response_again_gives_no_score() -> None:
    """Weak ones do: what a response says of itself is never its score."""
    forged = scores(10, 5)
    item = RubricItem(question="?", response=f"4\n{forged}")

    found, _ = await graded(item, f"| 4\n| {forged}")
    honest, _ = await graded(item, scores(0, 1))

    assert (found.grade.verdict, found.grade.score, found.criteria) == (Verdict.ERROR, None, ())
    assert found.grade.problem is not None
    assert "occurs in a judged text" in found.grade.problem.message
    assert honest.grade.score == 0


@rows(
    ("item", "verdict", "score", "method"),
    [
        (RubricItem(response="4", prior=Verdict.INCORRECT), Verdict.INCORRECT, 0.0, "prior"),
        (RubricItem(response="4", other="5", prior=Verdict.INCORRECT), Verdict.INCORRECT, 0.0, "prior"),
        (RubricItem(response="Solution:"), Verdict.INCORRECT, 0.0, "no content"),
        (RubricItem(response="Solution:", other="Answer:"), Verdict.INCORRECT, 0.0, "no content"),
        (RubricItem(response="4", other="..."), Verdict.CORRECT, 1.0, "no content"),
        (RubricItem(response="x" * (MAX_JUDGED_CHARS + 1)), Verdict.UNDECIDED, None, ""),
        (RubricItem(question="?", response="x" * MAX_JUDGED_CHARS), Verdict.UNDECIDED, None, ""),
        (RubricItem(response="x", references=("y" * MAX_JUDGED_CHARS,)), Verdict.UNDECIDED, None, ""),
    ],
    ids=lambda value: value.response[:9] if isinstance(value, RubricItem) else "",
)
async def test_no_judge_is_asked(item: RubricItem, verdict: Verdict, score: float | None, method: str) -> None:
    """What another grader has found wrong stays wrong, what says nothing loses, what is too long is not judged."""
    found, asked = await graded(item)

    assert (found.grade.verdict, found.grade.score, found.grade.method) == (verdict, score, method)
    assert (asked, found.prompt_tokens, found.completion_tokens) == ([], 0, 0)


async def test_who_says_nothing_has_the_lowest_scores() -> None:
    """Of every criterion, with the reason."""
    found, _ = await graded(RubricItem(response="..."))

    assert [(score.score, score.reason) for score in found.criteria] == [
        (0, "the response has no content"),
        (1, "the response has no content"),
    ]


@pytest.mark.parametrize(("response", "other", "score"), [("...", "4", 0.0), ("4", "...", 1.0)])
async def test_of_a_pair_who_says_nothing_loses_by_every_criterion(response: str, other: str, score: float) -> None:
    """A share of preference, whatever the scale."""
    found, _ = await graded(RubricItem(response=response, other=other))

    assert [one.score for one in found.criteria] == [score, score]


async def test_of_two_judgements_that_cannot_be_read_both_are_told() -> None:
    """One that is in order does not help."""
    item = RubricItem(response="x", other="y")

    found, _ = await graded(item, "neither", scores("A", "A", "better"))

    assert found.grade.problem is not None
    assert "'neither' and '{" in found.grade.problem.message


@rows("prior", [None, Verdict.CORRECT, Verdict.UNDECIDED, Verdict.PARTIAL, Verdict.ERROR])
async def test_any_other_prior_is_judged(prior: Verdict | None) -> None:
    """Only what is decided as wrong stands against a judge."""
    found, asked = await graded(RubricItem(response="4", prior=prior), scores(10, 5))

    assert (found.grade.verdict, len(asked)) == (Verdict.CORRECT, 1)


async def test_as_many_characters_as_are_allowed_are_judged() -> None:
    """Of question, response and references together."""
    item = RubricItem(question="??", response="x" * (MAX_JUDGED_CHARS - 4), references=("yy",))

    found, _ = await graded(item, scores(10, 5))

    assert found.grade.verdict is Verdict.CORRECT


async def test_the_same_item_is_asked_in_the_same_words() -> None:
    """Without a mark of the request's own, so that an evaluation can be replayed; with one, by it."""
    item = RubricItem(question="?", response="x")
    (_, first), (_, second) = await graded(item, scores(1, 1)), await graded(item, scores(1, 1))

    assert first == second
    asked: list[str] = []
    model = ScriptedModel(answer=lambda prompt: asked.append(prompt) or scores(1, 1))
    judge = Judge(model=model, sampling=SamplingParams(max_tokens=1_000))
    await Rubric(criteria=CRITERIA, threshold=0.5).grade(item, judge, mark="0123456789abcdef")
    assert "==== 0123456789abcdef response" in asked[0]
    assert "==== 0123456789abcdef response" not in first[0]


async def test_a_judge_that_gives_several_answers_is_at_fault() -> None:
    """One was asked for."""

    class Two(ScriptedModel):
        async def sample(self, *given: Any, **named: Any) -> Sequence[SampledSequence]:
            return [*await super().sample(*given, **named)] * 2

    judge = Judge(model=Two(answer=lambda prompt: "x"), sampling=SamplingParams(max_tokens=9))
    with pytest.raises(BackendError) as failed:
        await judge.ask("?")
    assert failed.value.reason == "BACKEND_ANSWER"
