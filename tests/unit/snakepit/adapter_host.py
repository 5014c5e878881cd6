"""A process that calls an adapter as Snakepit's own Python server does; what came of each call, as JSON lines.

Its argument names the adapter. Beside the calls one by one, on the server's event loop, it makes some at once, and some
on the loops of other threads, as its threaded server would.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
import sys
import threading
import types
from typing import Any

import msgpack

CALLS: list[tuple[str, dict[str, Any] | None]] = [
    ("mean_nll", {"logprobs": [-1.0, -2.0], "weights": [1, 1]}),
    (
        "mean_nll",
        {
            "tensors": {"logprobs": {"dtype": "f32"}, "weights": {"dtype": "u8"}},
            "logprobs": b"\x00\x00\x80\xbf",
            "weights": b"\x01",
        },
    ),
    ("subscribe", {}),
    ("watch_evaluation", {"evaluation_id": "nope"}),
    ("mean_nll", {"logprobs": [-1.0], "weights": [["x"]]}),
    ("nothing", {}),
    ("mean_nll", {"logprobs": [-1.0], "weights": [1], "result_format": "binary"}),
    ("list_evaluators", None),
    ("drain", {}),
    ("pass_at_k", {"msgpack": msgpack.packb({"samples": [1], "successes": [1], "k": [1], "result_format": "msgpack"})}),
]


async def request(adapter_class: Any, tool: str, arguments: dict[str, Any] | None) -> Any:
    """One request: an adapter of its own, its answer as the server would write it."""
    context = types.SimpleNamespace(session_id="session-1", request_metadata={"correlation_id": "c-1"})
    adapter = adapter_class()
    adapter.set_session_context(context)
    assert inspect.iscoroutinefunction(adapter.execute_tool)
    try:
        result = await adapter.execute_tool(tool_name=tool, arguments=arguments, context=context)
        if inspect.isasyncgen(result):
            result = await events(result)
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}
    return json.loads(json.dumps(result, allow_nan=False))


async def events(chunks: Any) -> list[Any]:
    """The first two events of a stream, which is left then as a server leaves one whose caller has gone."""
    found: list[Any] = []
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            found += chunk["events"]
            if len(found) >= 2:
                break
    return found


async def main(adapter_class: Any) -> None:
    """Make the calls."""
    for tool, arguments in CALLS:
        print(json.dumps(await request(adapter_class, tool, arguments)))
    tool, arguments = CALLS[0]
    at_once = await asyncio.gather(*(request(adapter_class, tool, arguments) for _ in range(8)))
    elsewhere: list[Any] = []
    threads = [
        threading.Thread(target=lambda: elsewhere.append(asyncio.run(request(adapter_class, tool, arguments))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    print(json.dumps([*at_once, *elsewhere]))


if __name__ == "__main__":
    module, _, name = sys.argv[1].rpartition(".")
    asyncio.run(main(getattr(importlib.import_module(module), name)))
