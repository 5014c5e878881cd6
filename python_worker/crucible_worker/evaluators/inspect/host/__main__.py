"""Entry point of a task's process: it dies with the worker, reads the order, then imports Inspect and runs the task."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from crucible_worker.children.lifetime import begin
from crucible_worker.evaluators.inspect.host.line import WorkerClient


def main() -> None:
    """Run one task for the worker at the other end of a socket."""
    _, end = begin("crucible_worker.evaluators.inspect.host", __doc__)
    asyncio.run(_serve(end))


async def _serve(end: socket.socket) -> None:
    line = await WorkerClient.over(end)
    order = await line.receive()
    await line.tell(await _found(order, line))
    # The worker ends this process, as soon as it has read the result.
    await line.closed()


async def _found(order: dict[str, Any], line: WorkerClient) -> dict[str, Any]:
    try:
        # Imported only now, as this takes a second.
        from crucible_worker.evaluators.inspect.host.running import run_task
    except ImportError as error:
        return {"op": "failed", "message": f"{type(error).__name__}: {error}"}
    return await run_task(order, line)


if __name__ == "__main__":
    main()
