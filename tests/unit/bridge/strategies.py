"""Hypothesis strategies for every type that crosses the wire, and equality that looks at bits."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import (
    LOCAL_DTYPES,
    MODEL_SCHEMES,
    BackendInfo,
    BuiltinDataset,
    ChatMessage,
    Conversation,
    Dataset,
    Datum,
    DrainReport,
    Dtype,
    EmbeddedModel,
    EvaluateRequest,
    Evaluation,
    EvaluationPlan,
    EvaluationState,
    EvaluatorInfo,
    EvaluatorKind,
    EvaluatorResult,
    EvaluatorSpec,
    FewShot,
    FileDataset,
    FileFormat,
    Fleet,
    Goal,
    HubDataset,
    HubModel,
    ImageAssetChunk,
    ImageChunk,
    InlineDataset,
    InstalledModel,
    JsonlDataset,
    Limits,
    LocalModel,
    Metrics,
    ModelInput,
    ModelUsage,
    OpenAIModel,
    OrchestratorModel,
    Patience,
    PlannedEvaluation,
    Problem,
    Prompt,
    Ragged,
    ReasoningPart,
    Replica,
    ReplicaState,
    Sample,
    SampleResult,
    SamplingParams,
    ServerEngine,
    Tensor,
    TinkerModel,
    TokensChunk,
    ToolCall,
    ToolSpec,
    Trajectory,
    TrajectoryGroup,
    Transition,
    UnparsedToolCall,
    Usage,
    Verdict,
    WorkerInfo,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
name = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
u64 = st.integers(0, 2**64 - 1)
positive = st.integers(1, 2**31 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """None, or a value."""
    return st.none() | strategy


def several(strategy: st.SearchStrategy[Any], min_size: int = 0) -> st.SearchStrategy[tuple[Any, ...]]:
    """A short tuple of values."""
    return st.lists(strategy, min_size=min_size, max_size=3).map(tuple)


labels = st.dictionaries(text, text, max_size=3)
numbers = st.dictionaries(text, finite, max_size=3)
shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
NUMPY_DTYPES = ("<u1", "?", "<i4", "<i8", "<f2", "<f4", "<f8")


@st.composite
def bit_arrays(draw: st.DrawFn, dtypes: tuple[str, ...] = NUMPY_DTYPES) -> np.ndarray:
    """Arrays of any bits: NaN payloads, infinities and subnormal numbers included."""
    dtype, shape = np.dtype(draw(st.sampled_from(dtypes))), draw(shapes)
    size = math.prod(shape) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype == np.bool_:
        data = bytes(byte & 1 for byte in data)
    return np.frombuffer(data, dtype).reshape(shape)


@st.composite
def bfloat16s(draw: st.DrawFn) -> Tensor:
    """bf16 tensors of any bits."""
    shape = draw(shapes)
    size = math.prod(shape) * 2
    return Tensor(dtype=Dtype.BF16, shape=shape, data=draw(st.binary(min_size=size, max_size=size)))


arrays = bit_arrays() | bfloat16s()
tokens = st.builds(TokensChunk, tokens=st.lists(i32, max_size=5).map(lambda ids: np.array(ids, np.int64)))
images = st.builds(
    ImageChunk, data=st.binary(max_size=9), format=st.sampled_from(["png", "jpeg"]), expected_tokens=optional(i32)
)
image_assets = st.builds(
    ImageAssetChunk, location=text, format=st.sampled_from(["png", "jpeg"]), expected_tokens=optional(i32)
)
model_inputs = st.builds(ModelInput, several(tokens | images | image_assets))
data = st.builds(Datum, model_input=model_inputs, loss_fn_inputs=st.dictionaries(text, arrays, max_size=3))
tool_calls = st.builds(ToolCall, name=text, arguments=text, id=text)
text_messages = st.builds(ChatMessage, name, text)
weights = optional(st.floats(0, 9))
reasoned_messages = st.builds(
    ChatMessage,
    st.just("assistant"),
    parts=several(text | images | image_assets | st.builds(ReasoningPart, text)),
    weight=weights,
) | st.builds(ChatMessage, st.just("assistant"), text, tool_calls=several(tool_calls), reasoning=text)
chat_messages = (
    text_messages
    | reasoned_messages
    | st.builds(
        ChatMessage,
        name,
        parts=several(text | images | image_assets),
        tool_calls=several(tool_calls),
        tool_call_id=text,
        name=text,
        weight=weights,
    )
)
tool_specs = st.builds(
    ToolSpec,
    name=st.from_regex(r"[a-z_.-]{1,9}", fullmatch=True),
    description=text,
    parameters=st.just("") | st.dictionaries(text, text | st.none(), max_size=2).map(json.dumps),
    strict=optional(st.booleans()),
    returns=st.sampled_from(["", '{"type": "string"}']),
)
tool_lists = st.lists(tool_specs, max_size=3, unique_by=lambda tool: tool.name).map(tuple)
conversations = st.builds(Conversation, several(chat_messages, min_size=1), tool_lists)
unparsed_tool_calls = st.builds(UnparsedToolCall, text=text, error=text)
text_conversations = st.builds(Conversation, several(text_messages, min_size=1))
"""What may stand before and after every question: images and calls of tools are refused there."""
samples = st.builds(
    Sample, id=text, input=text | conversations | data, targets=several(text), choices=several(text), metadata=labels
).map(lambda sample: dataclasses.replace(sample, choice_labels=tuple(map(str, range(len(sample.choices))))))
columns = st.dictionaries(
    st.sampled_from(["input", "target", "choices", "id"]) | name.map("metadata.{}".format), name, max_size=3
)
file_datasets = st.builds(
    FileDataset, name, format=st.sampled_from([FileFormat.CSV, FileFormat.PARQUET]), columns=columns
) | st.builds(FileDataset, name, format=st.just(FileFormat.JSONL), columns=columns.filter(bool))
hub_datasets = st.builds(
    HubDataset,
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,9}/[A-Za-z0-9][A-Za-z0-9_-]{0,9}", fullmatch=True),
    split=st.from_regex(r"\w+(\.\w+)*", fullmatch=True),
    config=optional(st.text("ab&=% é", min_size=1)),
    revision=optional(st.text("0123456789abcdef", min_size=40, max_size=40)),
    columns=columns,
)
prompts = st.builds(
    Prompt,
    system=text,
    template=text,
    prefix=optional(text_conversations),
    suffix=optional(text_conversations),
    few_shot=optional(st.builds(FewShot, source=name, count=st.integers(1, 64), seed=i64)),
)
datasets = st.builds(
    Dataset,
    source=st.builds(InlineDataset, several(samples))
    | st.builds(JsonlDataset, text)
    | st.builds(BuiltinDataset, text)
    | file_datasets
    | hub_datasets,
    limit=optional(st.integers(1, 2**63 - 1)),
    shuffle_seed=optional(i64),
    skip_malformed=st.booleans(),
    where=labels,
    prompt=optional(prompts),
)
models = (
    st.builds(EmbeddedModel, name)
    | st.builds(
        LocalModel,
        name,
        adapter_path=optional(name),
        device=optional(st.sampled_from(["cpu", "cuda", "cuda:1", "cuda:0,cuda:1"])),
        dtype=optional(st.sampled_from(LOCAL_DTYPES)),
    )
    | st.builds(
        HubModel,
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,9}/[A-Za-z0-9][A-Za-z0-9_-]{0,9}", fullmatch=True),
        revision=optional(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_/-]{0,9}", fullmatch=True)),
        adapter_path=optional(name),
        device=optional(st.sampled_from(["cpu", "cuda:1", "cpu,cpu"])),
        dtype=optional(st.sampled_from(LOCAL_DTYPES)),
    )
    | st.builds(
        InstalledModel,
        st.from_regex(r"[a-z][a-z0-9_.-]{0,9}", fullmatch=True).filter(lambda scheme: scheme not in MODEL_SCHEMES),
        name,
    )
    | st.builds(OpenAIModel, name.filter(lambda server: "/" not in server), name)
    | st.builds(OrchestratorModel, name)
    | st.builds(TinkerModel, base_model=name.filter(lambda base: not base.startswith("//")), service=optional(name))
    | st.builds(TinkerModel, model_path=name.map("tinker://".__add__), service=optional(name))
    | st.builds(TinkerModel, state_path=name.map("tinker://run/weights/".__add__), service=optional(name))
    | st.builds(TinkerModel, model_path=name.map("tinker://".__add__), state_path=name.map("tinker://".__add__))
)
sampling_params = st.builds(
    SamplingParams,
    max_tokens=positive,
    temperature=st.floats(0, 1e9),
    top_p=st.floats(0, 1, exclude_min=True),
    top_k=optional(positive),
    seed=optional(i64),
    stop=several(name),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | finite | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
options = st.dictionaries(text, json_values, max_size=3)
specs = st.builds(EvaluatorSpec, kind=name, name=optional(name), options=options)
limits = st.builds(
    Limits,
    concurrency=optional(positive),
    deadline_ms=optional(positive),
    stall_timeout_ms=optional(positive),
    sample_timeout_ms=optional(positive),
    max_unscored_share=optional(st.floats(0, 1)),
    max_unscored=optional(st.integers(0, 2**31)),
)
requests = st.builds(
    EvaluateRequest,
    evaluation_id=text,
    run_id=text,
    step=optional(i64),
    model=models,
    evaluators=several(specs, min_size=1),
    dataset=datasets,
    sampling=optional(sampling_params),
    limits=limits,
    metric_prefix=text,
    labels=labels,
    correlation_id=text,
    models=st.dictionaries(name, name, max_size=3),
)
planned_evaluations = st.builds(
    PlannedEvaluation,
    evaluators=several(specs, min_size=1),
    dataset=datasets,
    sampling=optional(sampling_params),
    limits=limits,
    metric_prefix=text,
    labels=labels,
    models=st.dictionaries(name, name, max_size=3),
)
patiences = st.builds(
    Patience,
    metric=name,
    goal=st.sampled_from(Goal),
    patience=st.integers(1, 2**31 - 1),
    min_delta=st.floats(0, allow_nan=False, allow_infinity=False),
    confidence=st.floats(0.5, 0.999),
)
plans = st.builds(
    EvaluationPlan,
    plan_id=name,
    run_id=name,
    eval_every=st.integers(0, 2**63 - 1),
    evaluations=several(planned_evaluations, min_size=1),
    infrequent_eval_every=st.integers(0, 2**63 - 1),
    infrequent_evaluations=several(planned_evaluations),
    correlation_id=text,
    patience=optional(patiences),
)
problems = st.builds(Problem, reason=text, message=text, field=text, retryable=st.booleans())
metrics = st.builds(Metrics, numbers, labels)
own_usages = st.builds(
    Usage,
    prompt_tokens=optional(i64),
    cached_prompt_tokens=optional(i64),
    reasoning_tokens=optional(i64),
    output_tokens=optional(i64),
    calls=i64,
    unreported_calls=i64,
    cost=optional(finite),
)
usages = st.builds(dataclasses.replace, own_usages, judges=several(st.builds(ModelUsage, model=text, usage=own_usages)))
engines = st.builds(
    ServerEngine,
    name=text,
    version=text,
    fingerprint=text,
    not_applied=st.lists(text, max_size=2).map(tuple),
    sent_as=st.dictionaries(text, text, max_size=2),
    requested_name=text,
    served_names=several(text),
    listed_names=several(text),
    sampling_defaults=text,
    probe_prompt_tokens=optional(st.integers(0, 2**31 - 1)),
    stop_strings=text,
    logprobs=text,
    probe_problem=optional(problems),
)


@st.composite
def transitions(draw: st.DrawFn) -> Transition:
    """Turns whose arrays are as long as they say, of any bits; some, or none, are there."""
    seen, done = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    action = draw(optional(hnp.arrays(np.int32, done)))
    return Transition(
        observation_tokens=seen,
        action_tokens=done,
        reward=draw(finite),
        metrics=draw(numbers),
        stop_reason=draw(text),
        observation=draw(optional(hnp.arrays(np.int32, seen))),
        action=action,
        action_logprobs=None if action is None else draw(optional(hnp.arrays(np.float32, done))),
        cached_observation_tokens=draw(optional(st.integers(0, 2**31 - 1))),
    )


trajectories = st.builds(Trajectory, transitions=several(transitions()), final_reward=finite, metrics=numbers)
groups = st.builds(TrajectoryGroup, trajectories=several(trajectories), tags=several(text))
sample_results = st.builds(
    SampleResult,
    evaluator=text,
    sample_id=text,
    repeat=i32,
    verdict=st.sampled_from(Verdict),
    score=optional(finite),
    output=text,
    extracted=text,
    method=text,
    stop_reason=text,
    output_tokens=i32,
    duration_ns=i64,
    attempts=i32,
    problem=optional(problems),
    measurements=numbers,
    group=optional(groups),
    usage=optional(usages),
)
evaluator_results = st.builds(
    EvaluatorResult,
    evaluator=specs,
    metrics=metrics,
    n=i64,
    n_scored=i64,
    n_unscored=i64,
    n_errors=i64,
    n_truncated=i64,
    n_truncated_reasoning=i64,
    usage=optional(usages),
    problem=optional(problems),
)
evaluations = st.builds(
    Evaluation,
    evaluation_id=text,
    state=st.sampled_from(EvaluationState),
    request=requests,
    metrics=metrics,
    results=several(evaluator_results),
    done=i64,
    total=i64,
    dataset_fingerprint=text,
    model_fingerprint=text,
    created_unix_ns=i64,
    ended_unix_ns=i64,
    duration_ns=i64,
    attempt=i32,
    last_sequence=u64,
    usage=optional(usages),
    engine=optional(engines),
    problem=optional(problems),
)
evaluator_infos = st.builds(
    EvaluatorInfo,
    kind=text,
    kinds=several(st.sampled_from(EvaluatorKind)),
    description=text,
    options_schema=options,
    keys=labels,
    unavailable=text,
)
events = st.builds(
    Event,
    kind=st.sampled_from(EventKind),
    sequence=u64,
    unix_time_ns=i64,
    duration_ns=i64,
    evaluation_id=text,
    run_id=text,
    step=optional(i64),
    evaluator=text,
    measurements=numbers,
    metadata=labels,
    problem=optional(problems),
    correlation_id=text,
)
backend_infos = st.builds(BackendInfo, name=text, models=several(text), unavailable=text)
replicas = st.builds(
    Replica,
    address=text,
    state=st.sampled_from(ReplicaState),
    outstanding=i32,
    done=i64,
    failures=i64,
    last_error=text,
)
fleets = st.builds(Fleet, backend=text, name=text, replicas=several(replicas))
worker_infos = st.builds(
    WorkerInfo,
    worker_id=text,
    version=text,
    versions=labels,
    backends=several(backend_infos),
    evaluators=several(text),
    datasets=several(text),
    code_images=several(text),
    limits=numbers,
    running=i32,
    queued=i32,
    calls=i32,
    draining=st.booleans(),
    started_unix_ns=i64,
    certificate_expires_unix_ns=i64,
    log_id=text,
    last_sequence=u64,
    fleets=several(fleets),
)
drain_reports = st.builds(DrainReport, interrupted=several(text))


def plain(value: Any) -> Any:
    """A value as nested plain ones in which arrays are their bits, so that == compares every bit of it."""
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, Tensor):
        return ("tensor", value.dtype, value.shape, bytes(value.data))
    if dataclasses.is_dataclass(value):
        return (type(value), {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | Ragged):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if not value.is_integer() else int(value) if value else math.copysign(0, value)
    return value if not isinstance(value, enum.Enum) else (type(value), value.value)
