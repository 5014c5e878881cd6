"""Servers that the worker starts: in place where weights alone differ, again where they die, and never left behind."""

import asyncio
import dataclasses
import os
import signal
import time
from pathlib import Path

import pytest

from crucible_bridge.errors import BridgeError
from crucible_bridge.types import InstalledModel
from crucible_worker.backends.managed import replica as replica_module
from crucible_worker.backends.managed.replica import LOG_SECONDS
from crucible_worker.backends.managed.replica import PROGRAMS as PROGRAMS_BY_NAME
from crucible_worker.backends.managed.settings import ManagedServer
from tests import needs
from tests.processes import is_alive
from tests.robustness.harness import until
from tests.service.managed_kit import (
    PROGRAMS,
    backend_of,
    deployment_of,
    fake,
    members,
    save,
    save_adapter,
    text_of,
)
from tests.tables import rows

needs.modules("aiohttp")


def pids(backend):
    """Process ids of the guards of a backend's replicas."""
    return [replica.pid for replica in deployment_of(backend).replicas]


@rows("program", PROGRAMS)
async def test_checkpoints_are_loaded_into_one_server(program, tmp_path):
    """Weights of the same form go into the processes that run; each answer is of the weights that were named."""
    root = tmp_path / "models"
    for step in range(3):
        save(root, f"step-{step}", f"w{step}")
    async with backend_of(root, fake(program)) as backend:
        assert await text_of(backend, "s/step-0") == "w0"
        first = pids(backend)
        assert await text_of(backend, "s/step-1") == "w1"
        assert await text_of(backend, "s/step-2") == "w2"
        assert pids(backend) == first


@rows("program", PROGRAMS)
async def test_adapters_are_loaded_into_one_server(program, tmp_path):
    """An adapter, the next one, and the model without any share a process once it was started for adapters."""
    root = tmp_path / "models"
    save(root, "base", "w")
    for step in range(2):
        save_adapter(root, f"lora-{step}", f"a{step}")
    async with backend_of(root, fake(program)) as backend:
        assert await text_of(backend, "s/base?adapter=lora-0") == "w+a0"
        first = pids(backend)
        assert await text_of(backend, "s/base?adapter=lora-1") == "w+a1"
        assert await text_of(backend, "s/base") == "w"
        assert pids(backend) == first


@rows("program", PROGRAMS)
async def test_another_architecture_is_a_new_process(program, tmp_path):
    """A server cannot take over weights of another configuration, so its process is replaced."""
    root = tmp_path / "models"
    save(root, "small", "w0")
    save(root, "large", "w1", num_hidden_layers=24)
    async with backend_of(root, fake(program)) as backend:
        assert await text_of(backend, "s/small") == "w0"
        first = pids(backend)
        assert await text_of(backend, "s/large") == "w1"
        assert pids(backend) != first


async def test_a_server_that_keeps_the_former_weights_is_replaced(tmp_path):
    """A load that reports success and changes nothing shows in the log-probabilities: the process is replaced."""
    root = tmp_path / "models"
    save(root, "a", "w0")
    save(root, "b", "w1")
    async with backend_of(root, fake("vllm")) as backend:
        assert await text_of(backend, "s/a") == "w0"
        first = pids(backend)

        async def nothing(control, target):
            return None

        deployment = deployment_of(backend)
        load, deployment.program.load = deployment.program.load, nothing
        try:
            assert await text_of(backend, "s/b") == "w1"
        finally:
            deployment.program.load = load
        assert pids(backend) != first


async def test_a_server_that_reports_another_version_is_replaced(tmp_path):
    """It says that the load succeeded, and that it has other weights: a new process has the right ones."""
    root = tmp_path / "models"
    save(root, "a", "w0")
    save(root, "b", "w1")
    async with backend_of(root, fake("sglang")) as backend:
        assert await text_of(backend, "s/a") == "w0"
        first = pids(backend)
        deployment = deployment_of(backend)
        load = deployment.program.load

        async def with_another_version(control, target):
            await load(control, dataclasses.replace(target, base=dataclasses.replace(target.base, key="0" * 64)))

        deployment.program.load = with_another_version
        try:
            assert await text_of(backend, "s/b") == "w1"
        finally:
            deployment.program.load = load
        assert pids(backend) != first


@rows(
    ("program", "says"),
    [
        ("vllm", "reports success, and lists no adapter adapter-"),
        ("sglang", "reports success, and has weight_version 'default', not '"),
    ],
)
async def test_a_server_that_starts_and_reports_something_else_is_refused(program, says, tmp_path, monkeypatch):
    """An adapter or a version that a server has just been given is not in its report: the error says what is."""
    root = tmp_path / "models"
    save(root, "m", "w")
    save_adapter(root, "lora", "a")
    async with backend_of(root, fake(program)) as backend:
        kind = type(PROGRAMS_BY_NAME[program])

        async def nothing(self, control, *given):
            return None

        monkeypatch.setattr(kind, "load_adapter" if program == "vllm" else "started", nothing)
        with pytest.raises(BridgeError, match=says) as caught:
            await text_of(backend, "s/m?adapter=lora")
        assert caught.value.reason == "SERVER_NOT_STARTED"


async def test_servers_get_absolute_paths(tmp_path, monkeypatch):
    """A checkpoint below a relative model root is no option and no model of the hub."""
    monkeypatch.chdir(tmp_path)
    save(Path("models"), "-m", "w")
    async with backend_of(Path("models"), fake("vllm")) as backend:
        assert await text_of(backend, "s/-m") == "w"
        (replica,) = deployment_of(backend).replicas
        assert f"model {tmp_path}/models/-m" in replica.log.read_text()


async def test_each_device_has_a_process(tmp_path):
    """A process for each entry of `devices`, which sees only its own; requests are shared."""
    root = tmp_path / "models"
    save(root, "m", "w")
    async with backend_of(root, fake("vllm")) as backend:
        assert await text_of(backend, "s/m?devices=3,5%2B6") == "w"
        replicas = deployment_of(backend).replicas
        logs = [replica.log.read_text() for replica in replicas]
        assert ["GPU 3," in logs[0], "GPU 5,6," in logs[1]] == [True, True]
        assert len({replica.pid for replica in replicas}) == 2


async def test_a_start_that_fails_shows_the_end_of_the_log(tmp_path):
    """The error has how the process ended and the last lines that it printed."""
    root = tmp_path / "models"
    save(root, "m", "w")
    server = fake("vllm", environment={"FAKE_FAILURE": "torch.OutOfMemoryError: CUDA out of memory"})
    async with backend_of(root, server) as backend:
        with pytest.raises(BridgeError) as caught:
            await text_of(backend, "s/m")
    assert caught.value.reason == "SERVER_NOT_STARTED"
    assert "exit status 3" in caught.value.message
    assert "CUDA out of memory" in caught.value.message
    assert "loading shard 99" in caught.value.message
    assert "loading shard 9\n" not in caught.value.message


async def test_old_logs_are_removed(tmp_path):
    """A start leaves the logs of the last days, and that of the process before in the same place."""
    root, logs = tmp_path / "models", tmp_path / "logs"
    save(root, "small", "w0")
    save(root, "large", "w1", num_hidden_layers=24)
    logs.mkdir()
    old, young = logs / "s-1.log", logs / "s-2.log"
    for file, age in ((old, LOG_SECONDS + 60), (young, LOG_SECONDS - 60)):
        file.touch()
        os.utime(file, (time.time() - age, time.time() - age))
    async with backend_of(root, fake("vllm")) as backend:
        await text_of(backend, "s/small")
        await text_of(backend, "s/large")
        (replica,) = deployment_of(backend).replicas
        assert sorted(logs.iterdir()) == sorted([young, replica.log, replica.log.with_suffix(".log.before")])
        assert "/small" in replica.log.with_suffix(".log.before").read_text()


async def test_a_start_that_takes_too_long_is_refused(tmp_path):
    """The wait for a healthy server is bounded, and ends its process."""
    root = tmp_path / "models"
    save(root, "m", "w")
    command = ("sh", "-c", "sleep 600; : {port}")
    server = ManagedServer(name="s", program="vllm", command=command, start_seconds=0.3)
    async with backend_of(root, server) as backend:
        with pytest.raises(BridgeError, match=r"was not healthy within 0.3 s \(start_seconds\)"):
            await text_of(backend, "s/m")
        assert pids(backend) == [0]


async def test_a_server_that_ignores_its_signal_is_killed(tmp_path, monkeypatch):
    """With all of its group, after a bounded wait."""
    monkeypatch.setattr(replica_module, "STOP_SECONDS", 0.3)
    root = tmp_path / "models"
    save(root, "m", "w")
    command = ("sh", "-c", "trap '' TERM; echo $$ > {model}/pid; while :; do sleep 600; done; : {port}")
    server = ManagedServer(name="s", program="vllm", command=command, start_seconds=1.0)
    async with backend_of(root, server) as backend:
        with pytest.raises(BridgeError, match="was not healthy"):
            await text_of(backend, "s/m")
        pid = int((root / "m" / "pid").read_text())
        await until(lambda: not is_alive(pid))


async def test_a_process_that_left_the_group_is_ended_with_its_server(tmp_path):
    """As one that a launcher has put into a session of its own: it would hold the GPU's memory for ever."""
    root = tmp_path / "models"
    save(root, "m", "w")
    server = fake("vllm")
    begin = "setsid sh -c 'sleep 600 & echo $! > {model}/pid; wait' & exec \"$@\""
    server = dataclasses.replace(server, command=("sh", "-c", begin, "sh", *server.command))
    async with backend_of(root, server) as backend:
        await text_of(backend, "s/m")
        await until((root / "m" / "pid").read_text)
        pid = int((root / "m" / "pid").read_text())
        assert is_alive(pid)
    await until(lambda: not is_alive(pid))


async def test_the_end_of_the_backend_does_not_wait_for_a_server_that_starts(tmp_path):
    """Its guard ends it, though it ignores the signal; nothing is started afterwards."""
    root = tmp_path / "models"
    save(root, "m", "w")
    command = ("sh", "-c", "trap '' TERM; echo $$ > {model}/pid; while :; do sleep 600; done; : {port}")
    server = ManagedServer(name="s", program="vllm", command=command, start_seconds=600.0)
    async with backend_of(root, server) as backend:
        loading = asyncio.create_task(text_of(backend, "s/m"))
        await until((root / "m" / "pid").exists)
        await until((root / "m" / "pid").read_text)
        pid = int((root / "m" / "pid").read_text())
        await backend.aclose()
        assert is_alive(pid)  # it has GRACE_SECONDS, which the close has not waited for
        with pytest.raises(BridgeError) as caught:
            await loading
        assert caught.value.reason == "BACKEND_CLOSED"
    await until(lambda: not is_alive(pid))


async def test_a_command_that_does_not_exist_is_told(tmp_path):
    """Without the program the error says so, and what to do."""
    root = tmp_path / "models"
    save(root, "m", "w")
    server = ManagedServer(name="s", program="vllm", command=("no-such-program", "{port}"), start_seconds=30)
    async with backend_of(root, server) as backend:
        with pytest.raises(
            BridgeError, match=r"there is no program 'no-such-program'; install it .*managed_servers\.s"
        ):
            await text_of(backend, "s/m")


async def test_a_replica_that_dies_is_started_again(tmp_path):
    """Its requests go to the other one meanwhile; the new process serves the same adapter."""
    root = tmp_path / "models"
    save(root, "m", "w")
    save_adapter(root, "lora", "a")
    name = "s/m?adapter=lora&devices=0,1"
    async with backend_of(root, fake("sglang")) as backend:
        assert await text_of(backend, name) == "w+a"
        victim, _ = deployment_of(backend).replicas
        before = victim.pid
        os.killpg(before, signal.SIGKILL)
        assert [await text_of(backend, name, f"p{n}") for n in range(20)] == ["w+a"] * 20
        await until(lambda: victim.ready and victim.pid != before, 60)
        assert [await text_of(backend, name, f"q{n}") for n in range(20)] == ["w+a"] * 20


async def test_the_only_replica_is_waited_for(tmp_path):
    """A request that finds no replica waits for the one that is being started again."""
    root = tmp_path / "models"
    save(root, "m", "w")
    async with backend_of(root, fake("vllm")) as backend:
        assert await text_of(backend, "s/m") == "w"
        (replica,) = deployment_of(backend).replicas
        os.killpg(replica.pid, signal.SIGKILL)
        await until(lambda: not replica.ready)
        assert await text_of(backend, "s/m") == "w"


async def test_two_checkpoints_take_turns(tmp_path):
    """Requests for two checkpoints at once wait for each other, and each is answered by its own weights."""
    root = tmp_path / "models"
    for step in range(2):
        save(root, f"step-{step}", f"w{step}")
    async with backend_of(root, fake("vllm")) as backend:
        answers = await asyncio.gather(
            *(text_of(backend, f"s/step-{number % 2}", f"p{number}") for number in range(20))
        )
        assert answers == [f"w{number % 2}" for number in range(20)]


async def test_deployments_that_share_a_gpu_do_not_run_at_once(tmp_path):
    """One that is idle is ended before the other one starts, also if they are requested at the same time."""
    root = tmp_path / "models"
    for step in range(2):
        save(root, f"step-{step}", f"w{step}")
    async with backend_of(root, fake("vllm")) as backend:
        names = ["s/step-0?devices=0", "s/step-1?devices=1,0", "s/step-0?devices=2"]
        assert await text_of(backend, names[0], "p") == "w0"
        one = deployment_of(backend)
        (group,) = pids(backend)
        assert await text_of(backend, names[1], "p") == "w1"
        assert not members(group)
        assert not any(replica.ready for replica in one.replicas)

        answers = await asyncio.gather(*(text_of(backend, names[n % 3], f"p{n}") for n in range(9)))
        assert answers == [["w0", "w1", "w0"][n % 3] for n in range(9)]
        both = [all(replica.ready for replica in each.replicas) for each in backend._deployments.values()]
        assert sorted(both) == [False, True, True]  # the third shares nothing


async def test_files_that_change_are_another_checkpoint(tmp_path):
    """A model is what its files were when it was opened: others in their place are not loaded under its name."""
    root = tmp_path / "models"
    folder = save(root, "m", "w0")
    async with backend_of(root, fake("vllm")) as backend:
        model = await backend.open(InstalledModel("managed", "s/m"))
        (folder / "model.safetensors").write_text("others")
        with pytest.raises(BridgeError) as caught:
            await model.load()
        assert caught.value.reason == "CHECKPOINT_CHANGED"
        assert await text_of(backend, "s/m") == "others"


@rows(
    ("name", "reason", "says"),
    [
        ("other/m", "UNKNOWN_SERVER", "there are s, sglang, vllm"),
        ("s", "INVALID_FIELD", "names no checkpoint: write managed:s/PATH"),
        ("/m", "INVALID_FIELD", "names no server: write managed:SERVER/PATH"),
        ("s/m?gpu=1", "INVALID_FIELD", "has the option 'gpu'; there are adapter, devices"),
        ("s/m?devices=0,0", "INVALID_FIELD", "has '0' twice"),
        ("s/m?devices=a%20b", "INVALID_FIELD", "not the number or UUID of a GPU"),
        ("s/none", "MODEL_NOT_FOUND", "no directory"),
        ("s/../x", "PATH_OUT_OF_ROOT", "outside of the model roots"),
        ("s/m?devices=7", "INVALID_FIELD", "has the device '7'; the server 's' has 0, 1"),
    ],
)
async def test_references_that_name_nothing_are_refused(name, reason, says, tmp_path):
    """The error names what is wrong, before anything is started."""
    root = tmp_path / "models"
    save(root, "m", "w")
    async with backend_of(root, fake("vllm", devices=("0", "1"))) as backend:
        with pytest.raises(BridgeError) as caught:
            await backend.check(InstalledModel("managed", name))
    assert caught.value.reason == reason
    assert says in caught.value.message


async def test_the_end_of_the_backend_ends_every_process(tmp_path):
    """Neither a server nor what it has started is left."""
    root = tmp_path / "models"
    save(root, "m", "w")
    async with backend_of(root, fake("vllm")) as backend:
        await text_of(backend, "s/m?devices=0,1")
        groups = pids(backend)
        assert all(members(group) for group in groups)
    await until(lambda: not any(members(group) for group in groups))
