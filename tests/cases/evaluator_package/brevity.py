"""The evaluator `brevity`: the share of answers with at most so many words."""

from typing import Annotated

from msgspec import Meta

from crucible_bridge.types import Sample
from crucible_worker.api import AnswerEvaluator, Outcome


class Brevity(AnswerEvaluator, keys={"brevity": "fraction of 1", "words": "words"}):
    """Samples answers and reports the share that is short."""

    max_words: Annotated[int, Meta(ge=1)] = 3
    """Words that a short answer has at most."""

    def judge(self, answer: str, sample: Sample) -> Outcome:
        """Count the words of an answer."""
        words = len(answer.split())
        return Outcome.of(words <= self.max_words, words=words)
