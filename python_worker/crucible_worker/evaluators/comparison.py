"""The evaluator `comparison`: how often a judge holds a model's answers for better than the references.

Each pair is judged twice, in both orders, as judges have a liking for a place: a judge that always says "A" gives 0.5.
"""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.types import (
    Datum,
    EvaluatorInfo,
    EvaluatorKind,
    Metrics,
    ModelRef,
    OrchestratorModel,
    Problem,
    Sample,
    SampledSequence,
    SampleResult,
    SamplingParams,
    Verdict,
    parse_model,
)
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.base import Evaluator, Outcome, SampleContext
from crucible_worker.evaluators.judging import DEFAULT_CRITERION, judgement, question
from crucible_worker.rendering import (
    RENDERER_OPTION,
    answer_of,
    check_input,
    check_renderer,
    sample_answers,
    without_thinking,
)

__all__ = ["JUDGE", "MAX_CRITERION_CHARS", "MAX_JUDGE_TOKENS", "Comparison", "ComparisonType"]

JUDGE = "judge"
"""The option that names the judge."""
MAX_CRITERION_CHARS = 4_000
"""Of the option `criterion`."""
MAX_JUDGE_TOKENS = 65_536
"""Of the option `judge_max_tokens`."""

_KEYS = ("win_rate", "win_rate_stderr")
_SURROGATES = re.compile("[\ud800-\udfff]")

_INFO = EvaluatorInfo(
    kind="comparison",
    kinds=(EvaluatorKind.SAMPLING,),
    description="Samples answers and has a judge compare each with the sample's reference, in both orders.",
    options_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            JUDGE: {
                "type": "string",
                "minLength": 1,
                "examples": ["openai:SERVER/MODEL", "local:PATH"],
                "description": "The model that judges, any of this worker's.",
            },
            "criterion": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_CRITERION_CHARS,
                "default": DEFAULT_CRITERION,
                "description": "What makes an answer the better one, in words for the judge.",
            },
            "judge_max_tokens": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_JUDGE_TOKENS,
                "default": 1_024,
                "description": "Tokens of a judgement, with its thoughts.",
            },
            "judge_renderer": {
                **RENDERER_OPTION,
                "description": "How the judge is asked: as `renderer`, of the judge.",
            },
            "renderer": dict(RENDERER_OPTION),
        },
        "required": [JUDGE],
        "additionalProperties": False,
    },
    keys={"win_rate": "fraction of 1", "win_rate_stderr": "fraction of 1"},
)


class ComparisonType:
    """The kind `comparison`."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is."""
        return _INFO

    def create(self, options: Mapping[str, Any], sampling: SamplingParams | None) -> Evaluator:
        """Make one.

        Raises:
            InvalidField: `sampling` is missing, or the judge is no model of this worker.
            FailedPrecondition: a renderer needs a library that is not installed.
        """
        if sampling is None:
            raise InvalidField("sampling", "is missing, and comparison samples answers: give at least max_tokens")
        try:
            judge = parse_model(options[JUDGE])
        except InvalidField as error:
            raise InvalidField(f'options["{JUDGE}"]', error.message, reason=error.reason) from error
        if isinstance(judge, OrchestratorModel):
            raise InvalidField(f'options["{JUDGE}"]', "is the orchestrator's own, and a judge has to be the worker's")
        check_renderer(options["renderer"])
        check_renderer(options["judge_renderer"])
        return Comparison(
            judge=judge,
            sampling=sampling,
            judge_sampling=SamplingParams(max_tokens=options["judge_max_tokens"], temperature=0.0),
            criterion=options["criterion"],
            renderer=options["renderer"],
            judge_renderer=options["judge_renderer"],
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Asks the model for one answer, and the judge for two judgements of it."""

    judge: ModelRef
    """Who judges."""
    sampling: SamplingParams
    """How the model is sampled."""
    judge_sampling: SamplingParams
    """How the judge is: its likeliest answer."""
    criterion: str
    """What is better, in words."""
    renderer: str
    """How a sample becomes what the model gets, see `crucible_worker.rendering.renderers`."""
    judge_renderer: str
    """How a question becomes what the judge gets."""

    @property
    def repeats(self) -> int:
        """Once: the uncertainty is that over samples."""
        return 1

    @property
    def others(self) -> Mapping[str, ModelRef]:
        """The judge."""
        return {JUDGE: self.judge}

    def check(self, model: Model) -> None:
        """Refuse a model that cannot generate.

        Raises:
            FailedPrecondition: it lacks a sampling client (reason MISSING_CLIENT).
        """
        _check_client(model, "the model")

    def check_others(self, others: Mapping[str, Model]) -> None:
        """Refuse a judge that cannot generate; raises as `check` does."""
        _check_client(others[JUDGE], "the judge")

    def check_sample(self, sample: Sample) -> None:
        """Refuse a sample that is tokens, has no reference, or whose conversation the renderer takes none of.

        Raises:
            InvalidField: names it.
        """
        if isinstance(sample.input, Datum):
            raise InvalidField("datum", "is tokens, and a judge reads text")
        if not sample.targets:
            raise InvalidField("targets", "is empty: the first one is what the answer is compared with")
        check_input(sample.input, self.renderer)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Sample one answer, with the sample's own seed where sampling is random, and have it judged in both orders.

        The score is 1 where both judgements prefer the answer, 0 where both prefer the reference, 0.5 where they cancel
        out.

        Raises:
            InvalidField: as of `check_sample`; or a prompt is longer than a context.
            FailedPrecondition: the sample cannot be rendered for the model or the judge.
            BackendError: model or judge could not be asked, or answered with nothing.
        """
        self.check_sample(sample)
        assert not isinstance(sample.input, Datum)
        params = self.sampling
        if params.temperature > 0:
            params = dataclasses.replace(params, seed=context.seed)
        answer = await _one(context.model, sample.input, params, self.renderer)
        text = _SURROGATES.sub("\ufffd", answer.text)
        shown, reference = without_thinking(answer_of(text, self.renderer)), sample.targets[0]
        found = Outcome(
            verdict=Verdict.MEASURED, output=text, stop_reason=answer.stop_reason, output_tokens=answer.output_tokens
        )
        preferences: list[int] = []
        for first, second in ((reference, shown), (shown, reference)):
            said = await self._judged(question(sample.input, first, second, self.criterion), context.others[JUDGE])
            preference = judgement(said)
            if preference is None:
                return dataclasses.replace(found, verdict=Verdict.ERROR, problem=_invalid(said))
            preferences.append(preference)
        behind, before = preferences
        return dataclasses.replace(
            found,
            score=(behind - before + 2) / 4,
            method="both orders",
            measurements={"preferred_as_second": float(behind), "preferred_as_first": float(-before)},
        )

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """`win_rate`, the mean score, and its standard error; an invalid judgement is no tie, and is left out."""
        scores = [result.score for result in results if result.verdict.scored and result.score is not None]
        if not scores:
            return Metrics.all_undefined(_KEYS, "no sample was scored")
        win_rate = math.fsum(scores) / len(scores)
        if len(scores) == 1:
            return Metrics({"win_rate": win_rate}, {"win_rate_stderr": "one score has no spread"})
        stderr = statistics.stdev(scores, win_rate) / math.sqrt(len(scores))
        return Metrics({"win_rate": win_rate, "win_rate_stderr": stderr})

    async def _judged(self, asked: str, judge: Model) -> str:
        answer = await _one(judge, asked, self.judge_sampling, self.judge_renderer)
        return without_thinking(answer_of(answer.text, self.judge_renderer))


async def _one(model: Model, asked: Any, params: SamplingParams, renderer: str) -> SampledSequence:
    answers = await sample_answers(model, asked, params, renderer=renderer)
    if len(answers) != 1:
        message = f"was asked for one answer and gave {len(answers)}"
        raise BackendError(message, reason="BACKEND_ANSWER", retryable=False)
    return answers[0]


def _check_client(model: Model, who: str) -> None:
    if model.sampling is None:
        message = f"comparison needs a sampling client, which {who} lacks"
        raise FailedPrecondition(message, reason="MISSING_CLIENT")


def _invalid(said: str) -> Problem:
    message = f'the judge said neither "A" nor "B" nor "tie": {said.strip()!r}'
    return Problem(reason="INVALID_JUDGEMENT", message=shorten(message, MAX_PROBLEM_BYTES))
