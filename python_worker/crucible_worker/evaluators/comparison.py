"""The evaluator `comparison`: how often a judge considers a model's answers better than the references.

Each pair is judged twice, in both orders, as judges prefer a position: a judge that always says "A" gives 0.5.
The judge is any model that can be queried in words, or a preference model.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta

from crucible_bridge.errors import InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    ImageAssetChunk,
    ImageChunk,
    Metrics,
    Problem,
    ReasoningPart,
    Sample,
    SampleResult,
    SamplingParams,
    Verdict,
    part_text,
)
from crucible_worker.evaluators.answering import Answering
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.cleaning import Cleaning, CleaningSteps, Uncleanable
from crucible_worker.evaluators.graded import Judged
from crucible_worker.grading.base import excerpt
from crucible_worker.grading.judge.grader import question_text, token_measurements
from crucible_worker.grading.judge.rubric import BOTH_ORDERS, NO_CONTENT, Judge, Said, spent, too_long
from crucible_worker.grading.judge.texts import Fence, digest_mark, readable, says_nothing
from crucible_worker.rendering import RendererName, check_input
from crucible_worker.rendering.prompts import AUTO, CHAT_TEMPLATE, RAW, ROLE_COLONS, Prompted, messages_of

__all__ = ["DEFAULT_CRITERION", "MAX_CRITERION_CHARS", "Comparison", "judgement", "preference_prompt", "question"]

# Which of two answers is better, as a model judges: its question, and how its answer is parsed.

DEFAULT_CRITERION = "Which answer is better: more correct, more helpful, clearer?"
"""The criterion if the options give none."""

_VERDICTS = {"a": -1, "tie": 0, "b": 1}
# Possessive, so that matching never backtracks: linear in the length of the judge's answer.
_VERDICT = re.compile(r"\W*+(?>(?:answer\s++)?)\W*+(a|b|tie)\W*+", re.IGNORECASE)


def question(asked: str, a: str, b: str, criterion: str) -> str:
    """The question to a judge about two answers; `fence` separates the texts from the instructions.

    Args:
        asked: the question that both answer.
        a: the first answer.
        b: the second one.
        criterion: what makes an answer better, in words.
    """
    fence = Fence(digest_mark((asked, a, b, criterion)))
    texts = (fence.text("question", asked), fence.text("answer A", a), fence.text("answer B", b), fence.end())
    return (
        f"Two answers to one question are to be compared. {criterion}\n{fence.told()}\n\n{''.join(texts)}\n"
        'Say "A", "B" or "tie", and nothing else.\n'
    )


def preference_prompt(asked: str | Conversation, a: str, b: str) -> Conversation:
    """The prompt of a preference model for two answers.

    It has the form in which tinker-cookbook trains such models (`preference.types.ComparisonRendererFromChatRenderer`).
    Each answer is a separate turn; it cannot contain the marks of turns, see `readable`.

    Args:
        asked: the question that both answer.
        a: the first answer.
        b: the second one.
    """
    parts = [("Completion A", a), ("Completion B", b)]
    turns = [turn for title, text in parts for turn in (_heading(title), ChatMessage("assistant", readable(text)))]
    asked = asked.question if isinstance(asked, Prompted) else asked
    return Conversation((*map(_readable, messages_of(asked)), *turns, _heading("Preference")))


def judgement(said: str) -> int | None:
    """Parse a judge's answer: -1 for A, 1 for B, 0 for a tie; None if its last line is none of them."""
    lines = said.strip().splitlines()
    found = _VERDICT.fullmatch(lines[-1]) if lines else None
    return None if found is None else _VERDICTS[found[1].lower()]


def _readable(message: ChatMessage) -> ChatMessage:
    """A message as text and images: reasoning is a text in tags, as not every judge has a form for it."""
    reasoned = (ReasoningPart(message.reasoning),) if message.reasoning else ()
    parts = tuple(
        part if isinstance(part, ImageChunk | ImageAssetChunk) else readable(part_text(part))
        for part in (*reasoned, *(message.parts or (message.content,)))
    )
    return dataclasses.replace(message, content="", parts=parts, reasoning="", weight=None)


def _heading(title: str) -> ChatMessage:
    return ChatMessage("system", f"==== {title} ====")


MAX_CRITERION_CHARS = 4_000
"""Characters of the option `criterion`."""

_QUESTION: Final = "question"
_PREFERENCE = "preference"
_PREFERENCE_TOKENS = 1  # a preference model was trained to answer with one token
_SHOWN_CHARS = 800  # of an invalid judgement: its end, where the preference should be
_KEYS = ("win_rate", "win_rate_stderr")


class Comparison(Judged, kind="comparison", keys=dict.fromkeys(_KEYS, "fraction of 1")):
    """Samples answers and lets a judge compare each with the sample's reference, in both orders."""

    form: Literal["question", "preference"] = _QUESTION
    """question: the judge is queried in words. preference: it was trained on comparisons in tinker-cookbook's form,
    and answers A, B or Tie in one token."""
    criterion: Annotated[str, Meta(min_length=1, max_length=MAX_CRITERION_CHARS)] = DEFAULT_CRITERION
    """What makes an answer the better one, in words for the judge."""
    renderer: RendererName = "auto"
    clean: CleaningSteps = ()
    """Which part of the model's answer the judge reads: steps as for rollout, after the reasoning is removed. The
    reference is not cleaned."""

    def __post_init__(self) -> None:
        """Refuse options that a preference model cannot use.

        Raises:
            InvalidField: names the option; or the judge is no model of this worker.
            FailedPrecondition: a renderer needs a library that is not installed.
        """
        super().__post_init__()
        _ = self.cleaning
        if self.preference and self.judge_renderer in (RAW, *ROLE_COLONS):
            message = "marks turns by what answers can write as well: a preference model needs a chat template"
            raise InvalidField('options["judge_renderer"]', message)
        if self.preference and self.criterion != DEFAULT_CRITERION:
            raise InvalidField(
                'options["criterion"]', "is for a judge that is asked in words: a preference model has its own"
            )

    @property
    def preference(self) -> bool:
        """Whether the judge is a preference model, which is not queried in words."""
        return self.form == _PREFERENCE

    @functools.cached_property
    def cleaning(self) -> Cleaning:
        """What `clean` says."""
        return Cleaning.of(self.clean, 'options["clean"]')

    async def preprocess(self, answer: str) -> str:
        """The part of a model's answer that the judge reads; an evaluator of one's own may replace this.

        Args:
            answer: without its reasoning.

        Raises:
            Uncleanable: the steps of `clean` cannot be applied to it; the sample is UNDECIDED.
        """
        return await self.cleaning.answer(answer)

    @property
    def judge_sampling(self) -> SamplingParams:
        """How the judge is sampled: a preference model with one token."""
        params = super().judge_sampling
        return dataclasses.replace(params, max_tokens=_PREFERENCE_TOKENS) if self.preference else params

    def opened_judge(self, context: SampleContext) -> Judge:
        """The judge of a sample; a preference model is queried with its chat template."""
        judge = super().opened_judge(context)
        if self.preference and judge.renderer == AUTO:
            return dataclasses.replace(judge, renderer=CHAT_TEMPLATE)
        return judge

    def check_sample(self, sample: Sample) -> None:
        """Refuse a sample that is tokens, has no reference, or is a conversation if the renderer accepts none.

        Raises:
            InvalidField: names it.
        """
        if isinstance(sample.input, Datum):
            raise InvalidField("datum", "is tokens, and a judge reads text")
        if not sample.targets:
            raise InvalidField("targets", "is empty: the first one is what the answer is compared with")
        check_input(sample.input, self.renderer)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Sample one answer, with the sample's own seed if sampling is random, and let the judge compare both orders.

        The score is 1 if both judgements prefer the answer, 0 if both prefer the reference, 0.5 if they cancel out. An
        empty answer has 0, without a query to the judge.

        Raises:
            InvalidField: what `check_sample` refuses; or a prompt is longer than a context.
            FailedPrecondition: the sample cannot be rendered for the model or the judge.
            BackendError: model or judge could not be queried, or gave no answer.
        """
        self.check_sample(sample)
        assert not isinstance(sample.input, Datum)
        answering = Answering(sampling=self.sampling, renderer=self.renderer)
        answer = await answering.answer(context.model, sample.input, context.seed)
        asked, reference = question_text(sample.input), sample.targets[0]
        found = Outcome(verdict=Verdict.MEASURED, measurements=answer.counted, **answer.recorded)
        try:
            text = await self.preprocess(answer.text)
        except Uncleanable as error:
            return _undecided(found, str(error))
        reason = too_long((asked, text, reference)) if reference.strip() else "the reference is empty"
        if reason:
            return _undecided(found, reason)
        if says_nothing(text, (reference,)):
            return dataclasses.replace(found, score=0.0, method=answer.no_answer or NO_CONTENT)
        if text != answer.text:
            found = dataclasses.replace(found, extracted=excerpt(text))
        orders = ((reference, text), (text, reference))
        questions = [
            preference_prompt(sample.input, *order) if self.preference else question(asked, *order, self.criterion)
            for order in orders
        ]
        return await self._judged(found, self.opened_judge(context), questions)

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """`win_rate`, the mean score, and its standard error; an invalid judgement is left out: it is no tie."""
        scores = [result.score for result in results if result.verdict.scored and result.score is not None]
        if not scores:
            return Metrics.all_undefined(_KEYS, "no sample was scored")
        win_rate = math.fsum(scores) / len(scores)
        if len(scores) == 1:
            return Metrics({"win_rate": win_rate}, {"win_rate_stderr": "one score has no spread"})
        stderr = statistics.stdev(scores, win_rate) / math.sqrt(len(scores))
        return Metrics({"win_rate": win_rate, "win_rate_stderr": stderr})

    async def _judged(self, found: Outcome, judge: Judge, questions: Sequence[str | Conversation]) -> Outcome:
        """The outcome of an answer that is shown after the reference, then before it."""
        said: list[Said] = []
        preferences: list[int] = []
        for asked in questions:
            said.append(await judge.ask(asked))
            preference = judgement(said[-1].text)
            if preference is None:
                problem, tokens = _invalid(said[-1]), {**found.measurements, **token_measurements(*spent(said))}
                return dataclasses.replace(found, verdict=Verdict.ERROR, problem=problem, measurements=tokens)
            preferences.append(preference)
        behind, before = preferences
        places = {"preferred_as_second": float(behind), "preferred_as_first": float(-before)}
        return dataclasses.replace(
            found,
            score=(behind - before + 2) / 4,
            method=BOTH_ORDERS,
            measurements={**found.measurements, **places, **token_measurements(*spent(said))},
        )


def _undecided(found: Outcome, reason: str) -> Outcome:
    problem = Problem(reason=Reason.UNDECIDED, message=reason)
    return dataclasses.replace(found, verdict=Verdict.UNDECIDED, problem=problem)


def _invalid(said: Said) -> Problem:
    message = f'the judge said neither "A" nor "B" nor "tie": {said.shown(_SHOWN_CHARS)}'
    return Problem(reason=Reason.INVALID_JUDGEMENT, message=shorten(message, MAX_PROBLEM_BYTES))
