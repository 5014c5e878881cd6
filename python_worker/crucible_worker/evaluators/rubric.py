"""The evaluator `rubric`: how good a model's answers are by weighted criteria, as another model judges them."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Datum,
    EvaluatorInfo,
    EvaluatorKind,
    Metrics,
    Problem,
    RubricItem,
    Sample,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.evaluators.accuracy import MAX_SAMPLES_PER_PROMPT
from crucible_worker.evaluators.answering import THINKING_OPTION, Answering
from crucible_worker.evaluators.base import Evaluator, Outcome, SampleContext
from crucible_worker.evaluators.judged import Judged
from crucible_worker.grading.judge.asking import Rubric
from crucible_worker.grading.judge.grader import measurements_of, method_of, question_text
from crucible_worker.grading.judge.options import (
    CRITERIA_OPTION,
    JUDGE,
    JUDGE_OPTIONS,
    criteria_of,
    judge_of,
    judge_sampling_of,
)
from crucible_worker.metrics.scores import Reduce, reduced
from crucible_worker.rendering import RENDERER_OPTION, check_input, check_renderer

__all__ = ["RubricEvaluator", "RubricType"]

_NO_THRESHOLD = 0.5  # which no metric looks at: an answer is measured here, neither right nor wrong

_PROMPT, _COMPLETION = "judge_prompt_tokens", "judge_completion_tokens"

_INFO = EvaluatorInfo(
    kind="rubric",
    kinds=(EvaluatorKind.SAMPLING,),
    description="Samples answers and has a judge score each by weighted criteria.",
    options_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            **JUDGE_OPTIONS,
            "criteria": dict(CRITERIA_OPTION),
            "samples_per_prompt": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_SAMPLES_PER_PROMPT,
                "default": 1,
                "description": "Answers to each sample; uncertainty is then clustered by sample.",
            },
            "renderer": dict(RENDERER_OPTION),
            "thinking": dict(THINKING_OPTION),
        },
        "required": [JUDGE, "criteria"],
        "additionalProperties": False,
    },
    keys={
        "rubric_score": "fraction of 1",
        "rubric_score_stderr": "fraction of 1",
        "rubric/<criterion>": "points of the criterion's scale",
        "rubric_stderr/<criterion>": "points of the criterion's scale",
        _PROMPT: "tokens",
        _COMPLETION: "tokens",
    },
)


class RubricType:
    """The kind `rubric`."""

    @property
    def info(self) -> EvaluatorInfo:
        """What it is."""
        return _INFO

    def create(self, options: Mapping[str, Any], sampling: SamplingParams | None) -> Evaluator:
        """Make one.

        Raises:
            InvalidField: `sampling` is missing, the judge is no model of this worker, or a criterion cannot be judged.
            FailedPrecondition: a renderer needs a library that is not installed.
        """
        if sampling is None:
            raise InvalidField("sampling", "is missing, and rubric samples answers: give at least max_tokens")
        check_renderer(options["renderer"])
        check_renderer(options["judge_renderer"])
        return RubricEvaluator(
            judge=judge_of(options, "options"),
            judge_sampling=judge_sampling_of(options),
            judge_renderer=options["judge_renderer"],
            rubric=Rubric(criteria=criteria_of(options["criteria"], 'options["criteria"]'), threshold=_NO_THRESHOLD),
            answering=Answering(sampling=sampling, renderer=options["renderer"], thinking=options["thinking"]),
            repeats=options["samples_per_prompt"],
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RubricEvaluator(Judged):
    """Asks the model for one answer at a time, and the judge for one judgement of it."""

    KIND = "rubric"

    rubric: Rubric
    """What is judged."""
    answering: Answering
    """How the model is asked."""
    repeats: int = 1
    """Answers to each sample, from 1."""

    def check_sample(self, sample: Sample) -> None:
        """Refuse a sample that is tokens, or whose conversation the renderer takes none of.

        Raises:
            InvalidField: names it.
        """
        if isinstance(sample.input, Datum):
            raise InvalidField("datum", "is tokens, and a judge reads text")
        check_input(sample.input, self.answering.renderer)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Sample one answer, with the sample's own seed where sampling is random, and have it judged.

        The judge sees the question, the answer, and the targets as reference answers, where there are some.

        Raises:
            InvalidField: as of `check_sample`; or a prompt is longer than a context.
            FailedPrecondition: the sample cannot be rendered for the model or the judge.
            BackendError: model or judge could not be asked, or answered with nothing.
        """
        self.check_sample(sample)
        assert not isinstance(sample.input, Datum)
        answer = await self.answering.answer(context.model, sample.input, context.seed)
        item = RubricItem(
            question=question_text(sample.input),
            response=answer.text,
            references=tuple(target for target in sample.targets if target.strip()),
        )
        found = await self.rubric.grade(item, self.opened_judge(context))
        grade = found.grade
        problem = None
        if not grade.verdict.scored:
            problem = grade.problem or Problem(
                reason=Reason.UNDECIDED, message=shorten(grade.reason, MAX_PROBLEM_BYTES)
            )
        return Outcome(
            verdict=Verdict.MEASURED if grade.verdict.scored else grade.verdict,
            score=grade.score,
            output=answer.output,
            method=method_of(found),
            stop_reason=answer.sequence.stop_reason,
            output_tokens=answer.sequence.output_tokens,
            problem=problem,
            measurements=measurements_of(found),
        )

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Means of the scores and of each criterion's, with their standard errors; and what the judge took of tokens.

        Tokens are counted of judgements that could not be read as well.
        """
        columns = {"rubric_score": [], **{f"rubric/{criterion.name}": [] for criterion in self.rubric.criteria}}
        prompts: list[float | None] = []
        completions = 0.0
        for _, repeats in itertools.groupby(results, key=operator.attrgetter("sample_id")):
            for scores in columns.values():
                scores.append([])
            for result in repeats:
                for key, scores in columns.items():
                    scores[-1].append(_score(result, key))
                if _COMPLETION in result.measurements:
                    completions += result.measurements[_COMPLETION]
                    prompts.append(result.measurements.get(_PROMPT))
        values: dict[str, float] = {}
        undefined: dict[str, str] = {}
        known = [count for count in prompts if count is not None]
        if not prompts:
            undefined = dict.fromkeys((_PROMPT, _COMPLETION), "no judgement was had")
        elif len(known) == len(prompts):
            values = {_PROMPT: sum(known), _COMPLETION: completions}
        else:
            values = {_COMPLETION: completions}
            undefined = {_PROMPT: "the judge's server has its tokenizer, and tells no number"}
        for key, scores in columns.items():
            found = reduced(scores, Reduce.MEAN)
            stderr = f"{key}_stderr" if key == "rubric_score" else key.replace("rubric/", "rubric_stderr/", 1)
            names = {"score_mean": key, "score_mean_stderr": stderr}
            values |= {names[name]: value for name, value in found.values.items()}
            undefined |= {names[name]: reason for name, reason in found.undefined.items()}
        return Metrics.of(values, undefined)


def _score(result: SampleResult, key: str) -> float | None:
    if not result.verdict.scored:
        return None
    return result.score if key == "rubric_score" else result.measurements[key]
