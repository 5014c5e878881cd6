"""deploy/slurm/pool.sbatch: real workers and a real database, under a Slurm that only sets its variables."""

import asyncio
import contextlib
import os
import pwd
import re
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.types import EvaluationState
from crucible_worker.config import ENVIRONMENT_PREFIX, load_settings
from tests import needs
from tests.postgres_server import programs
from tests.service.pool_kit import LONG, slow_evaluation
from tests.unit.test_docker_files import options

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "slurm" / "pool.sbatch"
SRUN = '#!/bin/sh\n# Slurm starts a step; here it is the process itself.\nshift\nexec "$@"\n'


def test_the_script_has_no_faults():
    """Its linter finds nothing, and nothing in it is left out of the check."""
    found = subprocess.run([needs.program("shellcheck"), SCRIPT], capture_output=True, text=True, check=False)

    assert (found.stdout, found.returncode) == ("", 0)
    assert "shellcheck disable" not in SCRIPT.read_text()


def test_options_and_variables_are_those_of_a_worker():
    """What the script gives to `serve` is an option of it, and no variable of its own has the prefix of settings."""
    text = SCRIPT.read_text()
    (call,) = re.findall(r'"\$\{command\[@\]\}" serve (.*?)&$', text, re.MULTILINE | re.DOTALL)
    given = set(re.findall(r"--[a-z-]+", call))

    assert {"--host", "--port", "--ready-file", "--token-file"} <= given <= options("serve")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert set(re.findall(rf"\b{ENVIRONMENT_PREFIX}[A-Z_]+", code)) == {"CRUCIBLE_JOURNAL"}
    assert load_settings({}, {"CRUCIBLE_JOURNAL": "postgresql://u:p@h:1/postgres"}).journal


class User:
    """Who runs the job: PostgreSQL refuses root."""

    def __init__(self):
        self.started_as = {}
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            self.started_as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def give(self, folder):
        """Make a folder the user's."""
        if self.started_as:
            os.chown(folder, self.started_as["user"], self.started_as["group"])

    def command(self, folder):
        """A worker's command that this user may run."""
        # Without the library of this interpreter: another one has its own.
        ours = (path for path in sys.path if "site-packages" in path or Path(path).is_relative_to(ROOT))
        place = os.pathsep.join(ours)
        for interpreter in (sys.executable, "/usr/bin/python3"):
            variables = f'PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="{place}"'
            text = f'#!/bin/sh\n{variables} exec {interpreter} -m crucible_worker "$@"\n'
            path = folder / "worker"
            path.write_text(text)
            path.chmod(0o755)
            tried = subprocess.run(
                [path, "health", "--help"], capture_output=True, text=True, cwd="/", check=False, **self.started_as
            )
            if tried.returncode == 0:
                return path
        pytest.skip("the user `postgres` cannot run a worker (put the environment where every user may read it)")


@pytest.fixture
def site():
    """A shared folder, a fake srun, and the user of the job."""
    bin_folder = programs()
    if bin_folder is None:
        pytest.skip(needs.MISSING["postgresql"])
    user = User()
    with tempfile.TemporaryDirectory(prefix="crucible-slurm-", ignore_cleanup_errors=True) as text:
        folder = Path(text)
        (folder / "bin").mkdir()
        (folder / "bin" / "srun").write_text(SRUN)
        (folder / "bin" / "srun").chmod(0o755)
        for each in (folder, folder / "bin"):
            user.give(each)
            each.chmod(0o755)
        command = user.command(folder / "bin")
        yield Site(folder, bin_folder, user, command)


class Site:
    """Where jobs run: starts tasks of one array."""

    def __init__(self, folder, programs_folder, user, command):
        self.folder, self._user = folder, user
        self.pool = folder / "crucible-pool-7"
        # Where the user may read it, as Slurm copies it, too.
        self._script = folder / "bin" / "pool.sbatch"
        self._script.write_text(SCRIPT.read_text())
        self._script.chmod(0o755)
        self._environment = {
            "PATH": os.pathsep.join([str(folder / "bin"), str(programs_folder), "/usr/bin", "/bin"]),
            "HOME": str(folder),
            "POOL_ADDRESS": "127.0.0.1",
            "POOL_COMMAND": str(command),
            "CRUCIBLE_GRADING_PROCESSES": "0",
            "CRUCIBLE_LOG_LEVEL": "error",
            "SLURM_ARRAY_JOB_ID": "7",
            "SLURM_ARRAY_TASK_MIN": "0",
        }

    def task(self, index, **variables):
        """Start a task of the array, as the leader of a process group."""
        with (self.folder / f"task-{index}.out").open("ab") as log:
            return subprocess.Popen(
                ["/bin/bash", self._script],
                env={**self._environment, "SLURM_ARRAY_TASK_ID": str(index), **variables},
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._user.started_as,
            )

    def worker_of(self, task):
        """The worker of a task: the process of its group that serves."""
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_text().split("\0")
                if os.getpgid(int(entry.name)) == task.pid and "serve" in command and "crucible_worker" in command:
                    return int(entry.name)
        raise LookupError("no worker")

    def addresses(self):
        """What clients read: the address of each worker that serves."""
        files = sorted((self.pool / "workers").glob("[0-9]*"))
        return [file.read_text() for file in files]

    async def served(self, count, tasks):
        """Wait until so many workers serve."""
        async with asyncio.timeout(LONG):
            while not (self.pool / "workers").is_dir() or len(self.addresses()) < count:
                ended = [index for index, task in enumerate(tasks) if task.poll() is not None]
                assert not ended, [(self.folder / f"task-{index}.out").read_text() for index in ended]
                await asyncio.sleep(0.05)


def end(tasks, how):
    """End whole tasks, as the end of a job does: every process of each."""
    for task in tasks:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(task.pid, how)


@pytest.mark.postgres
async def test_an_array_of_tasks_is_one_pool(site):
    """Three tasks serve one journal; one is killed with all of its processes, and the client continues."""
    tasks = [site.task(index) for index in range(3)]
    try:
        await site.served(3, tasks)
        assert stat.S_IMODE(site.pool.stat().st_mode) == 0o700
        token = (site.pool / "token").read_text()
        addresses = site.addresses()
        async with crucible_bridge.connect(addresses, token=token) as bridge, asyncio.timeout(LONG):
            await bridge.wait_for_worker(LONG)
            seen = set()
            while len(seen) < 3:
                seen.add((await bridge.worker.get_info()).worker_id)
            waiting = asyncio.create_task(bridge.evaluation.evaluate(**slow_evaluation("e")))
            owner = await owner_of("e", addresses, token)
            # The first task has the database; its end is that of the pool until it is started again.
            victim = owner if owner != 0 else 1
            end([tasks[victim]], signal.SIGKILL)
            assert (await waiting).state is EvaluationState.COMPLETED
        left = [task for index, task in enumerate(tasks) if index != victim]
        end(left, signal.SIGTERM)
        assert [await asyncio.to_thread(task.wait, LONG) for task in left] == [0, 0]
        # Ended by its own command: its file of the running server is gone.
        assert not (site.pool / "postgres" / "postmaster.pid").exists()
    finally:
        end(tasks, signal.SIGKILL)
        for task in tasks:
            task.wait()


@pytest.mark.postgres
async def test_a_worker_that_is_lost_starts_again_at_its_address(site):
    """An array of one task: its database outlives the worker, and so what was evaluated; the end is in order."""
    task = site.task(0)
    try:
        await site.served(1, [task])
        (address,) = site.addresses()
        token = (site.pool / "token").read_text()
        async with (
            crucible_bridge.connect(address, token=token, patience=LONG) as bridge,
            asyncio.timeout(LONG),
        ):
            await bridge.wait_for_worker(LONG)
            first = await bridge.worker.get_info()
            waiting = asyncio.create_task(bridge.evaluation.evaluate(**slow_evaluation("e")))
            assert await owner_of("e", [address], token) == 0
            os.kill(site.worker_of(task), signal.SIGKILL)
            assert (await waiting).state is EvaluationState.COMPLETED
            assert (await bridge.worker.get_info()).worker_id != first.worker_id
        assert site.addresses() == [address]
        end([task], signal.SIGTERM)
        assert await asyncio.to_thread(task.wait, LONG) == 0
        assert site.addresses() == []
    finally:
        end([task], signal.SIGKILL)
        task.wait()


@pytest.mark.postgres
async def test_a_worker_that_cannot_serve_ends_its_task(site):
    """With the status of the worker, whose words are in the job's output, and without its database."""
    task = site.task(0, CRUCIBLE_LIMITS="nonsense")
    try:
        assert await asyncio.to_thread(task.wait, LONG) not in (0, -signal.SIGKILL)
        assert "CRUCIBLE_LIMITS" in (site.folder / "task-0.out").read_text()
        assert not (site.pool / "postgres" / "postmaster.pid").exists()
    finally:
        end([task], signal.SIGKILL)
        task.wait()


async def owner_of(evaluation_id, addresses, token):
    """The index of the worker at which an evaluation runs, once some samples are done."""
    async with contextlib.AsyncExitStack() as clients:
        bridges = [
            await clients.enter_async_context(crucible_bridge.connect(address, token=token)) for address in addresses
        ]
        while True:
            for index, bridge in enumerate(bridges):
                if (await bridge.worker.get_info()).running:
                    found = await bridge.evaluation.get_evaluation(evaluation_id)
                    if found.done > 5:
                        return index
            await asyncio.sleep(0.05)
