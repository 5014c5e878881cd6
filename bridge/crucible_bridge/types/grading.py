"""Requests of graders and scorers."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Literal

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
"""How a judge is sampled by default: its likeliest judgement, with room for its reasoning."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExtractAnswerRequest:
    """Request for the answers in responses."""

    responses: tuple[str, ...]
    """One or more."""
    replaced: tuple[int, ...] = ()
    """For each response, the number of U+FFFD that stand for bytes that were not UTF-8; all 0 if empty."""


TextScorerKind = Literal["exact_match", "contains", "f1", "bleu", "rouge"]
"""Equality; whether the answer holds a target; token F1 (SQuAD), sentence BLEU (sacrebleu), ROUGE-L F (rouge-score)."""


class ExactComparison(enum.StrEnum):
    """What `exact_match` compares the texts as."""

    TEXT = "text"
    """Texts."""
    NUMBER = "number"
    """Decimal numbers, exactly: 5 equals 5.0, 1000 equals 1,000."""
    LIST = "list"
    """Lists in square brackets: [1, 2] equals [1,2]."""
    JSON = "json"
    """Values of JSON: {"a": 1, "b": 2} equals {"b":2,"a":1.0}."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TextScorer:
    """Compares texts."""

    kind: TextScorerKind
    """By what."""
    case_sensitive: bool = False
    """If not, case is folded."""
    normalize_whitespace: bool = False
    """Runs of white space count as one space."""
    strip_punctuation: bool = False
    """Punctuation is dropped, except inside numbers, and except signs."""
    compare: ExactComparison = ExactComparison.TEXT
    """What `exact_match` compares as; the other scorers compare texts."""
    ordered_lists: bool = False
    """For lists: the order of the elements counts, and how often each occurs."""


@dataclasses.dataclass(frozen=True, slots=True)
class BoxedForm:
    """The response has a boxed answer."""


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
    """Scores the form of the response, without a target."""

    form: BoxedForm | MarksForm | JsonSchemaForm
    """Which."""


Scorer = TextScorer | RegexScorer | NumericScorer | ChoiceScorer | FormatScorer
"""How an answer is scored."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOptions:
    """How answers are scored, by a scorer or a named grader, and the score from which they are correct."""

    scorer: Scorer | None = None
    """How; None if a grader is named."""
    grader: str = ""
    """A grader of the worker by its name, as the option `grader` of evaluators names it."""
    grader_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Its options, as evaluators have them."""
    threshold: float | None = None
    """A score of at least this is correct, one below it partial; if None 1, or 0.5 for f1, bleu and rouge."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """Request for scores of answers."""

    items: tuple[GradeItem, ...]
    """One or more; `targets` may be empty for a format alone."""
    options: ScoreOptions
    """How."""
