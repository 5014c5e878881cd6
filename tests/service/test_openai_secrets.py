"""Where a key may not turn up: everything that a worker writes, says or shows while it asks a server with one."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.types import Limits, ReportFormat, SamplingParams
from tests.service.evaluation_kit import log_of, numbered, samples_of
from tests.service.openai_kit import KEY, Fault, Reply, Request, ScriptedServer, answer, key_file, refusal, shout

pytest.importorskip("openai", reason="openai is not installed: its backend is not tested")

SECONDS = 60.0
"""For a process to get where it should be, on a loaded machine."""


def tell_tale(request: Request) -> Reply | Fault:
    """A server that says the key back wherever it can, and fails in every way."""
    if request.method == "GET":
        return Reply({"data": []})
    said = f"key {request.headers.get('authorization')} is wrong"
    ways = (
        answer(request, f"{said} {request.text.upper()}"),
        refusal(400, said),
        refusal(401, said),
        refusal(404, said),
        refusal(429, said, **{"Retry-After": "0"}),
        refusal(500, said),
        Reply(said.encode()),
        Fault.DROP,
        shout(request),
    )
    return ways[request.index % len(ways)]


@contextlib.contextmanager
def serving(folder: Path, url: str, key: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that logs all it can, and knows the server and where its key lies."""
    (folder / "worker.toml").write_text(f'[openai_servers.s]\nbase_url = "{url}"\n{key}\n')
    command = [sys.executable, "-m", "crucible_worker", "serve", "--port=0", "--log-level=debug"]
    places = {"config": "worker.toml", "state-dir": "state", "ready-file": "ready"}
    command += [f"--{option}={folder / name}" for option, name in places.items()]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CRUCIBLE_")}
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, env={**kept, "OPENAI_LOG": "debug", **environment})
    try:
        yield child
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("place", ["file", "variable"])
async def test_a_key_is_nowhere_but_in_its_header(tmp_path: Path, place: str):
    """Not in the log, the journal, events, samples, problems, reports, errors or the list of processes."""
    said: list[str] = []
    log = tmp_path / "log"
    key = f'key_file = "{key_file(tmp_path)}"' if place == "file" else 'key_env = "MY_KEY"'
    environment = {} if place == "file" else {"MY_KEY": KEY}
    async with ScriptedServer(tell_tale).serving() as server:
        with serving(tmp_path, server.url, key, **environment) as child:
            async with asyncio.timeout(SECONDS):
                while not (tmp_path / "ready").exists():
                    assert child.poll() is None, log.read_text()
                    await asyncio.sleep(0.01)
            async with crucible_bridge.connect((tmp_path / "ready").read_text()) as bridge:
                evaluation = await bridge.evaluation.evaluate(
                    model="openai:s/m",
                    evaluators=["accuracy", "nll"],
                    dataset=numbered(24),
                    sampling=SamplingParams(max_tokens=8),
                    limits=Limits(concurrency=4),
                )
                said.append(repr(evaluation))
                said += map(repr, await samples_of(bridge, evaluation.evaluation_id))
                said += map(repr, await log_of(bridge))
                said.append(repr(await bridge.worker.get_info()))
                for report_format in ReportFormat:
                    said.append(await bridge.evaluation.generate_report([evaluation.evaluation_id], report_format))
                with pytest.raises(crucible_bridge.errors.BridgeError) as caught:
                    await bridge.evaluation.evaluate(
                        model="openai:t/m",
                        evaluators=["accuracy"],
                        dataset=numbered(1),
                        sampling=SamplingParams(max_tokens=1),
                    )
                said.append(repr(caught.value))
            said.append(Path(f"/proc/{child.pid}/cmdline").read_bytes().decode())
            child.send_signal(signal.SIGTERM)
            await asyncio.to_thread(child.wait, SECONDS)
            assert f"Bearer {KEY}" in {request.headers.get("authorization") for request in server.asked}
    assert child.returncode == 0
    assert "[key]" in "".join(said), "the server's own words are told, without the key"
    written = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert written
    for path in (*written, log):
        assert KEY.encode() not in path.read_bytes(), path
    assert not [text for text in said if KEY in text]
