"""Which program serves a model, as far as its server reports it: queried once per evaluation; failures are ignored.

vLLM reports its version at /version, llama.cpp at /props; the list of models names their owner, and a header of every
answer may name the program. Answers of the model may have a fingerprint of how it is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from crucible_bridge.errors import BridgeError
from crucible_bridge.types import ServerEngine
from crucible_worker.backends.openai.dialects import Adjustments
from crucible_worker.backends.openai.documents import InvalidAnswer, parse

__all__ = ["LOOK_SECONDS", "Look", "Served"]

LOOK_SECONDS = 2.0
"""How long a server may take to report its program; the samples wait for that."""

_OWNERS = {"vllm": "vllm", "llamacpp": "llama.cpp", "sglang": "sglang"}
"""Programs by the owner that they report for their models."""

_MAX_CHARS = 100
"""Most characters of a text that a server reports about itself."""

_MAX_FINGERPRINTS = 4
"""Most fingerprints of one evaluation's answers: a server with a new one for each answer must not fill the journal."""

Look = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Gets a path of a server, /models below its base URL and others below its root: returns the content, and the header
that names the program."""


class Served:
    """What is known of the server of one evaluation's model."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._name = self._version = ""
        self._fingerprints: dict[str, None] = {}
        self._not_applied: set[str] = set()
        self._sent_as: dict[str, str] = {}

    async def look(self, get: Look) -> None:
        """Query the server; what it does not report in time stays unknown."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._look(get)
        except TimeoutError:
            return

    def answered(self, document: dict[str, Any]) -> None:
        """Record the fingerprint of an answer of the model."""
        said = document.get("system_fingerprint")
        if said and isinstance(said, str) and len(self._fingerprints) < _MAX_FINGERPRINTS:
            self._fingerprints[_text(said)] = None

    def adjusted(self, adjustments: Adjustments) -> None:
        """Record how a request differed from the one that was wanted."""
        self._not_applied |= adjustments.not_applied
        self._sent_as.update(adjustments.sent_as)

    @property
    def engine(self) -> ServerEngine | None:
        """What is known; None if nothing is."""
        fingerprint = ",".join(sorted(self._fingerprints))
        if not (self._name or self._version or fingerprint or self._not_applied or self._sent_as):
            return None
        return ServerEngine(
            name=self._name,
            version=self._version,
            fingerprint=fingerprint,
            not_applied=tuple(sorted(self._not_applied)),
            sent_as=dict(sorted(self._sent_as.items())),
        )

    async def _look(self, get: Look) -> None:
        models, header = await _document(get, "/models")
        listed = models.get("data")
        first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
        owner = first.get("owned_by")
        self._name = _OWNERS.get(owner, "") if isinstance(owner, str) else ""
        told, other = await _document(get, "/version")
        header = header or other
        self._version = _text(told.get("version"))
        if not self._version:
            told, other = await _document(get, "/props")
            header = header or other
            self._version = _text(told.get("build_info"))
            if self._version:
                self._name = self._name or "llama.cpp"
        elif told.keys() == {"version"}:  # the form of vLLM's answer
            self._name = self._name or "vllm"
        self._name = self._name or _text(header)


async def _document(get: Look, path: str) -> tuple[dict[str, Any], str]:
    try:
        content, header = await get(path)
    except BridgeError:
        return {}, ""
    try:
        return parse(content, 0), header
    except InvalidAnswer:
        return {}, header


def _text(value: Any) -> str:
    return " ".join(value.split())[:_MAX_CHARS] if isinstance(value, str) else ""
