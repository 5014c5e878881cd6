"""An event loop in a thread, and blocking waits for it: the base of the blocking client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, Self, TypeVar

from crucible_bridge.client.streams import EventStream
from crucible_bridge.codec.events import EventBatch
from crucible_bridge.errors import Cancelled
from crucible_bridge.events import Event
from crucible_bridge.reasons import Reason

__all__ = [
    "LEFT_SECONDS",
    "BlockingConnection",
    "BlockingContext",
    "BlockingEventStream",
    "BlockingIterator",
    "LoopThread",
]

LEFT_SECONDS = 1.0
"""How long to wait for a client that was not closed, when it is garbage-collected or the interpreter ends."""

T = TypeVar("T")


class LoopThread:
    """An event loop that runs in a thread, and the resources that end with it.

    Without `close` it ends when nothing refers to it any more, or with the interpreter.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._resources = contextlib.AsyncExitStack()
        # Locked while a coroutine is submitted, so that none is submitted to a loop that ends.
        self._turn = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=_run, args=(self._loop,), name="crucible-bridge-client", daemon=True)
        self._thread.start()
        self._left = weakref.finalize(self, _leave, self._loop, self._thread, self._resources)

    def enter(self, resource: contextlib.AbstractAsyncContextManager[T]) -> T:
        """Enter a context on the loop; `close` leaves it."""
        return self.run(self._resources.enter_async_context(resource))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; an interrupt of the waiting thread cancels it.

        Raises:
            Cancelled: the client was closed before the call, or during it.
        """
        with self._turn:
            if self._closed or not self._thread.is_alive():
                coroutine.close()
                raise _closed_error()
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._closed:
                raise _closed_error() from None
            raise
        except BaseException:
            future.cancel()
            raise

    def made(self, create: Callable[[], T]) -> T:
        """Call a function on the loop, and return what it creates."""
        return self.run(_created(create))

    def close(self) -> None:
        """End what is open, then the loop, then the thread. Idempotent, and safe in several threads."""
        with self._turn:
            closed, self._closed = self._closed, True
        if not closed:
            self._left.detach()
            _ending(self._loop, self._resources).result()
        self._thread.join()


class BlockingIterator(Iterator[T], Generic[T]):
    """An asynchronous iterator as a blocking one.

    Use it in a `with` block, or `close()` it, to end the call before the iterator is exhausted.
    """

    def __init__(self, thread: LoopThread, iterator: AsyncIterator[T]) -> None:
        self._thread = thread
        self._iterator = iterator

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        # A future cannot raise StopAsyncIteration, so the end is a value.
        item = self._thread.run(_next_or(self._iterator, self))
        if item is self:
            raise StopIteration
        return item  # pyright: ignore[reportReturnType]  # no item is the iterator itself

    def close(self) -> None:
        """End the call. Idempotent."""
        # When the client has ended, so have its calls.
        with contextlib.suppress(Cancelled):
            self._thread.run(_close(self._iterator))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class BlockingEventStream(BlockingIterator[Event]):
    """Events as they are committed, in order, for blocking code; see `EventStream`."""

    def __init__(self, thread: LoopThread, stream: EventStream) -> None:
        super().__init__(thread, stream)
        self._stream = stream

    @property
    def through_sequence(self) -> int:
        """Everything up to this sequence has been returned, or filtered out."""
        return self._stream.through_sequence

    @property
    def log_id(self) -> str:
        """The log that `through_sequence` belongs to; until the first batch arrives, the requested one."""
        return self._stream.log_id

    def batches(self) -> BlockingIterator[EventBatch]:
        """The same stream by batches: cheaper where events come by the thousand."""
        return BlockingIterator(self._thread, self._stream.batches())


class BlockingContext:
    """An asynchronous context manager as a blocking one, with the methods of its class."""

    def __init__(self, thread: LoopThread, client: contextlib.AbstractAsyncContextManager[Any]) -> None:
        self._thread = thread
        self._context = client

    def __enter__(self) -> Self:
        self._thread.run(_entered(self._context))
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._thread.run(_left(self._context, exc_info))


class BlockingConnection:
    """A client; `close`, or leaving its `with` block, ends every call and the client's thread."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread

    def close(self) -> None:
        """End every call and stream that is still open, and the connection. Idempotent.

        Calls that other threads wait for raise Cancelled (CLIENT_CLOSED), as do later ones.
        """
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _ending(loop: asyncio.AbstractEventLoop, resources: contextlib.AsyncExitStack) -> concurrent.futures.Future[None]:
    """Have the loop end what is open, and then stop."""
    ending = asyncio.run_coroutine_threadsafe(_end(resources), loop)
    ending.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
    return ending


async def _end(resources: contextlib.AsyncExitStack) -> None:
    """Close open contexts, and cancel what still runs."""
    await resources.aclose()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _leave(loop: asyncio.AbstractEventLoop, thread: threading.Thread, resources: contextlib.AsyncExitStack) -> None:
    """End the thread of a client that was not closed."""
    # Not after a fork: the child has no such thread.
    if not thread.is_alive():
        return
    _ending(loop, resources)
    # The thread itself may free the last reference, or the code that frees it may own what the thread waits for.
    if thread is not threading.current_thread():
        thread.join(LEFT_SECONDS)


def _closed_error() -> Cancelled:
    return Cancelled("the client is closed", reason=Reason.CLIENT_CLOSED)


async def _created(create: Callable[[], T]) -> T:
    return create()


async def _entered(context: contextlib.AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _left(context: contextlib.AbstractAsyncContextManager[Any], exc_info: tuple[Any, ...]) -> None:
    await context.__aexit__(*exc_info)


async def _next_or(iterator: AsyncIterator[T], end: Any) -> T:
    return await anext(iterator, end)


async def _close(iterator: Any) -> None:
    await iterator.aclose()
