"""Which messages have a type that repeats them, and what the proto does not say of it.

A message of `BY_HAND` has a type that differs on purpose, or none, and is converted by hand. A message that is listed
nowhere has a type of its name: what is required has no default, and what a request holds is checked where it is sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

__all__ = ["BY_HAND", "ENUMS", "ENUMS_BY_HAND", "HAND", "SPECIAL", "TYPES", "Hand", "Special", "Type"]


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

    @property
    def python(self) -> str:
        """The type's name."""
        return self.name or self.message


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


HAND = {
    "Conversation": Hand("data", "data", "conversation", pathless=True),
    "Datum": Hand("data", "data", "datum", pathless=True),
    "Dataset": Hand("data", "data", "dataset"),
    "EvaluatorSpec": Hand("requests", "requests", "evaluator_spec"),
    "Metrics": Hand("results", "outcomes", "metrics", pathless=True),
    "ModelInput": Hand("data", "data", "model_input", pathless=True),
    "ModelRef": Hand("models", "models", "model_ref", pathless=True),
    "Problem": Hand("generated", "outcomes", "problem", pathless=True),
    "Sample": Hand("data", "data", "sample"),
    "SamplePrompt": Hand("transcripts", "transcripts", "sample_prompt", pathless=True, type="SamplePrompt"),
    "SampledSequence": Hand("models", "sequences", "sampled_sequence", pathless=True),
    "Tensor": Hand("", "sequences", "floats", pathless=True, type="np.ndarray"),
    "TrajectoryGroup": Hand("rollouts", "rollouts", "trajectory_group", pathless=True),
    "Turn": Hand("transcripts", "transcripts", "turn", pathless=True),
    "google.protobuf.Struct": Hand("", "options", "options", type="Mapping[str, Any]"),
}

SPECIAL = {
    "requests": ("record_to_v1", "record_from_v1", "schema_to_v1", "schema_from_v1"),
    "sequences": ("floats_to_v1", "floats_from_v1"),
    "transcripts": ("recorded_sample_to_v1", "recorded_sample_from_v1"),
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
ENUMS_BY_HAND = frozenset({"Dtype", "EventKind", "ExactComparison"})
"""Enums that no generated type holds."""

_LIMITS = Special(default="Limits()")
_RECORD = Special(type="Record", default="Record.FULL", encode="record_to_v1", decode="record_from_v1")
_METRICS = Special(default="Metrics({})")
_FLOATS = Special(type="np.ndarray | None", encode="floats_to_v1", decode="floats_from_v1")
_COMPARISON = Special(default="OutputComparison()")

TYPES = (
    Type("Problem", needed="reason message", convert=False),
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
        order="evaluator metrics n n_scored n_unscored n_errors n_truncated problem",
    ),
    Type(
        "SampleResult",
        needed="evaluator sample_id verdict",
        fields={
            **{name: Special(plain=True) for name in ("evaluator", "stop_reason")},
            "sample": Special(encode="recorded_sample_to_v1", decode="recorded_sample_from_v1"),
        },
    ),
    Type("TruncatedPart", needed="part bytes limit"),
    Type(
        "Evaluation",
        needed="evaluation_id state request",
        order="evaluation_id state request metrics results done total dataset_fingerprint model_fingerprint"
        " created_unix_ns ended_unix_ns duration_ns attempt last_sequence problem",
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
    Type("EvaluationPlan", needed="plan_id run_id", asked=True, check="plan"),
    Type("RankBy", needed="metric goal", asked=True),
    Type("CompareEvaluationsRequest", "CompareRequest", asked=True, check="compared"),
    Type("SampleChange", needed="sample_id baseline_score score"),
    Type("PairedComparison", needed="baseline_id evaluation_id evaluator", fields={"metrics": _METRICS}),
    Type("SeriesPoint", needed="evaluation_id value"),
    Type("MetricSeries", needed="key points"),
    Type("CompareEvaluationsResponse", "EvaluationComparison", needed="evaluations comparisons series"),
    Type("OrchestratorAccepted", "HeldAccepted", needed="evaluation existed window"),
    Type("OrchestratorEnded", "HeldEnded", needed="evaluation ignored_answers"),
    Type(
        "Grade",
        needed="verdict",
        fields={name: Special(plain=True) for name in ("extraction", "method")},
    ),
    Type("GradeMathResponse", "MathGrades", needed="grades policy_version"),
    Type("ExtractedAnswer", order="answer extraction reason problem", fields={"extraction": Special(plain=True)}),
    Type("MathPolicy", convert=False),
    Type("RegexScorer", convert=False),
    Type("NumericScorer", convert=False),
    Type("OutputComparison", convert=False),
    Type("StdioTest", needed="stdout", convert=False, fields={"comparison": _COMPARISON}),
    Type(
        "CallTest",
        needed="function expected_json",
        convert=False,
        fields={"arguments_json": Special(default='"[]"')},
    ),
    Type("InputOutputTests", needed="json", convert=False, fields={"comparison": _COMPARISON}),
    Type("CodeLimits", convert=False),
    Type("ProblemCounts", needed="problem_id samples correct unscored"),
    Type("GradeCodeResponse", "CodeGrades", needed="grades", fields={"metrics": _METRICS}),
    Type("ExtractedProgram", order="program extraction reason problem", fields={"extraction": Special(plain=True)}),
    Type("CriterionScore", needed="name score"),
    Type("RubricGrade", needed="grade"),
    Type("GradeRubricResponse", "RubricGrades", needed="grades"),
    Type("BatchLimits", asked=True, at="limits"),
    Type("SampledItem"),
    Type("SampleResponse", "SampleAnswer", needed="items", fields={"model_fingerprint": Special(plain=True)}),
    Type("SequenceLogprobs", eq=False, fields={"logprobs": _FLOATS}),
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
        " started_unix_ns log_id last_sequence",
    ),
    Type("DrainResponse", "DrainReport"),
)

BY_HAND = frozenset(
    """
    AnsweredForward AnsweredSample AnsweredSequence CancelEvaluationRequest CancelEvaluationResponse ChatMessage
    ChoiceScorer CodeItem CodeTest Columns ComputeClassificationMetricsRequest ComputeClassificationMetricsResponse
    ComputeDPOMetricsRequest ComputeDPOMetricsResponse ComputeKLPostUpdateRequest ComputeKLSampleTrainRequest
    ComputeKLSampleTrainResponse ComputeLogprobsRequest ComputeMeanNLLRequest ComputePassAtKRequest
    ComputePassAtKResponse ComputeSamplingClientMetricsRequest ComputeSamplingClientMetricsResponse
    ComputeTrajectoryMetricsRequest ComputeTrajectoryMetricsResponse Conversation Datum DrainRequest
    EvaluateResponse EvaluateWithOrchestratorModelRequest EvaluateWithOrchestratorModelResponse Event EventBatch
    ExtractAnswerRequest ExtractAnswerResponse ExtractCodeRequest ExtractCodeResponse FormatScorer ForwardQuestion
    ForwardRequest GenerateReportRequest GenerateReportResponse GetEvaluationRequest GetEvaluationResponse
    GetInfoRequest GetInfoResponse GetSamplesRequest GetSamplesResponse GradeCodeRequest GradeItem GradeMathRequest
    GradeRubricRequest HubDataset ImageAssetChunk ImageChunk IncorporateKLPenaltyRequest
    IncorporateKLPenaltyResponse InlineDataset ListEvaluationsRequest ListEvaluationsResponse ListEvaluatorsRequest
    ListEvaluatorsResponse LocalModel LogprobSource LogprobsQuestion Marks ModelInput ModelInputChunk
    NotifyStepRequest NotifyStepResponse OpenAIModel OrchestratorAnswer OrchestratorModel OrchestratorQuestion
    OrchestratorStart RegisterPlanRequest RegisterPlanResponse RubricCriterion RubricItem Sample SampleItem
    SampleQuestion SampleRequest ScoreOptions ScoreRequest ScoreResponse StartEvaluationRequest
    StartEvaluationResponse SubscribeRequest Tags Tensor TensorList TextScorer TinkerModel Trajectory
    TrajectoryBatch Transition WatchEvaluationRequest
    """.split()  # noqa: SIM905 - a list of them takes a hundred lines
)
"""Messages that are converted by hand, or have no type."""
