"""The blocking twin: the asynchronous client on an event loop in a thread of its own.

Nothing is implemented twice. Namespaces are proxied by name; a call returns what the coroutine returns, and an
asynchronous iterator becomes a blocking one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from crucible_bridge.channel import Tls
from crucible_bridge.client.bridge import connect

__all__ = ["BlockingBridge", "BlockingIterator", "connect_sync"]

T = TypeVar("T")


class _LoopThread:
    """An event loop that runs in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="crucible-bridge-client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; an interrupt of the waiting thread cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End what is open, then the loop, then the thread."""
        self.run(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


class BlockingIterator(Iterator[Any]):
    """An asynchronous iterator, waited for; its other attributes (`through_sequence`, `log_id`) are as they were.

    Use it in a `with` block, or `close()` it, to end the call before the iterator is exhausted.
    """

    def __init__(self, thread: _LoopThread, iterator: AsyncIterator[Any]) -> None:
        self._thread = thread
        self._iterator = iterator

    def __iter__(self) -> BlockingIterator:
        return self

    def __next__(self) -> Any:
        # A StopAsyncIteration cannot leave a future, so the end is a value.
        item = self._thread.run(_next_or(self._iterator, self))
        if item is self:
            raise StopIteration
        return item

    def __getattr__(self, name: str) -> Any:
        return _proxied(self._thread, getattr(self._iterator, name))

    def close(self) -> None:
        """End the call. Idempotent."""
        self._thread.run(_close(self._iterator))

    def __enter__(self) -> BlockingIterator:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _BlockingNamespace:
    """A namespace of the client, its methods blocking."""

    def __init__(self, thread: _LoopThread, namespace: Any) -> None:
        self._thread = thread
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        return _proxied(self._thread, getattr(self._namespace, name))

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._namespace) if not name.startswith("_")]


class BlockingBridge:
    """A worker, as a client without an event loop sees it: a `Bridge` that blocks. Made by `connect_sync`."""

    def __init__(self, thread: _LoopThread, bridge: Any) -> None:
        self._thread = thread
        self._bridge = bridge

    def __getattr__(self, name: str) -> Any:
        return _BlockingNamespace(self._thread, getattr(self._bridge, name))

    def __dir__(self) -> list[str]:
        return [name for name in vars(self._bridge) if not name.startswith("_")]


@contextlib.contextmanager
def connect_sync(
    address: str, *, token: str | None = None, tls: Tls | str | Path | None = None
) -> Iterator[BlockingBridge]:
    """Connect to a worker, for code without an event loop; everything else is as `connect` says.

    Its calls may come from several threads at once. Leaving the block ends every call, and the thread behind it.
    """
    thread = _LoopThread()
    try:
        connection = connect(address, token=token, tls=tls)
        bridge = thread.run(connection.__aenter__())
        try:
            yield BlockingBridge(thread, bridge)
        finally:
            thread.run(connection.__aexit__(None, None, None))
    finally:
        thread.close()


def _proxied(thread: _LoopThread, attribute: Any) -> Any:
    if not callable(attribute):
        return attribute

    @functools.wraps(attribute)  # its name, documentation and parameters
    def call(*args: Any, **kwargs: Any) -> Any:
        result = thread.run(_called(attribute, args, kwargs))
        return BlockingIterator(thread, result) if isinstance(result, AsyncIterator) else result

    return call


async def _called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # On the loop even where the function is no coroutine: opening a stream needs the running loop.
    result = function(*args, **kwargs)
    return await result if isinstance(result, Coroutine) else result


async def _next_or(iterator: AsyncIterator[T], end: Any) -> Any:
    return await anext(iterator, end)


async def _close(iterator: Any) -> None:
    await iterator.aclose()
