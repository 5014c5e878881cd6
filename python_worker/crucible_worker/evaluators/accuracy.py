"""The evaluator `accuracy`: the share of samples that a model answers right, as a grader judges it.

See `crucible_worker.metrics.accuracy` for what the keys are.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any

from crucible_bridge.errors import BackendError, FailedPrecondition, InternalError, InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.types import (
    EvaluatorInfo,
    EvaluatorKind,
    Metrics,
    Problem,
    Sample,
    SampledSequence,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.base import Evaluator, Outcome, SampleContext
from crucible_worker.grading import registry as graders
from crucible_worker.grading.base import Grade, Grader
from crucible_worker.grading.excerpt import shown
from crucible_worker.metrics.accuracy import ACCURACY_KEYS, accuracy
from crucible_worker.rendering import (
    RENDERER_OPTION,
    answer_of,
    check_input,
    check_renderer,
    sample_answers,
    without_thinking,
)

__all__ = ["MAX_SAMPLES_PER_PROMPT", "NO_ANSWER", "NO_ANSWER_CUT", "Accuracy", "AccuracyType"]

MAX_SAMPLES_PER_PROMPT = 1_000
"""Answers to one sample."""

NO_ANSWER = "no answer: nothing but thought"
"""How a verdict came about where thought is all there is."""
NO_ANSWER_CUT = "no answer: cut at max_tokens while thinking"
"""The same, where there might have been an answer later on."""

_REMOVE, _KEEP = "remove", "keep"

_SURROGATES = re.compile("[\ud800-\udfff]")

_INFO = EvaluatorInfo(
    kind="accuracy",
    kinds=(EvaluatorKind.SAMPLING,),
    description="Samples answers and reports the share that a grader judges right, with its uncertainty.",
    options_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "grader": {
                "type": "string",
                "examples": list(graders.GRADERS),
                "default": "exact_match",
                "description": " ".join(f"{name}: {grader.description}" for name, grader in graders.GRADERS.items())
                + " Others may be installed with the worker.",
            },
            "grader_options": {
                "type": "object",
                "default": {},
                "description": "Options of the grader; their schema stands under its name in $defs.",
            },
            "samples_per_prompt": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_SAMPLES_PER_PROMPT,
                "default": 1,
                "description": "Answers to each sample; uncertainty is then clustered by sample.",
            },
            "renderer": dict(RENDERER_OPTION),
            "thinking": {
                "type": "string",
                "enum": [_REMOVE, _KEEP],
                "default": _REMOVE,
                "description": (
                    "remove: what stands between <think> and </think>, or <thinking> and </thinking>, is not graded; "
                    "a sample's record keeps it. An answer that holds nothing else is wrong. keep: it is graded, too."
                ),
            },
        },
        "additionalProperties": False,
        "$defs": {name: dict(grader.options_schema) for name, grader in graders.GRADERS.items()},
    },
    keys=dict.fromkeys(ACCURACY_KEYS, "fraction of 1"),
)


class AccuracyType:
    """The kind `accuracy`."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is."""
        return _INFO

    def create(self, options: Mapping[str, Any], sampling: SamplingParams | None) -> Evaluator:
        """Make one.

        Raises:
            InvalidField: `sampling` is missing, there is no such grader, or an option of it is unknown or wrong.
            FailedPrecondition: the grader or the renderer needs a library that is not installed, or the grader is a
                user's and cannot be used.
        """
        if sampling is None:
            raise InvalidField("sampling", "is missing, and accuracy samples answers: give at least max_tokens")
        grader = graders.create(
            options["grader"],
            options["grader_options"],
            name_field='options["grader"]',
            options_field='options["grader_options"]',
        )
        check_renderer(options["renderer"])
        return Accuracy(
            grader=grader,
            sampling=sampling,
            repeats=options["samples_per_prompt"],
            renderer=options["renderer"],
            thinking=options["thinking"],
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Asks for one answer at a time and has it judged."""

    grader: Grader
    """Who judges."""
    sampling: SamplingParams
    """How to sample."""
    repeats: int = 1
    """Answers to each sample, from 1."""
    renderer: str = "auto"
    """How text and conversations become what the model gets, see `crucible_worker.rendering.renderers`."""
    thinking: str = _REMOVE
    """Whether thoughts are graded: "remove" or "keep"."""

    def check(self, model: Model) -> None:
        """Refuse a model that cannot generate.

        Raises:
            FailedPrecondition: the model lacks a sampling client (reason MISSING_CLIENT).
        """
        if model.sampling is None:
            raise FailedPrecondition("accuracy needs a sampling client, which the model lacks", reason="MISSING_CLIENT")

    def check_sample(self, sample: Sample) -> None:
        """Refuse a conversation that the renderer takes none of; whatever else cannot be asked is an ERROR of its own.

        Raises:
            InvalidField: names the conversation.
        """
        check_input(sample.input, self.renderer)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Sample one answer, with the sample's own seed where sampling is random, and grade it.

        Raises:
            InvalidField: there is nothing to ask, or the prompt is longer than the context.
            FailedPrecondition: the sample cannot be rendered for this model, or the client is missing.
            BackendError: the model could not be asked, or answered with nothing.
            InternalError: the grader gave a score that is none (reason BAD_SCORE).
        """
        self.check(context.model)
        answer = await self._sampled(sample, context)
        text, replaced = _SURROGATES.subn("\ufffd", answer.text)
        grade = await self._graded(answer_of(text, self.renderer), sample, answer.stop_reason)
        _check_score(grade)
        return Outcome(
            verdict=grade.verdict,
            score=grade.score if grade.verdict.scored else None,
            output=text,
            extracted=shown(grade.extracted),  # the whole response is recorded beside it
            method=grade.method,
            stop_reason=answer.stop_reason,
            output_tokens=answer.output_tokens,
            problem=_problem(grade),
            measurements={"replaced_code_points": float(replaced)} if replaced else {},
        )

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """The keys of `ACCURACY_KEYS`; unscored answers are never taken for wrong but in `accuracy_strict`."""
        by_sample = itertools.groupby(results, key=operator.attrgetter("sample_id"))
        return accuracy([[_score(result) for result in repeats] for _, repeats in by_sample])

    async def _graded(self, said: str, sample: Sample, stop_reason: str) -> Grade:
        answer = said if self.thinking == _KEEP else without_thinking(said)
        grade = await self.grader.grade(answer, sample.targets, sample.choices)
        if answer or not said or not grade.verdict.scored:
            return grade
        method = NO_ANSWER_CUT if stop_reason == "length" else NO_ANSWER
        return Grade(verdict=Verdict.INCORRECT, score=0.0, method=method)

    async def _sampled(self, sample: Sample, context: SampleContext) -> SampledSequence:
        random = self.sampling.temperature > 0
        params = dataclasses.replace(self.sampling, seed=context.seed) if random else self.sampling
        answers = await sample_answers(context.model, sample.input, params, renderer=self.renderer)
        if len(answers) != 1:
            message = f"was asked for one answer and gave {len(answers)}"
            raise BackendError(message, reason="BACKEND_ANSWER", retryable=False)
        return answers[0]


def _score(result: SampleResult) -> float | None:
    return result.score if result.verdict.scored else None


def _check_score(grade: Grade) -> None:
    if grade.verdict.scored and not (grade.score is not None and 0 <= grade.score <= 1):
        raise InternalError(f"the grader said {grade.verdict} with score {grade.score}", reason="BAD_SCORE")


def _problem(grade: Grade) -> Problem | None:
    if grade.verdict.scored:
        return None
    reason = "GRADER_FAILED" if grade.verdict is Verdict.ERROR else "UNDECIDED"
    return Problem(reason=reason, message=shorten(grade.reason or "the grader gave no reason", MAX_PROBLEM_BYTES))
