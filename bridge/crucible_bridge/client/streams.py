"""Streams of events: one by one or batch by batch, with the position to resume at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc.aio

from crucible_bridge.client.patience import Patience, is_lost
from crucible_bridge.codec.events import EventBatch, batch_from_v1
from crucible_bridge.errors import BridgeError, Cancelled, InternalError, InvalidField
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
    `anext` ends it too. A client of one worker does not reconnect by itself: the caller decides when to do so. A client
    of several workers continues at another one, from the same position.
    """

    def __init__(
        self, opened: Callable[[int, str], Any], *, after_sequence: int, log_id: str, patience: float = 0.0
    ) -> None:
        """Open the call.

        Args:
            opened: opens it after a sequence of a log.
            after_sequence: where it begins.
            log_id: the log of this sequence; unchecked if empty.
            patience: seconds for which it is opened again when its worker is lost; 0 for not at all.
        """
        self._opened, self._patience = opened, Patience(patience)
        self._continues = patience > 0
        self._call = opened(after_sequence, log_id)
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
        message = await self._message()
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
        self._patience.restart()
        return batch

    async def _message(self) -> Any:
        """The next message, of this call or of the one that continues it; None if the stream was closed here."""
        while not self._closed:
            try:
                return await self._call.read()
            except grpc.aio.AioRpcError as failure:
                error = from_rpc_error(failure)
                if not self._continues or not is_lost(error):
                    raise error from failure
                await self._continue(error)
            except asyncio.CancelledError:
                if cancelled_from_outside():
                    raise
                if self._closed:
                    return None
                raise Cancelled("the client is closed", reason=Reason.CLIENT_CLOSED) from None
        return None

    async def _continue(self, error: BridgeError) -> None:
        """Open the call again, after what was read; it is read once everything before it was returned."""
        await self._patience.wait(error)
        if not self._closed:
            self._call = self._opened(self._batch_through, self.log_id)
