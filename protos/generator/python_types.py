"""Which messages have a type that repeats them, and what the proto does not say of it.

A message of `BY_HAND` has a type that differs on purpose, or none, and is converted by hand. A message that is listed
nowhere has a type of its name: what is required has no default, and what a request holds is checked where it is sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = [
    "BECAUSE",
    "BY_HAND",
    "ENUMS",
    "ENUMS_BY_HAND",
    "HAND",
    "SPECIAL",
    "TYPES",
    "UNIONS",
    "Hand",
    "Special",
    "Type",
    "Union",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Special:
    """A field that is another one in Python."""

    type: str = ""
    """Its annotation."""
    default: str = ""
    """Its default, as Python; that of a message is decoded where the message is absent."""
    encode: str = ""
    """A function of one of `SPECIAL`, given the value."""
    decode: str = ""
    """Likewise, given what the message has, and its path."""
    plain: bool = False
    """Text that no model wrote: it is sent without a look at its surrogates."""
    said: bool = False
    """A message that is sent also where it holds the default, and is the default where it is absent."""


@dataclasses.dataclass(frozen=True)
class Type:
    """A type that repeats a message."""

    message: str
    """The message's name."""
    name: str = ""
    """The type's; the message's if empty."""
    _: dataclasses.KW_ONLY
    needed: str = ""
    """Fields without a default."""
    asked: bool = False
    """Whether users write it: what cannot be sent is refused at its field. Otherwise text is made sendable."""
    raw: bool = False
    """Whether values are sent as they are: who sends it refuses what cannot be sent, at a path of its own."""
    order: str = ""
    """Fields in their order, where it is not the proto's."""
    check: str = ""
    """A function of `codec.relations` that sees what no single field shows, given the message and its path."""
    fields: Mapping[str, Special] = dataclasses.field(default_factory=dict)
    """What differs, by field."""
    at: str = ""
    """Its path where the caller names none; a request's is empty."""
    eq: bool = True
    """Whether two are compared by their fields; arrays cannot be."""
    convert: bool = True
    """Whether conversions are generated as well."""
    home: str = ""
    """Module of `crucible_bridge.types` where it is written by hand, with methods; its fields are the message's."""
    checked: bool = False
    """Whether its method `checked` looks at what was decoded, in place of the bounds."""
    example: str = ""
    """How one is made: what is no such type is refused with it."""
    exact: bool = False
    """Whether truths are told from numbers where it is sent."""
    module: str = "generated"
    """One of `MODULES`, where it and its conversions are generated."""

    @property
    def python(self) -> str:
        """The type's name."""
        return self.name or self.message


@dataclasses.dataclass(frozen=True, kw_only=True)
class Union:
    """A oneof as a union of types; what else its message has is converted by hand."""

    name: str
    """The union's name."""
    home: str
    """Module of `crucible_bridge.types` where it is."""
    absent: str
    """What an error says of a message that has none."""
    unknown: str = ""
    """What is raised for a value of another type, as Python; TypeError if empty."""
    fields: Mapping[str, Special] = dataclasses.field(default_factory=dict)
    """What a field is: of one without a message of its own, `type` is its class and the attribute, or plain text."""
    asked: bool = False
    """As of a `Type`."""
    module: str = "generated"
    """One of `MODULES`, where its conversions are generated."""

    @property
    def path(self) -> bool:
        """Whether encoding takes a path."""
        return self.asked or "field" in self.unknown


@dataclasses.dataclass(frozen=True)
class Hand:
    """A type that is written by hand, and its conversions."""

    module: str
    """Module of `crucible_bridge.types`."""
    codec: str
    """Module of `crucible_bridge.codec`."""
    stem: str
    """Of the conversions' names."""
    pathless: bool = False
    """Whether the encoding one takes no path."""
    type: str = ""
    """Its annotation, where that is not the message's name."""


MODULES = ("content", "prompts", "generated")
"""Modules of generated types and conversions; each may import those before it, also through code by hand."""

HAND = {
    "Conversation": Hand("data", "data", "conversation", pathless=True),
    "Datum": Hand("data", "data", "datum", pathless=True),
    "Dataset": Hand("datasets", "datasets", "dataset"),
    "EvaluatorSpec": Hand("requests", "requests", "evaluator_spec"),
    "Metrics": Hand("results", "outcomes", "metrics", pathless=True),
    "AskedSample": Hand("", "caller_questions", "asked_sample", pathless=True, type="Sample"),
    "EnvironmentQuestion": Hand("callers", "caller_questions", "environment_question", pathless=True),
    "Problem": Hand("generated", "outcomes", "problem", pathless=True),
    "Sample": Hand("data", "data", "sample"),
    "SampledSequence": Hand("models", "sequences", "sampled_sequence", pathless=True),
    "Tensor": Hand("", "sequences", "floats", pathless=True, type="np.ndarray"),
    "GradeItem": Hand("grade_items", "grade_items", "grade_item"),
    "RubricItem": Hand("grade_items", "grade_items", "rubric_item"),
    "google.protobuf.Struct": Hand("", "options", "options", type="Mapping[str, Any]"),
}

SPECIAL = {
    "requests": ("record_to_v1", "record_from_v1", "schema_to_v1", "schema_from_v1"),
    "bulk": ("stored_array_from_v1",),
    "caller_questions": ("measurements_from_v1", "share_from_v1"),
    "data": ("get_prompt", "set_prompt"),
    "grade_items": ("assertions_from_v1",),
    "tensors": ("array_to_v1", "token_ids_from_v1"),
    "sequences": ("floats_to_v1", "floats_from_v1", "table_from_v1", "token_array_from_v1", "token_table_from_v1"),
    "transcripts": ("recorded_sample_to_v1", "recorded_sample_from_v1", "sendable_calls", "sendable_to_v1"),
}
"""Functions that convert one field, by their module of `crucible_bridge.codec`."""

ENUMS = {
    "EvaluationState": "results",
    "EvaluatorKind": "requests",
    "Goal": "requests",
    "OrchestratorCall": "orchestrator",
    "Record": "requests",
    "ReportFormat": "requests",
    "Verdict": "results",
}
"""Modules of `crucible_bridge.types`, by enum."""
ENUMS_BY_HAND = frozenset({"Dtype", "EventKind", "ExactComparison", "FileFormat"})
"""Enums that no generated type holds."""

_LIMITS = Special(default="Limits()")
_RECORD = Special(type="Record", default="Record.FULL", encode="record_to_v1", decode="record_from_v1")
_METRICS = Special(default="Metrics({})")
_FLOATS = Special(type="np.ndarray | None", encode="floats_to_v1", decode="floats_from_v1")
_TABLE = Special(type="np.ndarray | None", encode="floats_to_v1", decode="table_from_v1")
_TOKEN_TABLE = Special(type="np.ndarray | None", encode="floats_to_v1", decode="token_table_from_v1")
_STORED = Special(type="np.ndarray | None", encode="floats_to_v1", decode="stored_array_from_v1")
_COMPARISON = Special(default="OutputComparison()")
_PROMPT = Special(encode="set_prompt", decode="get_prompt")

UNIONS = {
    "ModelRef": Union(
        name="ModelRef",
        home="models",
        absent="names no model",
        unknown='TypeError(f"a {type(value).__name__} is no reference to a model: use parse_model")',
        fields={"embedded": Special(type="EmbeddedModel.name")},
    ),
    "CodeTest": Union(
        name="CodeTest",
        home="code",
        absent="names no test",
        unknown='InvalidField(field, f"is {clipped(value)}, which is no test; known are: "'
        '"Assertions, StdioTest, CallTest, InputOutputTests")',
        fields={"assertions": Special(type="Assertions.source", decode="assertions_from_v1")},
        asked=True,
    ),
    "ForwardItem": Union(
        name="Datum | str | Conversation",
        home="",
        absent="has neither a datum nor text nor a conversation",
        unknown='InvalidField(field, f"is a {type(value).__name__}, not a Datum, text or a conversation")',
    ),
    "OrchestratorQuestion": Union(
        name="Question",
        home="orchestrator",
        absent="asks nothing",
    ),
    "SamplePrompt": Union(
        name="SamplePrompt",
        home="transcripts",
        absent="has no prompt",
        fields={
            "text": Special(encode="unicode_text"),
            "conversation": Special(encode="sendable_to_v1"),
            "token_count": Special(type="TokenPrompt.token_count"),
        },
    ),
    "MessagePart": Union(
        name="MessagePart",
        home="data",
        absent="holds neither text nor an image nor reasoning",
        fields={"reasoning": Special(type="ReasoningPart.text")},
        module="content",
    ),
    "ModelInputChunk": Union(
        name="ModelInputChunk",
        home="data",
        absent="holds neither tokens nor an image",
        fields={"tokens": Special(type="TokensChunk.tokens", encode="array_to_v1", decode="token_ids_from_v1")},
        module="content",
    ),
}
"""The oneofs that are unions, by their message."""

TYPES = (
    Type("ImageChunk", needed="data format", home="data", raw=True, module="content"),
    Type("ImageAssetChunk", needed="location format", home="data", raw=True, module="content"),
    Type("ModelInput", needed="chunks", home="data", raw=True, module="content"),
    Type("ToolCall", home="data", raw=True, module="content"),
    Type("ToolSpec", needed="name", home="tools", checked=True, raw=True, module="content"),
    Type("UnparsedToolCall", home="data", module="content"),
    Type("HubDataset", needed="repo_id split", home="hub", checked=True, raw=True, module="content"),
    *(
        Type(name, needed=needed, home="models", checked=True, raw=True)
        for name, needed in (
            ("HubModel", "repo_id"),
            ("InstalledModel", "scheme name"),
            ("LocalModel", "path"),
            ("TinkerModel", ""),
        )
    ),
    Type("OpenAIModel", needed="server model", home="models", raw=True, check="openai_model"),
    Type("OrchestratorModel", needed="name", home="models", raw=True),
    Type("SampleQuestion", needed="prompt sampling", home="orchestrator", raw=True, fields={"prompt": _PROMPT}),
    Type("LogprobsQuestion", needed="sequence", home="orchestrator", raw=True),
    Type("ForwardQuestion", needed="data", home="orchestrator", raw=True),
    Type("ArgmaxQuestion", needed="sequence", home="orchestrator", raw=True),
    Type("GradeQuestion", needed="grader evaluator sample response", home="callers", raw=True),
    Type(
        "AnsweredGrade",
        home="callers",
        raw=True,
        fields={
            "score": Special(decode="share_from_v1"),
            "measurements": Special(decode="measurements_from_v1"),
        },
    ),
    Type("SampleItem", needed="prompt", home="model_calls", raw=True, fields={"prompt": _PROMPT}),
    Type(
        "LogprobsItem",
        needed="prompt",
        home="model_calls",
        raw=True,
        fields={
            "prompt": _PROMPT,
            "targets": Special(type="np.ndarray | None", encode="floats_to_v1", decode="token_array_from_v1"),
        },
    ),
    Type(
        "Turn",
        needed="role text",
        home="transcripts",
        fields={
            "model": Special(plain=True),
            **dict.fromkeys(("token_ids", "logprobs"), _STORED),
            "tool_calls": Special(encode="sendable_calls"),
        },
    ),
    Type("Problem", needed="reason message", convert=False),
    Type("Usage"),
    Type("ModelUsage", needed="model usage"),
    Type("SamplingParams", needed="max_tokens", asked=True, at="sampling"),
    Type("Limits", asked=True, at="limits"),
    Type(
        "EvaluateRequest",
        needed="model evaluators dataset",
        asked=True,
        fields={"limits": _LIMITS, "record": _RECORD},
    ),
    Type(
        "EvaluatorInfo",
        needed="kind kinds description options_schema keys",
        fields={
            "options_schema": Special(type="Mapping[str, Any]", encode="schema_to_v1", decode="schema_from_v1"),
            "score_goal": Special(default="Goal.HIGHER"),
        },
    ),
    Type(
        "EvaluatorResult",
        needed="evaluator metrics",
        order="evaluator metrics n n_scored n_unscored n_errors n_truncated usage problem n_correct unscored_by_reason"
        " n_truncated_reasoning",
    ),
    Type(
        "SampleResult",
        needed="evaluator sample_id verdict",
        fields={
            **{name: Special(plain=True) for name in ("evaluator", "stop_reason")},
            "sample": Special(encode="recorded_sample_to_v1", decode="recorded_sample_from_v1"),
            "tool_calls": Special(encode="sendable_calls"),
        },
    ),
    Type("ParsedResponse", fields={"tool_calls": Special(encode="sendable_calls")}),
    Type("TruncatedPart", needed="part bytes limit"),
    Type(
        "Evaluation",
        needed="evaluation_id state request",
        order="evaluation_id state request metrics results done total dataset_fingerprint model_fingerprint"
        " created_unix_ns ended_unix_ns duration_ns attempt last_sequence usage engine problem rendering paused"
        " concurrency rules_version waiting_for graders servers",
        fields={
            "metrics": _METRICS,
            **{name: Special(plain=True) for name in ("evaluation_id", "dataset_fingerprint", "model_fingerprint")},
        },
    ),
    Type(
        "PlannedEvaluation",
        needed="evaluators dataset",
        asked=True,
        fields={"limits": _LIMITS, "record": _RECORD},
    ),
    Type("FewShot", needed="source count", asked=True, module="prompts"),
    Type("Prompt", asked=True, module="prompts"),
    Type("Patience", needed="metric patience", asked=True),
    Type("EvaluationPlan", needed="plan_id run_id", asked=True, check="plan"),
    Type("FollowRunRequest", needed="run_id directory", asked=True, check="followed"),
    Type("RankBy", needed="metric goal", asked=True),
    Type("GraderVersions", needed="versions"),
    Type("RunBest", needed="metric goal value evaluation_id"),
    Type("RunInfo", needed="run_id"),
    Type("CheckpointResult", needed="evaluation_id state"),
    Type("CompareEvaluationsRequest", "CompareRequest", asked=True, check="compared"),
    Type("SampleChange", needed="sample_id baseline_score score"),
    Type("PairedComparison", needed="baseline_id evaluation_id evaluator", fields={"metrics": _METRICS}),
    Type("SeriesPoint", needed="evaluation_id value"),
    Type("MetricSeries", needed="key points"),
    Type("CompareEvaluationsResponse", "EvaluationComparison", needed="evaluations comparisons series"),
    Type("GateMetric", needed="key", asked=True),
    Type("GatePolicy", needed="metrics", asked=True, check="gate_policy", at="policy"),
    Type("GateRequest", needed="baseline_id candidate_id policy", asked=True),
    Type("GatedMetric", needed="key tier verdict", fields={"metrics": _METRICS}),
    Type("GateResponse", needed="verdict"),
    Type("OrchestratorAccepted", "HeldAccepted", needed="evaluation existed window"),
    Type("OrchestratorEnded", "HeldEnded", needed="evaluation ignored_answers"),
    Type(
        "Grade",
        needed="verdict",
        fields={name: Special(plain=True) for name in ("extraction", "method")},
    ),
    Type("GradeMathResponse", "MathGrades", needed="grades policy_version"),
    Type("ExtractedAnswer", order="answer extraction reason problem", fields={"extraction": Special(plain=True)}),
    Type("MathPolicy", asked=True, at="policy", example="MathPolicy(degrees=False)", exact=True),
    Type("GradeMathRequest", needed="items", asked=True, fields={"policy": Special(default="MathPolicy()", said=True)}),
    Type("RegexScorer", asked=True),
    Type("NumericScorer", asked=True),
    Type("ChoiceScorer", needed="choices", asked=True),
    Type("OutputComparison", asked=True, example="OutputComparison(by_token=True)"),
    Type("StdioTest", needed="stdout", asked=True, fields={"comparison": _COMPARISON}),
    Type(
        "CallTest",
        needed="function expected_json",
        asked=True,
        check="call_test",
        fields={"arguments_json": Special(default='"[]"'), "comparison": _COMPARISON},
    ),
    Type("InputOutputTests", needed="json", asked=True, check="input_output_tests", fields={"comparison": _COMPARISON}),
    Type("CodeLimits", asked=True, at="limits", example="CodeLimits(memory_mb=256)"),
    Type("ProblemCounts", needed="problem_id samples correct unscored"),
    Type("GradeCodeResponse", "CodeGrades", needed="grades", fields={"metrics": _METRICS}),
    Type("ExtractedProgram", order="program extraction reason problem", fields={"extraction": Special(plain=True)}),
    Type("RubricCriterion", needed="name description", asked=True, home="rubric", checked=True),
    Type(
        "GradeRubricRequest",
        needed="judge items criteria",
        asked=True,
        check="criteria",
        fields={
            "sampling": Special(default="SamplingParams(max_tokens=1_024)", said=True),
            "renderer": Special(default='"auto"'),
            "limits": Special(default="BatchLimits()"),
        },
    ),
    Type("CriterionScore", needed="name score"),
    Type("RubricGrade", needed="grade"),
    Type("GradeRubricResponse", "RubricGrades", needed="grades"),
    Type("BatchLimits", asked=True, at="limits"),
    Type(
        "Transition",
        needed="observation_tokens action_tokens reward",
        home="rollouts",
        fields=dict.fromkeys(("observation", "action", "action_logprobs"), _STORED),
    ),
    Type("Trajectory", needed="transitions", home="rollouts"),
    Type("TrajectoryGroup", needed="trajectories", home="rollouts", checked=True),
    Type("SampledItem"),
    Type("SampleResponse", "SampleAnswer", needed="items", fields={"model_fingerprint": Special(plain=True)}),
    Type(
        "SequenceLogprobs",
        eq=False,
        fields={
            "logprobs": _FLOATS,
            "top_tokens": _TOKEN_TABLE,
            "top_logprobs": _TABLE,
            "target_logprobs": _TABLE,
        },
    ),
    Type("TeacherAnswer"),
    Type("ComputeLogprobsResponse", "LogprobsAnswer", needed="sequences", eq=False),
    Type("ForwardOutput", eq=False, fields={"logprobs": _FLOATS}),
    Type("ForwardResponse", "ForwardAnswer", needed="outputs", eq=False),
    Type("ComputeKLPostUpdateResponse", "KLPostUpdate", needed="metrics action_tokens", convert=False),
    Type("ComputeMeanNLLResponse", "MeanNLL", needed="metrics total_weight", convert=False),
    Type("BackendInfo", needed="name"),
    Type(
        "WorkerInfo",
        needed="worker_id version",
        order="worker_id version versions backends evaluators datasets code_images limits running queued calls draining"
        " started_unix_ns log_id last_sequence usage prices fleets failed_tasks"
        " certificate_expires_unix_ns",
    ),
    Type("Replica", needed="address"),
    Type("Fleet", needed="backend name"),
    Type("BackgroundTask", needed="name"),
    Type("DrainResponse", "DrainReport"),
    Type("LoggedMetrics", needed="values", asked=True, example='LoggedMetrics(values={"loss": 0.5}, step=3)'),
    Type("LoggerState", needed="logger"),
    Type("Experiment", needed="experiment_id"),
)

BECAUSE = {
    "columns of numbers, and events, are read where they lie in the bytes: `metrics_remote`, `event_stream`": """
        Columns ComputeClassificationMetricsRequest ComputeClassificationMetricsResponse
        ComputeDPOMetricsRequest ComputeDPOMetricsResponse ComputeKLPostUpdateRequest
        ComputeKLSampleTrainRequest ComputeKLSampleTrainResponse ComputeMeanNLLRequest ComputePassAtKRequest
        ComputePassAtKResponse ComputeSamplingClientMetricsRequest ComputeSamplingClientMetricsResponse
        ComputeTrajectoryMetricsRequest ComputeTrajectoryMetricsResponse Event EventBatch
        IncorporateKLPenaltyRequest IncorporateKLPenaltyResponse LogprobSource Tags Tensor TensorList
        TrajectoryBatch
    """,
    "a oneof is a union of types, or a type holds one": """
        EvaluateWithOrchestratorModelRequest EvaluateWithOrchestratorModelResponse FormatScorer
        AnsweredEnvironment AskedSample EnvironmentQuestion
        OrchestratorAnswer Sample ScoreOptions Teacher
    """,
    "one of such a union; most have short forms as text, or methods": """
        AnsweredForward AnsweredSample ChatMessage Conversation Datum EpisodeAction FileDataset
        InlineDataset Marks OpenEpisode TextScorer
    """,
    "what models said is bytes in the message and text in the type, which counts what was not UTF-8": """
        AnsweredSequence CodeItem ExtractAnswerRequest ExtractCodeRequest GradeItem RubricItem
    """,
    "no type: the fields are parameters of a client's method, or the one field is its answer": """
        CancelEvaluationRequest CancelEvaluationResponse DeleteEvaluationRequest DeleteEvaluationResponse
        DrainRequest EvaluateResponse ExtractAnswerResponse ExtractCodeResponse GenerateReportRequest
        GenerateReportResponse GetEvaluationRequest GetEvaluationResponse GetInfoRequest GetInfoResponse
        GetSamplesRequest GetSamplesResponse ListEvaluationsRequest ListEvaluationsResponse
        ListEvaluatorsRequest ListEvaluatorsResponse NotifyStepRequest NotifyStepResponse ReadDatasetRequest
        ReadDatasetResponse RegisterPlanRequest RegisterPlanResponse ScoreResponse SkippedLine
        StartEvaluationRequest StartEvaluationResponse SubscribeRequest WatchEvaluationRequest
    """,
    "an item that is malformed becomes its problem, and the others stand": """
        ComputeLogprobsRequest ForwardRequest SampleRequest
    """,
    "one part decides how another is read: the language, the scorer, the model": """
        GradeCodeRequest OrchestratorStart ScoreRequest
    """,
}
"""Why messages are converted by hand, or have no type; and which."""
BY_HAND = frozenset(name for names in BECAUSE.values() for name in names.split())
"""Messages that are converted by hand, or have no type."""
