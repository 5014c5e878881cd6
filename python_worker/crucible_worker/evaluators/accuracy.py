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
from crucible_worker.grading.shown import shown
from crucible_worker.metrics.accuracy import ACCURACY_KEYS, accuracy
from crucible_worker.rendering import sample_answers

__all__ = ["MAX_SAMPLES_PER_PROMPT", "Accuracy", "AccuracyType"]

MAX_SAMPLES_PER_PROMPT = 1_000
"""Answers to one sample."""

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
            FailedPrecondition: the grader needs a library that is not installed, or is a user's and cannot be used.
        """
        if sampling is None:
            raise InvalidField("sampling", "is missing, and accuracy samples answers: give at least max_tokens")
        grader = graders.create(
            options["grader"],
            options["grader_options"],
            name_field='options["grader"]',
            options_field='options["grader_options"]',
        )
        return Accuracy(grader=grader, sampling=sampling, repeats=options["samples_per_prompt"])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Asks for one answer at a time and has it judged."""

    grader: Grader
    """Who judges."""
    sampling: SamplingParams
    """How to sample."""
    repeats: int = 1
    """Answers to each sample, from 1."""

    def check(self, model: Model) -> None:
        """Refuse a model that cannot generate.

        Raises:
            FailedPrecondition: the model lacks a sampling client (reason MISSING_CLIENT).
        """
        if model.sampling is None:
            raise FailedPrecondition("accuracy needs a sampling client, which the model lacks", reason="MISSING_CLIENT")

    def check_sample(self, sample: Sample) -> None:
        """Nothing: a sample that cannot be asked is an ERROR of its own."""

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
        grade = await self.grader.grade(text, sample.targets, sample.choices)
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

    async def _sampled(self, sample: Sample, context: SampleContext) -> SampledSequence:
        random = self.sampling.temperature > 0
        params = dataclasses.replace(self.sampling, seed=context.seed) if random else self.sampling
        answers = await sample_answers(context.model, sample.input, params)
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
