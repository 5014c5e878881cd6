"""Every limit of a worker, by name. `GetInfo` returns those in force; `--limit NAME=VALUE` sets one."""

from __future__ import annotations

import dataclasses

__all__ = ["KEEP_FOREVER", "MIN_MESSAGE_BYTES", "WorkerLimits"]

MIN_MESSAGE_BYTES = 128 * 1024
"""The least that `max_message_bytes` may be: ListEvaluators alone answers with half of it."""

KEEP_FOREVER = (
    "max_events_retained",
    "evaluation_retention_seconds",
    "interrupted_retention_seconds",
    "plan_retention_seconds",
    "run_retention_seconds",
)
"""Limits of what the journal retains; 0 removes nothing."""

_DAY = 24 * 60 * 60


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """Bounds of a worker; units in their names. All are above zero, except those of retention."""

    max_message_bytes: int = 64 * 1024 * 1024
    """A message, either way; above, the call is refused."""
    max_running_evaluations: int = 4
    """Evaluations at work at once; more are queued."""
    max_queued_evaluations: int = 64
    """Evaluations that wait; more are refused."""
    default_concurrency: int = 32
    """Samples of an evaluation, or items of a model call, in flight at once, where the request does not say."""
    max_concurrency: int = 1024
    """What a request may ask for at most."""
    default_sample_timeout_seconds: float = 300.0
    """If the request does not say: an item's time, and a sample's without an answer of a model.

    Not of tasks of `inspect`.
    """
    default_stall_timeout_seconds: float = 600.0
    """Time without any progress after which an evaluation fails, where the request does not say."""
    outage_seconds: float = 600.0
    """How long an evaluation waits for a model that does not answer at all, until it is interrupted."""
    max_events_retained: int = 1_000_000
    """Events in the journal; the oldest go first, never those of an unfinished evaluation. 0 keeps all."""
    evaluation_retention_seconds: float = 30.0 * _DAY
    """How long an evaluation that has ended is kept, with its samples, and an experiment that is no longer logged to; 0
    is forever."""
    interrupted_retention_seconds: float = 7.0 * _DAY
    """How long an interrupted evaluation waits to be resumed before it is cancelled; 0 is forever."""
    plan_retention_seconds: float = 30.0 * _DAY
    """How long an unused plan is kept; longer while its run has evaluations; 0 is forever."""
    run_retention_seconds: float = 5.0 * 365.0 * _DAY
    """How long it is kept what an evaluation of a run measured, one small row, once it has ended; 0 is forever."""
    retention_grace_seconds: float = 1.0 * _DAY
    """Nothing is removed because of its age before it was too old for this long, in time that workers ran."""
    max_sample_record_bytes: int = 2 * 1024 * 1024
    """Of what is recorded of a sample besides its result: half for what the sample is, half for prompt and turns. The
    rest is left out, and the record says so."""
    max_evaluation_record_bytes: int = 4 * 1024 * 1024 * 1024
    """Of what an evaluation adds to the journal by such records, all its attempts together; samples behind it are
    recorded without."""
    max_grading_items: int = 4096
    """Items of a grading call; more are refused."""
    max_grading_work: int = 65_536
    """Work in open calls of one method of grading: each answer is one unit, each program or judgement 16, and each KiB
    of a request one. A call beyond is refused, unless it is alone."""
    max_fanout_chunks: int = 64
    """Chunks of answers that a worker with --fanout has on a Ray cluster at once; more wait."""
    max_model_items: int = 4_096
    """Items of a ModelService or RenderingService call; more are refused."""
    max_samples_per_item: int = 1_000
    """Continuations of one item of `Sample`; an item that asks for more is refused."""
    max_top_k: int = 128
    """The likeliest tokens that a call requests in place of each token; a call that asks for more is refused."""
    max_teachers: int = 16
    """Teachers of one `ComputeLogprobs`, each of which holds up to one message of values until they are combined; more
    are refused."""
    max_rendered_chars: int = 4_000_000
    """Characters that the chat template of a local or Tinker model makes of a conversation; with more, the sample is
    ERROR."""
    max_rendering_seconds: float = 10.0
    """For the chat template and tokenizer of a local or Tinker model, each request, and a second more for each 250,000
    characters of it; then their process is killed, and the sample is ERROR."""
    max_rendering_bytes: int = 2 * 1024 * 1024 * 1024
    """Memory of the process of such a chat template and tokenizer; with more, the sample is ERROR."""
    max_checkpoint_seconds: float = 60.0
    """For the configuration and the tokenizer of a local model, before its weights are loaded; then it is refused.
    For the tokenizer of a Tinker model, which may be downloaded; then the model has none."""
    max_host_silence_seconds: float = 30.0
    """The process of the local models, or of Tinker's tokenizers, is replaced if it does not answer for so long."""
    max_inspect_tasks: int = 4
    """Tasks of Inspect at work at once, each in a process of its own; more wait, which is part of a sample's time."""
    max_orchestrator_window: int = 1_024
    """Questions open at once on one stream of EvaluateWithOrchestratorModel, whatever the orchestrator wants."""
    max_loggers: int = 16
    """Loggers of experiments that are open at once, each in a process; more wait for their turn."""
    max_experiment_bytes: int = 256 * 1024 * 1024
    """Of what an experiment retains for loggers that are behind; the oldest entries go first, and each logger reports
    what it missed."""
    max_compared_samples: int = 2_000_000
    """Results of samples, of all evaluations of one comparison together; more are refused."""
    max_calls_per_service: int = 256
    """Unary calls open at once in one service; more are refused. Health checks are not counted."""
    max_streams: int = 256
    """Streams open at once in one service."""
    max_streams_per_peer: int = 64
    """Streams of one service that one connection may have, so that none takes all; not counted on a Unix socket."""
    max_health_watches: int = 256
    """Streams of Health.Watch open at once; more are refused. Health.Check is never refused."""
    max_reflection_streams: int = 16
    """Streams of server reflection open at once; more are refused."""
    max_calls_per_connection: int = 1_024
    """Calls and streams open at once on one connection; more wait at the client."""
    max_connections: int = 1_024
    """Connections open at once; a further one is closed as it is opened."""
    handshake_seconds: float = 10.0
    """How long a new connection may take to begin HTTP/2, and TLS before it; then it is closed."""
    connection_idle_seconds: float = 1_800.0
    """How long a connection without a call or a stream stays open."""
    max_request_bytes_in_flight: int = 512 * 1024 * 1024
    """Requests in work, together; more are refused, except one that is alone or has at most 64 KiB."""
    request_seconds: float = 120.0
    """How long the message of a call may take to arrive, once the call has been admitted; and how long a later message
    of its stream waits for room among the requests in work."""
    health_request_seconds: float = 5.0
    """That time for health, whose calls need no token."""
    max_sequences_per_call: int = 1_000_000
    """Sequences of one call for metrics over tokens; more are refused."""
    memory_idle_seconds: float = 10.0
    """How long no request of a MB or more is in work before memory that was freed goes back to the system."""
    drain_seconds: float = 5.0
    """From SIGTERM to the end of the process, whatever runs."""

    def without_retention(self) -> WorkerLimits:
        """The same limits without removal from the journal: for a process that runs a single command."""
        return dataclasses.replace(self, **dict.fromkeys(KEEP_FOREVER, 0))
