"""The catalogue of reasons: every reason that an error or a problem carries, what it means, and where it occurs.

A reason's value is its name, and never changes. `docs/reference/reasons.md` and the Elixir client's `Reason` are
generated from here.
"""

from __future__ import annotations

import enum

__all__ = ["Code", "Occurrence", "Reason"]


class Code(enum.StrEnum):
    """Canonical status codes, by their gRPC names."""

    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    UNAUTHENTICATED = "UNAUTHENTICATED"


class Occurrence(enum.Flag):
    """The places in which a reason occurs."""

    CALL = enum.auto()
    """In the status of a call."""
    ITEM = enum.auto()
    """In the problem of a sample, a grade or another item of a call."""
    END = enum.auto()
    """In the problem of an evaluation, of one of its evaluators, or of a comparison."""
    START = enum.auto()
    """At the start of a worker."""
    CLIENT = enum.auto()
    """Made by a client, without a reply of the worker."""


_CALL, _ITEM, _END = Occurrence.CALL, Occurrence.ITEM, Occurrence.END
_START, _CLIENT = Occurrence.START, Occurrence.CLIENT


class Reason(enum.StrEnum):
    """Why something failed; compares equal to its name.

    Attributes:
        sentence: what happened and, if there is one, the cure.
        codes: canonical statuses of errors with this reason, the usual one first; none where only problems have it.
        retryable: whether the same may succeed later; None if each error says it itself.
        places: the places in which it occurs.
    """

    sentence: str
    codes: tuple[Code, ...]
    retryable: bool | None
    places: Occurrence

    def __new__(
        cls, value: str, codes: Code | tuple[Code, ...], retryable: bool | None, places: Occurrence, sentence: str
    ) -> Reason:
        """Make a member from the values that follow its name below."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence, member.retryable, member.places = sentence, retryable, places
        member.codes = codes if isinstance(codes, tuple) else (codes,)
        return member

    def __repr__(self) -> str:
        """Like a string's: messages and logs show a reason like other text."""
        return repr(self.value)

    # The default reasons of the classes, for errors without a more specific one.
    UNKNOWN = (
        "UNKNOWN",
        Code.UNKNOWN,
        False,
        _CALL,
        "The call failed for a reason that is not in this list; the message says more.",
    )
    CANCELLED = (
        "CANCELLED",
        Code.CANCELLED,
        False,
        _CALL | _END,
        "The caller ended the call, the batch or the evaluation.",
    )
    DEADLINE_EXCEEDED = (
        "DEADLINE_EXCEEDED",
        Code.DEADLINE_EXCEEDED,
        None,
        _CALL | _ITEM | _END,
        "Time ran out; give more time, or less work.",
    )
    INVALID_FIELD = (
        "INVALID_FIELD",
        Code.INVALID_ARGUMENT,
        False,
        _CALL | _ITEM,
        "A field of the request is wrong; the error's field says which, its message what is allowed.",
    )
    NOT_FOUND = "NOT_FOUND", Code.NOT_FOUND, False, _CALL, "What the request names does not exist."
    ALREADY_EXISTS = (
        "ALREADY_EXISTS",
        Code.ALREADY_EXISTS,
        False,
        _CALL,
        "The id belongs to something else; take another one.",
    )
    PERMISSION_DENIED = (
        "PERMISSION_DENIED",
        Code.PERMISSION_DENIED,
        False,
        _CALL,
        "The worker does not allow this to this caller.",
    )
    RESOURCE_EXHAUSTED = (
        "RESOURCE_EXHAUSTED",
        Code.RESOURCE_EXHAUSTED,
        True,
        _CALL | _ITEM | _END,
        "A limit of the worker or of its machine is reached; try again later.",
    )
    FAILED_PRECONDITION = (
        "FAILED_PRECONDITION",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The request is well formed, and something that it needs is missing.",
    )
    OUT_OF_RANGE = "OUT_OF_RANGE", Code.OUT_OF_RANGE, False, _CALL, "The position lies outside of what is retained."
    UNAUTHENTICATED = "UNAUTHENTICATED", Code.UNAUTHENTICATED, False, _CALL, "The call carries no valid token."
    UNAVAILABLE = "UNAVAILABLE", Code.UNAVAILABLE, True, _CALL, "The worker cannot serve the call now; try again later."
    UNIMPLEMENTED = (
        "UNIMPLEMENTED",
        Code.UNIMPLEMENTED,
        False,
        _CALL,
        "The worker, or the model, does not support this call.",
    )
    INTERNAL = (
        "INTERNAL",
        Code.INTERNAL,
        False,
        _CALL | _ITEM | _END,
        "The worker failed because of a bug; its log has the traceback under the error id of the message.",
    )

    # Connection, tokens and room.
    TRANSPORT = (
        "TRANSPORT",
        (Code.UNAVAILABLE, Code.INTERNAL),
        True,
        _CLIENT,
        "The connection failed or broke; the call may have been handled.",
    )
    WORKER_NOT_READY = (
        "WORKER_NOT_READY",
        Code.UNAVAILABLE,
        True,
        _CLIENT,
        "The worker was not ready within the time that the client waited; look at the worker's log.",
    )
    CLIENT_CLOSED = (
        "CLIENT_CLOSED",
        Code.CANCELLED,
        False,
        _CLIENT,
        "The client was closed while the call or the stream was open.",
    )
    CLIENT_FAILED = "CLIENT_FAILED", Code.INTERNAL, False, _CLIENT, "The Elixir client failed because of a bug."
    WEIGHTS_NOT_SAVED = (
        "WEIGHTS_NOT_SAVED",
        Code.UNAVAILABLE,
        True,
        _CLIENT,
        "The Elixir client could not save the weights of the session to evaluate; its log says why.",
    )
    STREAM_ENDED = (
        "STREAM_ENDED",
        Code.UNAVAILABLE,
        True,
        _CLIENT,
        "The stream ended before its evaluation did; open it again with the same id.",
    )
    MALFORMED_REPLY = (
        "MALFORMED_REPLY",
        Code.INTERNAL,
        False,
        _CLIENT,
        "The reply is not a message of the method: versions differ, or a proxy between client and worker answered.",
    )
    MESSAGE_TOO_LARGE = (
        "MESSAGE_TOO_LARGE",
        Code.RESOURCE_EXHAUSTED,
        False,
        _CLIENT,
        "A message is larger than the channel allows; send fewer items in one call.",
    )
    ANSWER_TOO_LARGE = (
        "ANSWER_TOO_LARGE",
        (Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE),
        False,
        _CALL | _ITEM,
        "The answer does not fit one message; request fewer items, or fewer values.",
    )
    MALFORMED_MESSAGE = (
        "MALFORMED_MESSAGE",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "The bytes are not a message of the method that was called.",
    )
    MISSING_TOKEN = (
        "MISSING_TOKEN",
        Code.UNAUTHENTICATED,
        False,
        _CALL,
        "The worker needs a token, and the call carries none.",
    )
    WRONG_TOKEN = (
        "WRONG_TOKEN",
        Code.UNAUTHENTICATED,
        False,
        _CALL,
        "The call carries a token that is not the worker's.",
    )
    REQUEST_TOO_SLOW = (
        "REQUEST_TOO_SLOW",
        Code.DEADLINE_EXCEEDED,
        True,
        _CALL,
        "The request did not arrive completely within the time that the worker allows.",
    )
    TOO_MANY_REQUEST_BYTES = (
        "TOO_MANY_REQUEST_BYTES",
        Code.RESOURCE_EXHAUSTED,
        True,
        _CALL,
        "The requests in progress fill the worker's memory for requests; try again later.",
    )
    TOO_MANY_CALLS = (
        "TOO_MANY_CALLS",
        Code.RESOURCE_EXHAUSTED,
        True,
        _CALL,
        "The service has too many open calls; try again after the error's delay.",
    )
    TOO_MANY_STREAMS = (
        "TOO_MANY_STREAMS",
        Code.RESOURCE_EXHAUSTED,
        True,
        _CALL,
        "The service has too many open streams; try again after the error's delay.",
    )
    TOO_MANY_STREAMS_OF_PEER = (
        "TOO_MANY_STREAMS_OF_PEER",
        Code.RESOURCE_EXHAUSTED,
        True,
        _CALL,
        "This connection has too many open streams; close some.",
    )
    QUEUE_FULL = (
        "QUEUE_FULL",
        Code.RESOURCE_EXHAUSTED,
        True,
        _CALL,
        "The queue of evaluations is full; try again after the time that the error gives.",
    )
    DRAINING = (
        "DRAINING",
        Code.UNAVAILABLE,
        True,
        _CALL | _END,
        "The worker is stopping and accepts no new calls; try again when it has restarted.",
    )
    UNKNOWN_SERVICE = (
        "UNKNOWN_SERVICE",
        Code.NOT_FOUND,
        False,
        _CALL,
        "The worker has no such service; add it to the settings, or correct the name.",
    )

    # Data sets.
    UNKNOWN_DATASET = (
        "UNKNOWN_DATASET",
        Code.NOT_FOUND,
        False,
        _CALL,
        "No data set, configuration or split has this name.",
    )
    UNKNOWN_SAMPLE = "UNKNOWN_SAMPLE", Code.NOT_FOUND, False, _CALL, "The data set has no sample of this id."
    NOT_CACHED = (
        "NOT_CACHED",
        Code.NOT_FOUND,
        False,
        _CALL,
        "The worker's cache of the hub does not have it, and the worker may not query the hub; see --hub-network.",
    )
    NO_SUCH_FILE = "NO_SUCH_FILE", Code.NOT_FOUND, False, _CALL, "No data root has the file."
    NO_DATA_ROOT = (
        "NO_DATA_ROOT",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The worker has no folder for data; start it with --data-root.",
    )
    OUTSIDE_ROOT = (
        "OUTSIDE_ROOT",
        Code.PERMISSION_DENIED,
        False,
        _CALL,
        "The file lies outside of the data roots; another --data-root allows it.",
    )
    UNREADABLE = (
        "UNREADABLE",
        (Code.PERMISSION_DENIED, Code.FAILED_PRECONDITION),
        False,
        _CALL,
        "The file cannot be read; check its permissions, and the line that the message names.",
    )
    NO_SUCH_COLUMN = (
        "NO_SUCH_COLUMN",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "The data set has no such column; the message names those that it has.",
    )
    AMBIGUOUS_COLUMNS = (
        "AMBIGUOUS_COLUMNS",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "The columns of the rows fit two shapes; say which column is the input and which the target.",
    )
    TOOLS_UNSUPPORTED = (
        "TOOLS_UNSUPPORTED",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "Rows have messages with documents, which are not rendered yet; the message names the column and the cure.",
    )
    MALFORMED_FILE = (
        "MALFORMED_FILE",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "The file is not in its format, or exceeds a limit; the message says what is wrong.",
    )
    MALFORMED_LINE = (
        "MALFORMED_LINE",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "A line of the data is not a sample; the message gives its number.",
    )
    DUPLICATE_SAMPLE_ID = (
        "DUPLICATE_SAMPLE_ID",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "Two samples of the data set have one id.",
    )
    EMPTY_DATASET = "EMPTY_DATASET", Code.INVALID_ARGUMENT, False, _CALL, "The data set has no sample."
    HUB_DATASET_REFUSED = (
        "HUB_DATASET_REFUSED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The datasets library cannot fetch or read the data set.",
    )
    HUB_UNREACHABLE = "HUB_UNREACHABLE", Code.UNAVAILABLE, True, _CALL, "The Hugging Face hub cannot be reached."
    HUB_READER_DIED = (
        "HUB_READER_DIED",
        Code.UNAVAILABLE,
        True,
        _CALL,
        "The process that reads from the hub died.",
    )
    FILE_READER_DIED = (
        "FILE_READER_DIED",
        Code.UNAVAILABLE,
        True,
        _CALL,
        "The process that reads a CSV or Parquet file died.",
    )
    NO_ROOM_FOR_DATASET = (
        "NO_ROOM_FOR_DATASET",
        Code.UNAVAILABLE,
        True,
        _CALL,
        "The data set is too large for memory, and cannot be written to a file; make room on the disk.",
    )

    # Evaluations, plans, events and the journal.
    UNKNOWN_EVALUATION = (
        "UNKNOWN_EVALUATION",
        Code.NOT_FOUND,
        False,
        _CALL,
        "No evaluation has this id, or it is no longer retained.",
    )
    UNKNOWN_RUN = "UNKNOWN_RUN", Code.NOT_FOUND, False, _CALL, "The run has no completed evaluation of this data set."
    UNKNOWN_PLAN = "UNKNOWN_PLAN", Code.NOT_FOUND, False, _CALL, "No plan has this id, or it is no longer retained."
    UNKNOWN_EXPERIMENT = (
        "UNKNOWN_EXPERIMENT",
        Code.NOT_FOUND,
        False,
        _CALL,
        "No experiment has this id; open it first.",
    )
    EXPERIMENT_CLOSED = (
        "EXPERIMENT_CLOSED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The experiment was closed; open it again to log more.",
    )
    OTHER_SPECIFICATION = (
        "OTHER_SPECIFICATION",
        Code.ALREADY_EXISTS,
        False,
        _CALL,
        "The id belongs to an evaluation with other settings; take another id, or the same settings.",
    )
    OTHER_PLAN = "OTHER_PLAN", Code.ALREADY_EXISTS, False, _CALL, "The id belongs to another plan; take another id."
    OTHER_FOLLOW = (
        "OTHER_FOLLOW",
        Code.ALREADY_EXISTS,
        False,
        _CALL,
        "The run is followed in another way; end that first with UnfollowRun.",
    )
    UNKNOWN_FOLLOW = "UNKNOWN_FOLLOW", Code.NOT_FOUND, False, _CALL, "No directory was ever followed for this run."
    OTHER_MODEL = "OTHER_MODEL", Code.ALREADY_EXISTS, False, _CALL, "Evaluations of this step are of another model."
    OTHER_LOG = (
        "OTHER_LOG",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The position belongs to another journal; read this one from its beginning.",
    )
    BEYOND_LOG = "BEYOND_LOG", Code.OUT_OF_RANGE, False, _CALL, "The position lies after the last event."
    NO_LONGER_RETAINED = (
        "NO_LONGER_RETAINED",
        Code.OUT_OF_RANGE,
        False,
        _CALL,
        "The events after the position were removed; resume at the oldest_sequence that the error gives.",
    )
    NOT_ENDED = (
        "NOT_ENDED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The evaluation is not completed; wait for its end.",
    )
    NOT_SCORED = (
        "NOT_SCORED",
        Code.FAILED_PRECONDITION,
        False,
        _CLIENT,
        "An evaluator ran and scored nothing, so it has no number; the message has the first sample's reason.",
    )
    EVALUATION_ENDED = (
        "EVALUATION_ENDED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The evaluation has ended: it cannot be paused or resumed, and its concurrency cannot be changed.",
    )
    BUDGET_SPENT = (
        "BUDGET_SPENT",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The evaluation is paused, as a bound of its cost or tokens is reached: resume it with a larger one.",
    )
    NO_PRICE = (
        "NO_PRICE",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "A bound of the cost is given, and a model has no price at this worker: set one with --price.",
    )
    USAGE_NOT_REPORTED = (
        "USAGE_NOT_REPORTED",
        (),
        False,
        _END,
        "A bound of cost or tokens is given, and a model's server does not say how many tokens its answers take.",
    )
    DIFFERENT_DATASETS = (
        "DIFFERENT_DATASETS",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The evaluations are of different data sets and cannot be compared.",
    )
    METADATA_NOT_RECORDED = (
        "METADATA_NOT_RECORDED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "What the samples are is not recorded, or not completely; evaluate the data set once with `record` full.",
    )
    TOO_MANY_SAMPLES = (
        "TOO_MANY_SAMPLES",
        Code.RESOURCE_EXHAUSTED,
        True,
        _CALL,
        "The evaluations, or their results, are more than the worker compares; name fewer evaluations.",
    )
    HELD_BY_ORCHESTRATOR = (
        "HELD_BY_ORCHESTRATOR",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The caller holds the model; call EvaluateWithOrchestratorModel.",
    )
    NEEDS_CALLER = (
        "NEEDS_CALLER",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The caller holds a grader or an environment; call EvaluateWithOrchestratorModel, and name it in its start.",
    )
    HELD_ELSEWHERE = (
        "HELD_ELSEWHERE",
        Code.ABORTED,
        True,
        _CALL,
        "The evaluation runs at another worker, to which its model is connected.",
    )
    TAKEN_OVER = "TAKEN_OVER", Code.ABORTED, False, _CALL | _END, "Another stream has taken over the evaluation."
    CALLER_LEFT = (
        "CALLER_LEFT",
        (Code.CANCELLED, Code.UNAVAILABLE),
        None,
        _CALL | _ITEM | _END,
        "The caller that holds the model left; the same call with the same id resumes.",
    )
    JOURNAL_UNWRITABLE = (
        "JOURNAL_UNWRITABLE",
        Code.UNAVAILABLE,
        True,
        _CALL,
        "The journal cannot be written: the worker's disk is full, or its database is away.",
    )
    JOURNAL_UNREADABLE = "JOURNAL_UNREADABLE", Code.UNAVAILABLE, True, _CALL, "The journal cannot be read."
    JOURNAL_DAMAGED = "JOURNAL_DAMAGED", Code.INTERNAL, False, _CALL, "A record of the journal is damaged."
    JOURNAL_VERSION = (
        "JOURNAL_VERSION",
        Code.FAILED_PRECONDITION,
        False,
        _START,
        "The journal is of another version; use another --state-dir, or the worker that wrote it.",
    )
    STATE_DIR_LOCKED = (
        "STATE_DIR_LOCKED",
        Code.FAILED_PRECONDITION,
        False,
        _START,
        "Another process uses the state directory; end it, or use another --state-dir.",
    )
    STATE_DIR_UNUSABLE = (
        "STATE_DIR_UNUSABLE",
        Code.FAILED_PRECONDITION,
        False,
        _START,
        "The state directory cannot be used; the message says why.",
    )
    JOURNAL_UNUSABLE = (
        "JOURNAL_UNUSABLE",
        Code.FAILED_PRECONDITION,
        False,
        _START,
        "The database of --journal cannot be used; the message says why.",
    )
    STALLED = "STALLED", (), True, _END, "The evaluation made no progress for too long."
    RETENTION = "RETENTION", (), False, _END, "The evaluation was interrupted for longer than interrupted_retention."
    NO_EVALUATOR_FINISHED = "NO_EVALUATOR_FINISHED", (), None, _END, "No evaluator of the evaluation finished."
    SAMPLES_MISSING = (
        "SAMPLES_MISSING",
        (),
        False,
        _END,
        "The evaluator read fewer results than were recorded: its aggregate stops early.",
    )
    TOO_MANY_UNSCORED = (
        "TOO_MANY_UNSCORED",
        (),
        None,
        _END,
        "More samples are unscored than the limits allow; the samples' problems say why.",
    )
    DATASET_NOT_READ = (
        "DATASET_NOT_READ",
        (),
        False,
        _END,
        "One of the two evaluations ended before it had read its data set.",
    )
    SEVERAL_CHOICES = (
        "SEVERAL_CHOICES",
        (),
        False,
        _ITEM,
        "The response names several choices, and one was asked for: it is wrong.",
    )
    CHOICE_DENIED = (
        "CHOICE_DENIED",
        (),
        False,
        _ITEM,
        "The response says only which choice it is not: it is wrong.",
    )
    NO_SCORES = (
        "NO_SCORES",
        (),
        False,
        _END,
        "The metric does not summarise scores of samples, or the evaluations have no scored sample in common.",
    )
    EVALUATORS_DIFFER = (
        "EVALUATORS_DIFFER",
        (),
        False,
        _END,
        "The evaluators of the two evaluations differ in their options.",
    )
    RULES_DIFFER = (
        "RULES_DIFFER",
        (),
        False,
        _END,
        "The evaluations were measured by other versions of rules or of a grader; set across_rules to compare them.",
    )
    EQUAL_KEYS = (
        "EQUAL_KEYS",
        Code.INVALID_ARGUMENT,
        False,
        _CALL | _END,
        "Two evaluators yield the same metric; give one of them another name.",
    )

    # Evaluators and samples.
    UNKNOWN_EVALUATOR = (
        "UNKNOWN_EVALUATOR",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "There is no evaluator of this kind; the message names the known ones.",
    )
    UNKNOWN_OPTION = (
        "UNKNOWN_OPTION",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "The option is unknown; the message names the known ones.",
    )
    BAD_EVALUATOR = (
        "BAD_EVALUATOR",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "An installed evaluator cannot be used; the message says what it did.",
    )
    BAD_GRADER = (
        "BAD_GRADER",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "An installed grader cannot be used; the message says what it did.",
    )
    BAD_ENVIRONMENT = (
        "BAD_ENVIRONMENT",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "An installed environment cannot be used; the message says what it did.",
    )
    BAD_BACKEND = (
        "BAD_BACKEND",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "An installed backend cannot be used; the message says what it did.",
    )
    EVALUATOR_FAILED = (
        "EVALUATOR_FAILED",
        Code.INTERNAL,
        False,
        _ITEM | _END,
        "The evaluator failed; if its code raised, the worker's log has more under the message's error id.",
    )
    ERROR = "ERROR", (), False, _ITEM, "An installed evaluator gave the verdict ERROR without a reason."
    UNDECIDED = "UNDECIDED", (), False, _ITEM, "The answer could not be judged; the sample is unscored."
    BAD_SCORE = "BAD_SCORE", Code.INTERNAL, False, _ITEM, "The grader gave a score that does not fit its verdict."
    BAD_GROUP = "BAD_GROUP", (), False, _ITEM, "The sample's group of trajectories is malformed."
    GROUP_TOO_LARGE = (
        "GROUP_TOO_LARGE",
        Code.INVALID_ARGUMENT,
        False,
        _ITEM,
        "The sample's group of trajectories is too large to be recorded.",
    )
    SAMPLE_TIMEOUT = "SAMPLE_TIMEOUT", (), True, _ITEM, "The sample took longer than sample_timeout."
    ITEM_TIMEOUT = "ITEM_TIMEOUT", (), True, _ITEM, "The item of the batch took longer than item_timeout."
    INFINITE_LOGPROB = (
        "INFINITE_LOGPROB",
        Code.UNAVAILABLE,
        False,
        _ITEM,
        "A log-probability of the answer is infinite.",
    )
    NAN_LOGPROB = "NAN_LOGPROB", Code.UNAVAILABLE, False, _ITEM, "A log-probability of the answer is NaN."
    NO_TOKENS = (
        "NO_TOKENS",
        Code.FAILED_PRECONDITION,
        False,
        _ITEM,
        "The model gives no tokens, which this environment needs.",
    )
    NOT_FINITE = "NOT_FINITE", (), False, _ITEM, "A reward, a metric or a sum is not a finite number."
    FAILED_FAST = (
        "FAILED_FAST",
        Code.UNAVAILABLE,
        True,
        _ITEM,
        "The sample was not begun, because another one had failed.",
    )
    ROLLOUT_FAILED = "ROLLOUT_FAILED", Code.UNAVAILABLE, False, _ITEM, "A rollout of the environment failed."
    TOO_FEW_ROLLOUTS = "TOO_FEW_ROLLOUTS", (), False, _ITEM, "Too few rollouts of the group are left to be scored."
    UNKNOWN_ENVIRONMENT = (
        "UNKNOWN_ENVIRONMENT",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "No environment has this name; the message names the known ones.",
    )
    ENVIRONMENTS_CLOSED = (
        "ENVIRONMENTS_CLOSED",
        Code.UNAVAILABLE,
        True,
        _ITEM,
        "The evaluation ended before the environment did.",
    )
    ENVIRONMENT_ENDED = (
        "ENVIRONMENT_ENDED",
        Code.UNAVAILABLE,
        True,
        _ITEM,
        "The environment's process ended unexpectedly.",
    )
    ENVIRONMENT_NOT_STARTED = (
        "ENVIRONMENT_NOT_STARTED",
        Code.UNAVAILABLE,
        True,
        _ITEM,
        "The environment's process could not be started.",
    )
    ENVIRONMENT_PROTOCOL = (
        "ENVIRONMENT_PROTOCOL",
        Code.UNAVAILABLE,
        False,
        _ITEM,
        "The environment's process sent a message that its protocol does not have.",
    )
    NO_INSPECT_TASKS = (
        "NO_INSPECT_TASKS",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The worker runs no Inspect task; --inspect-root or --inspect-package allows some.",
    )
    TASK_NOT_ALLOWED = (
        "TASK_NOT_ALLOWED",
        Code.PERMISSION_DENIED,
        False,
        _CALL,
        "The operator does not allow this Inspect task.",
    )
    TASK_NOT_FOUND = "TASK_NOT_FOUND", Code.NOT_FOUND, False, _CALL, "The Inspect task does not exist."
    INSPECT_ENDED = (
        "INSPECT_ENDED",
        Code.UNAVAILABLE,
        True,
        _ITEM | _END,
        "The process of the Inspect task ended unexpectedly.",
    )
    INSPECT_FAILED = "INSPECT_FAILED", (), False, _ITEM | _END, "The Inspect task failed; the message has its error."
    INSPECT_NOT_STARTED = (
        "INSPECT_NOT_STARTED",
        Code.UNAVAILABLE,
        True,
        _ITEM | _END,
        "The process of the Inspect task could not be started.",
    )
    INSPECT_PROTOCOL = (
        "INSPECT_PROTOCOL",
        Code.UNAVAILABLE,
        False,
        _ITEM | _END,
        "The process of the Inspect task sent a message that its protocol does not have.",
    )
    INSPECT_SAMPLES_FAILED = "INSPECT_SAMPLES_FAILED", (), False, _ITEM | _END, "Samples of the Inspect task failed."
    TOO_MANY_METRICS = (
        "TOO_MANY_METRICS",
        (),
        False,
        _ITEM | _END,
        "The Inspect task gave more metrics than are recorded.",
    )

    # Grading.
    UNKNOWN_GRADER = (
        "UNKNOWN_GRADER",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "No grader has this name; the message names the known ones.",
    )
    GRADER_FAILED = (
        "GRADER_FAILED",
        (),
        False,
        _ITEM,
        "The grader failed; the worker's log has the traceback under the error id of the message.",
    )
    FANOUT_NODE = (
        "FANOUT_NODE",
        (Code.FAILED_PRECONDITION, Code.INTERNAL),
        False,
        _CALL | _ITEM,
        "A node of the Ray cluster of --fanout cannot grade: install the same release of crucible-bridge there.",
    )
    FANOUT_UNREACHABLE = (
        "FANOUT_UNREACHABLE",
        Code.UNAVAILABLE,
        True,
        _CALL | _ITEM,
        "The Ray cluster of --fanout does not answer, or lost the answers; start it, or serve without --fanout.",
    )
    GRADING_CLOSED = (
        "GRADING_CLOSED",
        Code.UNAVAILABLE,
        None,
        _CALL | _ITEM,
        "The worker stops, and grades no further answers.",
    )
    GRADING_POOL = (
        "GRADING_POOL",
        Code.UNAVAILABLE,
        True,
        _CALL | _ITEM,
        "The processes that grade die or do not start; look at the worker's log.",
    )
    NO_GRADING_POOL = (
        "NO_GRADING_POOL",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The worker grades no math: --grading-processes is 0.",
    )
    NO_JUDGE = (
        "NO_JUDGE",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The grader needs a judge model, which is not available here.",
    )
    INVALID_JUDGEMENT = (
        "INVALID_JUDGEMENT",
        (),
        False,
        _ITEM,
        "The judge's answer is not a judgement in the required form.",
    )
    INVALID_SCHEMA = (
        "INVALID_SCHEMA",
        Code.INVALID_ARGUMENT,
        False,
        _CALL | _ITEM,
        "The JSON schema is malformed, or uses a keyword that is not supported.",
    )
    RESPONSE_TOO_LONG = "RESPONSE_TOO_LONG", (), False, _ITEM, "The response is longer than a grader reads."
    NO_SANDBOX = (
        "NO_SANDBOX",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "Programs cannot be run in a sandbox at this worker; the message says why.",
    )
    SANDBOX_LOST = "SANDBOX_LOST", (), False, _ITEM, "The sandbox ended before the program did, twice."
    BAD_TESTS = "BAD_TESTS", (), False, _ITEM, "The tests of the item are themselves wrong."
    NOT_PASSABLE = (
        "NOT_PASSABLE",
        (),
        False,
        _ITEM,
        "The tests need values that cannot be passed between them and the program.",
    )
    TESTS_FAILED = "TESTS_FAILED", (), False, _ITEM, "The tests ended before all of them had run."

    # Models of every kind.
    NO_BACKEND = (
        "NO_BACKEND",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The worker has no backend for this kind of model.",
    )
    EXTRA_NOT_INSTALLED = (
        "EXTRA_NOT_INSTALLED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "A package that this needs is not installed; the message names the extra.",
    )
    MISSING_CLIENT = (
        "MISSING_CLIENT",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The model does not offer the kind of call that the evaluator needs.",
    )
    UNKNOWN_MODEL = (
        "UNKNOWN_MODEL",
        Code.NOT_FOUND,
        False,
        _CALL | _ITEM,
        "The server or service has no model of this name.",
    )
    UNKNOWN_EMBEDDED_MODEL = (
        "UNKNOWN_EMBEDDED_MODEL",
        Code.NOT_FOUND,
        False,
        _CALL,
        "The worker embeds no model of this name; the message names the known ones.",
    )
    UNKNOWN_SERVER = (
        "UNKNOWN_SERVER",
        Code.NOT_FOUND,
        False,
        _CALL,
        "The worker knows no server of this name; add it by --openai-server.",
    )
    UNKNOWN_RENDERER = (
        "UNKNOWN_RENDERER",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "tinker-cookbook has no such renderer for this tokenizer.",
    )
    RAW_CONVERSATION = (
        "RAW_CONVERSATION",
        Code.INVALID_ARGUMENT,
        False,
        _CALL | _ITEM,
        "The renderer raw accepts only text, and the conversation has roles.",
    )
    TEMPLATE_FAILED = (
        "TEMPLATE_FAILED",
        Code.INVALID_ARGUMENT,
        False,
        _CALL | _ITEM,
        "The template of a prompt cannot be read, names a column that the row lacks, or takes too much time or memory.",
    )
    FEW_SHOT_REFUSED = (
        "FEW_SHOT_REFUSED",
        Code.INVALID_ARGUMENT,
        False,
        _CALL | _ITEM,
        "The source of a prompt's examples has too few rows, or one without a target.",
    )
    CHAT_TEMPLATE_NOT_STABLE = (
        "CHAT_TEMPLATE_NOT_STABLE",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The chat template renders a message differently if other messages follow; measure the last message only.",
    )
    NO_CHAT_TEMPLATE = (
        "NO_CHAT_TEMPLATE",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The model has no chat template, so a conversation cannot be rendered.",
    )
    NO_COOKBOOK_TOKENIZER = (
        "NO_COOKBOOK_TOKENIZER",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "tinker-cookbook's renderers need a local tokenizer, which this model lacks.",
    )
    NO_TOKENIZER = (
        "NO_TOKENIZER",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "No tokenizer can be loaded, as of a server's model: name a local model with the same one, or send token ids.",
    )
    NO_PREFIX_TOKEN = (
        "NO_PREFIX_TOKEN",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The model has no token that begins a text, so the first token cannot be measured.",
    )
    SPECIAL_TOKEN_IN_TEXT = (
        "SPECIAL_TOKEN_IN_TEXT",
        Code.INVALID_ARGUMENT,
        False,
        _CALL | _ITEM,
        "A text names a special token, and the model's tokenizer cannot read that name as text.",
    )
    NO_PROMPT = (
        "NO_PROMPT",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The tokenizer joins the whole prompt with an answer or a choice, so no token of the prompt is left.",
    )
    IMPOSSIBLE_LOGPROBS = (
        "IMPOSSIBLE_LOGPROBS",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "A log-probability is above 0 by more than rounding, or all of a prompt are exactly 0; none is used.",
    )
    PROMPT_DIFFERS = (
        "PROMPT_DIFFERS",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The server read another number of tokens than it was sent; start it so that it changes no prompt.",
    )
    NO_PROMPT_LOGPROBS = (
        "NO_PROMPT_LOGPROBS",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The server gives no log-probabilities of a prompt.",
    )
    NO_GREEDY_TOKENS = (
        "NO_GREEDY_TOKENS",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The model does not say which tokens it would have chosen.",
    )
    NO_TOP_LOGPROBS = (
        "NO_TOP_LOGPROBS",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The server does not name the likeliest tokens by their ids.",
    )
    NO_TARGET_LOGPROBS = (
        "NO_TARGET_LOGPROBS",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The model gives no log-probabilities of targets.",
    )
    PROMPT_TOO_LONG = (
        "PROMPT_TOO_LONG",
        Code.INVALID_ARGUMENT,
        False,
        _CALL | _ITEM,
        "The prompt does not fit the model's context.",
    )

    # Local models.
    NO_MODEL_ROOT = (
        "NO_MODEL_ROOT",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The worker has no folder for models; start it with --model-root.",
    )
    PATH_OUT_OF_ROOT = (
        "PATH_OUT_OF_ROOT",
        Code.PERMISSION_DENIED,
        False,
        _CALL,
        "The model, or a file of it, lies outside of the model roots.",
    )
    MODEL_NOT_FOUND = (
        "MODEL_NOT_FOUND",
        Code.NOT_FOUND,
        False,
        _CALL | _ITEM,
        "No model root has this directory, or a file of it is missing.",
    )
    MODEL_REFUSED = (
        "MODEL_REFUSED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The model cannot be loaded; the message says why.",
    )
    NO_MODEL_CONFIG = (
        "NO_MODEL_CONFIG",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The model's directory has no config.json.",
    )
    NO_SAFETENSORS = (
        "NO_SAFETENSORS",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The model or adapter has no weights in safetensors.",
    )
    PICKLED_WEIGHTS_REFUSED = (
        "PICKLED_WEIGHTS_REFUSED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The weights are pickled, which can run code; save them as safetensors.",
    )
    NO_ADAPTER_CONFIG = (
        "NO_ADAPTER_CONFIG",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The adapter's directory has no adapter_config.json.",
    )
    ADAPTER_REFUSED = (
        "ADAPTER_REFUSED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The directory is not a LoRA adapter of this model, or is an adapter where a model is needed.",
    )
    DATASET_CHANGED = (
        "DATASET_CHANGED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _END,
        "The data set is not what it was when the evaluation started; restore it, or start another evaluation.",
    )
    MODEL_CHANGED = (
        "MODEL_CHANGED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _END,
        "The model is not what it was when the evaluation started; restore it, or start another evaluation.",
    )
    DATASET_CHANGED_WHILE_READ = (
        "DATASET_CHANGED_WHILE_READ",
        Code.UNAVAILABLE,
        True,
        _CALL | _END,
        "The file of a data set was written while it was read; call again when it is complete.",
    )
    MODEL_OUTAGE = (
        "MODEL_OUTAGE",
        Code.UNAVAILABLE,
        True,
        _CALL | _END,
        "A model did not answer for outage_seconds; call again after the time that the error has.",
    )
    RULES_CHANGED = (
        "RULES_CHANGED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _END,
        "A release with other rules of measurement began the evaluation; start another one, under another id.",
    )
    CHECKPOINT_CHANGED = (
        "CHECKPOINT_CHANGED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The files of the checkpoint changed since the evaluation began.",
    )
    DEVICE_NOT_FOUND = (
        "DEVICE_NOT_FOUND",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The device cannot be used; without one, models compute on the CPU.",
    )
    HOST_DIED = "HOST_DIED", Code.UNAVAILABLE, True, _CALL | _ITEM, "The process that computes local models died."
    HOST_NOT_STARTED = (
        "HOST_NOT_STARTED",
        Code.UNAVAILABLE,
        True,
        _CALL | _ITEM,
        "The process that computes local models cannot be started.",
    )
    SERVER_NOT_STARTED = (
        "SERVER_NOT_STARTED",
        Code.UNAVAILABLE,
        False,
        _CALL | _ITEM | _END,
        "A server that the worker starts did not start, or loaded no weights; the message has the end of its log.",
    )
    MODEL_NOT_OPEN = (
        "MODEL_NOT_OPEN",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The model is no longer open in the process that computes it.",
    )
    MODEL_FAILED = (
        "MODEL_FAILED",
        Code.UNAVAILABLE,
        False,
        _CALL | _ITEM,
        "The model or its tokenizer failed; the worker's log has the traceback.",
    )
    LOGITS_NOT_FINITE = (
        "LOGITS_NOT_FINITE",
        Code.UNAVAILABLE,
        False,
        _CALL | _ITEM,
        "The model's logits are not finite.",
    )
    OUT_OF_MEMORY = "OUT_OF_MEMORY", Code.UNAVAILABLE, True, _CALL | _ITEM, "The model's device is out of memory."
    RENDERING_LIMIT = (
        "RENDERING_LIMIT",
        Code.UNAVAILABLE,
        False,
        _CALL | _ITEM,
        "Rendering or tokenising took more time or memory than allowed.",
    )

    # Models of servers and services.
    BACKEND_FAILED = (
        "BACKEND_FAILED",
        Code.UNAVAILABLE,
        True,
        _CALL | _ITEM,
        "The server or service failed at the call.",
    )
    BACKEND_ANSWER = (
        "BACKEND_ANSWER",
        Code.UNAVAILABLE,
        None,
        _CALL | _ITEM,
        "The server or service sent an answer that cannot be used.",
    )
    BACKEND_CANCELLED = (
        "BACKEND_CANCELLED",
        Code.UNAVAILABLE,
        True,
        _CALL | _ITEM,
        "The server or service cancelled the call.",
    )
    BACKEND_CLOSED = (
        "BACKEND_CLOSED",
        Code.UNAVAILABLE,
        False,
        _CALL | _ITEM,
        "The worker stops and has closed its connections to models.",
    )
    BACKEND_CONNECTION_LOST = (
        "BACKEND_CONNECTION_LOST",
        Code.UNAVAILABLE,
        True,
        _CALL | _ITEM,
        "The connection to the server broke within a call.",
    )
    BACKEND_FILTERED = (
        "BACKEND_FILTERED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The server's filter truncated the answer.",
    )
    BACKEND_FORBIDDEN = (
        "BACKEND_FORBIDDEN",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The worker's key does not allow this call.",
    )
    BACKEND_KEY = (
        "BACKEND_KEY",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The worker cannot read its key for the server or service, or the key is of another kind.",
    )
    BACKEND_QUOTA = (
        "BACKEND_QUOTA",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The server's quota is used up; pay, or wait.",
    )
    BACKEND_RATE_LIMITED = (
        "BACKEND_RATE_LIMITED",
        Code.RESOURCE_EXHAUSTED,
        True,
        _CALL | _ITEM,
        "The server limits the rate of calls; the error says when to try again, if the server says it.",
    )
    BACKEND_REDIRECT = (
        "BACKEND_REDIRECT",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The server redirects, and the worker does not follow; name the final address.",
    )
    BACKEND_REFUSED = (
        "BACKEND_REFUSED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The server or service refuses the request.",
    )
    BACKEND_TIMEOUT = (
        "BACKEND_TIMEOUT",
        Code.UNAVAILABLE,
        True,
        _CALL | _ITEM,
        "The server or service did not answer in time.",
    )
    BACKEND_UNAUTHENTICATED = (
        "BACKEND_UNAUTHENTICATED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The server does not accept the worker's key.",
    )
    BACKEND_UNREACHABLE = (
        "BACKEND_UNREACHABLE",
        Code.UNAVAILABLE,
        True,
        _CALL | _ITEM,
        "The server or service cannot be reached.",
    )
    REPLICAS_DIFFER = (
        "REPLICAS_DIFFER",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM,
        "The replicas of a server do not serve the same model.",
    )
    SERVED_NAME_DIFFERS = (
        "SERVED_NAME_DIFFERS",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _ITEM | _END,
        "The server answers in the name of another model than the one requested; request the name that it has.",
    )

    # Loggers of experiments.
    UNKNOWN_LOGGER = (
        "UNKNOWN_LOGGER",
        Code.INVALID_ARGUMENT,
        False,
        _CALL | _START,
        "No logger has this name; the message names the known ones.",
    )
    LOGGER_OPTION = (
        "LOGGER_OPTION",
        Code.PERMISSION_DENIED,
        False,
        _CALL,
        "A request sets an option of a logger that is the operator's: a place where it writes or sends to.",
    )
    BAD_LOGGER = (
        "BAD_LOGGER",
        Code.FAILED_PRECONDITION,
        False,
        _CALL | _START,
        "An installed logger cannot be used; the message says what it did.",
    )

    # Snakepit.
    NOT_STARTED = (
        "NOT_STARTED",
        Code.FAILED_PRECONDITION,
        False,
        _CALL,
        "The worker of the adapter cannot be started; the message says why.",
    )
    UNKNOWN_TOOL = "UNKNOWN_TOOL", Code.NOT_FOUND, False, _CALL, "The adapter has no such tool."
    UNKNOWN_SESSION = "UNKNOWN_SESSION", Code.NOT_FOUND, False, _CALL, "There is no such session."
    UNKNOWN_PARAMETER = (
        "UNKNOWN_PARAMETER",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "The tool has no such parameter, or one is missing.",
    )
    WRONG_TYPE = (
        "WRONG_TYPE",
        Code.INVALID_ARGUMENT,
        False,
        _CALL,
        "A parameter is of the wrong type; the message names the right one.",
    )
    MALFORMED_JSON = "MALFORMED_JSON", Code.INVALID_ARGUMENT, False, _CALL, "A parameter is not JSON that can be read."
