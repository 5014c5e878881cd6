"""Streams of events: one by one or batch by batch, with the position to resume at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc.aio

from crucible_bridge.codec.events import EventBatch, batch_from_v1
from crucible_bridge.errors import Cancelled, InternalError, InvalidField
from crucible_bridge.events import Event
from crucible_bridge.reasons import Reason
from crucible_bridge.status import from_rpc_error
from crucible_bridge.v1 import events_pb2

__all__ = ["EventStream", "cancelled_from_outside"]


def cancelled_from_outside() -> bool:
    """Whether the current task is being cancelled; grpc.aio raises CancelledError for a closed channel as well."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class EventStream(AsyncIterator[Event]):
    """Events as they are committed, in order; an asynchronous iterator with a position.

    Resume with another call that has `after_sequence=stream.through_sequence, log_id=stream.log_id`. Leaving an
    `async with` block, `aclose()` and dropping the last reference all end the call on the worker; cancelling a pending
    `anext` ends it too. It does not reconnect by itself: the caller decides when to do so.
    """

    def __init__(self, call: Any, *, after_sequence: int, log_id: str) -> None:
        self._call = call
        self._closed = False
        self._events: Iterator[Event] = iter(())
        self._batch_through = after_sequence
        self.through_sequence = after_sequence
        """Everything up to this sequence has been returned, or filtered out."""
        self.log_id = log_id
        """The log that `through_sequence` belongs to; until the first batch arrives, the requested one."""

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        while True:
            event = next(self._events, None)
            if event is not None:
                self.through_sequence = event.sequence
                return event
            # A batch counts as passed when the caller requests the item after its last event.
            self.through_sequence = self._batch_through
            batch = await self._read()
            if batch is None:
                raise StopAsyncIteration
            self._events = iter(batch.events)

    async def batches(self) -> AsyncIterator[EventBatch]:
        """The same stream by batches: cheaper where events come by the thousand.

        May be used after events were read one by one: the rest of their batch comes first.
        """
        if rest := tuple(self._events):
            self.through_sequence = self._batch_through
            yield EventBatch(events=rest, log_id=self.log_id, through_sequence=self._batch_through)
        while (batch := await self._read()) is not None:
            self.through_sequence = batch.through_sequence
            yield batch

    async def aclose(self) -> None:
        """End the call. Idempotent; pending and later reads end as if the stream had."""
        self._closed = True
        # The position does not include what was read but not returned.
        self._events, self._batch_through = iter(()), self.through_sequence
        self._call.cancel()

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def _read(self) -> EventBatch | None:
        if self._closed:
            return None
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.CancelledError:
            if cancelled_from_outside():
                raise
            if self._closed:
                return None
            raise Cancelled("the client is closed", reason=Reason.CLIENT_CLOSED) from None
        # Anything other than a message is gRPC's marker for the end.
        if not isinstance(message, events_pb2.EventBatch):
            return None
        try:
            batch = batch_from_v1(message)
        except InvalidField as error:
            self._call.cancel()
            raise InternalError(f"the worker's reply is malformed: {error}", reason=Reason.MALFORMED_REPLY) from error
        self.log_id = batch.log_id
        self._batch_through = batch.through_sequence
        return batch
