"""Typed options as requests: one from flags, or those of a suite's file."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from crucible_bridge.codec.evaluation import MAX_ID_BYTES
from crucible_bridge.codec.fields import at_most_bytes, at_most_count, within
from crucible_bridge.errors import FailedPrecondition, InvalidField, NotFound, PermissionDenied, clipped
from crucible_bridge.suites import Suite, SuiteMember, load_suite, parse_suite
from crucible_bridge.types import (
    Dataset,
    EvaluateRequest,
    EvaluatorSpec,
    FewShot,
    FileFormat,
    InlineDataset,
    Limits,
    ModelRef,
    Prompt,
    Record,
    Sample,
    SamplingParams,
    bounds,
    parse_model,
)
from crucible_worker import suites
from crucible_worker.cli.options import RequestOptions
from crucible_worker.config import Settings
from crucible_worker.datasets.loading import BUILTIN_DATASETS
from crucible_worker.engine.preparation import keys_of
from crucible_worker.engine.specification import PlacedKeys, refuse_equal_keys
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.inspect.allowed import InspectAllowlist, TaskName, parse_task
from crucible_worker.evaluators.registry import EvaluatorParts
from crucible_worker.grading import registry as graders
from crucible_worker.grading.registry import NO_GRADING_PARTS

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "EvaluationToRun",
    "allowing",
    "budget_of",
    "check_allowed",
    "dataset_of",
    "evaluations_to_run",
    "keeps_log",
    "of_tasks",
    "read_evaluators",
    "read_prompt",
    "with_evaluators",
]

DEFAULT_MAX_TOKENS = 256
"""Tokens of a sample, if neither a flag nor a suite sets them."""

_HUB_NAME = re.compile(r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*")
"""The form of a model's name on the Hugging Face hub: gpt2, Qwen/Qwen3-0.6B."""

_FORMATS = {f".{each.value}": each for each in FileFormat} | {".tsv": FileFormat.CSV, ".ndjson": FileFormat.JSONL}
_INTEGER_MOST = 2**63 - 1
_TIMEOUT_MOST = _INTEGER_MOST // 1000

_SUITES_SAY = (
    *("data", "where", "shuffle_seed", "task", "evaluator", "option", "grader", "renderer", "system", "template"),
    *("target_delimiter", "special_tokens", "few_shot", "few_shot_seed", "max_tokens", "temperature", "seed", "stop"),
    "max_unscored",
)
"""Options that a suite's file has itself."""
_TASKS_SAY = (
    *("where", "shuffle_seed", "grader", "renderer", "system", "template", "target_delimiter", "special_tokens"),
    *("few_shot", "few_shot_seed"),
)
"""Options that a task of Inspect has itself."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationToRun:
    """An evaluation to run."""

    request: EvaluateRequest
    """The request."""
    model: str
    """The model as it was typed."""
    name: str = ""
    """The name of a suite's evaluation."""
    path: str = ""
    """Its path in a suite's file: "evaluations[1]"."""
    label: str
    """The label of its progress."""
    resumes: bool = False
    """Whether the request is that of its record; then its pause ends, too."""
    bounds: Mapping[str, float | int] = dataclasses.field(default_factory=dict)
    """What it may spend when its pause ends, by the names of its limits; as it is where absent."""


def evaluations_to_run(typed: RequestOptions, parts: EvaluatorParts | None = None) -> tuple[str, list[EvaluationToRun]]:
    """The requests: the suite's name, empty without one, and the evaluations in order, model by model.

    Args:
        typed: the flags.
        parts: evaluators and graders, with those of files that flags name.

    Raises:
        InvalidField: names the wrong flag, the field of a request, or the path in a suite's file.
    """
    if typed.evaluation_id is not None and not typed.kept:
        raise InvalidField("--id", "and --no-keep exclude each other: what is not kept cannot be resumed")
    if typed.evaluation_id == "":
        # An unset shell variable: the evaluation that should be resumed would be lost.
        raise InvalidField("--id", "is empty")
    _refuse_out_of_bounds(typed)
    _refuse_equal_models(typed.models)
    if typed.suite is None:
        return "", [_asked(typed, model, parts) for model in typed.models]
    for flag, _ in typed.given(*_SUITES_SAY):
        raise InvalidField(flag, "belongs in the suite's file")
    suite = _suite(typed.suite)
    _refuse_unknown(suite)
    members = list(_wanted(suite, typed.only))
    return suite.name, [_member(member, index, typed, model) for model in typed.models for index, member in members]


def read_evaluators(texts: Sequence[str], options: Sequence[str]) -> tuple[EvaluatorSpec, ...]:
    """Read "[NAME=]KIND" and "LABEL.KEY=VALUE"; the label is the name, or the kind if there is none.

    A key is `key.key` for an option within an option that is an object.

    Raises:
        InvalidField: an option is not of this form, or of no evaluator.
    """
    parts = [text.rpartition("=") for text in texts]
    labels = [name if separator else kind for name, separator, kind in parts]
    by_label: dict[str, dict[str, Any]] = {}
    for index, text in enumerate(options):
        place, separator, value = text.partition("=")
        label, dot, path = _split(place, labels)
        if not (separator and dot and label and path):
            raise InvalidField(f"option[{index}]", f"is {text!r}, not EVALUATOR.KEY=VALUE")
        if label not in labels:
            there_are = f"there are {', '.join(labels)}" if labels else "there is none"
            raise InvalidField(f"--option {place}", f"is of no --evaluator; {there_are}")
        _put(by_label.setdefault(label, {}), path, _json_or_text(value), f"--option {place}")
    return tuple(
        EvaluatorSpec(kind=kind, name=name if separator else None, options=by_label.pop(label, {}))
        for (name, separator, kind), label in zip(parts, labels)
    )


def _split(place: str, labels: Sequence[str]) -> tuple[str, str, str]:
    """Split an option's path at the dot after an evaluator's label, which may contain dots itself."""
    of = max((label for label in labels if place.startswith(f"{label}.")), key=len, default="")
    return (of, ".", place[len(of) + 1 :]) if of else place.rpartition(".")


def _put(options: dict[str, Any], path: str, value: Any, field: str) -> None:
    """Set an option: `key`, or `key.key` inside an option that is an object."""
    *outer, key = path.split(".")
    for step in outer:
        options = options.setdefault(step, {})
        if not isinstance(options, dict):
            raise InvalidField(field, f"is inside of {step}, which has a value that is not an object")
    if key in options:
        raise InvalidField(field, "is given twice; only one value can count")
    options[key] = value


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _refuse_equal_models(models: Sequence[str]) -> None:
    for index, model in enumerate(models):
        if model in models[:index]:
            raise InvalidField("--model", f"{model!r} is given twice; a second model is one to compare with the first")


def _refuse_out_of_bounds(typed: RequestOptions) -> None:
    """Refuse what a worker would refuse in a request, and what no request can carry."""
    if typed.timeout is not None and not 0.001 <= typed.timeout <= _TIMEOUT_MOST:
        raise InvalidField("--timeout", f"is {typed.timeout:g}, must be from 0.001 to {_TIMEOUT_MOST:,} seconds")
    for flag, value in (*(("--model", model) for model in typed.models), *typed.given()):
        _refuse_unsendable(flag, value)
    at_most_bytes(typed.run_id or "", bounds.EVALUATE_REQUEST_RUN_ID_MAX_BYTES, "--run-id")
    at_most_bytes(typed.prefix or "", bounds.EVALUATE_REQUEST_METRIC_PREFIX_MAX_BYTES, "--prefix")


def _refuse_unsendable(flag: str, value: Any) -> None:
    if isinstance(value, int) and not isinstance(value, bool):
        within(value, -_INTEGER_MOST - 1, _INTEGER_MOST, flag)
    elif isinstance(value, float) and math.isnan(value):
        raise InvalidField(flag, "is not a number")
    elif isinstance(value, str) and not _is_utf8(value):
        raise InvalidField(flag, f"is {clipped(value)}, which is not UTF-8")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _asked(typed: RequestOptions, model: str, parts: EvaluatorParts | None) -> EvaluationToRun:
    if typed.only:
        raise InvalidField("--only", "names evaluations of a suite, and --suite is not given")
    if typed.task and typed.data is not None:
        raise InvalidField("--task", "replaces --data: give only one of them")
    for flag, _ in typed.given(*_TASKS_SAY) if typed.task else ():
        raise InvalidField(flag, "is for --data: a task of Inspect makes its questions itself")
    if not typed.task and (typed.data is None or not typed.evaluator):
        missing = "--data" if typed.data is None else "--evaluator"
        raise InvalidField(missing, "is needed, unless --suite or --task says what is evaluated")
    evaluators = _rendering(read_evaluators(typed.evaluator, typed.option), typed.renderer)
    evaluators = _graded(evaluators, typed.grader, parts)
    if not typed.kept and any(keeps_log(spec) for spec in evaluators):
        raise InvalidField(
            "--no-keep", "deletes Inspect's logs with the evaluation, and the option keep_log keeps them; give only one"
        )
    sampling = SamplingParams(
        max_tokens=DEFAULT_MAX_TOKENS if typed.max_tokens is None else typed.max_tokens,
        temperature=0.0 if typed.temperature is None else typed.temperature,
        seed=typed.seed,
        stop=tuple(typed.stop),
    )
    return EvaluationToRun(
        request=EvaluateRequest(
            evaluation_id=_id(typed, model),
            run_id=typed.run_id or "",
            step=typed.step,
            model=_model(model),
            evaluators=evaluators if not typed.task else of_tasks(evaluators, typed.samples),
            dataset=_samples(typed),
            sampling=None if typed.task and not _says_how_to_sample(typed) else sampling,
            limits=Limits(
                max_unscored=typed.max_unscored,
                concurrency=typed.concurrency,
                deadline_ms=_deadline_ms(typed),
                **budget_of(typed),
            ),
            metric_prefix=typed.prefix or "",
            labels=_labels(typed.label, {}),
            record=_record(typed, Record.FULL),
            models=_roles(typed.role, {}),
        ),
        model=model,
        label=model,
    )


def budget_of(typed: RequestOptions) -> dict[str, Any]:
    """What flags say that the calls of an evaluation may take, by the fields of its limits."""
    given = {"max_cost": typed.max_cost, "max_output_tokens": typed.max_output_tokens}
    return {name: value for name, value in given.items() if value is not None}


def _samples(typed: RequestOptions) -> Dataset:
    if typed.task:
        return dataset_of(typed.task)
    assert typed.data is not None  # checked before
    return dataclasses.replace(
        _dataset(typed.data),
        limit=typed.samples,
        shuffle_seed=typed.shuffle_seed,
        where=_filter(typed.where),
        prompt=read_prompt(typed),
        special_tokens=typed.special_tokens is True,
    )


def _says_how_to_sample(typed: RequestOptions) -> bool:
    """Whether a flag sets how the model is sampled; otherwise a task of Inspect sets it."""
    return bool(typed.stop) or not (typed.max_tokens is typed.temperature is typed.seed is None)


def read_prompt(typed: RequestOptions) -> Prompt | None:
    """The prompt that the flags describe; None without one.

    Raises:
        InvalidField: a file cannot be read, or the examples are not "COUNT:SOURCE" or too many.
    """
    if typed.few_shot is None and typed.few_shot_seed is not None:
        raise InvalidField("--few-shot-seed", "draws examples, and --few-shot is not given")
    system, template = (_text_of(getattr(typed, name), f"--{name}") for name in ("system", "template"))
    few_shot = None
    if typed.few_shot is not None:
        count, separator, source = typed.few_shot.partition(":")
        if not (separator and source and count.isascii() and count.isdigit() and len(count) < 6):
            raise InvalidField("--few-shot", f"is {clipped(typed.few_shot)}, not COUNT:SOURCE, as 5:jsonl:train.jsonl")
        within(int(count), bounds.FEW_SHOT_COUNT_LEAST, bounds.FEW_SHOT_COUNT_MOST, "--few-shot")
        few_shot = FewShot(source=source, count=int(count), seed=typed.few_shot_seed or 0)
    delimiter = typed.target_delimiter
    at_most_bytes(delimiter or "", bounds.PROMPT_TARGET_DELIMITER_MAX_BYTES, "--target-delimiter")
    prompt = Prompt(system=system, template=template, few_shot=few_shot, target_delimiter=delimiter)
    return None if prompt == Prompt() else prompt


def _text_of(given: str | None, flag: str) -> str:
    """A text as it was typed, or the text of the file that it names as @FILE."""
    if given is None or not given.startswith("@"):
        return given or ""
    path = Path(given[1:])
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise InvalidField(flag, f"names the file {clipped(str(path))}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidField(flag, f"names the file {clipped(str(path))}, which is not UTF-8") from error


def _rendering(specs: tuple[EvaluatorSpec, ...], renderer: str | None) -> tuple[EvaluatorSpec, ...]:
    """Evaluators with --renderer, unless their own option sets another."""
    if renderer is None:
        return specs
    return tuple(dataclasses.replace(spec, options={"renderer": renderer, **spec.options}) for spec in specs)


def _graded(
    specs: tuple[EvaluatorSpec, ...], grader: str | None, parts: EvaluatorParts | None
) -> tuple[EvaluatorSpec, ...]:
    """Evaluators with --grader, if they have a grader and their own option sets no other."""
    if grader is None:
        return specs
    grading = NO_GRADING_PARTS if parts is None else parts.grading
    if grader not in (known := graders.names(grading)):
        raise InvalidField("--grader", f"is {clipped(grader)}, known are: {', '.join(known)}")
    having = [spec for spec in specs if "grader" in _properties(spec.kind, parts)]
    if not having:
        there_are = ", ".join(kind for kind in registry.EVALUATORS if "grader" in _properties(kind, parts))
        raise InvalidField("--grader", f"is of no use here: evaluators that have a grader are {there_are}")
    return tuple(
        dataclasses.replace(spec, options={"grader": grader, **spec.options}) if spec in having else spec
        for spec in specs
    )


def _properties(kind: str, parts: EvaluatorParts | None) -> Mapping[str, Any]:
    """Options of an evaluator; none for an unknown one, which is refused later."""
    info = registry.info_if_known(kind, parts)
    return {} if info is None else info.options_schema["properties"]


def _model(text: str) -> ModelRef:
    """Read a model; for a text without a scheme the error suggests what is meant."""
    try:
        return parse_model(text)
    except InvalidField as error:
        if ":" in text:
            raise
        if Path(text).is_dir():
            raise InvalidField(
                error.field, f"{error.message}; did you mean {_below_root('model', 'local', text)}?"
            ) from None
        if _HUB_NAME.fullmatch(text):
            name = text.rpartition("/")[2]
            cure = f"to fetch it from the Hugging Face hub: hf download {text} --local-dir {name}, then local:{name}"
            if "/" in text:
                cure = f"a model of the Hugging Face hub, or of its cache here, is hub:{text}"
            raise InvalidField(error.field, f"{error.message}; {cure}") from None
        raise


def _filter(texts: Sequence[str]) -> dict[str, str]:
    """Read "KEY=VALUE"; a key has no "=" in it."""
    found: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not (separator and key):
            raise InvalidField("--where", f"is {clipped(text)}, not KEY=VALUE, for instance level=easy")
        if found.setdefault(key, value) != value:
            raise InvalidField("--where", f"has two values for {clipped(key)}; a sample has one")
    return found


def _dataset(text: str) -> Dataset:
    """Read a data set; for a text without a scheme the error suggests what is meant."""
    try:
        return Dataset.of(text)
    except InvalidField as error:
        # The last that says it: "sums.csv.gz" is CSV.
        named = [_FORMATS[suffix] for suffix in map(str.lower, Path(text).suffixes) if suffix in _FORMATS]
        if ":" not in text and (Path(text).is_file() or named):
            scheme = named[-1] if named else FileFormat.JSONL
            raise InvalidField(
                error.field, f"{error.message}; did you mean {_below_root('data', scheme, text)}?"
            ) from None
        if text in BUILTIN_DATASETS:
            raise InvalidField(error.field, f"{error.message}; did you mean builtin:{text}?") from None
        raise


def _below_root(flag: str, scheme: str, text: str) -> str:
    """The spelling of a path: relative to a root, which is the current folder unless a flag names another."""
    path = Path(os.path.normpath(Path.cwd() / text))
    if path.is_relative_to(Path.cwd()):
        return f"--{flag} {scheme}:{path.relative_to(Path.cwd())}"
    return f"--{flag}-root {path.parent} --{flag} {scheme}:{path.name}"


def _member(member: SuiteMember, index: int, typed: RequestOptions, model: str) -> EvaluationToRun:
    planned, limits = member.evaluation, member.evaluation.limits
    if typed.concurrency is not None:
        limits = dataclasses.replace(limits, concurrency=typed.concurrency)
    if typed.timeout is not None:
        limits = dataclasses.replace(limits, deadline_ms=_deadline_ms(typed))
    limits = dataclasses.replace(limits, **budget_of(typed))
    metric_prefix = f"{typed.prefix or ''}{planned.metric_prefix}"
    at_most_bytes(metric_prefix, bounds.EVALUATE_REQUEST_METRIC_PREFIX_MAX_BYTES, "--prefix")
    sizes = [limit for limit in (typed.samples, planned.dataset.limit) if limit is not None]
    request = EvaluateRequest(
        evaluation_id=_id(typed, model, member.name),
        run_id=typed.run_id or "",
        step=typed.step,
        model=_model(model),
        evaluators=planned.evaluators,
        dataset=dataclasses.replace(planned.dataset, limit=min(sizes, default=None)),
        sampling=planned.sampling,
        limits=limits,
        metric_prefix=metric_prefix,
        labels=_labels(typed.label, planned.labels),
        record=_record(typed, planned.record),
        models=_roles(typed.role, planned.models),
    )
    label = member.name if len(typed.models) == 1 else f"{model} {member.name}"
    return EvaluationToRun(request=request, model=model, name=member.name, path=f"evaluations[{index}]", label=label)


def _deadline_ms(typed: RequestOptions) -> int | None:
    return None if typed.timeout is None else round(typed.timeout * 1000)


def _labels(texts: Sequence[str], planned: Mapping[str, str]) -> Mapping[str, str]:
    """Labels of a suite's file, with those that are typed as KEY=VALUE, which win."""
    form = "KEY=VALUE, for instance branch=main"
    labels = {**planned, **_pairs("--label", texts, form, bounds.EVALUATE_REQUEST_LABELS_MAX_BYTES)}
    at_most_count(labels, bounds.EVALUATE_REQUEST_LABELS_MAX_COUNT, "--label")
    return labels


def _roles(texts: Sequence[str], planned: Mapping[str, str]) -> Mapping[str, str]:
    """Models of a suite's file by role or name, with those that are typed as NAME=REF, which win."""
    form = "NAME=MODEL, for instance grader=openai:SERVER/MODEL"
    models = {**planned, **_pairs("--role", texts, form, bounds.EVALUATE_REQUEST_MODELS_MAX_BYTES)}
    at_most_count(models, bounds.EVALUATE_REQUEST_MODELS_MAX_COUNT, "--role")
    return models


def _pairs(flag: str, texts: Sequence[str], form: str, max_bytes: int) -> Mapping[str, str]:
    typed: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not (separator and key):
            raise InvalidField(flag, f"is {clipped(text)}, not {form}")
        for part in (key, value):
            at_most_bytes(part, max_bytes, f"{flag} {key[:60]}")
        if typed.setdefault(key, value) != value:
            raise InvalidField(flag, f"has two values for {clipped(key)}; only one can count")
    return typed


def _id(typed: RequestOptions, model: str, member: str = "") -> str:
    """The id, followed by the model if there are several, and by the evaluation of a suite; empty without one."""
    base = typed.made_id if typed.evaluation_id is None else typed.evaluation_id
    if not base:
        return ""
    further = "-".join(filter(None, (model if len(typed.models) > 1 else "", member)))
    evaluation_id = f"{base}-{further}" if further else base
    if len(evaluation_id.encode()) <= MAX_ID_BYTES:
        return evaluation_id
    if typed.evaluation_id is None:
        return f"{base}-{hashlib.sha256(further.encode()).hexdigest()[:16]}"
    raise InvalidField("--id", f"makes {clipped(evaluation_id)}, ids have at most {MAX_ID_BYTES} bytes")


def _record(typed: RequestOptions, otherwise: Record) -> Record:
    if typed.record is None:
        return otherwise
    try:
        return Record(typed.record)
    except ValueError:
        known = ", ".join(record.value for record in Record)
        raise InvalidField("--record", f"is {clipped(typed.record)}, must be one of {known}") from None


def _suite(named: str) -> Suite:
    """The suite of a file if the name looks like one, otherwise one that ships with the worker."""
    if named in suites.names():
        return parse_suite(suites.text(named))
    if not named.endswith(".toml") and os.sep not in named:
        known = ", ".join(suites.names())
        raise InvalidField("--suite", f"is {clipped(named)}, neither a file (.toml) nor one of {known}")
    try:
        return load_suite(Path(named))
    except OSError as error:
        raise InvalidField("--suite", f"is {clipped(named)}: {error.strerror}") from error


def _refuse_unknown(suite: Suite) -> None:
    """Refuse a suite whose evaluators could never run, before the first one does.

    Raises:
        InvalidField: names the path in the suite's file.
    """
    keys: list[PlacedKeys] = []
    for index, member in enumerate(suite.members):
        planned, path = member.evaluation, f"evaluations[{index}]"
        for place, spec in enumerate(planned.evaluators):
            # An evaluator whose needs are missing fails when its turn comes; the others still run.
            with contextlib.suppress(FailedPrecondition), _below(path):
                registry.create(spec, place, planned.sampling)
        with contextlib.suppress(FailedPrecondition):
            keys.extend(keys_of(planned, f"{path}."))
    refuse_equal_keys(keys)


@contextlib.contextmanager
def _below(path: str) -> Iterator[None]:
    try:
        yield
    except InvalidField as error:
        raise InvalidField(f"{path}.{error.field}", error.message, reason=error.reason) from error


def _wanted(suite: Suite, only: Sequence[str]) -> Iterator[tuple[int, SuiteMember]]:
    names = [member.name for member in suite.members]
    for name in only:
        if name not in names:
            raise InvalidField("--only", f"is {clipped(name)}; {suite.name} has {', '.join(names)}")
    for index, member in enumerate(suite.members):
        if not only or member.name in only:
            yield index, member


# `--task`: Inspect tasks by their names, without a data file that lists them.

_INSPECT, _LIMIT, _KEEP_LOG = "inspect", "limit", "keep_log"
_Options = TypeVar("_Options", bound=RequestOptions)


def with_evaluators(typed: _Options) -> _Options:
    """The options, with the evaluator `inspect` for tasks if none is typed."""
    return typed.replace(evaluator=(_INSPECT,)) if typed.task and not typed.evaluator else typed


def dataset_of(tasks: Sequence[str]) -> Dataset:
    """A data set of tasks, each a sample whose id is the task's name as it was typed.

    Raises:
        InvalidField: one is not the name of a task, or is given twice.
    """
    for index, text in enumerate(tasks):
        _parsed(text)
        if text in tasks[:index]:
            raise InvalidField("--task", f"{text!r} is given twice")
    return Dataset(source=InlineDataset(tuple(Sample(id=text, input=text) for text in tasks)))


def of_tasks(evaluators: Sequence[EvaluatorSpec], limit: int | None) -> tuple[EvaluatorSpec, ...]:
    """The evaluators of tasks, with a limit of samples for each task.

    Raises:
        InvalidField: one is not the evaluator `inspect`, or has a limit already.
    """
    found: list[EvaluatorSpec] = []
    for index, spec in enumerate(evaluators):
        if spec.kind != _INSPECT:
            raise InvalidField(f"evaluators[{index}]", "does not run tasks: --task is for the evaluator inspect")
        if limit is not None and _LIMIT in spec.options:
            raise InvalidField(f'evaluators[{index}].options["{_LIMIT}"]', "and --samples set the same limit")
        options = spec.options if limit is None else {**spec.options, _LIMIT: limit}
        found.append(dataclasses.replace(spec, options=options))
    return tuple(found)


def keeps_log(spec: EvaluatorSpec) -> bool:
    """Whether an evaluator keeps the logs of its tasks."""
    return spec.kind == _INSPECT and spec.options.get(_KEEP_LOG) is True


def allowing(tasks: Sequence[str], settings: Settings) -> Settings:
    """Settings that allow the typed tasks, unless they name roots or packages themselves.

    A wrong name allows nothing: it is refused with the request.
    """
    names: list[TaskName] = []
    for text in tasks:
        try:
            names.append(_parsed(text))
        except InvalidField:
            continue
    if settings.inspect_roots or settings.inspect_packages or not names:
        return settings
    in_files = any(name.in_file for name in names)
    packages = dict.fromkeys(name.place for name in names if not name.in_file)
    return dataclasses.replace(
        settings, inspect_roots=(Path.cwd(),) if in_files else (), inspect_packages=tuple(packages)
    )


def check_allowed(tasks: Sequence[str], settings: Settings) -> None:
    """Refuse a task that does not exist, or may not be run, before anything runs.

    Raises:
        InvalidField: one is not the name of a task, is in no file below a root, or in a package that is not allowed.
    """
    allowed = InspectAllowlist(roots=settings.inspect_roots, packages=settings.inspect_packages)
    for text in tasks:
        try:
            allowed.locate(_parsed(text))
        except (NotFound, PermissionDenied) as error:
            roots = ", ".join(map(str, settings.inspect_roots)) or "none"
            message = f"{text!r}: {error.message}; task roots: {roots}"
            raise InvalidField("--task", message, reason=error.reason) from error


def _parsed(text: str) -> TaskName:
    try:
        return parse_task(text)
    except InvalidField as error:
        raise InvalidField("--task", error.message, reason=error.reason) from None
