"""Graders that measure how much of a target a response contains: token F1, sentence BLEU, ROUGE-L.

With several targets, F1 and ROUGE-L are those of the best target; BLEU uses all targets as references.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import functools
import importlib
import importlib.util
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from msgspec import Meta

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.declared_options import Internal
from crucible_worker.grading.base import Grade
from crucible_worker.grading.direct import DirectGrader, measured, undecided
from crucible_worker.grading.normalize import Normalization, Unnormalizable, without_punctuation

__all__ = [
    "F1",
    "MAX_BLEU_CHARS",
    "MAX_ROUGE_CELLS",
    "Bleu",
    "Rouge",
    "require",
]

MAX_BLEU_CHARS = 100_000
"""Characters of the response and all targets; with more, BLEU is UNDECIDED."""
MAX_ROUGE_CELLS = 1_000_000
"""Words of the response times words of all targets, the size of ROUGE-L's table; with more, it is UNDECIDED."""

_EXTRA = "text"  # the extra of this distribution that holds sacrebleu and rouge-score

_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)
_ROUGE_WORD = re.compile(r"[a-z0-9]+", re.IGNORECASE | re.ASCII)


def require(module: str) -> None:
    """Check that a library of the extra `text` is installed, without importing it.

    Raises:
        FailedPrecondition: it is not (reason EXTRA_NOT_INSTALLED).
    """
    if importlib.util.find_spec(module) is None:
        name = module.replace("_", "-")
        message = f"{name} is not installed: pip install 'crucible-bridge[{_EXTRA}]'"
        raise FailedPrecondition(message, reason=Reason.EXTRA_NOT_INSTALLED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Overlap(DirectGrader, abc.ABC):
    """Options that each of these graders has."""

    threshold: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """A score of at least this is correct, one between 0 and this is partial."""
    case_sensitive: bool = False
    """Case counts."""
    normalization: Internal[Normalization] = Normalization()
    """Further differences that do not count."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class F1(_Overlap):
    """The F1 of the words that response and target have in common.

    Each counts as often as it occurs, as in SQuAD's evaluation.

    Punctuation and the articles a, an, the never count; case counts on request. Unlike in SQuAD's script,
    numbers keep their points and signs: 1.5 is not 15, and -5 not 5.
    """

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """The best F1 over the targets. Choices are ignored."""
        try:
            said = self._words(response)
            wanted = [self._words(target) for target in targets]
        except Unnormalizable as error:
            return undecided(str(error), method="f1")
        if not all(wanted):
            return undecided("a target has no words except articles", method="f1")
        return measured(max(_f1(said, words) for words in wanted), self.threshold, response.strip(), "f1")

    def _words(self, text: str) -> collections.Counter[str]:
        normal = self.normalization(text if self.case_sensitive else text.casefold())
        return collections.Counter(_ARTICLES.sub(" ", without_punctuation(normal)).split())


def _f1(said: collections.Counter[str], wanted: collections.Counter[str]) -> float:
    shared = (said & wanted).total()
    return 2 * shared / (said.total() + wanted.total())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bleu(_Overlap):
    """The sentence BLEU of the response with the targets as references.

    sacrebleu's value, divided by 100: 13a tokens, exponential smoothing, effective order.
    """

    def __post_init__(self) -> None:
        require("sacrebleu")

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """BLEU with the targets as references. Choices are ignored."""
        size = len(response) + sum(map(len, targets))
        if size > MAX_BLEU_CHARS:
            return undecided(f"BLEU of {size:,} characters is not computed, at most {MAX_BLEU_CHARS:,}", method="bleu")
        try:
            said, *wanted = [self._normal(text) for text in (response, *targets)]
        except Unnormalizable as error:
            return undecided(str(error), method="bleu")
        metric, forget = _bleu()
        score = metric.sentence_score(said, wanted).score / 100
        forget()
        # Rounding can exceed 1 by an ulp.
        score = min(1.0, score)
        return measured(score, self.threshold, response.strip(), "bleu")

    def _normal(self, text: str) -> str:
        return self.normalization(text if self.case_sensitive else text.casefold())


@functools.cache
def _bleu() -> tuple[Any, Callable[[], None]]:
    """The metric, and a function that clears its tokenizers' caches of texts: up to 65,536 of any length."""
    metric = importlib.import_module("sacrebleu.metrics.bleu").BLEU(effective_order=True)
    tokenizers = [type(metric.tokenizer), importlib.import_module("sacrebleu.tokenizers.tokenizer_re").TokenizerRegexp]

    def forget() -> None:
        for tokenizer in tokenizers:
            tokenizer.__call__.cache_clear()

    return metric, forget


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rouge(_Overlap):
    """The F score of ROUGE-L of response and target.

    rouge-score's value, without stemming: words are runs of the letters a to z and digits. A target without
    such words, as in most other scripts, is UNDECIDED.
    """

    def __post_init__(self) -> None:
        require("rouge_score")

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """The best F over the targets. Choices are ignored."""
        try:
            said, *wanted = [self._words(text) for text in (response, *targets)]
        except Unnormalizable as error:
            return undecided(str(error), method="rouge")
        if not all(wanted):
            return undecided("a target has no words of the letters a to z or digits", method="rouge")
        cells = len(said) * sum(map(len, wanted))
        if cells > MAX_ROUGE_CELLS:
            reason = f"ROUGE-L of {cells:,} pairs of words is not computed, at most {MAX_ROUGE_CELLS:,}"
            return undecided(reason, method="rouge")
        scorer = _rouge()
        score = max(scorer.score(words, said)["rougeL"].fmeasure for words in wanted)
        return measured(min(1.0, score), self.threshold, response.strip(), "rouge")

    def _words(self, text: str) -> list[str]:
        normal = self.normalization(text)
        return _ROUGE_WORD.findall(normal if self.case_sensitive else normal.lower())


class _Split:
    """A tokenizer for texts that are already lists of words."""

    def tokenize(self, text: list[str]) -> list[str]:
        return text


@functools.cache
def _rouge() -> Any:
    return importlib.import_module("rouge_score.rouge_scorer").RougeScorer(["rougeL"], tokenizer=_Split())
