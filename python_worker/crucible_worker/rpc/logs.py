"""One log line per call: its code, its duration, and the fields that its service bound."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import grpc.aio
import structlog

from crucible_bridge.reasons import Code
from crucible_worker.rpc.methods import Context, Handle, Method
from crucible_worker.telemetry.logging import bind_contextvars

__all__ = ["call_logged"]

_OURS = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DATA_LOSS})


def call_logged(inner: Handle, method: Method) -> Handle:
    """Bind method and peer to the call's log lines, and log how it ended."""
    log = structlog.get_logger("crucible_worker.rpc").bind()
    name = f"{method.service.rpartition('.')[2]}.{method.name}"

    async def handle(request: Any, context: Context) -> Any:
        # Each call runs in a separate task, and so in a separate context: nothing needs to be unbound.
        bind_contextvars(method=name, peer=context.peer())
        started = time.perf_counter()
        try:
            response = await inner(request, context)
        except grpc.aio.AbortError:
            code = context.code()
            (log.error if code in _OURS else log.info)("call", code=code.name, milliseconds=_since(started))
            raise
        except (asyncio.CancelledError, grpc.aio.BaseError):
            # The client has disconnected: it cancelled, or its stream is closed.
            (log.debug if method.quiet else log.info)("call", code=Code.CANCELLED.value, milliseconds=_since(started))
            raise
        (log.debug if method.quiet else log.info)("call", code="OK", milliseconds=_since(started))
        return response

    return handle


def _since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 3)
