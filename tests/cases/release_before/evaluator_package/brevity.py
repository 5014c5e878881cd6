"""The evaluator `brevity`: the share of answers with at most so many words."""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import EvaluatorInfo, EvaluatorKind, Metrics, Sample, SampleResult, SamplingParams, Verdict
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.rendering import sample_answers


@dataclasses.dataclass(frozen=True)
class Brevity:
    """Samples an answer and counts its words."""

    sampling: SamplingParams
    max_words: int
    repeats: int = 1

    def check(self, model: Model) -> None:
        """Refuse a model that cannot generate."""
        if model.sampling is None:
            raise FailedPrecondition("brevity needs a sampling client", reason="MISSING_CLIENT")

    def check_sample(self, sample: Sample) -> None:
        """Take every sample: what cannot be asked is an ERROR of its own."""

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Ask and judge one sample."""
        params = dataclasses.replace(self.sampling, seed=context.seed)
        (answer,) = await sample_answers(context.model, sample.input, params)
        words = len(answer.text.split())
        return Outcome(
            verdict=Verdict.CORRECT if words <= self.max_words else Verdict.INCORRECT,
            score=float(words <= self.max_words),
            output=answer.text,
            stop_reason=answer.stop_reason,
            output_tokens=answer.output_tokens,
            measurements={"words": words},
        )

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """The share of short answers, and the words of a mean one."""
        scored = [(result.score or 0.0, result.measurements["words"]) for result in results if result.verdict.scored]
        if not scored:
            return Metrics.all_undefined(["brevity", "words"], "no sample was scored")
        scores, words = zip(*scored, strict=True)
        return Metrics({"brevity": statistics.fmean(scores), "words": statistics.fmean(words)})


class BrevityType:
    """The kind `brevity`."""

    info = EvaluatorInfo(
        kind="brevity",
        kinds=(EvaluatorKind.SAMPLING,),
        description="Samples answers and reports the share that is short.",
        options_schema={
            "type": "object",
            "properties": {"max_words": {"type": "integer", "minimum": 1, "default": 3}},
            "additionalProperties": False,
        },
        keys={"brevity": "fraction of 1", "words": "words"},
    )

    def create(self, options: Mapping[str, Any], sampling: SamplingParams | None) -> Brevity:
        """Make one."""
        if sampling is None:
            raise InvalidField("sampling", "is missing, and brevity samples answers")
        return Brevity(sampling=sampling, max_words=options["max_words"])


BREVITY = BrevityType()
