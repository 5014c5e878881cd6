"""Authenticates calls: `authorization: Bearer <token>`, compared in constant time."""

from __future__ import annotations

import asyncio
import hmac
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from crucible_bridge.errors import Unauthenticated
from crucible_bridge.reasons import Reason
from crucible_worker.rpc.calls import HEALTH, Context, Handle, Method
from crucible_worker.util.files import state_of

__all__ = ["TokenFile", "authenticated"]

_log = structlog.get_logger(__name__)


class TokenFile:
    """The tokens of a file, each of which is enough; any thread may call it."""

    def __init__(self, path: Path, read: Callable[[Path], Sequence[str]]) -> None:
        """Read them.

        Args:
            path: the file.
            read: reads it; a ValueError says what is wrong with the file, and nothing of its content.
        """
        self._path, self._read = path, read
        self._guard = threading.Lock()
        self._state = state_of(path)
        self._tokens = self._read_encoded()
        self._looking: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Read the file again if it has changed; one that cannot be used is logged, and the tokens before stay."""
        with self._guard:
            state = state_of(self._path)
            if state == self._state:
                return
            try:
                tokens = self._read_encoded()
            except ValueError as error:
                self._state = state
                _log.error("tokens_refused", reason=str(error), cure="the tokens before are valid until it is mended")
                return
            if state_of(self._path) == state:  # else it was written meanwhile, and is read at the next look
                self._state, self._tokens = state, tokens
                _log.info("tokens_read", file=str(self._path), count=len(tokens))

    async def accepts(self, shown: bytes) -> bool:
        """Whether it is one of them; one that is not known may just have been added to the file."""
        for _ in range(2):  # a look that has begun may have come before the file was changed
            if self._has(shown):
                return True
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(asyncio.to_thread(self.look))
            await asyncio.shield(self._looking)
        return self._has(shown)

    def _has(self, shown: bytes) -> bool:
        # All are compared: the time does not tell which one it is.
        return sum(hmac.compare_digest(shown, token) for token in self._tokens) > 0

    def _read_encoded(self) -> tuple[bytes, ...]:
        return tuple(token.encode() for token in self._read(self._path))


def authenticated(inner: Handle, method: Method, tokens: TokenFile | None) -> Handle:
    """Let only callers with a token pass; probes need none, so that an orchestrator's health check has no secret."""
    if tokens is None or method.service == HEALTH:
        return inner

    async def handle(request: Any, context: Context) -> Any:
        for key, value in context.invocation_metadata() or ():
            if key == "authorization":
                given = value if isinstance(value, bytes) else value.encode()
                # The scheme's case does not matter (RFC 7235).
                scheme, _, shown = given.partition(b" ")
                if scheme.lower() == b"bearer" and await tokens.accepts(shown):
                    return await inner(request, context)
                raise Unauthenticated("the token is wrong", reason=Reason.WRONG_TOKEN)
        raise Unauthenticated("the call needs 'authorization: Bearer <token>'", reason=Reason.MISSING_TOKEN)

    return handle
