"""Bounds the wait of a call: gRPC's own deadline ends the call, never its evaluation.

Shortly before that deadline the waiting call is answered with DEADLINE_EXCEEDED and the evaluation's id: at the
deadline itself the client has disconnected, and would not receive the id.
"""

from __future__ import annotations

from typing import Any

from crucible_bridge.errors import BridgeError, DeadlineExceeded
from crucible_worker.engine.admission import draining_error
from crucible_worker.rpc.calls import Calls
from crucible_worker.rpc.methods import WORKER, Context, Handle, Method
from crucible_worker.telemetry import bound

__all__ = ["MARGIN_SECONDS", "MARGIN_SHARE", "bounded"]

MARGIN_SECONDS = 0.1
"""How long before the client's deadline the answer is sent."""

MARGIN_SHARE = 0.5
"""The largest share of the time left that the margin takes, for short deadlines."""


def bounded(inner: Handle, method: Method, calls: Calls) -> Handle:
    """End a waiting call at its deadline or when the worker drains; the evaluation continues."""
    # A Drain call waits for the drain, which must not end it.
    cut_by_drain = method.service != WORKER

    async def handle(request: Any, context: Context) -> Any:
        remaining = context.time_remaining()
        delay = None if remaining is None else remaining - min(MARGIN_SECONDS, remaining * MARGIN_SHARE)
        timer = calls.alarms.within(delay)
        try:
            with timer:
                if not cut_by_drain:
                    return await inner(request, context)
                calls.watch(timer)
                try:
                    return await inner(request, context)
                finally:
                    calls.forget(timer)
        except TimeoutError:
            if not timer.expired():
                raise
            raise _ended(calls) from None

    return handle


def _ended(calls: Calls) -> BridgeError:
    error = draining_error() if calls.draining else DeadlineExceeded("the call's deadline is near")
    if evaluation_id := bound("evaluation_id"):
        error.metadata["evaluation_id"] = evaluation_id
    return error
