"""Suites, named lists of evaluators with their data sets, and plans: as TOML files that people edit.

A file is read strictly: an unknown key, a wrong type or a value out of range is refused with its path in the file,
`evaluations[1].evaluators[0].kind`. Its evaluations can be used in a plan, so one file serves both.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crucible_bridge.codec.fields import entry
from crucible_bridge.codec.plans import evaluation_plan_from_v1, evaluation_plan_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.toml_fields import (
    Reader,
    document_of,
    fields_of,
    flag_of,
    list_of,
    number_of,
    table_of,
    text_of,
    whole_of,
    wrong,
)
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Dataset,
    EvaluationPlan,
    EvaluatorSpec,
    FewShot,
    Goal,
    Limits,
    Patience,
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
    document = document_of(text, "suite")
    fields = fields_of(document, "", _SUITE, needed=("name", "evaluations"), file="the suite's file")
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
        text: TOML. Without eval_every its evaluations are due at every step. So a suite is a plan, too.
        plan_id: the plan's id.
        run_id: the run's id.

    Raises:
        InvalidField: as `parse_suite`.
    """
    fields = fields_of(document_of(text, "plan"), "", _PLAN, file="the plan's file")
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
        patience=fields.get("patience"),
        best_file=fields.get("best_file", False),
        log_to=fields.get("log_to", ()),
    )
    return evaluation_plan_from_v1(evaluation_plan_to_v1(plan))


def _refuse_equal_names(members: list[SuiteMember], part: str = "evaluations") -> None:
    if not members:
        raise InvalidField(part, "is empty, at least one is needed")
    places: dict[str, int] = {}
    for index, member in enumerate(members):
        if places.setdefault(member.name, index) != index:
            raise InvalidField(f"{part}[{index}].name", f"is also the name of {part}[{places[member.name]}]")


def _member(value: Any, path: str, suite: str = "") -> SuiteMember:
    fields = fields_of(value, path, _MEMBER, needed=("name", "dataset", "evaluators"))
    name = fields.pop("name")
    own = {"suite": suite, "evaluation": name} if suite else {"evaluation": name}
    fields["labels"] = own | fields.get("labels", {})
    fields.setdefault("metric_prefix", f"{name}/")
    return SuiteMember(name=name, evaluation=PlannedEvaluation(**fields))


def _name(value: Any, path: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise wrong(path, value, 'a name of up to 60 letters, digits, "_", "." and "-"')
    return value


def _texts(value: Any, path: str) -> tuple[str, ...]:
    return tuple(text_of(item, f"{path}[{index}]") for index, item in enumerate(list_of(value, path)))


def _labels(value: Any, path: str) -> dict[str, str]:
    return {key: text_of(item, entry(path, key)) for key, item in table_of(value, path).items()}


def _evaluators(value: Any, path: str) -> tuple[EvaluatorSpec, ...]:
    return tuple(_evaluator(item, f"{path}[{index}]") for index, item in enumerate(list_of(value, path)))


def _evaluator(value: Any, path: str) -> EvaluatorSpec:
    """A table, or the kind alone."""
    if isinstance(value, str):
        return EvaluatorSpec(kind=value)
    return EvaluatorSpec(**fields_of(value, path, _EVALUATOR, needed=("kind",)))


def _dataset(value: Any, path: str) -> Dataset:
    """A table, or only the value of its `source`."""
    if isinstance(value, str):
        return _source(value, path)
    fields = fields_of(value, path, _DATASET, needed=("source",))
    return dataclasses.replace(fields.pop("source"), **fields)


def _source(value: Any, path: str) -> Dataset:
    text = text_of(value, path)
    try:
        return Dataset.of(text)
    except InvalidField as error:
        # A part of the text has no separate path here.
        part = error.field.removeprefix("dataset").removeprefix(".")
        raise InvalidField(path, f"{part} {error.message}".lstrip(), reason=error.reason) from None


def _prompt(value: Any, path: str) -> Prompt:
    return Prompt(**fields_of(value, path, _PROMPT))


def _conversation(value: Any, path: str) -> Conversation:
    """A list of tables, a message each."""
    tables = enumerate(list_of(value, path))
    return Conversation(tuple(_message(item, f"{path}[{index}]") for index, item in tables))


def _message(value: Any, path: str) -> ChatMessage:
    return ChatMessage(**fields_of(value, path, _MESSAGE, needed=("role", "content")))


def _few_shot(value: Any, path: str) -> FewShot:
    return FewShot(**fields_of(value, path, _FEW_SHOT, needed=("source", "count")))


def _sampling(value: Any, path: str) -> SamplingParams:
    return SamplingParams(**fields_of(value, path, _SAMPLING, needed=("max_tokens",)))


def _limits(value: Any, path: str) -> Limits:
    return Limits(**fields_of(value, path, _LIMITS))


def _record(value: Any, path: str) -> Record:
    try:
        return Record(text_of(value, path))
    except ValueError:
        raise wrong(path, value, " or ".join(record.value for record in Record)) from None


_SUITE: Mapping[str, Reader] = {"name": _name, "description": text_of, "evaluations": list_of}


def _patience(value: Any, path: str) -> Patience:
    return Patience(**fields_of(value, path, _PATIENCE, needed=("metric", "patience")))


def _goal(value: Any, path: str) -> Goal:
    try:
        return Goal(value)
    except ValueError:
        raise wrong(path, value, " or ".join(goal.value for goal in Goal)) from None


_PLAN: Mapping[str, Reader] = {
    "name": _name,
    "description": text_of,
    "eval_every": whole_of,
    "evaluations": list_of,
    "infrequent_eval_every": whole_of,
    "infrequent_evaluations": list_of,
    "patience": _patience,
    "best_file": flag_of,
    "log_to": _texts,
}
_PATIENCE: Mapping[str, Reader] = {
    "metric": text_of,
    "goal": _goal,
    "patience": whole_of,
    "min_delta": number_of,
    "confidence": number_of,
}
_MEMBER: Mapping[str, Reader] = {
    "name": _name,
    "dataset": _dataset,
    "evaluators": _evaluators,
    "sampling": _sampling,
    "limits": _limits,
    "metric_prefix": text_of,
    "labels": _labels,
    "record": _record,
    "models": _labels,
}
_EVALUATOR: Mapping[str, Reader] = {"kind": text_of, "name": text_of, "options": table_of}
_DATASET: Mapping[str, Reader] = {
    "source": _source,
    "limit": whole_of,
    "shuffle_seed": whole_of,
    "skip_malformed": flag_of,
    "where": _labels,
    "prompt": _prompt,
    "special_tokens": flag_of,
}
_PROMPT: Mapping[str, Reader] = {
    "system": text_of,
    "template": text_of,
    "prefix": _conversation,
    "suffix": _conversation,
    "few_shot": _few_shot,
    "target_delimiter": text_of,
}
_MESSAGE: Mapping[str, Reader] = {"role": text_of, "content": text_of}
_FEW_SHOT: Mapping[str, Reader] = {"source": text_of, "count": whole_of, "seed": whole_of}
_SAMPLING: Mapping[str, Reader] = {
    "max_tokens": whole_of,
    "temperature": number_of,
    "top_p": number_of,
    "top_k": whole_of,
    "seed": whole_of,
    "stop": _texts,
}
_LIMITS: Mapping[str, Reader] = {
    "concurrency": whole_of,
    "deadline_ms": whole_of,
    "stall_timeout_ms": whole_of,
    "sample_timeout_ms": whole_of,
    "max_unscored_share": number_of,
    "max_unscored": whole_of,
    "max_cost": number_of,
    "max_output_tokens": whole_of,
    "max_run_cost": number_of,
    "max_run_output_tokens": whole_of,
}
