"""Authenticates calls: `authorization: Bearer <token>`, compared in constant time."""

from __future__ import annotations

import hmac
from typing import Any

from crucible_bridge.errors import Unauthenticated
from crucible_bridge.reasons import Reason
from crucible_worker.interceptors.methods import HEALTH, Context, Handle, Method

__all__ = ["authenticated"]


def authenticated(inner: Handle, method: Method, token: str | None) -> Handle:
    """Let only callers with the token pass; probes need none, so that an orchestrator's health check has no secret."""
    if token is None or method.service == HEALTH:
        return inner
    expected = token.encode()

    async def handle(request: Any, context: Context) -> Any:
        for key, value in context.invocation_metadata() or ():
            if key == "authorization":
                given = value if isinstance(value, bytes) else value.encode()
                # The scheme's case does not matter (RFC 7235).
                scheme, _, shown = given.partition(b" ")
                if scheme.lower() == b"bearer" and hmac.compare_digest(shown, expected):
                    return await inner(request, context)
                raise Unauthenticated("the token is wrong", reason=Reason.WRONG_TOKEN)
        raise Unauthenticated("the call needs 'authorization: Bearer <token>'", reason=Reason.MISSING_TOKEN)

    return handle
