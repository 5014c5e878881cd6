"""The evaluator `rubric`: how good a model's answers are by weighted criteria, as another model judges them."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from crucible_bridge.errors import InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Datum, Metrics, Problem, RubricItem, Sample, SampleResult, Verdict
from crucible_worker.backends.metering import known_sum
from crucible_worker.evaluators.accuracy import MAX_SAMPLES_PER_PROMPT
from crucible_worker.evaluators.answering import REMOVE_THINKING, Answering, Thinking
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.evaluators.graded import Judged
from crucible_worker.grading.judge.grader import Criteria, criteria_of, measurements_of, method_of, question_text
from crucible_worker.grading.judge.rubric import Rubric
from crucible_worker.metrics.scores import Reduce, reduced
from crucible_worker.rendering import RendererName, check_input

__all__ = ["RubricEvaluator"]

_NO_THRESHOLD = 0.5  # no metric uses it: answers are measured here, neither right nor wrong

_PROMPT, _COMPLETION = "judge_prompt_tokens", "judge_completion_tokens"


class RubricEvaluator(
    Judged,
    kind="rubric",
    keys={
        "rubric_score": "fraction of 1",
        "rubric_score_stderr": "fraction of 1",
        "rubric/<criterion>": "points of the criterion's scale",
        "rubric_stderr/<criterion>": "points of the criterion's scale",
        _PROMPT: "tokens",
        _COMPLETION: "tokens",
    },
):
    """Samples answers and has a judge score each by weighted criteria."""

    criteria: Criteria
    samples_per_prompt: Annotated[int, Meta(ge=1, le=MAX_SAMPLES_PER_PROMPT)] = 1
    """Answers to each sample; uncertainty is then clustered by sample."""
    renderer: RendererName = "auto"
    thinking: Thinking = REMOVE_THINKING

    def __post_init__(self) -> None:
        """Refuse a criterion that cannot be judged, and a judge that is not a model of this worker.

        Raises:
            InvalidField: names it.
            FailedPrecondition: a renderer needs a library that is not installed.
        """
        super().__post_init__()
        _ = self.rubric

    @functools.cached_property
    def rubric(self) -> Rubric:
        """The criteria."""
        return Rubric(criteria=criteria_of(self.criteria, 'options["criteria"]'), threshold=_NO_THRESHOLD)

    @property
    def answering(self) -> Answering:
        """How the model is queried."""
        return Answering(sampling=self.sampling, renderer=self.renderer, thinking=self.thinking)

    @property
    def repeats(self) -> int:
        """Answers to each sample."""
        return self.samples_per_prompt

    def check_sample(self, sample: Sample) -> None:
        """Refuse a sample that is tokens, or a conversation if the renderer accepts none.

        Raises:
            InvalidField: names it.
        """
        if isinstance(sample.input, Datum):
            raise InvalidField("datum", "is tokens, and a judge reads text")
        check_input(sample.input, self.answering.renderer)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Sample one answer, with the sample's own seed if sampling is random, and let the judge score it.

        The judge sees the question, the answer, and the targets as reference answers, if there are some.

        Raises:
            InvalidField: as for `check_sample`; or a prompt is longer than a context.
            FailedPrecondition: the sample cannot be rendered for the model or the judge.
            BackendError: model or judge could not be queried, or gave an empty answer.
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
            method=answer.no_answer or method_of(found),
            problem=problem,
            measurements={**measurements_of(found), **answer.counted},
            **answer.recorded,
        )

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Means of the scores and of each criterion's, with their standard errors; and the judge's tokens.

        Tokens of judgements that could not be parsed are counted as well.
        """
        columns = {"rubric_score": [], **{f"rubric/{criterion.name}": [] for criterion in self.rubric.criteria}}
        tokens: dict[str, list[int | None]] = {_PROMPT: [], _COMPLETION: []}
        for _, repeats in itertools.groupby(results, key=operator.attrgetter("sample_id")):
            for scores in columns.values():
                scores.append([])
            for result in repeats:
                for key, scores in columns.items():
                    scores[-1].append(_score(result, key))
                for key, counts in tokens.items() if _judged(result) else ():
                    counts.append(int(result.measurements[key]) if key in result.measurements else None)
        values: dict[str, float] = {}
        undefined: dict[str, str] = {}
        for key, counts in tokens.items():
            if not counts:
                undefined[key] = "there was no judgement"
            elif (total := known_sum(counts)) is None:
                undefined[key] = "the judge's server reports no number"
            else:
                values[key] = total
        for key, scores in columns.items():
            found = reduced(scores, Reduce.MEAN)
            stderr = f"{key}_stderr" if key == "rubric_score" else key.replace("rubric/", "rubric_stderr/", 1)
            names = {"score_mean": key, "score_mean_stderr": stderr}
            values |= {names[name]: value for name, value in found.values.items()}
            undefined |= {names[name]: reason for name, reason in found.undefined.items()}
        return Metrics.of(values, undefined)


def _judged(result: SampleResult) -> bool:
    """Whether a judge was queried about it, or need not be: then tokens are missing only where none were reported."""
    unread = result.problem is not None and result.problem.reason == Reason.INVALID_JUDGEMENT
    return result.verdict.scored or unread or _COMPLETION in result.measurements or _PROMPT in result.measurements


def _score(result: SampleResult, key: str) -> float | None:
    if not result.verdict.scored:
        return None
    return result.score if key == "rubric_score" else result.measurements[key]
