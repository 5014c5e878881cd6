"""Maps errors for callers: a BridgeError is sent unchanged; of any other error only an id is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import structlog

from crucible_bridge.errors import BridgeError, InternalError
from crucible_bridge.status import to_status
from crucible_worker.rpc.methods import Context, Handle
from crucible_worker.telemetry import bind_contextvars
from crucible_worker.util.error_reporter import logged, shortage

__all__ = ["mapped"]


def mapped(inner: Handle) -> Handle:
    """Turn errors into statuses with details; a cancelled call stays one."""
    log = structlog.get_logger("crucible_worker.rpc")

    async def handle(request: Any, context: Context) -> Any:
        try:
            return await inner(request, context)
        except grpc.aio.InternalError as error:
            # The stream is closed: the client has disconnected, which gRPC would log as an error with a traceback.
            raise asyncio.CancelledError from error
        except grpc.aio.BaseError:
            # An abort by gRPC: the status is sent already.
            raise
        except BridgeError as error:
            bind_contextvars(reason=error.reason)  # for the line that tells how the call ended
            status = to_status(error)
        except Exception as error:
            if (lacking := shortage(error)) is not None:
                bind_contextvars(reason=lacking.reason)
                status = to_status(lacking)
            else:
                error_id = logged(log, "unexpected_error", error)
                status = to_status(InternalError(f"internal error {error_id}", metadata={"error_id": error_id}))
        return await context.abort(*status)

    return handle
