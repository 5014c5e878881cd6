"""Suites, named lists of evaluators with their data sets, and plans: as TOML files that people edit.

A file is read strictly: an unknown key, a wrong type or a value out of range is refused with its path in the file,
`evaluations[1].evaluators[0].kind`. Its evaluations can be used in a plan, so one file serves both.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crucible_bridge.codec.fields import child, entry
from crucible_bridge.codec.plans import evaluation_plan_from_v1, evaluation_plan_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Dataset,
    EvaluationPlan,
    EvaluatorSpec,
    FewShot,
    Limits,
    PlannedEvaluation,
    Prompt,
    Record,
    SamplingParams,
)

__all__ = ["Suite", "SuiteMember", "load_plan", "load_suite", "parse_plan", "parse_suite"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SuiteMember:
    """One evaluation of a suite."""

    name: str
    """Unique in its suite: up to 60 letters, digits, "_", "." and "-"."""
    evaluation: PlannedEvaluation
    """The evaluation. Its metric_prefix is "<name>/" unless the file sets it; its labels have `suite` and
    `evaluation`, the two names, in addition to those of the file."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Evaluations that belong together, each time of one model."""

    name: str
    """Same form as an evaluation's name."""
    description: str
    """Its purpose, as its file describes it; may be empty."""
    members: tuple[SuiteMember, ...]
    """At least one, in the file's order."""

    @property
    def evaluations(self) -> tuple[PlannedEvaluation, ...]:
        """The value for `EvaluationPlan.evaluations`."""
        return tuple(member.evaluation for member in self.members)


def load_suite(path: Path | str) -> Suite:
    """Read a suite's file.

    Raises:
        OSError: it cannot be read.
        InvalidField: it is not a suite; see `parse_suite`.
    """
    content = Path(path).read_bytes()
    try:
        return parse_suite(content.decode())
    except UnicodeDecodeError as error:
        raise InvalidField("suite", f"is not UTF-8, at byte {error.start}") from None


def parse_suite(text: str) -> Suite:
    """Read a suite.

    Args:
        text: TOML.

    Raises:
        InvalidField: it is not TOML, or a key is unknown or missing, or a value has the wrong type or is out of range.
            A worker checks whether evaluators, options and data sets exist.
    """
    fields = _fields(_document(text, "suite"), "", _SUITE, needed=("name", "evaluations"))
    name = fields["name"]
    members = [_member(table, f"evaluations[{index}]", name) for index, table in enumerate(fields["evaluations"])]
    _refuse_equal_names(members)
    # A suite is checked as a plan, which has the same ranges and lengths.
    plan = EvaluationPlan(plan_id=name, run_id=name, evaluations=tuple(member.evaluation for member in members))
    checked = evaluation_plan_from_v1(evaluation_plan_to_v1(plan)).evaluations
    return Suite(
        name=name,
        description=fields.get("description", ""),
        members=tuple(
            dataclasses.replace(member, evaluation=evaluation) for member, evaluation in zip(members, checked)
        ),
    )


def load_plan(path: Path | str, *, plan_id: str, run_id: str) -> EvaluationPlan:
    """Read a plan's file.

    Raises:
        OSError: it cannot be read.
        InvalidField: it is not a plan; see `parse_plan`.
    """
    content = Path(path).read_bytes()
    try:
        return parse_plan(content.decode(), plan_id=plan_id, run_id=run_id)
    except UnicodeDecodeError as error:
        raise InvalidField("plan", f"is not UTF-8, at byte {error.start}") from None


def parse_plan(text: str, *, plan_id: str, run_id: str) -> EvaluationPlan:
    """Read a plan: its intervals, and evaluations as a suite has them. Ids are not in the file: each run has its own.

    Args:
        text: TOML. Without eval_every its evaluations are due at every step.
        plan_id: the plan's id.
        run_id: the run's id.

    Raises:
        InvalidField: as `parse_suite`.
    """
    fields = _fields(_document(text, "plan"), "", _PLAN)
    members: dict[str, list[SuiteMember]] = {}
    for part in ("evaluations", "infrequent_evaluations"):
        tables = enumerate(fields.get(part, ()))
        members[part] = [_member(table, f"{part}[{index}]") for index, table in tables]
        if members[part]:
            _refuse_equal_names(members[part], part)
    plan = EvaluationPlan(
        plan_id=plan_id,
        run_id=run_id,
        eval_every=fields.get("eval_every", 1),
        evaluations=tuple(member.evaluation for member in members["evaluations"]),
        infrequent_eval_every=fields.get("infrequent_eval_every", 0),
        infrequent_evaluations=tuple(member.evaluation for member in members["infrequent_evaluations"]),
    )
    return evaluation_plan_from_v1(evaluation_plan_to_v1(plan))


def _document(text: str, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InvalidField(what, "is not TOML: its lists or tables are nested too deeply") from None
    except ValueError as error:  # of tomllib, or of a number with thousands of digits
        raise InvalidField(what, f"is not TOML: {error}") from None


def _refuse_equal_names(members: list[SuiteMember], part: str = "evaluations") -> None:
    if not members:
        raise InvalidField(part, "is empty, at least one is needed")
    places: dict[str, int] = {}
    for index, member in enumerate(members):
        if places.setdefault(member.name, index) != index:
            raise InvalidField(f"{part}[{index}].name", f"is also the name of {part}[{places[member.name]}]")


def _member(value: Any, path: str, suite: str = "") -> SuiteMember:
    fields = _fields(value, path, _MEMBER, needed=("name", "dataset", "evaluators"))
    name = fields.pop("name")
    own = {"suite": suite, "evaluation": name} if suite else {"evaluation": name}
    fields["labels"] = own | fields.get("labels", {})
    fields.setdefault("metric_prefix", f"{name}/")
    return SuiteMember(name=name, evaluation=PlannedEvaluation(**fields))


_Reader = Callable[[Any, str], Any]
"""Reads a TOML value at a path. InvalidField: it has the wrong type."""


def _fields(value: Any, path: str, readers: Mapping[str, _Reader], needed: tuple[str, ...] = ()) -> dict[str, Any]:
    """The values of a table's keys; absent keys are left out."""
    if not isinstance(value, dict):
        raise _wrong(path, value, "a table")
    for key in value:
        if key not in readers:
            raise InvalidField(child(path, key[:60]), f"is unknown; there are {', '.join(readers)}")
    for key in needed:
        if key not in value:
            place = "" if path else " at the top of the file"
            raise InvalidField(child(path, key), f"is missing{place}")
    return {key: readers[key](item, child(path, key)) for key, item in value.items()}


def _name(value: Any, path: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _wrong(path, value, 'a name of up to 60 letters, digits, "_", "." and "-"')
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, value, "a text")
    return value


def _whole(value: Any, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(path, value, "a whole number")
    return value


def _number(value: Any, path: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(path, value, "a number")
    return float(value)


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(path, value, "true or false")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(path, value, "a list")
    return value


def _texts(value: Any, path: str) -> tuple[str, ...]:
    return tuple(_text(item, f"{path}[{index}]") for index, item in enumerate(_list(value, path)))


def _table(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(path, value, "a table")
    return value


def _labels(value: Any, path: str) -> dict[str, str]:
    return {key: _text(item, entry(path, key)) for key, item in _table(value, path).items()}


def _evaluators(value: Any, path: str) -> tuple[EvaluatorSpec, ...]:
    return tuple(_evaluator(item, f"{path}[{index}]") for index, item in enumerate(_list(value, path)))


def _evaluator(value: Any, path: str) -> EvaluatorSpec:
    """A table, or the kind alone."""
    if isinstance(value, str):
        return EvaluatorSpec(kind=value)
    return EvaluatorSpec(**_fields(value, path, _EVALUATOR, needed=("kind",)))


def _dataset(value: Any, path: str) -> Dataset:
    """A table, or only the value of its `source`."""
    if isinstance(value, str):
        return _source(value, path)
    fields = _fields(value, path, _DATASET, needed=("source",))
    return dataclasses.replace(fields.pop("source"), **fields)


def _source(value: Any, path: str) -> Dataset:
    text = _text(value, path)
    try:
        return Dataset.of(text)
    except InvalidField as error:
        # A part of the text has no separate path here.
        part = error.field.removeprefix("dataset").removeprefix(".")
        raise InvalidField(path, f"{part} {error.message}".lstrip(), reason=error.reason) from None


def _prompt(value: Any, path: str) -> Prompt:
    return Prompt(**_fields(value, path, _PROMPT))


def _conversation(value: Any, path: str) -> Conversation:
    """A list of tables, a message each."""
    tables = enumerate(_list(value, path))
    return Conversation(tuple(_message(item, f"{path}[{index}]") for index, item in tables))


def _message(value: Any, path: str) -> ChatMessage:
    return ChatMessage(**_fields(value, path, _MESSAGE, needed=("role", "content")))


def _few_shot(value: Any, path: str) -> FewShot:
    return FewShot(**_fields(value, path, _FEW_SHOT, needed=("source", "count")))


def _sampling(value: Any, path: str) -> SamplingParams:
    return SamplingParams(**_fields(value, path, _SAMPLING, needed=("max_tokens",)))


def _limits(value: Any, path: str) -> Limits:
    return Limits(**_fields(value, path, _LIMITS))


def _record(value: Any, path: str) -> Record:
    try:
        return Record(_text(value, path))
    except ValueError:
        raise _wrong(path, value, " or ".join(record.value for record in Record)) from None


def _wrong(path: str, value: Any, wanted: str) -> InvalidField:
    shown = repr(value)
    return InvalidField(path, f"is {shown if len(shown) <= 60 else shown[:60] + '...'}, not {wanted}")


_SUITE: Mapping[str, _Reader] = {"name": _name, "description": _text, "evaluations": _list}
_PLAN: Mapping[str, _Reader] = {
    "eval_every": _whole,
    "evaluations": _list,
    "infrequent_eval_every": _whole,
    "infrequent_evaluations": _list,
}
_MEMBER: Mapping[str, _Reader] = {
    "name": _name,
    "dataset": _dataset,
    "evaluators": _evaluators,
    "sampling": _sampling,
    "limits": _limits,
    "metric_prefix": _text,
    "labels": _labels,
    "record": _record,
}
_EVALUATOR: Mapping[str, _Reader] = {"kind": _text, "name": _text, "options": _table}
_DATASET: Mapping[str, _Reader] = {
    "source": _source,
    "limit": _whole,
    "shuffle_seed": _whole,
    "skip_malformed": _flag,
    "where": _labels,
    "prompt": _prompt,
}
_PROMPT: Mapping[str, _Reader] = {
    "system": _text,
    "template": _text,
    "prefix": _conversation,
    "suffix": _conversation,
    "few_shot": _few_shot,
}
_MESSAGE: Mapping[str, _Reader] = {"role": _text, "content": _text}
_FEW_SHOT: Mapping[str, _Reader] = {"source": _text, "count": _whole, "seed": _whole}
_SAMPLING: Mapping[str, _Reader] = {
    "max_tokens": _whole,
    "temperature": _number,
    "top_p": _number,
    "top_k": _whole,
    "seed": _whole,
    "stop": _texts,
}
_LIMITS: Mapping[str, _Reader] = {
    "concurrency": _whole,
    "deadline_ms": _whole,
    "stall_timeout_ms": _whole,
    "sample_timeout_ms": _whole,
    "max_unscored_share": _number,
    "max_unscored": _whole,
}
