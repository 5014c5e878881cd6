"""Health keeps answering while a real worker reads the worst that strangers can send it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import grpc.aio
import numpy as np
import pytest

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import BridgeError
from crucible_bridge.types import (
    Assertions,
    CallTest,
    CodeItem,
    CodeLimits,
    FormatScorer,
    GradeItem,
    JsonSchemaForm,
    SamplingParams,
    StdioTest,
    TrajectoryBatch,
)
from crucible_bridge.v1 import evaluation_pb2
from crucible_worker.backends.openai.documents import QUICK_PARTS
from tests import needs
from tests.robustness.harness import workshop
from tests.robustness.probes import HEALTH_SECONDS, worst_probe
from tests.service.openai_kit import Reply, Request, ScriptedServer, shout
from tests.service.serving import serving

ATTEMPTS = 3
"""Of one call. Whatever else the machine does may delay a probe; what blocks the worker delays it each time."""

FENCE = "```" + "a" * 900_000 + "`"
COLLIDING = "[" + ", ".join(str((2**61 - 1) * number) for number in range(19_000)) + "]"
CALL = CallTest(function="f", arguments_json="[]", expected_json="1")
FRACTION = "from fractions import Fraction\ndef f(): return Fraction(3**1_200_000, 2**1_900_000)"

Call = Callable[[Bridge, str], Awaitable[object]]


@functools.cache
def _labels() -> bytes:
    """A request whose labels stand in protobuf's own order."""
    request = evaluation_pb2.StartEvaluationRequest()
    for number in range(400_000):
        request.request.labels[f"{number:x}"] = ""
    return request.SerializeToString()


async def _labelled(bridge: Bridge, address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        start = channel.unary_unary("/crucible_bridge.v1.EvaluationService/StartEvaluation", None, None)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await start(_labels())


def _tagged(bridge: Bridge, address: str) -> Awaitable[object]:
    ones, counts = np.ones(2), np.ones(2, np.int64)
    batch = TrajectoryBatch(
        trajectories_per_group=counts,
        transitions_per_trajectory=counts,
        rewards=ones,
        final_rewards=ones,
        action_tokens=counts,
        observation_tokens=counts,
        tags=(tuple(f"tag {number}" for number in range(60_000)), ()),
    )
    return bridge.metrics.compute_trajectory_metrics(batch)


CALLS: Mapping[str, Call] = {
    "a fence that does not end": lambda bridge, _: bridge.grading.grade_code([CodeItem(response=FENCE, tests=(CALL,))]),
    "a returned Fraction": lambda bridge, _: bridge.grading.grade_code([CodeItem(response=FRACTION, tests=(CALL,))]),
    "a megabyte of tests": lambda bridge, _: bridge.grading.grade_code(
        [CodeItem(response="def f(): pass", tests=(Assertions("a," * 490_000),))]
    ),
    "a thousand tests": lambda bridge, _: bridge.grading.grade_code(
        [CodeItem(response="def f(): pass", tests=tuple(Assertions("a," * 480 + str(n)) for n in range(1_000)))]
    ),
    "lines of output": lambda bridge, _: bridge.grading.grade_code(
        [CodeItem(response="print('\\n' * 9_900_000 + 'a')", tests=(StdioTest(stdin="", stdout="a"),))],
        limits=CodeLimits(output_bytes=10_000_000),
    ),
    "items of one hash": lambda bridge, _: bridge.grading.score(
        [GradeItem(response=COLLIDING)] * 4, FormatScorer(form=JsonSchemaForm('{"uniqueItems": true}'))
    ),
    "many labels": _labelled,
    "many tags": _tagged,
}


@pytest.mark.parametrize("name", CALLS)
async def test_health_answers_meanwhile(tmp_path: Path, name: str) -> None:
    """Within a second, in the process that has the call."""
    found: list[float] = []
    async with workshop(tmp_path, {"m": {}}) as shop:
        worker = await shop.start()
        for _ in range(ATTEMPTS):
            _labels()  # in this process, too, nothing takes long while probes are made
            work = asyncio.ensure_future(_ended(CALLS[name](worker.bridge, worker.address)))
            found.append(await worst_probe(worker.address, work, worker.pid))
            if found[-1] < HEALTH_SECONDS:
                break

    assert min(found) < HEALTH_SECONDS, found


MANY_TOKENS = 250_000
MEBIBYTE = 1024 * 1024
ANSWERS: Mapping[str, Callable[[], bytes]] = {
    "many keys": lambda: b"{" + b",".join(b'"%x":1' % number for number in range(4_500_000)) + b"}",
    "many lists": lambda: b'{"a":[' + b"[]," * 6_000_000 + b"0]}",
    "much of one token": lambda: (
        b'{"choices":[{"prompt_logprobs":[{' + b",".join(b'"%d":0' % n for n in range(4_000_000)) + b"}]}]}"
    ),
    "many numbers": lambda: b'{"choices":[{"token_ids":[' + b"0," * (30 * MEBIBYTE) + b"0]}]}",
    "as many keys as are read at once": lambda: (
        b"{" + b",".join(b'"%x":1' % number for number in range(QUICK_PARTS - 1)) + b"}"
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_health_answers_while_a_server_says_nonsense(tmp_path: Path, name: str) -> None:
    """Within a second, whatever an OpenAI-compatible server answers that was asked for many tokens."""
    pytest.importorskip("aiohttp", reason=needs.MISSING["aiohttp"])
    nonsense = Reply(ANSWERS[name]())
    left: list[Reply] = []

    def script(request: Request) -> Reply:
        return left.pop() if request.method == "POST" and left else shout(request)

    found: list[float] = []
    async with ScriptedServer(script).serving() as server:
        settings = f'grading_processes = 0\n[openai_servers.s]\nbase_url = "{server.url}"\n'
        async with serving(tmp_path, settings) as worker, crucible_bridge.connect(worker.address) as bridge:
            for _ in range(ATTEMPTS):
                left.append(nonsense)
                asked = bridge.models.sample("openai:s/m", ["hi"], SamplingParams(max_tokens=MANY_TOKENS))
                work = asyncio.ensure_future(asked)
                found.append(await worst_probe(worker.address, work, worker.process.pid))
                assert work.result().items[0].problem is None
                assert len(server.asked) == 2 * len(found)  # what is nonsense is asked for once more
                if found[-1] < HEALTH_SECONDS:
                    break

    assert min(found) < HEALTH_SECONDS, found


async def _ended(call: Awaitable[object]) -> object:
    with contextlib.suppress(BridgeError):
        return await call
    return None
