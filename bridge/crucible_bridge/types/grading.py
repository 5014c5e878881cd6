"""What graders are asked, and what scorers look at."""

from __future__ import annotations

import dataclasses
import enum
from typing import Literal

from crucible_bridge.types.generated import ChoiceScorer, GradeRubricRequest, NumericScorer, RegexScorer, SamplingParams
from crucible_bridge.types.grade_items import GradeItem

__all__ = [
    "DEFAULT_JUDGE_SAMPLING",
    "BoxedForm",
    "ExactComparison",
    "ExtractAnswerRequest",
    "FormatScorer",
    "JsonSchemaForm",
    "MarksForm",
    "ScoreOptions",
    "ScoreRequest",
    "Scorer",
    "TextScorer",
    "TextScorerKind",
]

DEFAULT_JUDGE_SAMPLING: SamplingParams = GradeRubricRequest.__dataclass_fields__["sampling"].default
"""How a judge is asked where nothing is said: its likeliest judgement, thoughts included."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExtractAnswerRequest:
    """Asks for the answers inside responses."""

    responses: tuple[str, ...]
    """One or more."""
    replaced: tuple[int, ...] = ()
    """For each response, U+FFFD in it that stand for bytes that were not UTF-8; none counted if empty."""


TextScorerKind = Literal["exact_match", "contains", "f1", "bleu", "rouge"]
"""Equality; whether the answer holds a target; token F1 (SQuAD), sentence BLEU (sacrebleu), ROUGE-L F (rouge-score)."""


class ExactComparison(enum.StrEnum):
    """As what `exact_match` compares."""

    TEXT = "text"
    """Texts."""
    NUMBER = "number"
    """Decimal numbers, exactly: 5 equals 5.0, 1000 equals 1,000."""
    LIST = "list"
    """Lists in square brackets: [1, 2] equals [1,2]."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TextScorer:
    """Compares texts."""

    kind: TextScorerKind
    """By what."""
    case_sensitive: bool = False
    """If not, case is folded."""
    normalize_whitespace: bool = False
    """Runs of white space count as one blank."""
    strip_punctuation: bool = False
    """Punctuation is dropped, never inside numbers, nor signs."""
    compare: ExactComparison = ExactComparison.TEXT
    """As what `exact_match` compares; the others compare texts."""
    ordered_lists: bool = False
    """Of lists: the order of elements counts, and how often each occurs."""


@dataclasses.dataclass(frozen=True, slots=True)
class BoxedForm:
    """A boxed answer is there."""


@dataclasses.dataclass(frozen=True, slots=True)
class MarksForm:
    """Marks occur in this order: "Step 1", "Answer:"."""

    marks: tuple[str, ...]
    """One or more, none empty."""


@dataclasses.dataclass(frozen=True, slots=True)
class JsonSchemaForm:
    """The response is JSON that fits a schema."""

    schema: str
    """JSON schema (draft 2020-12), as JSON."""


@dataclasses.dataclass(frozen=True, slots=True)
class FormatScorer:
    """The form of the response, without a target."""

    form: BoxedForm | MarksForm | JsonSchemaForm
    """Which."""


Scorer = TextScorer | RegexScorer | NumericScorer | ChoiceScorer | FormatScorer
"""How an answer is scored."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOptions:
    """How answers are scored, and from which score on they are correct."""

    scorer: Scorer
    """How."""
    threshold: float | None = None
    """A score from here on is correct, one below it partial; if None 1, or 0.5 for f1, bleu and rouge."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """Asks for scores of answers."""

    items: tuple[GradeItem, ...]
    """One or more; `targets` may be empty for a format alone."""
    options: ScoreOptions
    """How."""
