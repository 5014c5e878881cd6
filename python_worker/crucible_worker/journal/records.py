"""Records of the journal: frozen values to msgpack and back, in pairs.

A record is a map with the field names as keys, so that a later version can add fields. Inline samples are not
recorded: they come with the request, and the fingerprint shows whether they are the same.

SQLite writes a row as a whole, and the row of an evaluation is written with each batch of samples. Large options and
labels, and the prompt of the data set, are therefore stored once in another row: that of the evaluation has a digest in
place of such options, and no labels.
"""

from __future__ import annotations

import dataclasses
import hashlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from crucible_bridge.types import (
    BuiltinDataset,
    ChatMessage,
    Conversation,
    Dataset,
    DatasetSource,
    EvaluateRequest,
    EvaluatorRendering,
    EvaluatorResult,
    EvaluatorSpec,
    FewShot,
    FileDataset,
    FileFormat,
    HubDataset,
    InlineDataset,
    JsonlDataset,
    Limits,
    Metrics,
    ModelServer,
    ModelUsage,
    Problem,
    Prompt,
    Record,
    SampleResult,
    SamplingParams,
    ServerEngine,
    Trajectory,
    TrajectoryGroup,
    Transition,
    Turn,
    Usage,
    Verdict,
    format_file,
    format_hub,
    format_model,
    parse_file,
    parse_hub,
    parse_model,
)
from crucible_worker.backends.metering import Meter
from crucible_worker.journal.contents import (
    INPUT,
    PROMPT,
    SAMPLE,
    TURNS,
    Frame,
    content_from_record,
    kernel_of,
    opened,
    parts_from_record,
    prompt_bytes,
    turns_bytes,
)
from crucible_worker.journal.packing import pack, unpack

__all__ = [
    "MAX_ROW_BYTES",
    "Ended",
    "Joint",
    "Renderings",
    "SampleKey",
    "apart_to_record",
    "evaluator_result_from_record",
    "evaluator_result_to_record",
    "renderings_from_record",
    "renderings_to_record",
    "reply_of_usage",
    "reported_tokens",
    "request_from_record",
    "request_to_record",
    "result_from_record",
    "result_to_record",
    "sample_from_record",
    "sample_to_record",
    "score_from_record",
    "usage_from_record",
    "usage_to_record",
    "with_record",
]

# Rollouts of a sample as the journal keeps them: msgpack inside of the sample's record.
#
# They are bytes there, so that a reader of the score alone unpacks no tokens.

_TOKENS, _LOGPROBS = np.dtype("<i4"), np.dtype("<f4")


def group_to_record(group: TrajectoryGroup) -> bytes:
    """Pack the rollouts of a sample."""
    return pack(
        {
            "tags": group.tags,
            "trajectories": [
                {
                    "transitions": [_transition_to_map(transition) for transition in trajectory.transitions],
                    "final_reward": trajectory.final_reward,
                    "metrics": dict(trajectory.metrics),
                }
                for trajectory in group.trajectories
            ],
        }
    )


def group_from_record(record: bytes) -> TrajectoryGroup:
    """Unpack the rollouts of a sample; arrays are views of the record's bytes."""
    data = unpack(record)
    trajectories = tuple(
        Trajectory(
            transitions=tuple(map(_transition_from_map, trajectory["transitions"])),
            final_reward=trajectory["final_reward"],
            metrics=trajectory["metrics"],
        )
        for trajectory in data["trajectories"]
    )
    return TrajectoryGroup(trajectories=trajectories, tags=tuple(data["tags"]))


def _transition_to_map(transition: Transition) -> dict[str, Any]:
    data = {
        "observation_tokens": transition.observation_tokens,
        "action_tokens": transition.action_tokens,
        "reward": transition.reward,
        "metrics": dict(transition.metrics),
        "stop_reason": transition.stop_reason,
        "observation": _array_to_bytes(transition.observation, _TOKENS),
        "action": _array_to_bytes(transition.action, _TOKENS),
        "action_logprobs": _array_to_bytes(transition.action_logprobs, _LOGPROBS),
    }
    if transition.cached_observation_tokens is not None:
        data["cached_observation_tokens"] = transition.cached_observation_tokens
    return data


def _transition_from_map(data: Mapping[str, Any]) -> Transition:
    return Transition(
        **{
            **data,
            "observation": _array_from_bytes(data["observation"], _TOKENS),
            "action": _array_from_bytes(data["action"], _TOKENS),
            "action_logprobs": _array_from_bytes(data["action_logprobs"], _LOGPROBS),
        }
    )


def _array_to_bytes(array: np.ndarray | None, dtype: np.dtype) -> bytes | None:
    return None if array is None else array.astype(dtype, copy=False).tobytes()


def _array_from_bytes(data: bytes | None, dtype: np.dtype) -> np.ndarray | None:
    return None if data is None else np.frombuffer(data, dtype)


class SampleKey(NamedTuple):
    """The place of a result: the sample's position in the data set, the evaluator's index, the repeat."""

    position: int
    evaluator: int
    repeat: int


MAX_ROW_BYTES = 1024
"""Options of an evaluator, or labels, with a larger record are stored in another row."""

_APART = "kept_apart"
_BESIDE = frozenset(
    {
        *("verdict", "evaluator", "sample", "prompt", "turns", "truncated", "usage"),
        *("reasoning", "refusal", "tool_calls", "unparsed_tool_calls"),
    }
)
_SAMPLE = tuple(field.name for field in dataclasses.fields(SampleResult) if field.name not in _BESIDE)
"""Fields of a sample's record: those that every release knows. Verdict and evaluator are separate columns; prompt,
turns, usage and what an answer has besides its output are in another row."""
_sample_values = operator.attrgetter(*_SAMPLE)

_USAGE = (
    "calls",
    "prompt_tokens",
    "output_tokens",
    "cached_prompt_tokens",
    "reasoning_tokens",
    "unreported_calls",
    "cost",
)
"""Numbers of a usage in the order of a record; later ones come after the judges."""
_REPLY = len(_USAGE) + 1
"""Where the record of a usage has what `reply_to_record` packed: after the judges."""
_LATER_COUNTS = ("n_correct", "n_truncated_reasoning", "unscored_by_reason")
_UNSET = (None, None, None, None)
_BUDGETS = ("max_cost", "max_output_tokens", "max_run_cost", "max_run_output_tokens")


def apart_to_record(request: EvaluateRequest) -> bytes | None:
    """Pack what is too large for an evaluation's row, or no field of it; None if nothing is."""
    options = {
        digest: dict(spec.options)
        for spec in request.evaluators
        if (digest := _digest_if_large(spec.options)) is not None
    }
    labels = dict(request.labels) if _digest_if_large(request.labels) is not None else {}
    prompt = _prompt_to_map(request.dataset.prompt)
    # Earlier releases accept no further field of a request; of this other row they read only options and labels.
    later: dict[str, Any] = {} if request.record is Record.FULL else {"record": request.record.value}
    if prompt:
        later["prompt"] = prompt
    if request.dataset.where:
        later["where"] = dict(request.dataset.where)
    if request.dataset.special_tokens:
        later["special_tokens"] = True
    if request.log_to:
        later["log_to"] = list(request.log_to)
    if request.models:
        later["models"] = dict(request.models)
    if bounds := {name: value for name in _BUDGETS if (value := getattr(request.limits, name)) is not None}:
        later["budgets"] = bounds
    return pack({"options": options, "labels": labels, **later}) if options or labels or later else None


def request_to_record(request: EvaluateRequest) -> bytes:
    """Pack a request, without inline samples and without what `apart_to_record` packs."""
    return pack(
        {
            "evaluation_id": request.evaluation_id,
            "run_id": request.run_id,
            "step": request.step,
            "model": format_model(request.model),
            "evaluators": [_spec_to_map(spec) for spec in request.evaluators],
            "dataset": {
                "source": _source_to_pair(request.dataset.source),
                "limit": request.dataset.limit,
                "shuffle_seed": request.dataset.shuffle_seed,
                "skip_malformed": request.dataset.skip_malformed,
            },
            "sampling": None if request.sampling is None else _fields(request.sampling),
            "limits": {name: value for name, value in _fields(request.limits).items() if name not in _BUDGETS},
            "metric_prefix": request.metric_prefix,
            "labels": {} if _digest_if_large(request.labels) is not None else dict(request.labels),
            "correlation_id": request.correlation_id,
        }
    )


def request_from_record(record: bytes, apart: bytes | None = None) -> EvaluateRequest:
    """Unpack a request, with what `apart_to_record` packed if that is given; an inline data set comes back empty."""
    data = unpack(record)
    data["model"] = parse_model(data["model"])
    kept = _kept_apart(apart)
    data["labels"] = data["labels"] or kept["labels"]
    data["evaluators"] = tuple(_spec_from_map(spec, kept["options"]) for spec in data["evaluators"])
    data["dataset"] = Dataset(
        **{
            **data["dataset"],
            "source": _source_from_pair(data["dataset"]["source"]),
            "prompt": _prompt_from_map(kept.get("prompt")),
            "where": kept.get("where", {}),
            "special_tokens": kept.get("special_tokens", False),
        }
    )
    if data["sampling"] is not None:
        data["sampling"] = SamplingParams(**{**data["sampling"], "stop": tuple(data["sampling"]["stop"])})
    data["limits"] = Limits(**data["limits"], **kept.get("budgets", {}))
    data["record"] = Record(kept.get("record", Record.FULL))
    data["log_to"] = tuple(kept.get("log_to", ()))
    data["models"] = kept.get("models", {})
    return EvaluateRequest(**data)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """How a prompt in plain text and its target meet."""

    prompt: str
    """The end of the prompt, after "..." if it is longer."""
    target: str
    """The delimiter and the beginning of the target, before "..." if it is longer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Renderings:
    """How the models of an evaluation are prompted."""

    examples_fingerprint: str = ""
    """Fingerprint of the examples of its prompt; empty if there are none, and until they have been read."""
    evaluators: tuple[EvaluatorRendering, ...] = ()
    """The resolved rendering of each evaluator, in the request's order; empty until the model is loaded."""
    joint: Joint | None = None
    """Of the first sample; None if a template joins prompt and target."""
    servers: tuple[ModelServer, ...] = ()
    """Where the servers of its models were, attempt by attempt, each place once; see `Evaluation.servers`."""


def renderings_to_record(renderings: Renderings) -> bytes:
    """Pack how models are prompted."""
    evaluators = [{**_fields(one), "others": dict(one.others)} for one in renderings.evaluators]
    joint = None if renderings.joint is None else _fields(renderings.joint)
    return pack(
        {
            "examples_fingerprint": renderings.examples_fingerprint,
            "evaluators": evaluators,
            "joint": joint,
            "servers": [[one.name, list(one.addresses)] for one in renderings.servers],
        }
    )


def renderings_from_record(record: bytes) -> Renderings:
    """Unpack how models are prompted."""
    data = unpack(record)
    return Renderings(
        examples_fingerprint=data["examples_fingerprint"],
        evaluators=tuple(EvaluatorRendering(**one) for one in data["evaluators"]),
        joint=None if (joint := data.get("joint")) is None else Joint(**joint),  # earlier releases recorded none
        servers=tuple(
            ModelServer(name=name, addresses=tuple(addresses)) for name, addresses in data.get("servers") or ()
        ),
    )


def sample_to_record(sample: SampleResult) -> bytes:
    """Pack the result of a sample."""
    data = dict(zip(_SAMPLE, _sample_values(sample)))
    if sample.problem is not None:
        data["problem"] = _problem_to_map(sample.problem)
    data["measurements"] = dict(sample.measurements)
    if sample.group is not None:
        data["group"] = group_to_record(sample.group)
    return pack(data)


def sample_from_record(evaluator: str, verdict: str, record: bytes, usage: bytes | None = None) -> SampleResult:
    """Unpack the result of a sample, and its usage if that is given."""
    data = unpack(record)
    # Every sample is read once more when its evaluator is aggregated: usually there is nothing more to unpack.
    if data["problem"] is not None:
        data["problem"] = Problem(**data["problem"])
    if data.get("group") is not None:  # earlier releases recorded none
        data["group"] = group_from_record(data["group"])
    if usage is not None:
        data["usage"] = usage_from_record(usage)
        data["output_tokens"] = reported_tokens(data["output_tokens"], data["usage"])
    return SampleResult(evaluator=evaluator, verdict=Verdict(verdict), **data)


def reported_tokens(output_tokens: int | None, usage: Usage | None) -> int | None:
    """Tokens of an output as a result has them; earlier releases recorded 0 where a server reported none."""
    absent = not output_tokens and usage is not None and usage.calls and usage.output_tokens is None
    return None if absent else output_tokens


def with_record(
    result: SampleResult, record: bytes, content: bytes | None, frame: Callable[[int], Frame]
) -> tuple[SampleResult, int]:
    """A result with the record of its sample, and the approximate bytes of that.

    Args:
        result: of the sample.
        record: its prompt and its turns.
        content: what the sample is, if that is recorded.
        frame: returns the frame of a number.
    """
    sample, left_out = None, ()
    kernel = ""
    if content is not None:
        content = opened(content)
        sample, left_out = content_from_record(content, result.sample_id)
        kernel = kernel_of(sample)
        if left_out and isinstance(sample.input, Conversation):
            kernel = ""  # the last message of a truncated input need not be the original last one
    parts = parts_from_record(opened(record), frame=frame, kernel=kernel, output=result.output)
    if any(part.part == SAMPLE for part in parts.left_out):
        sample, left_out = None, ()
    lost = next((part for part in left_out if part.part == INPUT), None)
    if lost is not None and parts.framed:
        left_out += (dataclasses.replace(lost, part=PROMPT),)
    if lost is not None and parts.repeats and all(part.part != TURNS for part in parts.left_out):
        left_out += (dataclasses.replace(lost, part=TURNS, bytes=lost.bytes * parts.repeats),)
    turns = parts.turns if result.group is None else tuple(_with_tokens(parts.turns, result.group))
    found = dataclasses.replace(
        result, sample=sample, prompt=parts.prompt, turns=turns, truncated=(*left_out, *parts.left_out)
    )
    return found, len(content or b"") + prompt_bytes(parts.prompt) + turns_bytes(parts.turns)


def _with_tokens(turns: Iterable[Turn], group: TrajectoryGroup) -> Iterator[Turn]:
    """Turns with their tokens, taken from the rollouts if these have them: they are not stored twice."""
    transitions = [iter(trajectory.transitions) for trajectory in group.trajectories]
    for turn in turns:
        transition = None
        if turn.role == "assistant" and not turn.model and turn.rollout < len(transitions):
            transition = next(transitions[turn.rollout], None)
        if transition is None or transition.action is None:
            yield turn
        else:
            yield dataclasses.replace(turn, token_ids=transition.action, logprobs=transition.action_logprobs)


def score_from_record(record: bytes) -> tuple[str, float | None]:
    """The id of a sample and its score, if it has one."""
    data = unpack(record)
    return data["sample_id"], data["score"]


def usage_to_record(usage: Usage | Meter | None, reply: bytes | None = None) -> bytes | None:
    """Pack the usage of a sample, and what `reply_to_record` packed; None if no model was queried."""
    numbers = _usage_to_list(usage)
    if numbers is None or reply is None:
        return None if numbers is None else pack(numbers)
    # Earlier releases read as far as the judges.
    filled = [*numbers, *[None] * len(_USAGE)][: len(_USAGE)]
    return pack([*filled, numbers[len(_USAGE)] if len(numbers) > len(_USAGE) else [], reply])


def reply_of_usage(record: bytes | None) -> bytes | None:
    """What `reply_to_record` packed, from the record of a usage; None if it has none."""
    values = () if record is None else unpack(record)
    return values[_REPLY] if len(values) > _REPLY else None


def usage_from_record(record: bytes | None) -> Usage | None:
    """Unpack the usage of a sample; None if it is not known."""
    return None if record is None else _usage_from_list(unpack(record))


def evaluator_result_to_record(result: EvaluatorResult) -> bytes:
    """Pack the result of an evaluator, without specification (in the request) and usage (in its samples)."""
    return pack(_result_to_map(result))


def evaluator_result_from_record(spec: EvaluatorSpec, record: bytes) -> EvaluatorResult:
    """Unpack the result of an evaluator."""
    return _result_from_map(spec, unpack(record))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The result of an evaluation."""

    metrics: Metrics
    """Metrics of the evaluators that finished."""
    results: tuple[EvaluatorResult, ...] = ()
    """The result of each evaluator."""
    problem: Problem | None = None
    """Why it failed or was cancelled."""
    usage: Usage | None = None
    """Total usage."""
    engine: ServerEngine | None = None
    """The program that served its model."""


def result_to_record(ended: Ended) -> bytes:
    """Pack the result of an evaluation."""
    return pack(
        {
            "metrics": _metrics_to_map(ended.metrics),
            "results": [
                {**_known_before(result), "evaluator": _spec_to_map(result.evaluator)} for result in ended.results
            ],
            "problem": _problem_to_map(ended.problem),
            # Not in the results: earlier releases accept no further field there.
            "usages": [_usage_to_list(result.usage) for result in ended.results],
            "counts": [_later_counts(result) for result in ended.results],
            "usage": _usage_to_list(ended.usage),
            **_engine_to_maps(ended.engine),
        }
    )


def result_from_record(record: bytes, apart: bytes | None = None) -> Ended:
    """Unpack the result of an evaluation; `apart` has the options that are stored in another row."""
    data = unpack(record)
    kept = _kept_apart(apart)
    usages = data.get("usages") or [None] * len(data["results"])
    counts = data.get("counts") or [{} for _ in data["results"]]
    results = tuple(
        dataclasses.replace(
            _result_from_map(_spec_from_map(result.pop("evaluator"), kept["options"]), result),
            usage=_usage_from_list(usage),
            **later,
        )
        for result, usage, later in zip(data["results"], usages, counts, strict=True)
    )
    return Ended(
        metrics=Metrics(**data["metrics"]),
        results=results,
        problem=_problem_from_map(data["problem"]),
        usage=_usage_from_list(data.get("usage")),
        engine=_engine_from_maps(data),
    )


def _engine_to_maps(engine: ServerEngine | None) -> dict[str, Any]:
    if engine is None:
        return {"engine": None}
    fields = _fields(engine)
    # Earlier releases read three fields there, and accept no further one.
    known = {key: fields.pop(key) for key in ("name", "version", "fingerprint")}
    return {"engine": known, "served": fields | {"probe_problem": _problem_to_map(engine.probe_problem)}}


def _engine_from_maps(data: Mapping[str, Any]) -> ServerEngine | None:
    if (engine := data.get("engine")) is None:
        return None
    served = dict(data.get("served") or {})
    further: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in served.items()}
    if "probe_problem" in further:
        further["probe_problem"] = _problem_from_map(further["probe_problem"])
    return ServerEngine(**engine, **further)


def _result_to_map(result: EvaluatorResult) -> dict[str, Any]:
    data = _fields(result)
    del data["evaluator"], data["usage"]
    if not data["n_truncated_reasoning"]:  # earlier releases accept no such field
        del data["n_truncated_reasoning"]
    return data | {
        "metrics": _metrics_to_map(result.metrics),
        "problem": _problem_to_map(result.problem),
        "unscored_by_reason": dict(result.unscored_by_reason),
    }


def _later_counts(result: EvaluatorResult) -> dict[str, Any]:
    """The counts that releases do not accept which came before them."""
    return {name: getattr(result, name) for name in _LATER_COUNTS}


def _known_before(result: EvaluatorResult) -> dict[str, Any]:
    data = _result_to_map(result)
    return {name: value for name, value in data.items() if name not in _LATER_COUNTS}


def _result_from_map(spec: EvaluatorSpec, data: dict[str, Any]) -> EvaluatorResult:
    data |= {
        "metrics": Metrics(**data["metrics"]),
        "problem": _problem_from_map(data["problem"]),
    }
    return EvaluatorResult(evaluator=spec, **data)


def _usage_to_list(usage: Usage | Meter | None) -> list[Any] | None:
    """The numbers in the order of `_USAGE`, then the judges', without what is unset at the end."""
    if usage is None:
        return None
    # Every sample has one, so it is short and without names.
    numbers: list[Any] = [usage.calls, usage.prompt_tokens, usage.output_tokens]
    further = (usage.cached_prompt_tokens, usage.reasoning_tokens, usage.unreported_calls or None, usage.cost)
    if further != _UNSET or usage.judges:
        numbers += further
        if usage.judges:
            numbers.append([[judge.model, _usage_to_list(judge.usage)] for judge in usage.judges])
    return numbers


def _usage_from_list(data: Sequence[Any] | None) -> Usage | None:
    if data is None:  # earlier releases recorded none
        return None
    numbers = {name: number for name, number in zip(_USAGE, data) if number is not None}
    judges = data[len(_USAGE)] if len(data) > len(_USAGE) else ()
    found = ((model, _usage_from_list(usage)) for model, usage in judges)
    return Usage(**numbers, judges=tuple(ModelUsage(model=model, usage=usage) for model, usage in found if usage))


def _fields(value: Any) -> dict[str, Any]:
    # Shallow, unlike dataclasses.asdict, which copies every mapping and is ten times slower.
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _spec_to_map(spec: EvaluatorSpec) -> dict[str, Any]:
    digest = _digest_if_large(spec.options)
    options = dict(spec.options) if digest is None else {_APART: digest}
    return {"kind": spec.kind, "name": spec.name, "options": options}


def _spec_from_map(data: Mapping[str, Any], kept: Mapping[str, Mapping[str, Any]]) -> EvaluatorSpec:
    options = data["options"]
    return EvaluatorSpec(**{**data, "options": kept.get(options.get(_APART), options)})


def _kept_apart(record: bytes | None) -> dict[str, Any]:
    return {"options": {}, "labels": {}} if record is None else unpack(record)


def _digest_if_large(values: Mapping[str, Any]) -> str | None:
    if not values or len(record := pack(dict(values))) <= MAX_ROW_BYTES:
        return None
    return hashlib.sha256(record).hexdigest()


def _prompt_to_map(prompt: Prompt | None) -> dict[str, Any] | None:
    if prompt is None:
        return None
    few_shot = None if prompt.few_shot is None else _fields(prompt.few_shot)
    turns = {"prefix": _turns(prompt.prefix), "suffix": _turns(prompt.suffix)}
    return {**_fields(prompt), **turns, "few_shot": few_shot}


def _prompt_from_map(data: Mapping[str, Any] | None) -> Prompt | None:
    if data is None:
        return None
    few_shot = None if data["few_shot"] is None else FewShot(**data["few_shot"])
    turns = {name: _conversation(data[name]) for name in ("prefix", "suffix")}
    return Prompt(**{**data, **turns, "few_shot": few_shot})


def _turns(conversation: Conversation | None) -> list[list[str]] | None:
    return None if conversation is None else [[message.role, message.content] for message in conversation.messages]


def _conversation(turns: Sequence[Sequence[str]] | None) -> Conversation | None:
    return None if turns is None else Conversation(tuple(ChatMessage(role, content) for role, content in turns))


def _metrics_to_map(metrics: Metrics) -> dict[str, Any]:
    return {"values": dict(metrics.values), "undefined": dict(metrics.undefined)}


def _problem_to_map(problem: Problem | None) -> dict[str, Any] | None:
    return None if problem is None else _fields(problem)


def _problem_from_map(data: Mapping[str, Any] | None) -> Problem | None:
    return None if data is None else Problem(**data)


def _source_to_pair(source: DatasetSource) -> tuple[str, str]:
    match source:
        case InlineDataset():
            return "inline", ""
        case JsonlDataset(path):
            return "jsonl", path
        case FileDataset():
            return "file", format_file(source)
        case HubDataset():
            return "hub", format_hub(source)
        case BuiltinDataset(name):
            return "builtin", name


def _source_from_pair(pair: Sequence[str]) -> DatasetSource:
    kind, name = pair
    if kind == "jsonl":
        return JsonlDataset(name)
    if kind == "file":
        file_format, _, path = name.partition(":")
        return parse_file(FileFormat(file_format), path)
    if kind == "hub":
        return parse_hub(name)
    if kind == "builtin":
        return BuiltinDataset(name)
    return InlineDataset(())
