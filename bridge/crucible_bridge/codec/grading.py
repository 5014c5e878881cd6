"""Scorers, and the requests that have one, <-> v1: a scorer is one of several types."""

from __future__ import annotations

from crucible_bridge.codec.fields import EnumPair, child, each_encoded, sendable, several
from crucible_bridge.codec.generated import (
    choice_scorer_from_v1,
    choice_scorer_to_v1,
    grade_math_request_from_v1,
    grade_math_request_to_v1,
    numeric_scorer_from_v1,
    numeric_scorer_to_v1,
    regex_scorer_from_v1,
    regex_scorer_to_v1,
)
from crucible_bridge.codec.grade_items import grade_item_from_v1, grade_item_to_v1, response_from_v1
from crucible_bridge.codec.options import options_from_v1, options_to_v1
from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types import (
    BoxedForm,
    ChoiceScorer,
    ExactComparison,
    ExtractAnswerRequest,
    FormatScorer,
    JsonSchemaForm,
    MarksForm,
    NumericScorer,
    RegexScorer,
    ScoreOptions,
    Scorer,
    ScoreRequest,
    TextScorer,
    TextScorerKind,
    bounds,
)
from crucible_bridge.v1 import grading_pb2 as pb

__all__ = [
    "MAX_ROUNDING_DIGITS",
    "extract_answer_request_from_v1",
    "extract_answer_request_to_v1",
    "grade_math_request_from_v1",
    "grade_math_request_to_v1",
    "score_options_from_v1",
    "score_options_to_v1",
    "score_request_from_v1",
    "score_request_to_v1",
]

MAX_ROUNDING_DIGITS = bounds.MATH_POLICY_ROUNDING_DIGITS_MOST
"""Significant digits that a policy can request: those that a double stores of a decimal."""

_TEXT_SCORERS: tuple[TextScorerKind, ...] = ("exact_match", "contains", "f1", "bleu", "rouge")
_MADE_SCORERS = {
    "regex": "RegexScorer(...)",
    "numeric": "NumericScorer(...)",
    "multiple_choice": "ChoiceScorer(...)",
    "format": "FormatScorer(...)",
}
"""Scorers with options besides those of texts: how to write each, by its name."""
_SCORERS = tuple(field.name for field in pb.ScoreOptions.DESCRIPTOR.oneofs_by_name["scorer"].fields)
_COMPARISON = EnumPair(ExactComparison, pb.ExactComparison, "EXACT_COMPARISON_")


def extract_answer_request_to_v1(request: ExtractAnswerRequest) -> pb.ExtractAnswerRequest:
    """Encode responses to extract answers from.

    Raises:
        InvalidField: one of them is no text.
    """
    message = pb.ExtractAnswerRequest()
    for index, response in enumerate(request.responses):
        with sendable(f"responses[{index}]"):
            message.responses.append(response.encode("utf-8", "surrogatepass"))
    return message


def extract_answer_request_from_v1(message: pb.ExtractAnswerRequest) -> ExtractAnswerRequest:
    """Decode responses to extract answers from; at least one.

    Raises:
        InvalidField: there is none.
    """
    if not message.responses:
        raise InvalidField("responses", "is empty, at least one response is needed")
    texts, replaced = zip(*map(response_from_v1, message.responses))
    return ExtractAnswerRequest(responses=texts, replaced=replaced if any(replaced) else ())


def score_options_to_v1(options: ScoreOptions) -> pb.ScoreOptions:
    """Encode how answers are scored.

    Raises:
        InvalidField: an option has the wrong type, or the scorer does not exist.
    """
    with sendable("options"):
        message = pb.ScoreOptions(threshold=options.threshold, grader=options.grader)
        if options.grader_options:
            message.grader_options.CopyFrom(options_to_v1(options.grader_options, "options.grader_options"))
        match options.scorer:
            case None if options.grader:
                pass
            case TextScorer(kind=kind) as scorer if kind in _TEXT_SCORERS:
                getattr(message, kind).CopyFrom(_text_to_v1(scorer))
            case RegexScorer() as scorer:
                message.regex.CopyFrom(regex_scorer_to_v1(scorer, "options.regex"))
            case NumericScorer() as scorer:
                message.numeric.CopyFrom(numeric_scorer_to_v1(scorer, "options.numeric"))
            case ChoiceScorer() as scorer:
                message.multiple_choice.CopyFrom(choice_scorer_to_v1(scorer, "options.multiple_choice"))
            case FormatScorer() as scorer:
                message.format.CopyFrom(_format_to_v1(scorer))
            case TextScorer(kind=kind):
                known = ", ".join([*_TEXT_SCORERS, *(f"{name} as {maker}" for name, maker in _MADE_SCORERS.items())])
                raise InvalidField("options", f"is {clipped(kind)}, which is no scorer by name; known are: {known}")
            case unknown:
                raise InvalidField(
                    "options", f"is {clipped(unknown)}, which is no scorer; known are: {', '.join(_SCORERS)}"
                )
    return message


def score_options_from_v1(message: pb.ScoreOptions, field: str) -> ScoreOptions:
    """Decode how answers are scored.

    Raises:
        InvalidField: no scorer is chosen, or one of its options is malformed.
    """
    threshold = message.threshold if message.HasField("threshold") else None
    if threshold is not None and not 0 <= threshold <= 1:
        raise InvalidField(child(field, "threshold"), f"is {threshold}, must be in [0, 1]")
    if not message.grader:
        if message.HasField("grader_options"):
            raise InvalidField(child(field, "grader_options"), "are of a grader, and grader names none")
        return ScoreOptions(scorer=_scorer_from_v1(message, field), threshold=threshold)
    if kind := message.WhichOneof("scorer"):
        raise InvalidField(child(field, kind), "is given together with grader: give one of the two")
    options = options_from_v1(message.grader_options, child(field, "grader_options"))
    return ScoreOptions(grader=message.grader, grader_options=options, threshold=threshold)


def score_request_to_v1(request: ScoreRequest) -> pb.ScoreRequest:
    """Encode answers to score."""
    return pb.ScoreRequest(
        items=each_encoded(grade_item_to_v1, request.items, "items"), options=score_options_to_v1(request.options)
    )


def score_request_from_v1(message: pb.ScoreRequest) -> ScoreRequest:
    """Decode answers to score; at least one.

    Raises:
        InvalidField: an item or the options are malformed, or there is no item.
    """
    options = score_options_from_v1(message.options, "options")
    if not message.items:
        raise InvalidField("items", "is empty, at least one is needed")
    # Whether a grader reads targets, the worker knows.
    reads_targets = options.scorer is not None and not isinstance(options.scorer, FormatScorer)
    items = tuple(
        grade_item_from_v1(item, f"items[{index}]", targets_needed=reads_targets)
        for index, item in enumerate(message.items)
    )
    return ScoreRequest(items=items, options=options)


def _scorer_from_v1(message: pb.ScoreOptions, field: str) -> Scorer:
    kind = message.WhichOneof("scorer")
    match kind:
        case None:
            raise InvalidField(field, f"names no scorer, known are: {', '.join(_SCORERS)}")
        case "regex":
            return regex_scorer_from_v1(message.regex, child(field, "regex"))
        case "numeric":
            return numeric_scorer_from_v1(message.numeric, child(field, "numeric"))
        case "multiple_choice":
            return choice_scorer_from_v1(message.multiple_choice, child(field, "multiple_choice"))
        case "format":
            return _format_from_v1(message.format, child(field, "format"))
        case text_kind:
            return _text_from_v1(text_kind, getattr(message, text_kind), child(field, text_kind))


def _text_to_v1(scorer: TextScorer) -> pb.TextScorer:
    if scorer.compare not in _COMPARISON.to_number:
        raise InvalidField(
            f"options.{scorer.kind}.compare", f"is {clipped(scorer.compare)}, known are: {', '.join(ExactComparison)}"
        )
    return pb.TextScorer(
        case_sensitive=scorer.case_sensitive,
        normalize_whitespace=scorer.normalize_whitespace,
        strip_punctuation=scorer.strip_punctuation,
        # Left out, as before there was another value, so that a worker that knows no other accepts the request.
        compare=None if scorer.compare == ExactComparison.TEXT else _COMPARISON.to_v1(scorer.compare),
        ordered_lists=scorer.ordered_lists,
    )


def _text_from_v1(kind: TextScorerKind, message: pb.TextScorer, field: str) -> TextScorer:
    compare = ExactComparison.TEXT
    if message.HasField("compare"):
        compare = _COMPARISON.from_v1(message.compare, child(field, "compare"))
    if kind != "exact_match" and compare is not ExactComparison.TEXT:
        raise InvalidField(child(field, "compare"), f"is {compare}, which only exact_match supports")
    if message.ordered_lists and compare is not ExactComparison.LIST:
        raise InvalidField(child(field, "ordered_lists"), "is for exact_match with compare: list")
    return TextScorer(
        kind=kind,
        case_sensitive=message.case_sensitive,
        normalize_whitespace=message.normalize_whitespace,
        strip_punctuation=message.strip_punctuation,
        compare=compare,
        ordered_lists=message.ordered_lists,
    )


def _format_to_v1(scorer: FormatScorer) -> pb.FormatScorer:
    match scorer.form:
        case BoxedForm():
            return pb.FormatScorer(boxed=True)
        case MarksForm(marks=marks):
            return pb.FormatScorer(marks=pb.Marks(marks=several(marks, "options.format.marks.marks")))
        case JsonSchemaForm(schema=schema):
            return pb.FormatScorer(json_schema=schema)
        case unknown:
            raise TypeError(f"{unknown!r} is no form")


def _format_from_v1(message: pb.FormatScorer, field: str) -> FormatScorer:
    match message.WhichOneof("form"):
        case "boxed":
            if not message.boxed:
                raise InvalidField(child(field, "boxed"), "is false: leave it out, or choose another form")
            return FormatScorer(BoxedForm())
        case "marks":
            marks = tuple(message.marks.marks)
            if not all(marks) or not marks:
                raise InvalidField(child(field, "marks.marks"), "is empty, or one of them is")
            return FormatScorer(MarksForm(marks))
        case "json_schema":
            return FormatScorer(JsonSchemaForm(message.json_schema))
        case _:
            raise InvalidField(field, "names no form")
