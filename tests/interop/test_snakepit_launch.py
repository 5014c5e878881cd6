"""How Snakepit starts a worker: its arguments and variables, the ready file, and what is refused."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from crucible_worker.snakepit import SCRIPT_PATH
from tests.interop.snakepit_standin import command, environment, launched

NO_GRADING = "--grading-processes=0"


def refused(
    folder: Path, *adapter_args: str, state_dir: str | None = "state", variables: Mapping[str, str] | None = None
) -> str:
    """Start a worker that does not start; what it says."""
    done = subprocess.run(
        command(None if state_dir is None else folder / state_dir, *adapter_args),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(folder / "ready", variables or {}),
        cwd=SCRIPT_PATH.parent,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert not (folder / "ready").exists()
    return done.stderr


async def test_the_ready_file_holds_the_port_alone(tmp_path: Path):
    """The file is there once the worker serves, whole, with nothing but the port; one that nobody read goes with it."""
    with launched(tmp_path, NO_GRADING) as worker:
        await worker.port()
        worker.ready_file.write_text("another worker's")
        worker.terminate()
        assert await worker.exit_code() == 0
    assert worker.ready_file.read_text() == "another worker's"
    assert [path.name for path in tmp_path.glob("*.tmp")] == []


async def test_snakepit_finds_its_processes(tmp_path: Path):
    """The worker leads a group, which Snakepit signals, and its command line is what orphan sweeps look for."""
    with launched(tmp_path, NO_GRADING) as worker:
        await worker.port()

        assert os.getpgid(worker.pid) == worker.pid
        assert os.getsid(worker.pid) == worker.pid
        words = Path(f"/proc/{worker.pid}/cmdline").read_bytes().decode().replace("\0", " ")
    assert "python" in words
    assert "grpc_server.py" in words
    assert "--snakepit-run-id 4f2a91c" in words


async def test_modules_of_the_scripts_folder_are_not_on_the_path(tmp_path: Path):
    """Started in the script's folder, with Snakepit's Python on the path, the worker imports neither's modules."""
    hostile = tmp_path / "priv"
    hostile.mkdir()
    for name in ("snakepit_bridge_pb2", "grpc_server", "wire", "tools"):
        (hostile / f"{name}.py").write_text("raise SystemExit('imported')")
    with launched(tmp_path, NO_GRADING, variables={"PYTHONPATH": _path(hostile)}) as worker:
        await worker.port()

        assert os.readlink(f"/proc/{worker.pid}/cwd") == "/"


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--stat-dir=/tmp/x", "there is no argument --stat-dir=/tmp/x"),
        ("--grading-processes=many", "--grading-processes is 'many', not a whole number"),
        ("--limit=max_streams", "is not NAME=VALUE"),
        ("stray", "there is no argument stray"),
        ("--adapter=my.Adapter", "there is no argument --adapter=my.Adapter"),
        ("--model-root=models", "--model-root is models, and Snakepit starts workers in"),
    ],
)
def test_what_the_pool_configures_wrong_is_refused(tmp_path: Path, argument: str, said: str):
    """A mistake among adapter_args ends the worker with a sentence on stderr, before it is ready."""
    assert said in refused(tmp_path, argument)


def test_a_state_directory_below_the_script_is_refused(tmp_path: Path):
    """A relative path would lie in the package's folder, where Snakepit starts workers."""
    said = refused(tmp_path, variables={"CRUCIBLE_STATE_DIR": "state"}, state_dir=None)

    assert "the state directory is state, and Snakepit starts workers in" in said


async def test_what_a_newer_snakepit_appends_is_passed_over(tmp_path: Path):
    """Arguments that follow Snakepit's own are not ours to refuse."""
    with launched(tmp_path, NO_GRADING, appended=("--snakepit-new-thing", "7", "--pool", "default")) as worker:
        assert await worker.port()


async def test_the_level_of_snakepit_is_the_logs(tmp_path: Path):
    """SNAKEPIT_LOG_LEVEL sets how much is logged, unless the pool's configuration does."""
    for name, variables, logs in (("quiet", {}, False), ("loud", {"CRUCIBLE_LOG_LEVEL": "info"}, True)):
        with launched(tmp_path, NO_GRADING, name=name, variables=variables) as worker:
            await worker.port()
            worker.terminate()
            assert await worker.exit_code() == 0
        assert ("serving" in worker.log()) is logs


def _path(first: Path) -> str:
    return os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(first))))
