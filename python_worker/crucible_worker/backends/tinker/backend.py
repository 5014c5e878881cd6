"""The backend of Tinker services: the configured services, and models of them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import FailedPrecondition, InvalidField, NotFound
from crucible_bridge.reasons import Reason
from crucible_bridge.types import BackendInfo, ModelRef, TinkerModel
from crucible_worker.backends.base import Backend
from crucible_worker.backends.tinker.model import ServedModel
from crucible_worker.backends.tinker.services import DEFAULT, TinkerService, default_service
from crucible_worker.backends.tinker.session import TinkerSession, missing
from crucible_worker.backends.tinker.tokenizer import TextHost, Tokenizers
from crucible_worker.util.limits import WorkerLimits

__all__ = ["MAX_MODELS", "TinkerBackend"]

MAX_MODELS = 64
"""Most models with cached clients; the least recently used ones are dropped."""


class TinkerBackend(Backend):
    """Models of the Tinker services that a worker is configured with; it opens TinkerModel refs.

    No service is queried, and nothing heavy imported, before a model is loaded. A service has one session, and a model
    one client, for all evaluations; a training state occupies its service until the worker ends.

    Args:
        services: of the settings; if none is named "default", that of the environment is added (TINKER_API_KEY).
        library: makes the tinker library's client of `base_url` and `api_key`; the library's own if None.
        limits: of the worker; the defaults if None.
        tokenizers: loads tokenizers; children of a text host if None.
    """

    def __init__(
        self,
        services: Sequence[TinkerService] = (),
        library: Callable[..., Any] | None = None,
        limits: WorkerLimits | None = None,
        tokenizers: Tokenizers | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        known = {service.name: service for service in services}
        known.setdefault(DEFAULT, default_service(environment))
        self._configured = bool(services)
        self._sessions = {name: TinkerSession(service, library, environment) for name, service in known.items()}
        self._tokenizers = TextHost(limits) if tokenizers is None else tokenizers
        self._models: OrderedDict[TinkerModel, ServedModel] = OrderedDict()

    def info(self) -> BackendInfo:
        """Whether a service is configured. Imports nothing."""
        return BackendInfo(name="tinker", unavailable=missing() or ("" if self._configured else self._no_default()))

    async def open(self, model: ModelRef) -> ServedModel:
        """Find a service by its name; only loading shows whether it has the model.

        Raises:
            NotFound: there is no service of that name (UNKNOWN_SERVICE).
            FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED), or there is no key (BACKEND_KEY).
        """
        if not isinstance(model, TinkerModel):
            raise InvalidField("model", f"is a {type(model).__name__}, not one of a Tinker service")
        name = DEFAULT if model.service is None else model.service
        session = self._sessions.get(name)
        if session is None:
            known = ", ".join(sorted(self._sessions))
            raise NotFound(
                f"names the Tinker service {name!r}, which is not known here; there are {known}: "
                f"add --tinker-service {name}=URL",
                reason=Reason.UNKNOWN_SERVICE,
                field="model",
            )
        if absent := missing():
            raise FailedPrecondition(absent, reason=Reason.EXTRA_NOT_INSTALLED)
        session.key()
        ref = dataclasses.replace(model.checked("model"), service=name)
        opened = self._models.setdefault(ref, ServedModel(session, ref, self._tokenizers))
        self._models.move_to_end(ref)
        if len(self._models) > MAX_MODELS:
            self._models.popitem(last=False)
        return opened

    async def aclose(self) -> None:
        """Finish every session, and end the text host, within a second. Idempotent."""
        await asyncio.gather(self._tokenizers.aclose(), *(session.aclose() for session in self._sessions.values()))

    def _no_default(self) -> str:
        try:
            self._sessions[DEFAULT].service.check()
        except ValueError as error:
            return f"no service: {error}; set it, or name one in the settings ([tinker_services.NAME])"
        return ""
