"""The host process dies, hangs, or loses its worker: real signals on real processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

import crucible_bridge
from crucible_bridge.errors import BackendError, Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, LocalModel, ModelInput, Sample, SamplingParams
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.children.process import Process
from crucible_worker.embedded import registry
from tests import needs
from tests.processes import is_alive, read_of
from tests.service.processes_kit import DRAIN_SECONDS, WAIT_SECONDS, hosts_of, serving, wait_until

needs.modules("torch", "transformers")

CHECKPOINT = registry.path("arithmetic@600")
MODEL = LocalModel(CHECKPOINT.name)
PROMPT = ModelInput.of([4, 5, 13, 6, 7, 14])
GREEDY = SamplingParams(max_tokens=8)


@pytest.fixture
async def local():
    """A backend of its own, as its host is to die."""
    local = LocalBackend((CHECKPOINT.parent,), "cpu")
    yield local
    await local.aclose()


async def test_a_host_that_is_killed_fails_its_calls_and_comes_back(local):
    """Every call in flight fails at once, retryable; the next one is served by another host."""
    model = await local.open(MODEL)
    await model.load()
    (host,) = hosts_of(os.getpid())
    before = await model.compute_logprobs(PROMPT)
    os.kill(host, signal.SIGSTOP)  # so that the calls are in flight for certain
    calls = [asyncio.create_task(model.sample(PROMPT, GREEDY)) for _ in range(5)]
    calls.append(asyncio.create_task(model.compute_logprobs(PROMPT)))
    await asyncio.sleep(0)  # let them write their requests

    os.kill(host, signal.SIGKILL)
    results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), WAIT_SECONDS)

    for result in results:
        assert isinstance(result, BackendError)
        assert (result.reason, result.retryable) == ("HOST_DIED", True)
    assert (await model.sample(PROMPT, GREEDY))[0].text == "46"
    assert await model.compute_logprobs(PROMPT) == before
    assert (await local.open(MODEL)).fingerprint == model.fingerprint
    assert len(hosts_of(os.getpid())) == 1


async def test_ctrl_c_in_a_terminal_reaches_no_host(local):
    """A terminal signals its processes: a host is not one of them from its first moment on, when it would traceback."""
    model = await local.open(MODEL)
    loading = asyncio.create_task(model.load())
    while not (hosts := hosts_of(os.getpid())) and not loading.done():
        await asyncio.sleep(0.001)

    assert [os.getsid(host) for host in hosts] == hosts
    await loading


async def test_closing_ends_the_host(local):
    """Calls in flight fail, later ones are refused, no child is left; closing twice is closing."""
    model = await local.open(MODEL)
    await model.load()
    calls = [asyncio.create_task(model.sample(PROMPT, GREEDY, 64)) for _ in range(50)]
    await asyncio.sleep(0)

    await asyncio.wait_for(local.aclose(), WAIT_SECONDS)
    results = await asyncio.gather(*calls, return_exceptions=True)

    assert all(isinstance(result, tuple | BackendError) for result in results)
    assert hosts_of(os.getpid()) == []
    with pytest.raises(Unavailable) as caught:
        await model.sample(PROMPT, GREEDY)
    assert not caught.value.retryable
    await local.aclose()


async def test_closing_ends_a_host_that_does_not_listen(local):
    """A stopped host cannot see the end of its input: it is killed."""
    await (await local.open(MODEL)).load()
    (host,) = hosts_of(os.getpid())
    os.kill(host, signal.SIGSTOP)

    await asyncio.wait_for(local.aclose(), WAIT_SECONDS)

    assert hosts_of(os.getpid()) == []


async def test_closing_before_anything_was_opened_does_nothing():
    """No host is started in order to be ended."""
    local = LocalBackend()

    await local.aclose()

    assert hosts_of(os.getpid()) == []


async def test_a_worker_that_is_killed_leaves_no_host():
    """The host dies with its worker, even amid work."""
    program = (
        "import asyncio, pathlib, sys\n"
        "from crucible_bridge.types import *\n"
        "from crucible_worker.backends.local.backend import LocalBackend\n"
        "async def main():\n"
        f"    local = LocalBackend((pathlib.Path({str(CHECKPOINT.parent)!r}),), 'cpu')\n"
        f"    model = await local.open(LocalModel({MODEL.path!r}))\n"
        "    await model.load()\n"
        "    print('open', flush=True)\n"
        "    while True:\n"
        "        await model.sample(ModelInput.of([4, 5]), SamplingParams(max_tokens=20), 64)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as worker:
        try:
            assert worker.stdout is not None
            assert await asyncio.to_thread(worker.stdout.readline) == b"open\n"
            (host,) = hosts_of(worker.pid)
        finally:
            worker.kill()  # leaving the block waits for its end

    await asyncio.to_thread(wait_until, lambda: not is_alive(host), "the host has ended")


def evaluate(bridge):
    """Start an evaluation that a CPU is busy with for much longer than a drain may take."""
    return bridge.evaluation.start_evaluation(
        evaluation_id="long",
        model=MODEL,
        evaluators=["accuracy"],
        dataset=[Sample(input=f"{index % 90 + 10}+37=", targets=("0",)) for index in range(200_000)],
        sampling=SamplingParams(max_tokens=8),
    )


async def end(worker, host):
    """Send SIGTERM; the worker has to end with 0 in time, and its host with it."""
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, DRAIN_SECONDS) == 0
    await asyncio.to_thread(wait_until, lambda: not is_alive(host), "the host has ended")


async def test_a_worker_told_to_go_while_a_model_loads_goes(tmp_path):
    """Amid the import of torch in the host: exit code 0 within the drain's bound, and no child is left."""
    with serving(tmp_path, f"--model-root={CHECKPOINT.parent}") as (worker, address):
        async with crucible_bridge.connect(address) as bridge:
            starting = asyncio.create_task(evaluate(bridge))
            await asyncio.to_thread(wait_until, lambda: any(map(_imports_torch, hosts_of(worker.pid))), "it loads")
            (host,) = hosts_of(worker.pid)

            await end(worker, host)

            await asyncio.gather(starting, return_exceptions=True)


async def test_a_worker_told_to_go_while_a_model_computes_goes(tmp_path):
    """Amid an evaluation: exit code 0 within the drain's bound, no child is left, and the evaluation can go on."""
    with serving(tmp_path, f"--model-root={CHECKPOINT.parent}") as (worker, address):
        async with crucible_bridge.connect(address) as bridge:
            await evaluate(bridge)
            async for event in bridge.evaluation.watch_evaluation("long"):
                if event.kind is EventKind.SAMPLE_COMPLETE:
                    break
            (host,) = hosts_of(worker.pid)

            await end(worker, host)

    with serving(tmp_path, f"--model-root={CHECKPOINT.parent}") as (_, address):
        async with crucible_bridge.connect(address) as bridge:
            assert (await bridge.evaluation.get_evaluation("long")).state is EvaluationState.INTERRUPTED


def test_what_libraries_print_does_not_reach_the_frames():
    """File descriptor 1 of the host is the worker's stderr, and 0 is empty: frames have their own socket."""
    host, channel = Process.start("crucible_worker.backends.local.host", environment=os.environ, logs=True)

    def fd(number):
        return os.readlink(f"/proc/{host.pid}/fd/{number}")

    with channel:
        assert fd(0) == os.devnull
        assert fd(1) == fd(2) == os.readlink("/proc/self/fd/2")
    assert host.ends(time.monotonic() + WAIT_SECONDS)

    assert host.reap() == 0


async def test_a_host_whose_worker_is_gone_does_not_start():
    """If the worker died before the host could ask to die with it, the host ends by itself."""
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "crucible_worker.backends.local.host", "--parent=1", "--socket=0"
    )

    assert await asyncio.wait_for(host.wait(), WAIT_SECONDS) == 1


def _imports_torch(pid):
    return b"libtorch" in read_of(pid, "maps")
