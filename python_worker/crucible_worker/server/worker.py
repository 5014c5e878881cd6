"""A worker in this event loop: build -> warm -> serve -> drain.

`serve` runs one in a separate process; the test kit runs one inside a test.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib.metadata
import platform
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from crucible_bridge.channel import hide_poller_races
from crucible_bridge.codec.elements import MAX_ELEMENTS
from crucible_bridge.codec.plans import plan_from_record, plan_to_record
from crucible_bridge.errors import BridgeError
from crucible_bridge.types import MAX_GROUP_BYTES, MAX_MAP_ENTRIES, BackendInfo, WorkerInfo, WorkerLoad, bounds
from crucible_bridge.v1 import (
    evaluation_pb2,
    events_pb2,
    experiments_pb2,
    grading_pb2,
    metrics_pb2,
    models_pb2,
    rendering_pb2,
    worker_pb2,
)
from crucible_worker.backends.builtin import BUILTIN
from crucible_worker.config import Settings
from crucible_worker.grading import base, choice, format, patterns, pool
from crucible_worker.grading.fanout.fanout import Fanout
from crucible_worker.grading.fanout.graders import math_on
from crucible_worker.grading.math import grader
from crucible_worker.grading.pool import GradingPool
from crucible_worker.grading.registry import GradingParts
from crucible_worker.journal.queries import Head
from crucible_worker.journal.store import without_password
from crucible_worker.planning.follow.follows import Follows
from crucible_worker.rpc import Calls, Interceptor
from crucible_worker.rpc.authentication import TokenFile
from crucible_worker.rpc.calls import HEALTH, Handlers
from crucible_worker.rpc.evaluation import EvaluationService
from crucible_worker.rpc.experiments import ExperimentService
from crucible_worker.rpc.grading import GradingService
from crucible_worker.rpc.health import OVERALL, Health
from crucible_worker.rpc.metrics import MetricsService
from crucible_worker.rpc.models import ModelService
from crucible_worker.rpc.offload import Offload
from crucible_worker.rpc.rendering import RenderingService
from crucible_worker.rpc.telemetry import TelemetryService
from crucible_worker.rpc.worker import WorkerService
from crucible_worker.server.credentials import Certificate, Credentials
from crucible_worker.server.endpoint import Endpoint
from crucible_worker.server.listen import bind, listen_for_openai, options
from crucible_worker.server.parts import Build, Parts, build
from crucible_worker.server.wakeups import Wakeups
from crucible_worker.util.tasks import Background

if TYPE_CHECKING:
    from crucible_worker.snakepit.tools import Tools
    from crucible_worker.web.openai_endpoint import OpenAIListener

__all__ = ["EVALUATION", "EXPERIMENTS", "GRADING", "METRICS", "MODELS", "RENDERING", "TELEMETRY", "WORKER", "Worker"]

# The constant part of a worker's description: collected once, as it reads the disk.

_LIBRARIES = ("grpcio", "protobuf", "numpy", "sympy")
"""Besides those of the backends."""


def describe(info: WorkerInfo, parts: Parts, settings: Settings) -> WorkerInfo:
    """Add to `info` what does not change while the worker runs; blocks some milliseconds, imports nothing heavy."""
    return dataclasses.replace(
        info,
        version=importlib.metadata.version("crucible-bridge"),
        versions=_versions(),
        backends=tuple(parts.backend_infos()),
        evaluators=tuple(parts.evaluator_kinds()),
        datasets=tuple(parts.datasets),
        prices=settings.prices,
        code_images=() if parts.code is None else tuple(parts.code.images),
        limits={
            name: float(value) for name, value in {**dataclasses.asdict(settings.limits), **fixed_limits()}.items()
        },
    )


def fixed_limits() -> Mapping[str, float]:
    """Limits that no setting changes."""
    # Imported here: it takes some 20 ms, which the start need not spend.
    from crucible_worker.engine.specification import MAX_OPTIONS_BYTES
    from crucible_worker.evaluators.environments.group import MAX_GROUP_SIZE
    from crucible_worker.evaluators.environments.options import MAX_TURNS_OF_A_ROLLOUT
    from crucible_worker.evaluators.inspect.files import MAX_LOG_BYTES, MAX_LOGS_BYTES
    from crucible_worker.grading.code.grader import MAX_TESTS
    from crucible_worker.grading.json_schema import MAX_SCHEMA_BYTES
    from crucible_worker.grading.judge.rubric import MAX_CRITERIA, MAX_JUDGED_CHARS
    from crucible_worker.grading.math.lexer import MAX_CHARS
    from crucible_worker.grading.math.quantities import MAX_DIGITS
    from crucible_worker.metrics.classification import MAX_LABEL_CHARS, MAX_LABELS
    from crucible_worker.metrics.trajectory import MAX_KEYS, MAX_NAME_CHARS
    from crucible_worker.rendering.templates import MAX_PROMPT_CHARS

    return {
        "max_answer_bytes": base.MAX_TEXT_BYTES,
        "max_math_chars": MAX_CHARS,
        "max_math_digits": MAX_DIGITS,
        "max_math_targets": grader.MAX_TARGETS,
        "max_math_cpu_seconds": pool.SLOW_SECONDS,
        "max_math_clock_seconds": pool.CLOCK_FACTOR * pool.SLOW_SECONDS,
        "max_score_targets": base.MAX_TARGETS,
        "max_choices": choice.MAX_CHOICES,
        "max_marks": format.MAX_MARKS,
        "max_schema_bytes": MAX_SCHEMA_BYTES,
        "max_pattern_chars": patterns.MAX_PATTERN_CHARS,
        "max_code_tests": MAX_TESTS,
        "max_group_bytes": MAX_GROUP_BYTES,
        "max_group_size": MAX_GROUP_SIZE,
        "max_inspect_log_bytes": MAX_LOG_BYTES,
        "max_inspect_logs_bytes": MAX_LOGS_BYTES,
        "max_rollout_turns": MAX_TURNS_OF_A_ROLLOUT,
        "max_judged_chars": MAX_JUDGED_CHARS,
        "max_rubric_criteria": MAX_CRITERIA,
        "max_options_bytes": MAX_OPTIONS_BYTES,
        "max_prompt_chars": MAX_PROMPT_CHARS,
        "max_few_shot": bounds.FEW_SHOT_COUNT_MOST,
        "max_map_entries": MAX_MAP_ENTRIES,
        "max_request_elements": MAX_ELEMENTS,
        "max_trajectory_keys": MAX_KEYS,
        "max_metric_name_chars": MAX_NAME_CHARS,
        "max_labels": MAX_LABELS,
        "max_label_chars": MAX_LABEL_CHARS,
    }


def _versions() -> Mapping[str, str]:
    """Versions of Python and of important libraries, if they are installed; none of them is imported."""
    found = {"python": platform.python_version()}
    for name in (*_LIBRARIES, *(library for entry in BUILTIN for library in entry.load().libraries)):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


FOLLOW_SHARE = 0.05
"""Share of a drain's time: to leave followed runs to other workers."""

INTERRUPT_SHARE = 0.35
"""Share to interrupt what runs, and to write that."""

FLUSH_SHARE = 0.04
"""Share for open streams to send what was just written; after it, all open calls get DRAINING."""

GRACE_SHARE, STOP_SHARE = 0.1, 0.15
"""Shares for open calls to end by themselves, and, including that, for the server to stop."""

CLOSE_SHARE = 0.2
"""Share for backends and graders to end their children, and as much again for the journal. All shares sum to < 1."""

GRADING_RETRY_SECONDS = 10.0
"""Seconds between two attempts to start the grading processes, if they do not start."""

EVALUATION = evaluation_pb2.DESCRIPTOR.services_by_name["EvaluationService"].full_name
EXPERIMENTS = experiments_pb2.DESCRIPTOR.services_by_name["ExperimentService"].full_name
GRADING = grading_pb2.DESCRIPTOR.services_by_name["GradingService"].full_name
METRICS = metrics_pb2.DESCRIPTOR.services_by_name["MetricsService"].full_name
MODELS = models_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name
RENDERING = rendering_pb2.DESCRIPTOR.services_by_name["RenderingService"].full_name
TELEMETRY = events_pb2.DESCRIPTOR.services_by_name["TelemetryService"].full_name
WORKER = worker_pb2.DESCRIPTOR.services_by_name["WorkerService"].full_name
_SERVICES = (EVALUATION, EXPERIMENTS, GRADING, METRICS, MODELS, RENDERING, TELEMETRY, WORKER)

_T = TypeVar("_T")


class Worker:
    """One worker: started once, drained once."""

    def __init__(
        self,
        settings: Settings,
        *,
        build: Build = build,
        on_drain: Callable[[], object] = lambda: None,
        endpoint: Endpoint | None = None,
    ) -> None:
        """Store validated settings; `on_drain` is called when the end begins; `endpoint` is served as well."""
        self._settings = settings
        self._build = build
        self._on_drain = on_drain
        self._door = endpoint
        self._log = structlog.get_logger("crucible_worker.server")
        self._limits = settings.limits
        self._calls = Calls(self._limits)
        self._health = Health(_SERVICES)
        self._server: grpc.aio.Server | None = None
        self._openai: OpenAIListener | None = None
        self._parts: Parts | None = None
        self._grading: GradingService | None = None
        self._offload = Offload()
        self._follows: Follows | None = None
        self._handlers: Handlers | None = None
        self._certificate: Certificate | None = None
        self._tools: Tools | None = None
        self._description = WorkerInfo(worker_id="", version="", started_unix_ns=time.time_ns())
        self._warming: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._keeping_grading: asyncio.Task[None] | None = None
        self._described = asyncio.Event()
        self._warm = False
        self._interrupted: asyncio.Future[Sequence[str]] | None = None
        self._draining: asyncio.Task[None] | None = None
        self.address = ""
        """`host:port` or `unix:path`, once it is bound."""

    async def __aenter__(self) -> Self:
        """Start, and begin to warm up grading."""
        await self.start()
        self.warm_grading()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Drain."""
        await self.stop()

    async def start(self) -> None:
        """Bind, build and serve; the rest of the warm-up runs in the background, except grading.

        Raises:
            StartError: the address cannot be bound.
            BridgeError: a part cannot be built, for instance the journal cannot be opened.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    def warm_grading(self) -> None:
        """Start the grading processes in the background: a worker is ready without them, and they take seconds."""
        assert self._parts is not None
        if self._parts.grading is not None:
            keep_warm = functools.partial(self._keep_grading_warm, self._parts.grading)
            self._keeping_grading = self.background.keep("grading", keep_warm)

    @property
    def ending(self) -> bool:
        """Whether the end has begun, for any cause."""
        return self._interrupted is not None

    def drain(self) -> asyncio.Future[Sequence[str]]:
        """Begin the end: interrupt what runs, end open calls, close everything. Idempotent.

        Returns:
            The interrupted evaluations, once that is written; `stop` waits for the rest.
        """
        if self._interrupted is None:
            self._interrupted = asyncio.get_running_loop().create_future()
            self._on_drain()
            self._draining = asyncio.create_task(self._drain(self._interrupted), name="drain")
        return asyncio.shield(self._interrupted)

    async def stop(self) -> None:
        """Drain, and wait until everything is closed."""
        await self.drain()
        assert self._draining is not None
        await asyncio.shield(self._draining)

    @property
    def openai_address(self) -> str:
        """The base URL of the endpoint of OpenAI's API; empty without one."""
        return "" if self._openai is None else self._openai.address

    @property
    def tools(self) -> Tools:
        """The calls of its services as tools; available once it has started."""
        # Imported here: it takes some 20 ms, which a worker outside of Snakepit need not spend.
        from crucible_worker.snakepit.tools import Tools

        if self._tools is None:
            assert self._handlers is not None
            limit = self._settings.limits.max_sequences_per_call
            self._tools = Tools(self._handlers, self._calls, self._offload, max_sequences=limit)
        return self._tools

    @property
    def background(self) -> Background:
        """Its tasks that have no call; available once it has started."""
        assert self._parts is not None
        return self._parts.evaluations.background

    def quiet_seconds(self) -> float:
        """How long no large request has been in work."""
        return self._calls.room.quiet_seconds()

    async def info(self) -> tuple[WorkerInfo, WorkerLoad]:
        """Description of the worker, the same object for all calls, and its load, by one read of the journal."""
        await self._described.wait()
        assert self._parts is not None
        head = self._parts.evaluations.head()
        if self._description.log_id != head.log_id:
            # The journal was set back while the worker runs.
            self._description = dataclasses.replace(self._description, log_id=head.log_id)
        return self._description, self._load(self._parts, head)

    def load(self) -> WorkerLoad:
        """The present load of the worker."""
        assert self._parts is not None
        return self._load(self._parts, self._parts.evaluations.head())

    def _load(self, parts: Parts, head: Head) -> WorkerLoad:
        running, queued = parts.evaluations.load
        return WorkerLoad(
            running=running,
            queued=queued,
            calls=self._calls.open,
            draining=self._calls.draining,
            last_sequence=head.sequence,
            usage=parts.evaluations.usage,
            fleets=tuple(parts.fleets()),
            failed_tasks=self.background.failed,
            certificate_expires_unix_ns=0 if self._certificate is None else self._certificate.expires_ns,
        )

    async def _start(self) -> None:
        settings = self._settings
        # Bound first: if the port is taken, the journal need not be opened, recovered and closed again.
        passed = () if self._door is None else (self._door.service,)
        Wakeups.of(asyncio.get_running_loop())  # before gRPC uses the loop
        hide_poller_races()
        credentials = Credentials(settings)
        self._certificate = credentials.certificate
        self._server = grpc.aio.server(
            interceptors=[Interceptor(self._calls, self._limits, tokens=credentials.tokens, passed=passed)],
            options=options(self._limits),
        )
        self.address = bind(self._server, settings, credentials.certificate)
        if settings.openai_listen is not None:
            listener = listen_for_openai(*settings.openai_listen)
            # Imported here: other workers need no web server.
            from crucible_worker.web.openai_endpoint import OpenAIListener

            self._openai = OpenAIListener(listener, settings.openai_listen[0])
        self._parts = await self._build(settings)
        self._parts.evaluations.on_writable_change = lambda writable: self._show_evaluation_service()
        self._description = dataclasses.replace(
            self._description,
            worker_id=self._parts.evaluations.worker_id,
            log_id=self._parts.evaluations.log_id,
        )
        self._register(self._server, self._parts)
        if self._openai is not None:
            self._serve_openai(self._openai, self._parts, credentials.tokens)
        warm_up = functools.partial(self._warm_up, self._parts)
        self._warming = self.background.keep("warm-up", warm_up)
        if credentials.tokens is not None or credentials.certificate is not None:
            self._renewing = self.background.keep("credentials", credentials.renew)
        starting = asyncio.ensure_future(self._server.start())
        try:
            await asyncio.shield(starting)
        finally:
            await starting  # gRPC cannot stop a server whose start was cancelled
        for service in (OVERALL, METRICS, MODELS, RENDERING, TELEMETRY):
            self._health.set(service, True)
        self._log.info(
            "serving",
            address=self.address,
            openai=None if self._openai is None else self._openai.address,
            worker_id=self._description.worker_id,
            version=importlib.metadata.version("crucible-bridge"),
            journal=str(settings.state_dir) if settings.journal is None else without_password(settings.journal),
            tls=None if credentials.certificate is None else str(credentials.certificate),
            token=credentials.tokens is not None,
            model_roots=list(map(str, settings.model_roots)),
            data_roots=list(map(str, settings.data_roots)),
            servers=[endpoint.name for endpoint in settings.endpoints],
        )

    def _register(self, server: grpc.aio.Server, parts: Parts) -> None:
        handlers: Any = Handlers(server)
        self._handlers = handlers
        plans = parts.evaluations.plans(plan_to_record, plan_from_record, parts.plans)
        self._follows = Follows(parts.evaluations.follow_records(), plans, self._settings.model_roots, self.background)
        evaluation = EvaluationService(
            parts.evaluations, plans, self._follows, parts.evaluators, self._limits, self._offload
        )
        charge = parts.evaluations.spending.charge
        metrics = MetricsService(
            parts.evaluations.note, parts.models, charge, limits=self._limits, offload=self._offload
        )
        models = ModelService(parts.models, charge, self._limits, self._offload)
        math = None if parts.grading is None else math_on(parts.grading)
        graders = GradingParts(pool=parts.grading, places=parts.code, custom_graders=parts.custom_graders)
        self._grading = GradingService(
            parts.evaluations.note, math, graders, parts.models, charge, limits=self._limits, fanout=parts.fanout
        )
        telemetry, worker = TelemetryService(parts.evaluations), WorkerService(self.info, self.drain)
        experiments = ExperimentService(parts.evaluations.experiments, self._offload)
        rendering = RenderingService(parts.models, self._limits, self._offload)
        services = (
            evaluation,
            experiments,
            metrics,
            models,
            self._grading,
            rendering,
            telemetry,
            worker,
        )
        handlers.add_generic_rpc_handlers(service.handler() for service in services)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection((*_SERVICES, HEALTH, reflection.SERVICE_NAME), server)
        if self._door is not None:
            server.add_generic_rpc_handlers((self._door.handler(parts, self.tools, self._calls),))

    def _serve_openai(self, listener: OpenAIListener, parts: Parts, tokens: TokenFile | None) -> None:
        from crucible_worker.web.openai_endpoint import OpenAIParts

        async def backends() -> Sequence[BackendInfo]:
            return (await self.info())[0].backends

        endpoint = OpenAIParts(
            models=parts.models,
            backends=backends,
            charge=parts.evaluations.spending.charge,
            calls=self._calls,
            limits=self._limits,
            offload=self._offload,
            tokens=tokens,
        )
        listener.serve(endpoint, self.background)

    async def _warm_up(self, parts: Parts) -> None:
        """Collect in a thread what reads the disk, such as versions and what backends could import."""
        try:
            self._description = await asyncio.to_thread(describe, self._description, parts, self._settings)
        finally:  # until it succeeds, health reports that the worker is not ready, and GetInfo has what is known
            self._described.set()
        self._warm = True
        assert self._follows is not None
        self._follows.take_all()
        self._health.set(WORKER, True)
        self._show_evaluation_service()

    async def _keep_grading_warm(self, pool: GradingPool | Fanout) -> None:
        """Start the grading processes, and again when they end: health keeps away the callers that would start them."""
        cold = asyncio.Event()

        def show(warm: bool) -> None:
            self._health.set(GRADING, warm)
            if warm:
                self._log.info("grading_ready")
            else:
                cold.set()

        pool.on_warm_change = show
        while True:
            cold.clear()
            try:
                await pool.start()
                await cold.wait()
            except BridgeError as error:
                self._log.error("grading_not_started", reason=str(error), retry_seconds=GRADING_RETRY_SECONDS)
                await asyncio.sleep(GRADING_RETRY_SECONDS)

    def _show_evaluation_service(self) -> None:
        assert self._parts is not None
        self._health.set(EVALUATION, self._warm and self._parts.evaluations.writable)
        self._health.set(EXPERIMENTS, self._parts.evaluations.writable)

    async def _drain(self, interrupted: asyncio.Future[Sequence[str]]) -> None:
        self._calls.draining = True
        self._health.drain()
        started = self._warming is not None  # a failed start is reported only by its error
        (self._log.info if started else self._log.debug)("draining", calls=self._calls.open)
        for warming in (self._warming, self._keeping_grading, self._renewing):
            if warming is not None:
                warming.cancel()
        parts = self._parts
        ids: Sequence[str] = ()
        if self._follows is not None:
            await self._within(FOLLOW_SHARE, self._follows.drain(), "leave_runs", default=None)
        if parts is not None:
            ids = await self._within(INTERRUPT_SHARE, parts.evaluations.drain(), "interrupt", default=())
        interrupted.set_result(ids)
        self._calls.cut(after=FLUSH_SHARE * self._limits.drain_seconds)
        if self._server is not None:
            tools = () if self._tools is None else (self._tools.ended(),)
            grace = GRACE_SHARE * self._limits.drain_seconds
            web = () if self._openai is None else (self._openai.aclose(grace),)
            stopping = asyncio.gather(self._server.stop(grace), *tools, *web)
            await self._within(STOP_SHARE, stopping, "stop_server", default=None)
        self._offload.close()
        if self._grading is not None:
            self._grading.close()
        if parts is not None:
            if self._follows is not None:
                self._follows.close()
            await self._within(CLOSE_SHARE, parts.aclose_children(), "close_children", default=None)
            await self._within(CLOSE_SHARE, parts.evaluations.aclose(), "close_journal", default=None)
        (self._log.info if started else self._log.debug)("drained", interrupted=list(ids))

    async def _within(self, share: float, work: Awaitable[_T], what: str, *, default: _T) -> _T:
        """Bound the time of a step of the drain: a step that fails or hangs must not prevent the next."""
        seconds = share * self._limits.drain_seconds
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            self._log.error("drain_step_late", step=what, seconds=seconds)
        except Exception:  # logged; the next steps must run all the same
            self._log.exception("drain_step_failed", step=what)
        return default
