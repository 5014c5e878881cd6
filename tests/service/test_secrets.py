"""Where a secret may not turn up: everything that a worker writes, says, shows or hands down while it uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import BridgeError
from crucible_bridge.types import GradeItem, Limits, ReportFormat, SamplingParams
from tests import needs
from tests.processes import command_of, processes_below, read_of
from tests.service.evaluation_kit import log_of, numbered, samples_of
from tests.service.openai_kit import KEY, Fault, Reply, Request, ScriptedServer, answer, key_file, refusal, shout
from tests.service.serving import Serving, serving

needs.modules("aiohttp")

TOKEN = "canary-51d0a7c3e9"
"""What callers of the worker show."""
WRONG = "canary-e19b3f60d2"
"""What one of them shows by mistake; it may be the key to something else."""


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


async def everything_said(bridge: Bridge) -> list[str]:
    """What a worker answers: an evaluation of the server's model, its report, errors, its log, and about itself."""
    evaluation = await bridge.evaluation.evaluate(
        model="openai:s/m",
        evaluators=["accuracy", "nll"],
        dataset=numbered(24),
        sampling=SamplingParams(max_tokens=8),
        limits=Limits(concurrency=4),
    )
    said = [repr(evaluation), repr(await bridge.worker.get_info())]
    said += map(repr, await samples_of(bridge, evaluation.evaluation_id))
    said += map(repr, await log_of(bridge))
    for report_format in ReportFormat:
        said.append(await bridge.evaluation.generate_report([evaluation.evaluation_id], report_format))
    with pytest.raises(BridgeError) as caught:
        await bridge.evaluation.evaluate(
            model="openai:t/m", evaluators=["accuracy"], dataset=numbered(1), sampling=SamplingParams(max_tokens=1)
        )
    said.append(repr(caught.value))
    return said


async def have_children(bridge: Bridge) -> None:
    """Have the worker start every child that it has: those that grade, and the host of local models."""
    await bridge.grading.grade_math([GradeItem(response="1+x", targets=("x+1",))])
    await bridge.models.sample("embedded:arithmetic@600", ["1+1="], SamplingParams(max_tokens=1))


def processes(worker: int) -> list[int]:
    """A worker and all that descends from it."""
    return [worker, *processes_below(worker)]


def shown(worker: Serving) -> list[bytes]:
    """What the list of processes shows, and what children were given."""
    own, *children = processes(worker.process.pid)
    commands = [command_of(process) for process in (own, *children)]
    return [*commands, *(read_of(child, "environ") for child in children)]


def found(worker: Serving, said: list[str], listed: list[bytes], secret: str) -> list[str]:
    """Where a secret turned up."""
    written = [path for path in worker.state_dir.rglob("*") if path.is_file()]
    assert written
    places = {str(path): path.read_bytes() for path in (*written, worker.log)}
    places |= {f"answer {text[:80]}": text.encode() for text in said}
    places |= {f"process {index}": content for index, content in enumerate(listed)}
    return [name for name, content in places.items() if secret.encode() in content]


@pytest.mark.parametrize("place", ["file", "variable"])
async def test_a_secret_is_nowhere_but_where_it_is_used(tmp_path: Path, place: str):
    """Not in the log, the journal, events, samples, problems, reports, errors, the list of processes or a child."""
    key = f'key_file = "{key_file(tmp_path)}"' if place == "file" else 'key_env = "MY_KEY"'
    environment = {"OPENAI_LOG": "debug"}
    if place == "variable":
        environment |= {"MY_KEY": KEY, "TINKER_API_KEY": f"tml-{KEY}"}
    token_file = tmp_path / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(f"{TOKEN}\n")
    async with ScriptedServer(tell_tale).serving() as server:
        settings = f'token_file = "{token_file}"\n[openai_servers.s]\nbase_url = "{server.url}"\n{key}\n'
        async with serving(tmp_path / "worker", settings, log_level="debug", environment=environment) as worker:
            async with crucible_bridge.connect(worker.address, token=WRONG) as stranger:
                with pytest.raises(BridgeError) as caught:
                    await stranger.worker.get_info()
            async with crucible_bridge.connect(worker.address, token=TOKEN) as bridge:
                said = [repr(caught.value), *await everything_said(bridge)]
                if place == "variable":
                    await have_children(bridge)
            listed = shown(worker)
            assert place == "file" or len(processes(worker.process.pid)) >= 4
            assert await worker.drained() == 0
        assert f"Bearer {KEY}" in {request.headers.get("authorization") for request in server.asked}
    assert "[key]" in "".join(said), "the server's own words are told, without the key"
    for secret in (KEY, TOKEN, WRONG):
        assert found(worker, said, listed, secret) == []


async def test_the_key_of_a_tinker_service_is_nowhere_either(tmp_path: Path):
    """The library itself, in a worker that logs all it can, at a service that refuses and says the key back."""
    pytest.importorskip("tinker", reason=needs.MISSING["tinker"])
    key, shown_keys = f"tml-{KEY}", set[str | None]()

    def refuse(request: Request) -> Reply:
        shown_keys.add(request.headers.get("x-api-key"))
        return refusal(401, f"key {key} is wrong")

    async with ScriptedServer(refuse).serving() as server:
        settings = f'grading_processes = 0\n[tinker_services.s]\nbase_url = "{server.url}"\nstall_seconds = 5\n'
        environment = {"TINKER_API_KEY": key, "TINKER_LOG": "debug"}
        async with serving(tmp_path / "worker", settings, log_level="debug", environment=environment) as worker:
            async with crucible_bridge.connect(worker.address) as bridge:
                evaluation = await bridge.evaluation.evaluate(
                    model="tinker://run/sampler_weights/final?service=s",
                    evaluators=["accuracy"],
                    dataset=numbered(1),
                    sampling=SamplingParams(max_tokens=1),
                )
                said = [repr(evaluation), *map(repr, await log_of(bridge)), repr(await bridge.worker.get_info())]
            listed = shown(worker)
            assert await worker.drained() == 0
    assert shown_keys == {key}
    assert evaluation.problem is not None
    assert evaluation.problem.reason == "BACKEND_UNAUTHENTICATED"
    assert found(worker, said, listed, KEY) == []
