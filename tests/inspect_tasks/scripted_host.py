"""A task's process without Inspect: the task that is ordered says what it does."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from crucible_worker.children.frames import HEADER
from crucible_worker.evaluators.inspect.frames import MAX_FRAME_BYTES
from crucible_worker.evaluators.inspect.host import __main__ as host
from crucible_worker.evaluators.inspect.host.line import WorkerClient


async def _run(order: dict[str, Any], line: WorkerClient) -> dict[str, Any]:
    match order["task"]:
        case "ask":
            questions = (line.ask(text=text) for text in order["texts"])
            return {"op": "found", "answers": [answer["said"] for answer in await asyncio.gather(*questions)]}
        case "stop asking":
            asyncio.get_running_loop().create_task(line.ask(text="nobody waits for this"))
            await line.ask(text="once")
            return {"op": "found"}
        case path if path.endswith("@findings"):
            return _found(order, await line.ask(**_question(order)))
        case "count":
            for done in range(3):
                await line.tell({"op": "count", "done": done, "total": 2})
            return {"op": "found"}
        case "count badly":
            await line.tell({"op": "count", **order["count"]})
        case path if path.endswith("@counts"):
            await line.tell({"op": "count", "done": 3, "total": 7})
            await line.ask(**_question(order))
            await line.tell({"op": "count", "done": 7, "total": 7})
            return _found(order, {"choices": [{"cut": False, "text": ""}]})
        case path if path.endswith("@logs"):
            log = Path(order["log_dir"]) / "2026-01-01_task.eval"
            log.parent.mkdir()
            with zipfile.ZipFile(log, "w") as file:
                file.writestr("header.json", "{}")
            if order["task_args"].get("hang"):
                await line.ask(**_question(order))
            return _found(order, {"choices": [{"cut": False, "text": ""}]})
        case path if path.endswith("@stops"):
            await line.stopped.wait()
            return {**_found(order, {"choices": [{"cut": False, "text": ""}]}), "stopped": True}
        case "stop when told":
            await line.ask(text="go on?")
            await line.stopped.wait()
            return {"op": "found", "stopped": True}
        case "environment":
            return {"op": "found", "variables": dict(os.environ), "files": os.listdir("."), "folder": os.getcwd()}
        case "exit":
            os._exit(3)
        case "hang":
            await line.ask(pid=os.getpid())
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                signal.pause()
        case "leave a process":
            # It holds the line open.
            descriptor = line._channel._writer.get_extra_info("socket").fileno()
            left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], pass_fds=(descriptor,))
            await line.ask(pid=left.pid)
            os.kill(os.getpid(), signal.SIGKILL)
        case "speak of too much":
            line._channel._writer.write(HEADER.pack(MAX_FRAME_BYTES + 1))
        case "speak no JSON":
            line._channel._writer.write(HEADER.pack(3) + b"{,}")
        case "speak of nothing":
            return {"op": "sing"}
    return await asyncio.get_running_loop().create_future()


def _question(order: dict[str, Any]) -> dict[str, Any]:
    sampling = {**order["defaults"], "top_p": None, "top_k": None, "stop": [], "seed": None, "count": 1}
    return {"which": "model", "messages": [["user", "abc"]], "sampling": sampling | order["config"]}


def _found(order: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    (choice,) = answer["choices"]
    return {
        "op": "found",
        "scores": [{"scorer": "s", "reducer": None, "scored": 1, "unscored": 0, "metrics": {"m": 0.5, "none": None}}],
        "headline": ["s", None, "m"],
        "samples": 1,
        "errored": 0,
        "truncated": int(choice["cut"]),
        "records": [{"order": order, "said": choice["text"]}],
        "records_left_out": 0,
        "first_error": "",
    }


async def _serve(end: Any) -> None:
    line = await WorkerClient.over(end)
    await line.tell(await _run(await line.receive(), line))
    await line.closed()


if __name__ == "__main__":
    host._serve = _serve
    host.main()
