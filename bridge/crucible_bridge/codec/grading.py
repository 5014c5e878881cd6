"""What graders are asked <-> v1: items, policies, scorers; `codec.grades` has the answers.

What models said travels as bytes. Decoded, a sequence that is not UTF-8 is U+FFFD, and the item says how many are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crucible_bridge.codec.fields import EnumPair, at_least, child, finite_from_zero, made, sendable, several
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    BoxedForm,
    ChoiceScorer,
    ExactComparison,
    ExtractAnswerRequest,
    FormatScorer,
    GradeItem,
    GradeMathRequest,
    JsonSchemaForm,
    MarksForm,
    MathPolicy,
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
    "grade_item_from_v1",
    "grade_item_to_v1",
    "grade_math_request_from_v1",
    "grade_math_request_to_v1",
    "math_policy_from_v1",
    "math_policy_to_v1",
    "response_from_v1",
    "response_to_v1",
    "score_options_from_v1",
    "score_options_to_v1",
    "score_request_from_v1",
    "score_request_to_v1",
]

MAX_ROUNDING_DIGITS = bounds.MATH_POLICY_ROUNDING_DIGITS_MOST
"""Significant digits that a policy can ask for: what a double holds of a decimal."""

_TEXT_SCORERS: tuple[TextScorerKind, ...] = ("exact_match", "contains", "f1", "bleu", "rouge")
_MADE_SCORERS = {
    "regex": "RegexScorer(...)",
    "numeric": "NumericScorer(...)",
    "multiple_choice": "ChoiceScorer(...)",
    "format": "FormatScorer(...)",
}
"""Scorers that have options besides those of texts: how each is given, by its name."""
_SCORERS = tuple(field.name for field in pb.ScoreOptions.DESCRIPTOR.oneofs_by_name["scorer"].fields)
_COMPARISON = EnumPair(ExactComparison, pb.ExactComparison, "EXACT_COMPARISON_")
_REPLACEMENT = "\ufffd"


def grade_item_to_v1(item: GradeItem, field: str) -> pb.GradeItem:
    """Encode an item; lone surrogates in what a model said cross as the bytes they would be.

    Raises:
        InvalidField: it holds something else than text, or both a response and an answer, or neither.
    """
    if (item.response is None) == (item.answer is None):
        raise InvalidField(
            field, f"has {'neither response nor' if item.answer is None else 'both response and'} answer"
        )
    message = pb.GradeItem()
    if item.id:
        with sendable(child(field, "id")):
            message.id = item.id
    if item.response is not None:
        message.response = response_to_v1(item.response, child(field, "response"))
    if item.answer is not None:
        message.answer = response_to_v1(item.answer, child(field, "answer"))
    path = child(field, "targets")
    with sendable(path):
        targets = tuple(several(item.targets, child(field, "targets")))
    for index, target in enumerate(targets):
        if not isinstance(target, str):  # bytes would be taken for text
            raise InvalidField(f"{path}[{index}]", f"is {type(target).__name__}, not text")
        with sendable(f"{path}[{index}]"):
            message.targets.append(target)
    return message


def grade_item_from_v1(message: pb.GradeItem, field: str, *, targets_needed: bool = True) -> GradeItem:
    """Decode an item.

    Raises:
        InvalidField: it has neither a response nor an answer, or no target where one is needed.
    """
    kind = message.WhichOneof("candidate")
    if kind is None:
        raise InvalidField(field, "has neither response nor answer")
    targets = tuple(message.targets)
    if targets_needed and not targets:
        raise InvalidField(child(field, "targets"), "is empty, at least one target is needed")
    if kind == "response":
        text, replaced = response_from_v1(message.response)
        return GradeItem(id=message.id, response=text, targets=targets, replaced=replaced)
    text, replaced = response_from_v1(message.answer)
    return GradeItem(id=message.id, answer=text, targets=targets, replaced=replaced)


def math_policy_to_v1(policy: MathPolicy) -> pb.MathPolicy:
    """Encode what counts as equivalent, each rule said.

    Raises:
        InvalidField: a rule is no boolean, or the digits no number that can be sent.
    """
    if not isinstance(policy, MathPolicy):
        raise InvalidField(
            "policy", f"is {type(policy).__name__}, must be a MathPolicy, such as MathPolicy(degrees=False)"
        )
    values: dict[str, bool | int] = {}
    for rule in dataclasses.fields(policy):
        value, field = getattr(policy, rule.name), child("policy", rule.name)
        # protobuf takes a truth for a number, and a number for a truth.
        if isinstance(value, bool) is not isinstance(rule.default, bool):
            wanted = "true or false" if isinstance(rule.default, bool) else "a whole number"
            raise InvalidField(field, f"is {value!r:.60}, must be {wanted}")
        values[rule.name] = value
    return made(pb.MathPolicy, "policy", **values)


def math_policy_from_v1(message: pb.MathPolicy, field: str) -> MathPolicy:
    """Decode what counts as equivalent; rules that are not said are those of `MathPolicy`.

    Raises:
        InvalidField: rounding_digits is below 0 or above `MAX_ROUNDING_DIGITS`.
    """
    digits = message.rounding_digits
    at_least(digits, 0, child(field, "rounding_digits"))
    if digits > MAX_ROUNDING_DIGITS:
        raise InvalidField(child(field, "rounding_digits"), f"is {digits}, at most {MAX_ROUNDING_DIGITS} is accepted")
    return MathPolicy(**{said.name: value for said, value in message.ListFields()})


def grade_math_request_to_v1(request: GradeMathRequest) -> pb.GradeMathRequest:
    """Encode math answers to grade."""
    return pb.GradeMathRequest(items=_items_to_v1(request.items), policy=math_policy_to_v1(request.policy))


def grade_math_request_from_v1(message: pb.GradeMathRequest) -> GradeMathRequest:
    """Decode math answers to grade; at least one.

    Raises:
        InvalidField: an item or the policy is malformed, or there is no item.
    """
    return GradeMathRequest(items=_items_from_v1(message.items), policy=math_policy_from_v1(message.policy, "policy"))


def extract_answer_request_to_v1(request: ExtractAnswerRequest) -> pb.ExtractAnswerRequest:
    """Encode responses to take answers from.

    Raises:
        InvalidField: one of them is no text.
    """
    message = pb.ExtractAnswerRequest()
    for index, response in enumerate(request.responses):
        with sendable(f"responses[{index}]"):
            message.responses.append(response.encode("utf-8", "surrogatepass"))
    return message


def extract_answer_request_from_v1(message: pb.ExtractAnswerRequest) -> ExtractAnswerRequest:
    """Decode responses to take answers from; at least one.

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
        InvalidField: an option has the wrong type, or there is no such scorer.
    """
    with sendable("options"):
        message = pb.ScoreOptions(threshold=options.threshold)
        match options.scorer:
            case TextScorer(kind=kind) as scorer if kind in _TEXT_SCORERS:
                getattr(message, kind).CopyFrom(_text_to_v1(scorer))
            case RegexScorer(full=full):
                message.regex.CopyFrom(pb.RegexScorer(full=full))
            case NumericScorer(absolute_tolerance=absolute, relative_tolerance=relative):
                message.numeric.CopyFrom(pb.NumericScorer(absolute_tolerance=absolute, relative_tolerance=relative))
            case ChoiceScorer(choices=choices):
                message.multiple_choice.CopyFrom(
                    pb.ChoiceScorer(choices=several(choices, "options.multiple_choice.choices"))
                )
            case FormatScorer() as scorer:
                message.format.CopyFrom(_format_to_v1(scorer))
            case TextScorer(kind=kind):
                known = ", ".join([*_TEXT_SCORERS, *(f"{name} as {maker}" for name, maker in _MADE_SCORERS.items())])
                raise InvalidField("options", f"is {kind!r:.60}, which is no scorer by name; known are: {known}")
            case unknown:
                raise InvalidField(
                    "options", f"is {unknown!r:.60}, which is no scorer; known are: {', '.join(_SCORERS)}"
                )
    return message


def score_options_from_v1(message: pb.ScoreOptions, field: str) -> ScoreOptions:
    """Decode how answers are scored.

    Raises:
        InvalidField: no scorer is chosen, or an option of it is malformed.
    """
    threshold = message.threshold if message.HasField("threshold") else None
    if threshold is not None and not 0 <= threshold <= 1:
        raise InvalidField(child(field, "threshold"), f"is {threshold}, must be in [0, 1]")
    return ScoreOptions(scorer=_scorer_from_v1(message, field), threshold=threshold)


def score_request_to_v1(request: ScoreRequest) -> pb.ScoreRequest:
    """Encode answers to score."""
    return pb.ScoreRequest(items=_items_to_v1(request.items), options=score_options_to_v1(request.options))


def score_request_from_v1(message: pb.ScoreRequest) -> ScoreRequest:
    """Decode answers to score; at least one.

    Raises:
        InvalidField: an item or the options are malformed, or there is no item.
    """
    options = score_options_from_v1(message.options, "options")
    reads_targets = not isinstance(options.scorer, FormatScorer)
    return ScoreRequest(items=_items_from_v1(message.items, targets_needed=reads_targets), options=options)


def _items_to_v1(items: Sequence[GradeItem]) -> list[pb.GradeItem]:
    return [grade_item_to_v1(item, f"items[{index}]") for index, item in enumerate(items)]


def _items_from_v1(messages: Sequence[pb.GradeItem], *, targets_needed: bool = True) -> tuple[GradeItem, ...]:
    if not messages:
        raise InvalidField("items", "is empty, at least one item is needed")
    return tuple(
        grade_item_from_v1(message, f"items[{index}]", targets_needed=targets_needed)
        for index, message in enumerate(messages)
    )


def response_to_v1(text: str, field: str) -> bytes:
    """Encode what a model said; half a surrogate pair as the three bytes that are not UTF-8.

    Raises:
        InvalidField: it is no text.
    """
    with sendable(field):
        return text.encode("utf-8", "surrogatepass")


def response_from_v1(data: bytes) -> tuple[str, int]:
    """Decode what a model said: text, and how many U+FFFD in it stand for what was not UTF-8."""
    try:
        return data.decode(), 0
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        # A U+FFFD that was written as such is whole: its first byte never continues another character.
        return text, text.count(_REPLACEMENT) - data.count(_REPLACEMENT.encode())


def _scorer_from_v1(message: pb.ScoreOptions, field: str) -> Scorer:
    kind = message.WhichOneof("scorer")
    match kind:
        case None:
            raise InvalidField(field, f"names no scorer, known are: {', '.join(_SCORERS)}")
        case "regex":
            return RegexScorer(full=message.regex.full)
        case "numeric":
            return _numeric_from_v1(message.numeric, child(field, "numeric"))
        case "multiple_choice":
            choices = tuple(message.multiple_choice.choices)
            if not choices:
                raise InvalidField(child(field, "multiple_choice.choices"), "is empty, at least one choice is needed")
            return ChoiceScorer(choices=choices)
        case "format":
            return _format_from_v1(message.format, child(field, "format"))
        case text_kind:
            return _text_from_v1(text_kind, getattr(message, text_kind), child(field, text_kind))


def _text_to_v1(scorer: TextScorer) -> pb.TextScorer:
    if scorer.compare not in _COMPARISON.to_number:
        raise InvalidField(
            f"options.{scorer.kind}.compare", f"is {scorer.compare!r:.60}, known are: {', '.join(ExactComparison)}"
        )
    return pb.TextScorer(
        case_sensitive=scorer.case_sensitive,
        normalize_whitespace=scorer.normalize_whitespace,
        strip_punctuation=scorer.strip_punctuation,
        # Left out as it was before there was another, so that a worker which knows no other takes the request.
        compare=None if scorer.compare == ExactComparison.TEXT else _COMPARISON.to_v1(scorer.compare),
        ordered_lists=scorer.ordered_lists,
    )


def _text_from_v1(kind: TextScorerKind, message: pb.TextScorer, field: str) -> TextScorer:
    compare = ExactComparison.TEXT
    if message.HasField("compare"):
        compare = _COMPARISON.from_v1(message.compare, child(field, "compare"))
    if kind != "exact_match" and compare is not ExactComparison.TEXT:
        raise InvalidField(child(field, "compare"), f"is {compare}, which exact_match alone compares as")
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


def _numeric_from_v1(message: pb.NumericScorer, field: str) -> NumericScorer:
    return NumericScorer(
        absolute_tolerance=finite_from_zero(message.absolute_tolerance, child(field, "absolute_tolerance")),
        relative_tolerance=finite_from_zero(message.relative_tolerance, child(field, "relative_tolerance")),
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
                raise InvalidField(child(field, "boxed"), "is false: leave it out, or ask for another form")
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
