"""The replicas of one managed server: started, loaded with one checkpoint after another, watched, and restarted.

A model is one such checkpoint at the server, as evaluations see it.

Requests go to them through the balancer of OpenAI-compatible servers. A replica that dies is ejected at once.
It returns when its new process has the same weights as the others.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import structlog

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.checkpoint import Fingerprints
from crucible_worker.backends.managed.arbitration import Claims, InUse, ServerLock
from crucible_worker.backends.managed.replica import PROGRAMS, SERVED_NAME, NoReply, NotLoaded, Replica, refuse_report
from crucible_worker.backends.managed.settings import PLACEHOLDERS, ManagedServer
from crucible_worker.backends.managed.target import Target, identify
from crucible_worker.backends.openai.backend import RemoteModel
from crucible_worker.backends.openai.connection import ServerConnection, closed
from crucible_worker.backends.openai.fleet import Fleet
from crucible_worker.backends.openai.scoring import (
    LogprobsOfProbe,
    measure,
    refuse_change,
    refuse_difference,
    told_of_distance,
)
from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.util.fingerprints import is_full, map_digests

__all__ = ["Deployment", "ManagedModel"]


FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 60.0
"""Before a replica is started again; doubled each time, until one has served for the longest wait."""

_PLACEHOLDER = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")
_log = structlog.get_logger(__name__)


class Deployment:
    """The replicas of a server on given devices. Making one starts nothing.

    Args:
        server: its settings.
        devices: of each replica; one replica without devices if there are none.
        folder: of the logs.
        fingerprints: of checkpoints.
        claims: on the GPUs of all deployments.
    """

    def __init__(
        self,
        server: ManagedServer,
        devices: Sequence[str],
        folder: Path,
        fingerprints: Fingerprints,
        claims: Claims,
    ) -> None:
        self.server = server
        self._claims = claims
        self._devices = tuple(devices)
        self.program = PROGRAMS[server.program]
        self._fingerprints = fingerprints
        self._replicas = {
            replica.url: replica
            for device in (devices or ("",))
            for replica in (Replica(server.name, device, folder, server.start_seconds),)
        }
        self.endpoint = OpenAIServer(
            name=server.name,
            base_urls=tuple(self._replicas),
            program=server.program,
            renderer=server.renderer,
            logprobs=server.logprobs,
            max_connections=server.max_connections,
            stall_seconds=server.stall_seconds,
        )
        self.fleet = Fleet(self.endpoint, {}, admits=lambda url: self._replicas[url].ready)
        self._turns: ServerLock[Target] = ServerLock(self._serve, time.monotonic)
        self._with_adapters = False
        self._loaded: Target | None = None  # in the processes that run
        self._reported: dict[str, Mapping[str, Any]] = {}
        self._measured: dict[str, LogprobsOfProbe] = {}
        self._changes: collections.Counter[str] = collections.Counter()
        self._last_change: dict[str, str] = {}
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._became_ready = asyncio.Event()
        self._failure: BridgeError | None = None
        self._closed = False

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Its replicas."""
        return tuple(self._replicas.values())

    @property
    def told(self) -> str:
        """What it is, in words."""
        return f"the server {self.server.name!r} with devices={','.join(self._devices)}"

    @property
    def idle(self) -> bool:
        """Whether no request uses it, or waits for it."""
        return self._turns.idle

    async def until_idle(self) -> None:
        """Wait until no request uses it."""
        await self._turns.until_idle()

    async def give_up(self) -> None:
        """End all replicas; the next request starts them again."""
        _log.info("devices_given_up", server=self.server.name, devices=self._devices)
        if self._loaded is not None:
            # What evaluations have measured until now is compared before its evidence is gone.
            with contextlib.suppress(BridgeError):
                await self._compare(self._loaded)
        self._turns.forget()
        await self._stop_watching()
        self._loaded = None
        for replica in self.replicas:
            self.fleet.eject(replica.url)
        await asyncio.gather(*(replica.stop() for replica in self.replicas))

    @contextlib.asynccontextmanager
    async def serving(self, target: Target) -> AsyncIterator[None]:
        """Use the replicas while they serve a checkpoint, once one of them is ready.

        Raises:
            BackendError: it cannot be started or loaded (SERVER_NOT_STARTED).
            Unavailable: the backend is closed.
        """
        if self._closed:
            raise closed()
        async with self._turns.of(target):
            await self._until_ready()
            yield

    async def begin(self, target: Target) -> int:
        """Check that a checkpoint is served by its name, and have it loaded again if something else is.

        Returns:
            How often something else was found in its place until now: for `confirm`.

        Raises:
            BridgeError: as of `serving`, or no replica answers.
        """
        async with self.serving(target):
            await self._compare(target)
        async with self.serving(target):
            return self._changes[target.whole.key]

    async def confirm(self, target: Target, since: int) -> str:
        """Check that a checkpoint was served by its name since `begin`.

        Args:
            target: the checkpoint.
            since: what `begin` returned.

        Returns:
            What was found in its place; empty if nothing was.

        Raises:
            BridgeError: no replica answers.
        """
        async with self.serving(target):
            await self._compare(target)
        return self._last_change[target.whole.key] if self._changes[target.whole.key] > since else ""

    async def full_fingerprint(self, target: Target) -> str | None:
        """The digest of every byte of a checkpoint; see `Fingerprints.full`."""
        return await self._fingerprints.full(target.checkpoint, target.whole.key)

    async def aclose(self) -> None:
        """End all replicas, within a second. Idempotent."""
        self._closed = True
        # All at once: a server that is being started is ended as those that run, and not waited for longer.
        await asyncio.gather(
            *(replica.aclose() for replica in self.replicas),
            self._turns.aclose(),
            self._stop_watching(),
            self.fleet.aclose(),
        )

    async def _serve(self, target: Target) -> None:
        """Have the replicas serve a checkpoint; no request is under way."""
        if self._closed:
            raise closed()
        await self._claim()
        await self.fleet.connections()  # so that it knows the replicas that are ejected until they are ready
        await self._refuse_changed(target)
        before = self._loaded
        known = self._changes.total()
        if before is not None:
            # What other evaluations have measured until now is compared before its evidence is gone.
            with contextlib.suppress(BridgeError):  # no replica answers: there is nothing to compare
                await self._compare(before)
        foreign = self._changes.total() > known
        await self._stop_watching()
        self._loaded = self._failure = None
        with_adapters = self._with_adapters or target.adapter_name is not None
        same_form = before is not None and before.form == target.form and with_adapters == self._with_adapters
        self._with_adapters = with_adapters
        present = before if same_form else None
        work = [self._bring(replica, present, target, foreign=foreign) for replica in self.replicas]
        failed = [error for error in await asyncio.gather(*work, return_exceptions=True) if error is not None]
        for error in failed:
            if not isinstance(error, BackendError) or len(failed) == len(work):
                raise error
            _log.warning("replica_not_started", server=self.server.name, error=error.message)
        self._loaded = target
        self._reported, self._measured = {}, {}
        await asyncio.gather(*(self._note(replica, target) for replica in self.replicas if replica.ready))
        refuse_difference(self.server.name, target.checkpoint.directory.name, self._measured)
        self._watch(target)

    async def _claim(self) -> None:
        """Have the GPUs, which other deployments give up when they are idle.

        Raises:
            BackendError: one of them was busy for too long (SERVER_NOT_STARTED).
        """
        gpus = [gpu for device in self._devices for gpu in device.split("+")]
        try:
            await self._claims.claim(self, gpus, self.server.start_seconds)
        except InUse as error:
            raise BackendError(
                f"{self.told} was not started within {self.server.start_seconds:g} s (start_seconds): {error}; "
                "evaluations with the same server and devices take turns at once",
                reason=Reason.SERVER_NOT_STARTED,
                retryable=False,
            ) from None

    async def _refuse_changed(self, target: Target) -> None:
        """Refuse to load files that are no longer what they were.

        Raises:
            NotFound: they are gone.
            FailedPrecondition: they have changed (CHECKPOINT_CHANGED).
        """
        if not target.continues(await asyncio.to_thread(identify, target.checkpoint, self._fingerprints)):
            raise FailedPrecondition(
                f"the files of {target.checkpoint.directory.name!r} have changed since the evaluation began",
                reason=Reason.CHECKPOINT_CHANGED,
            )

    async def _bring(self, replica: Replica, before: Target | None, target: Target, *, foreign: bool) -> None:
        """Have one replica serve a checkpoint: loaded in place if it can be, else by a new process.

        Args:
            replica: which.
            before: what it serves now; None if it cannot take over the weights.
            target: what it is to serve.
            foreign: whether another program has loaded something.

        Raises:
            BackendError: it cannot be started (SERVER_NOT_STARTED).
        """
        if before is not None and replica.ready:
            try:
                await self._exchange(replica, before, target, foreign=foreign)
            except (NotLoaded, NoReply, BackendError) as error:
                _log.warning("weights_not_loaded_in_place", server=self.server.name, error=str(error))
            else:
                return
        await self._start(replica, target)
        self._admit(replica)

    async def _exchange(self, replica: Replica, before: Target, target: Target, *, foreign: bool) -> None:
        """Load what differs between two checkpoints; all of it if something foreign was loaded, or may have been.

        Raises:
            NotLoaded: the server refuses or fails, or has the former weights all the same.
            NoAnswer: the server does not answer.
            BackendError: likewise, after the weights were loaded.
        """
        if before.adapter_name is not None:
            await self.program.unload_adapter(replica.control, before.adapter_name)
        if foreign or before.base.key != target.base.key or before == target:
            await self.program.load(replica.control, target)
        await self._add_adapter(replica, target)
        reported, now = await self._look(replica, target)
        refuse_report(self.program, reported, target)
        if before.base.fingerprint != target.base.fingerprint and now == self._measured.get(replica.url):
            raise NotLoaded("the log-probabilities of a fixed prompt are exactly those of the former weights")
        _log.info("weights_loaded_in_place", server=self.server.name, replica=replica.url)

    async def _add_adapter(self, replica: Replica, target: Target) -> None:
        if target.adapter_name is not None:
            await self.program.load_adapter(replica.control, target.adapter_name, str(target.checkpoint.adapter))

    async def _start(self, replica: Replica, target: Target) -> None:
        """Start a replica with a checkpoint.

        Raises:
            BackendError: it does not start, or does not load the adapter (SERVER_NOT_STARTED).
        """
        self.fleet.eject(replica.url)
        await replica.start(self._command(replica, target), {**self.program.environment, **self.server.environment})
        try:
            await self.program.started(replica.control, target)
            await self._add_adapter(replica, target)
            refuse_report(self.program, await self.program.reported(replica.control), target)
        except (NotLoaded, NoReply) as error:
            tail = replica.tail()
            await replica.stop()
            raise BackendError(
                f"the server {self.server.name!r} {error}{tail}", reason=Reason.SERVER_NOT_STARTED, retryable=False
            ) from None

    def _admit(self, replica: Replica) -> None:
        replica.ready = True
        self.fleet.admit(replica.url)
        self._became_ready.set()
        _log.info("replica_ready", server=self.server.name, replica=replica.url, devices=replica.devices)

    def _command(self, replica: Replica, target: Target) -> list[str]:
        given = self.server.adapter_arguments
        adapters = self.program.adapter_arguments if given is None else given
        values = {
            "model": str(target.checkpoint.directory),
            "port": str(replica.port),
            "name": SERVED_NAME,
            "gpus": str(replica.devices.count("+") + 1),
        }
        option, value = self.program.sampling_option
        texts = [*(self.server.command or self.program.command), *self.server.arguments]
        texts += adapters if self._with_adapters else ()
        if given := next((text for text in texts if _names(text, option)), None):
            _log.info("sampling_option_of_settings", server=self.server.name, option=option, given=given)
        elif not self.server.command:
            texts.append(f"{option}={value}")
        return [_filled(text, values) for text in texts]

    async def _note(self, replica: Replica, target: Target) -> None:
        """Record what a replica has now, for comparisons.

        Raises:
            BackendError: it does not answer.
        """
        self._reported[replica.url], self._measured[replica.url] = await self._look(replica, target)

    async def _look(self, replica: Replica, target: Target) -> tuple[Mapping[str, Any], LogprobsOfProbe]:
        """What a replica reports, and what it measures.

        Raises:
            BackendError: it does not answer.
        """
        try:
            reported = await self.program.reported(replica.control)
        except NoReply as error:
            raise BackendError(
                f"the server {self.server.name!r}: {error}", reason=Reason.BACKEND_UNREACHABLE, retryable=True
            ) from None
        connection = (await self.fleet.connections(serving=False))[replica.url]
        return reported, await measure(connection, self.program.name_of(target.adapter_name))

    async def _compare(self, target: Target) -> None:
        """Count a change if a replica has now something else than when the checkpoint was loaded.

        Raises:
            BridgeError: no replica answers.
        """
        ready = [replica for replica in self.replicas if replica.ready]
        found = await asyncio.gather(*(self._look(replica, target) for replica in ready), return_exceptions=True)
        answered = 0
        for replica, result in zip(ready, found, strict=True):
            if isinstance(result, BaseException):
                continue
            answered += 1
            if what := self._difference(replica, *result):
                self._changed(target, what)
                return
        if not answered:
            for error in found:
                if isinstance(error, BaseException):
                    raise error
            message = f"no replica of the server {self.server.name!r} is ready"
            raise BackendError(message, reason=Reason.BACKEND_UNREACHABLE, retryable=True)

    def _difference(self, replica: Replica, reported: Mapping[str, Any], measured: LogprobsOfProbe) -> str:
        """How a replica differs from what was recorded; empty if it does not."""
        before = self._reported.get(replica.url, next(iter(self._reported.values()), reported))
        for key in sorted({*before, *reported}):
            if before.get(key) != reported.get(key):
                return f"{key} of {replica.url} was {before.get(key)!r}, and is now {reported.get(key)!r}"
        return told_of_distance(self._measured or {replica.url: measured}, {replica.url: measured})

    def _changed(self, target: Target, what: str) -> None:
        self._changes[target.whole.key] += 1
        self._last_change[target.whole.key] = what
        _log.error("weights_changed", server=self.server.name, what=what)
        # The next request has the checkpoint loaded again.
        self._turns.forget()

    def _watch(self, target: Target) -> None:
        for replica in self.replicas:
            # Its lines in the log are not of the evaluation that happened to load the checkpoint.
            task = asyncio.create_task(
                self._keep(replica, target), name="watch over a managed server", context=contextvars.Context()
            )
            self._watchers[replica.url] = task

    async def _stop_watching(self) -> None:
        watchers, self._watchers = self._watchers, {}
        for task in watchers.values():
            task.cancel()
        await asyncio.gather(*watchers.values(), return_exceptions=True)

    async def _keep(self, replica: Replica, target: Target) -> None:
        """Start a replica again whenever it has ended, as long as the checkpoint's files are what they were."""
        wait = FIRST_WAIT_SECONDS
        while True:
            began = time.monotonic()
            if replica.ready:
                why = await replica.ended()
                self.fleet.eject(replica.url)
                _log.warning("replica_ended", server=self.server.name, replica=replica.url, why=why)
            if time.monotonic() - began > LONGEST_WAIT_SECONDS:
                wait = FIRST_WAIT_SECONDS
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)
            try:
                await self._restart(replica, target)
            except BackendError as error:
                _log.warning("replica_not_started", server=self.server.name, replica=replica.url, error=error.message)
            except BridgeError as error:
                # The files are gone or others: who waits for a replica need not, and the next checkpoint starts it.
                _log.warning("replica_left_out", server=self.server.name, replica=replica.url, error=error.message)
                if not any(other.ready for other in self.replicas):
                    self._failure = error
                    self._became_ready.set()
                    self._turns.forget()
                return

    async def _restart(self, replica: Replica, target: Target) -> None:
        """Start a replica again with the checkpoint of the others.

        Raises:
            BridgeError: it does not start, or the checkpoint's files are gone or others.
        """
        await self._refuse_changed(target)
        await self._start(replica, target)
        reported, measured = await self._look(replica, target)
        if what := self._difference(replica, reported, measured):
            self._changed(target, what)
        self._reported[replica.url], self._measured[replica.url] = reported, measured
        self._admit(replica)

    async def _until_ready(self) -> None:
        """Wait while replicas are being started again, and none is ready.

        Raises:
            BackendError: that takes too long (SERVER_NOT_STARTED).
            BridgeError: none can be started again with the same checkpoint.
        """
        try:
            async with asyncio.timeout(self.server.start_seconds):
                while not any(replica.ready for replica in self.replicas):
                    if self._closed:
                        raise closed()
                    if self._failure is not None:
                        raise self._failure.with_traceback(None)
                    self._became_ready.clear()
                    await self._became_ready.wait()
        except TimeoutError:
            raise BackendError(
                f"no replica of the server {self.server.name!r} was ready within {self.server.start_seconds:g} s "
                f"(start_seconds){self.replicas[0].tail()}",
                reason=Reason.SERVER_NOT_STARTED,
                retryable=False,
            ) from None


def _names(text: str, option: str) -> bool:
    """Whether an argument is an option, with its value or without; both programs read "_" as "-" in names."""
    return text.partition("=")[0].replace("_", "-") == option


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


# A checkpoint at a managed server, as evaluations see it: a remote model that is served by its content.

T = TypeVar("T")


class ModelHandle:
    """The connection to a deployment for one checkpoint: each request is sent while that is served."""

    def __init__(self, deployment: Deployment, target: Target) -> None:
        self.server = deployment.endpoint
        self.dialects = deployment.fleet.dialects
        self.owner = ""  # the settings name its program
        self._deployment = deployment
        self._target = target

    async def reach(self, model: str) -> None:
        """Have the checkpoint served; raises as `Deployment.serving`."""
        async with self._deployment.serving(self._target):
            return

    async def connections(self, *, serving: bool = True) -> Mapping[str, ServerConnection]:
        """The connections to the replicas."""
        return await self._deployment.fleet.connections(serving=serving)

    async def each(self, call: Callable[[ServerConnection], Awaitable[T]]) -> tuple[T, ...]:
        """What a call returns for each replica; see `Fleet.each`."""
        async with self._deployment.serving(self._target):
            return await self._deployment.fleet.each(call)

    async def look(self, path: str) -> tuple[bytes, str]:
        """What a replica returns at a path; see `Fleet.look`."""
        async with self._deployment.serving(self._target):
            return await self._deployment.fleet.look(path)

    async def ask(self, path: str, body: dict[str, object], model: str, *, tokens: int) -> dict[str, Any]:
        """Send a request to a replica; see `Fleet.ask`."""
        async with self._deployment.serving(self._target):
            return await self._deployment.fleet.ask(path, body, model, tokens=tokens)


class ManagedModel(RemoteModel):
    """A checkpoint at a managed server."""

    def __init__(self, deployment: Deployment, target: Target) -> None:
        self._deployment = deployment
        self._target = target
        super().__init__(ModelHandle(deployment, target), deployment.program.name_of(target.adapter_name))
        self._changes = 0

    def _identity(self, asked: str) -> str:
        """Digests of its server's program, of the checkpoint's content, and of how text is sent."""
        return self._of_content(self._target.whole.fingerprint, asked)

    def _of_content(self, content: str, asked: str) -> str:
        def digest(of_content: str) -> str:
            identity = ("managed", self._deployment.server.program, of_content, asked)
            return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

        return map_digests(content, digest)

    async def full_fingerprint(self) -> str:
        """The same with a digest of every byte, if the files can still be read; this may take minutes."""
        content = self._target.whole.fingerprint
        if not is_full(content) and (full := await self._deployment.full_fingerprint(self._target)) is not None:
            content = f"{content},{full}"
        return self._of_content(content, self.renderer)

    async def record_weights(self) -> None:
        """Check that the server has the checkpoint, by its report and by the log-probabilities of a fixed prompt."""
        self._changes = await self._deployment.begin(self._target)

    async def confirm_weights(self) -> None:
        """Check the same again.

        Raises:
            FailedPrecondition: the server had something else meanwhile (MODEL_CHANGED).
            BridgeError: no replica answers.
        """
        what = await self._deployment.confirm(self._target, self._changes)
        refuse_change(self._server.name, self._target.checkpoint.directory.name, what)
