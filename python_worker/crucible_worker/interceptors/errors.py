"""What a caller learns of an error: a BridgeError as it is, of anything else only that it happened."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import structlog

from crucible_bridge.errors import BridgeError, InternalError
from crucible_bridge.status import to_status
from crucible_worker.faults import logged
from crucible_worker.interceptors.methods import Context, Handle

__all__ = ["mapped"]


def mapped(inner: Handle) -> Handle:
    """Turn errors into statuses with details; a cancelled call stays one."""
    log = structlog.get_logger("crucible_worker.interceptors")

    async def handle(request: Any, context: Context) -> Any:
        try:
            return await inner(request, context)
        except grpc.aio.InternalError as error:
            # What was sent met a closed stream: the client is gone, of which gRPC would log a traceback as an error.
            raise asyncio.CancelledError from error
        except grpc.aio.BaseError:
            # gRPC's own: the status is sent already.
            raise
        except BridgeError as error:
            status = to_status(error)
        except Exception as error:
            error_id = logged(log, "unexpected_error", error)
            status = to_status(InternalError(f"internal error {error_id}", metadata={"error_id": error_id}))
        return await context.abort(*status)

    return handle
