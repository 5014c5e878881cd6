"""Backends of users, found by the entry points of installed distributions in the group `crucible_worker.backends`.

An entry point names a subclass of `base.Backend`, and its name is the scheme of model references: after
`echo = "my_echo:EchoBackend"` the worker opens "echo:loud" by that class. It is imported with the first model of its
scheme, made by `Backend.create`, and never replaces a backend of the worker.

It runs in the worker's process, with all its rights. Its failures end the call of the model, and nothing else.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import structlog

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import MODEL_SCHEMES, BackendInfo, InstalledModel, SampledSequence, ServerEngine
from crucible_worker.backends.base import ANSWERING, Backend, Capability, Model, WrappedModel
from crucible_worker.backends.builtin import BUILTIN
from crucible_worker.backends.distributions import Measured
from crucible_worker.backends.endpoints import BackendSettings
from crucible_worker.backends.metering import Meter
from crucible_worker.util.entry_points import EntryPoints, error_text
from crucible_worker.util.error_reporter import logged, with_id

__all__ = ["GROUP", "InstalledBackends"]

GROUP = "crucible_worker.backends"
"""Where backends are announced."""

_POINTS = EntryPoints(group=GROUP, what="backend", reason=Reason.BAD_BACKEND)
_log = structlog.get_logger(__name__)

_SEQUENCES = ANSWERING | {Capability.SAMPLE_TOP}
"""Questions that are answered with one sequence for each requested sample."""

T = TypeVar("T")


class InstalledBackends(Backend[InstalledModel]):
    """All of them; each is made when its first model is opened, and closed with the worker.

    Those in the box that open references of this form are among them, and no package replaces them.

    Args:
        settings: of the worker.
    """

    def __init__(self, settings: BackendSettings) -> None:
        self._settings = settings
        self._own: Mapping[str, Backend[InstalledModel]] = {
            entry.name: kind.create(settings) for entry in BUILTIN if InstalledModel in (kind := entry.load()).opens
        }
        self._made: dict[str, Backend[InstalledModel]] = {}
        self._loading: dict[str, asyncio.Task[tuple[str, type[Backend[InstalledModel]]]]] = {}

    def infos(self) -> list[BackendInfo]:
        """The description of the worker's own, and the scheme of each other; imports nothing."""
        own = [info for backend in self._own.values() for info in backend.infos()]
        return [*own, *(BackendInfo(name=scheme) for scheme in _schemes() if scheme not in self._own)]

    async def check(self, model: InstalledModel) -> None:
        """Have the backend refuse a model; raises as `open` does."""
        if (own := self._own.get(model.scheme)) is not None:
            return await own.check(model)
        backend = await self._backend(model.scheme)
        return await _guarded(model.scheme, backend.check, model)

    async def open(self, model: InstalledModel) -> Model:
        """Have the backend open a model.

        Raises:
            FailedPrecondition: no backend of this scheme is installed (NO_BACKEND); it cannot be loaded, or opens what
                is no model (BAD_BACKEND); it needs a library that is not installed (EXTRA_NOT_INSTALLED).
            BackendError: it failed (BACKEND_FAILED).
            BridgeError: what it raises.
        """
        if (own := self._own.get(model.scheme)) is not None:
            return await own.open(model)
        backend = await self._backend(model.scheme)
        opened = await _guarded(model.scheme, backend.open, model)
        if not isinstance(opened, Model):
            raise _POINTS.bad(model.scheme, f"opened a {type(opened).__name__}, not a Model")
        fingerprint = getattr(opened, "fingerprint", None)
        if not isinstance(fingerprint, str) or not fingerprint:
            raise _POINTS.bad(model.scheme, "opened a model whose fingerprint is no text")
        return _InstalledModel(opened, model.scheme)

    async def aclose(self) -> None:
        """Close those that were made; a failure is logged."""
        await asyncio.gather(*(backend.aclose() for backend in self._own.values()))
        for scheme, backend in self._made.items():
            try:
                await backend.aclose()
            except Exception as error:
                logged(_log, "backend_not_closed", error, backend=scheme)

    async def _backend(self, scheme: str) -> Backend[InstalledModel]:
        if (made := self._made.get(scheme)) is not None:
            return made
        loading = self._loading.get(scheme)
        if loading is None:
            # An import may take seconds, and the event loop does not wait for it.
            loading = self._loading[scheme] = asyncio.create_task(asyncio.to_thread(_load, scheme))
            loading.add_done_callback(lambda done: (self._loading.pop(scheme), done.cancelled() or done.exception()))
        place, kind = await asyncio.shield(loading)
        if scheme not in self._made:
            try:
                self._made[scheme] = kind.create(self._settings)
            except Exception as error:
                raise _POINTS.bad(scheme, f"cannot be made from {place!r}: {error_text(error)}") from error
        return self._made[scheme]


class _InstalledModel(WrappedModel):
    """A model of such a backend: unexpected exceptions and results become an error of its call."""

    def __init__(self, model: Model, scheme: str) -> None:
        super().__init__(model)
        self._scheme = scheme

    async def _through(
        self,
        question: Capability,
        method: Callable[..., Awaitable[Any]],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        answer = await _guarded(self._scheme, method, *arguments, **(options or {}))
        if question in _SEQUENCES:
            count = arguments[2]
            sequences = answer if isinstance(answer, Sequence) else ()
            if len(sequences) != count or not all(isinstance(each, SampledSequence) for each in sequences):
                message = f"the backend {self._scheme!r} answered {question} with no {count:,} SampledSequence"
                raise BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)
        if question is Capability.DISTRIBUTIONS and not isinstance(answer, Measured):
            message = f"the backend {self._scheme!r} answered {question} with no Measured"
            raise BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)
        return answer

    @property
    def engine(self) -> ServerEngine | None:
        """The model's."""
        return self._model.engine

    async def load(self) -> None:
        """Load the model."""
        await _guarded(self._scheme, self._model.load)

    async def available(self) -> None:
        """Have the model find out."""
        await _guarded(self._scheme, self._model.available)

    async def full_fingerprint(self) -> str:
        """The model's."""
        return await _guarded(self._scheme, self._model.full_fingerprint)

    async def find_engine(self) -> None:
        """Have the model find out."""
        await _guarded(self._scheme, self._model.find_engine)

    async def record_weights(self) -> None:
        """Have the model remember."""
        await _guarded(self._scheme, self._model.record_weights)

    async def confirm_weights(self) -> None:
        """Have the model check."""
        await _guarded(self._scheme, self._model.confirm_weights)

    def metered(self, meter: Meter) -> Model | None:
        """The model, if it reports what its calls take."""
        metered = self._model.metered(meter)
        return None if metered is None else _InstalledModel(metered, self._scheme)


def _load(scheme: str) -> tuple[str, type[Backend[InstalledModel]]]:
    """Where a backend is, and its class."""
    loaded = _POINTS.load(scheme)
    if loaded is None:
        raise _unknown(scheme)
    place, found = loaded
    if not isinstance(found, type) or not issubclass(found, Backend):
        raise _POINTS.bad(scheme, f"is {_shown(found)} at {place!r}, not a subclass of Backend")
    return place, found


def _schemes() -> list[str]:
    return [name for name in _POINTS.names() if name not in MODEL_SCHEMES]


async def _guarded(scheme: str, method: Callable[..., Awaitable[T]], *arguments: Any, **options: Any) -> T:
    """What a backend's method returns; any exception except a BridgeError is a failure of the backend."""
    try:
        return await method(*arguments, **options)
    except BridgeError:
        raise
    except Exception as error:
        what = f"{type(error).__name__} in the backend {scheme!r}"
        message = with_id(what, logged(_log, "backend_failed", error, backend=scheme))
        raise BackendError(message, reason=Reason.BACKEND_FAILED, retryable=False) from error


def _unknown(scheme: str) -> FailedPrecondition:
    known = [*MODEL_SCHEMES, *_schemes()]
    close = difflib.get_close_matches(scheme, known, n=1)
    cure = f"write {close[0]}:, or " if close else ""
    message = (
        f"has the scheme {scheme!r}, for which this worker has no backend; there are {', '.join(known)}: {cure}install "
        f"a package that announces {scheme!r} in the entry-point group {GROUP!r} in the worker's environment"
    )
    return FailedPrecondition(message, reason=Reason.NO_BACKEND, field="model")


def _shown(found: Any) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"
