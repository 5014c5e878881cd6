"""One call: its metadata, its errors, its reply."""

# The timeout is not measured here: it travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

import grpc.aio
from google.protobuf.message import Message

from crucible_bridge.client.exchange import Exchange
from crucible_bridge.client.patience import repeated
from crucible_bridge.client.streams import EventStream, cancelled_from_outside
from crucible_bridge.errors import Cancelled, InternalError, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.status import from_rpc_error

__all__ = ["Calls", "Page", "all_items"]

_LEAST_TIMEOUT_SECONDS = 0.001

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Calls:
    """Makes calls on one channel; every failure is a BridgeError."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        metadata: tuple[tuple[str, str], ...],
        *,
        address: str = "",
        patience: float = 0.0,
    ) -> None:
        self.channel = channel
        self.address = address
        """The address of the channel, as errors show it."""
        self.patience = patience
        """Seconds for which evaluations and event streams are continued when their worker is lost; 0 for not at all."""
        self._metadata = metadata
        self._methods: dict[str, Any] = {}

    def method(self, path: str, request: type[Message], response: type[Message]) -> Any:
        """A unary method by its path, like a method of a stub."""
        found = self._methods.get(path)
        if found is None:
            found = self._methods[path] = self.channel.unary_unary(
                path, request_serializer=request.SerializeToString, response_deserializer=response.FromString
            )
        return found

    async def unary(self, method: Any, request: Any, decode: Callable[[Any], T], timeout: float | None = None) -> T:
        """Call and decode the reply.

        Args:
            method: a method of a stub.
            request: its message.
            decode: converts the reply to the result.
            timeout: seconds; unbounded if None.

        Raises:
            InvalidField: the timeout is not a number above 0.
            BridgeError: the call failed, or its reply is malformed.
        """
        # gRPC treats 0 as no deadline at all.
        if timeout is not None and (not isinstance(timeout, int | float) or not timeout > 0):
            raise InvalidField("timeout", f"is {timeout!r}, must be a number of seconds above 0")
        try:
            reply = await method(request, metadata=self._metadata, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        except grpc.aio.UsageError as error:
            raise Cancelled("the client is closed", reason=Reason.CLIENT_CLOSED) from error
        except asyncio.CancelledError:
            if cancelled_from_outside():
                raise
            raise Cancelled("the client is closed", reason=Reason.CLIENT_CLOSED) from None
        try:
            return decode(reply)
        except InvalidField as error:
            raise InternalError(f"the worker's reply is malformed: {error}", reason=Reason.MALFORMED_REPLY) from error

    async def repeatable(
        self, method: Any, request: Any, decode: Callable[[Any], T], timeout: float | None = None
    ) -> T:
        """As `unary`, for a call that may be made again while there is patience: its request has an evaluation_id.

        Raises:
            BridgeError: as of `unary`; of the last attempt.
        """
        if not self.patience:
            return await self.unary(method, request, decode, timeout)
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout

        async def attempt() -> T:
            # What a moment past the end is left of it would be refused as a wrong timeout.
            left = timeout if until is None else max(until - loop.time(), _LEAST_TIMEOUT_SECONDS)
            return await self.unary(method, request, decode, left)

        return await repeated(attempt, self.patience)

    def events(self, method: Any, request: Any, *, after_sequence: int, log_id: str) -> EventStream:
        """Open a stream of event batches; its request has the same position in `after_sequence` and `log_id`.

        Raises:
            Cancelled: the client is closed.
        """

        def opened(after_sequence: int, log_id: str) -> Any:
            request.after_sequence, request.log_id = after_sequence, log_id
            try:
                return method(request, metadata=self._metadata)
            except grpc.aio.UsageError as error:
                raise Cancelled("the client is closed", reason=Reason.CLIENT_CLOSED) from error

        return EventStream(opened, after_sequence=after_sequence, log_id=log_id, patience=self.patience)

    def answers(self, method: Any, request: Any) -> Exchange:
        """Open a call whose reply is a stream of messages.

        Raises:
            Cancelled: the client is closed.
        """
        try:
            return Exchange(method(request, metadata=self._metadata))
        except grpc.aio.UsageError as error:
            raise Cancelled("the client is closed", reason=Reason.CLIENT_CLOSED) from error

    def exchange(self, method: Any) -> Exchange:
        """Open a call that streams both ways.

        Raises:
            Cancelled: the client is closed.
        """
        try:
            return Exchange(method(metadata=self._metadata))
        except grpc.aio.UsageError as error:
            raise Cancelled("the client is closed", reason=Reason.CLIENT_CLOSED) from error


class Page(Protocol[T_co]):
    """A page of a list."""

    @property
    def items(self) -> tuple[T_co, ...]:
        """Its items."""
        ...

    @property
    def next_page_token(self) -> str:
        """Where the next one begins; empty at the end."""
        ...


async def all_items(fetch: Callable[[str], Awaitable[Page[T]]]) -> AsyncIterator[T]:
    """Every item of every page; `fetch` takes a page's token."""
    token = ""
    while True:
        page = await fetch(token)
        for item in page.items:
            yield item
        if not (token := page.next_page_token):
            return
