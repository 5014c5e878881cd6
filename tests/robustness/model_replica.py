"""A replica of a model server, as a process: `python -m tests.robustness.model_replica PORT READY RECORD SECONDS`.

It listens at the port (0: any free one), writes its base URL to READY, a line with the prompt to RECORD for each
request that it answers, and answers in upper case after so many seconds, eight requests at once. While there is a file
READY.refusing it answers 503; while there is one READY.closing it closes the connection after each answer.
"""

import asyncio
import sys
from pathlib import Path

from aiohttp import web

SLOTS = 8


async def main(port: int, ready: Path, record: Path, seconds: float) -> None:
    """Serve until the process is ended."""
    slots, refusing, closing = asyncio.Semaphore(SLOTS), ready.with_suffix(".refusing"), ready.with_suffix(".closing")

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        prompt = body["prompt"] if "prompt" in body else body["messages"][-1]["content"]
        async with slots:
            await asyncio.sleep(seconds)
        if refusing.exists():
            return web.json_response({"error": {"message": "no", "type": "unavailable", "code": None}}, status=503)
        with record.open("a") as file:
            file.write(f"{prompt}\n")
        said = {"text": prompt.upper(), "message": {"role": "assistant", "content": prompt.upper()}}
        response = web.json_response({"choices": [{"index": 0, "finish_reason": "stop", **said}]})
        if closing.exists():
            response.force_close()
        return response

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "max_model_len": 4096}]})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    for path in ("/v1/completions", "/v1/chat/completions"):
        app.router.add_post(path, answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    written = ready.with_suffix(".part")
    written.write_text(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
    written.replace(ready)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])))
