"""What graders are asked and what they answer: items, policies and scorers in; verdicts out."""

from __future__ import annotations

import dataclasses
import enum
from typing import Literal

from crucible_bridge.types.results import Problem, Verdict

__all__ = [
    "BoxedForm",
    "ChoiceScorer",
    "ExactComparison",
    "ExtractAnswerRequest",
    "ExtractedAnswer",
    "FormatScorer",
    "Grade",
    "GradeItem",
    "GradeMathRequest",
    "JsonSchemaForm",
    "MarksForm",
    "MathGrades",
    "MathPolicy",
    "NumericScorer",
    "RegexScorer",
    "ScoreOptions",
    "ScoreRequest",
    "Scorer",
    "TextScorer",
    "TextScorerKind",
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GradeItem:
    """What a model said, with what is right. Either `response` or `answer` is given."""

    id: str = ""
    """Echoed."""
    response: str | None = None
    """The whole response; the answer is extracted from it."""
    answer: str | None = None
    """The answer alone."""
    targets: tuple[str, ...] = ()
    """Any of these is right."""
    replaced: int = 0
    """U+FFFD in the text that stand for bytes that were not UTF-8; it travels as bytes, and the worker counts."""

    @property
    def text(self) -> str:
        """What the model said, whichever way it is given; empty where it is not."""
        return (self.answer if self.response is None else self.response) or ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """The grade of an item."""

    id: str = ""
    """The item's."""
    verdict: Verdict
    """CORRECT, INCORRECT, PARTIAL, UNDECIDED or ERROR."""
    score: float | None = None
    """0 to 1; None where it is unscored."""
    extracted: str = ""
    """What was taken for the answer."""
    extraction: str = ""
    """As of an `ExtractedAnswer`, or "whole": the text as it is; empty where nothing was looked for."""
    method: str = ""
    """How the verdict came about: "literal", "rational", "structure", "identity", "symbolic", "too_long", ..."""
    reason: str = ""
    """Why, for a person."""
    duration_ns: int = 0
    """Time it took, nanoseconds."""
    problem: Problem | None = None
    """What failed, where something did."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MathPolicy:
    """What counts as equivalent."""

    ordered_lists: bool = False
    """The order of a bare list matters."""
    rounding_digits: int = 0
    """Accept a decimal that rounds the target to so many significant digits; 0 accepts exact values only."""
    percent_lenient: bool = True
    """45% equals 0.45 and 45."""
    units_optional: bool = True
    """A missing unit is forgiven; a different unit never."""
    equation_value: bool = True
    """x = 5 equals 5."""
    interval_or_pair: bool = True
    """(1, 2) may be an interval or a pair."""
    require_reduced: bool = False
    """Fractions must be reduced."""
    degrees: bool = True
    """A degree is pi/180 and may be missing."""
    rename_variables: bool = False
    """x + 1 equals t + 1."""
    tuple_or_set: bool = False
    """(1, 2) equals {1, 2}."""
    log_is_natural: bool = False
    r"""A logarithm without a base is natural: \log x equals \ln x."""
    delta_value: bool = False
    r"""\Delta x = 3 equals 3."""
    math_in_prose: bool = False
    """Sentences are equal if their words are and the formulas in them are equal as mathematics."""
    integration_constants: bool = True
    """Constants of integration may have other letters: x^2 + C equals x^2 + K."""
    chemical_formulas: bool = True
    r"""Chemical formulas are compared as such: H2O, H_2O and \ce{H2O} are equal."""
    vector_notations: bool = True
    r"""Vectors are equal with hats, in bold, with arrows and as components: 2\hat{i} is (2, 0)."""
    chinese_words: bool = True
    """Units and conjunctions may be in Chinese."""
    dates_and_times: bool = True
    """Dates and times are compared as such: March 5 equals 5 March, and 2:30 PM equals 14:30."""
    regional_numerals: bool = True
    """1.234,5 and 1'234.5 equal 1234.5, and 2,75 equals 2.75."""
    unit_names: bool = True
    """A unit with a prefix may be written out, with either micro sign."""
    fold_base_letters: bool = True
    """Digits of a base that are letters may be in either case: ff_{16} equals FF_{16}."""
    expand_dots: bool = True
    """A list or set with dots equals its full list: {1, 2, ..., 5} equals {1, 2, 3, 4, 5}."""
    log_abs_optional: bool = False
    """ln|x| equals ln x."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GradeMathRequest:
    """Asks whether answers equal their targets, as mathematics."""

    items: tuple[GradeItem, ...]
    """One or more."""
    policy: MathPolicy = MathPolicy()
    """What counts as equivalent."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MathGrades:
    """Grades of math answers."""

    grades: tuple[Grade, ...]
    """In the order of the items."""
    policy_version: str
    """Version of rules and defaults, for records."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExtractAnswerRequest:
    """Asks for the answers inside responses."""

    responses: tuple[str, ...]
    """One or more."""
    replaced: tuple[int, ...] = ()
    """For each response, U+FFFD in it that stand for bytes that were not UTF-8; none counted if empty."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedAnswer:
    """The answer inside a response."""

    answer: str = ""
    """The answer."""
    extraction: str = ""
    """"json", "tag", "box", "marker", "sentence", "math", "whole", "number"; empty where there is none."""
    reason: str = ""
    """Why there is none, where that is not plain; and what had to be done to read the response."""
    problem: Problem | None = None
    """What failed, where something did."""


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RegexScorer:
    """The target is a regular expression (RE2: no backtracking) that must match."""

    full: bool = False
    """The whole answer must match."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumericScorer:
    """Numbers within a tolerance: |answer - target| <= absolute + relative * |target|."""

    absolute_tolerance: float = 0.0
    """At least 0."""
    relative_tolerance: float = 0.0
    """At least 0."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceScorer:
    """The letter or the text of a choice."""

    choices: tuple[str, ...]
    """In order; letters A, B, ... stand for them."""


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
