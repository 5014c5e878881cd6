"""TelemetryService: decode, call, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc

from crucible_bridge.codec.events import event_kinds_from_v1, page_to_v1, with_sample_result
from crucible_bridge.v1 import events_pb2
from crucible_worker.evaluations import Evaluations
from crucible_worker.events.streams import EventPage
from crucible_worker.rpc import registration
from crucible_worker.rpc.calls import Context, Encoded
from crucible_worker.telemetry import bind_contextvars

__all__ = ["TelemetryService", "encoded_page"]


class TelemetryService:
    """The event log, over the wire."""

    def __init__(self, evaluations: Evaluations) -> None:
        """Serve the events of these evaluations' journal."""
        self._evaluations = evaluations

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler for a server."""
        service = events_pb2.DESCRIPTOR.services_by_name["TelemetryService"]
        return registration.registered(service, {"Subscribe": registration.over_messages(self._subscribe)})

    async def _subscribe(self, request: events_pb2.SubscribeRequest, context: Context) -> AsyncIterator[Encoded]:
        """Stream event batches, from a position of the log."""
        run_id = request.run_id if request.HasField("run_id") else None
        if run_id is not None:
            bind_contextvars(run_id=run_id)
        pages = self._evaluations.subscribe(
            after_sequence=request.after_sequence,
            log_id=request.log_id,
            kinds=event_kinds_from_v1(request.kinds, "kinds"),
            run_id=run_id,
            until_now=request.until_now,
            new_kinds=request.new_kinds,
            attach=with_sample_result if request.records else None,
            pack=encoded_page,
        )
        async for batch in pages:
            yield batch


def encoded_page(page: EventPage) -> bytes:
    """A page as a message of the stream; encoded by the thread that has read it."""
    return page_to_v1(page.records, page.log_id, page.through_sequence).SerializeToString()
