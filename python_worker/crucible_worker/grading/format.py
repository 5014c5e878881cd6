"""The grader of form: a response has a boxed answer, has marks in order, or is JSON that fits a schema."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types import BoxedForm, JsonSchemaForm, MarksForm
from crucible_worker.grading.base import DirectGrader, Grade, right, undecided, wrong
from crucible_worker.grading.extract import has_box

if TYPE_CHECKING:
    from crucible_worker.grading.json_schema import JsonSchema

__all__ = ["MAX_CALL_STEPS", "MAX_MARKS", "Format", "FormatOptions", "StepsLeft", "format_of"]

MAX_MARKS = 1_000
"""Marks of one form, at most."""
MAX_CALL_STEPS = 4_000_000
"""Steps of `crucible_worker.grading.json_schema` for the documents of one call together, 4 to 16 s; later ones are
UNDECIDED. A document that fits a usual schema takes some hundred steps."""

_METHOD = "format"
_CACHED = 4  # parsed schemas, the latest ones: with their patterns they may be large

_Mark: TypeAlias = Annotated[str, Meta(min_length=1)]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """The response has a form: a boxed answer, marks in order, or JSON that fits a schema."""

    form: Literal["boxed", "marks", "json_schema"] = "boxed"
    """The form: a boxed answer, marks in order, or JSON that fits a schema."""
    marks: Annotated[Sequence[_Mark] | UnsetType, Meta(min_length=1, max_length=MAX_MARKS)] = UNSET
    """Texts that must occur in this order, for the form marks."""
    json_schema: Annotated[Any, Meta(extra_json_schema={"type": ["object", "string"]})] | UnsetType = UNSET
    """JSON schema (draft 2020-12), or its text, for the form json_schema."""


@dataclasses.dataclass(slots=True)
class StepsLeft:
    """The steps that the documents of one call may still take together."""

    steps: int = MAX_CALL_STEPS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Format(DirectGrader):
    """Right if a response has a form; targets are ignored.

    - boxed: there is a complete box that is not empty, outside of the reasoning.
    - marks: each occurs after the previous one, in the reasoning or outside.
    - JSON schema: the whole response is JSON and fits; see `crucible_worker.grading.json_schema` for its support of
      schemas. A response that takes too long to check is UNDECIDED.
    """

    reads_targets: ClassVar[bool] = False

    form: BoxedForm | MarksForm | JsonSchemaForm
    """Which."""
    field: str = "form"
    """Its path in the request, for errors."""
    left: StepsLeft | None = dataclasses.field(default=None, compare=False, repr=False)
    """Limits all its documents together; if None, each is limited alone."""

    def __post_init__(self) -> None:
        if isinstance(self.form, JsonSchemaForm):
            _schema(self.form.schema, self.field)
        elif isinstance(self.form, MarksForm) and len(self.form.marks) > MAX_MARKS:
            raise InvalidField(self.field, f"has {len(self.form.marks):,} marks, at most {MAX_MARKS:,} are accepted")

    def for_call(self) -> Format:
        """The same form, with the steps of one call for all documents."""
        return dataclasses.replace(self, left=StepsLeft())

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Check the form. Targets and choices are ignored."""
        match self.form:
            case BoxedForm():
                return right("", _METHOD) if has_box(response) else wrong("", _METHOD, "there is no boxed answer")
            case MarksForm(marks=marks):
                return _in_order(response, marks)
            case JsonSchemaForm(schema=text):
                return _fits(response, _schema(text, self.field), self.left)


@functools.lru_cache(maxsize=_CACHED)
def _schema(text: str, field: str) -> JsonSchema:
    from crucible_worker.grading.json_schema import JsonSchema  # 7 ms that a worker need not spend at start

    return JsonSchema.parse(text, field)


def _in_order(response: str, marks: Sequence[str]) -> Grade:
    place = 0
    for number, mark in enumerate(marks, 1):
        found = response.find(mark, place)
        if found < 0:
            where = f"after mark {number - 1}" if number > 1 else "anywhere"
            return wrong("", _METHOD, f"mark {number}, {clipped(mark)}, does not occur {where}")
        place = found + len(mark)
    return right("", _METHOD)


def _fits(response: str, schema: JsonSchema, left: StepsLeft | None) -> Grade:
    from crucible_worker.grading.json_schema import Exhausted, NotJson, parse_json

    if left is not None and left.steps <= 0:
        return undecided(f"the documents before took {MAX_CALL_STEPS:,} steps to check", method=_METHOD)
    check = schema.check()
    try:
        flaw = check.flaw(schema.root, parse_json(response), 0)
    except NotJson as error:
        return wrong("", _METHOD, f"the response {error}")
    except Exhausted as error:
        return undecided(f"the response {error}", method=_METHOD)
    finally:
        if left is not None:
            left.steps -= check.steps
    return wrong("", _METHOD, f"the response{flaw}") if flaw else right("", _METHOD)


def format_of(options: Mapping[str, Any]) -> Format:
    """Make one from options that passed the schema of `FormatOptions`.

    Raises:
        InvalidField: an option of the form is missing, or the schema cannot be used. Paths begin at the options:
            `["marks"]`.
    """
    form = options["form"]
    if form != "boxed" and form not in options:
        raise InvalidField(f'["{form}"]', f"is missing, and the form {form} needs it")
    if form == "marks":
        return Format(form=MarksForm(marks=tuple(options["marks"])), field='["marks"]')
    if form == "json_schema":
        schema = options["json_schema"]
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return Format(form=JsonSchemaForm(schema=text), field='["json_schema"]')
    return Format(form=BoxedForm())
