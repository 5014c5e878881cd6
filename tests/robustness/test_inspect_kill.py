"""The end of a worker amid a task of Inspect: nothing of that stays, and it runs again where it is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crucible_bridge.client.evaluation import request_of
from crucible_bridge.types import EvaluateRequest, EvaluatorSpec, Sample
from tests.robustness.harness import count_lines, until, workshop

pytestmark = pytest.mark.inspect

TASKS = Path(__file__).parents[1] / "inspect_tasks"
DRAIN_SECONDS = 20.0
"""For a worker to end, on a machine that has other things to do; a bound, not an expectation."""


def _request(evaluation_id: str) -> EvaluateRequest:
    return request_of(
        evaluation_id=evaluation_id,
        model="embedded:m",
        evaluators=[EvaluatorSpec(kind="inspect")],
        dataset=[Sample(input="tasks.py@capitals")],
    )


def _tasks_of(worker: int) -> list[int]:
    """Processes of tasks that this worker has started."""
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = cmdline.read_bytes().decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if re.search(rf"evaluators\.inspect\.host\0--parent={worker}\0", command):
            found.append(int(cmdline.parent.name))
    return found


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where workers have the folders of their tasks."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


async def test_a_task_runs_again_at_the_next_worker(tmp_path: Path) -> None:
    """With what an undisturbed run finds; the process of the first run dies with its worker."""
    calls = tmp_path / "calls"
    models = {"m": {"latency": 0.5, "call_file": str(calls)}}
    async with workshop(tmp_path, models, inspect_roots=(TASKS,)) as shop:
        worker = await shop.start()
        whole = await worker.bridge.evaluation.evaluate(_request("whole"))
        before = count_lines(calls)
        await worker.bridge.evaluation.start_evaluation(_request("killed"))
        await until(lambda: count_lines(calls) > before)
        assert _tasks_of(worker.pid)

        worker.kill()

        await until(lambda: not _tasks_of(worker.pid))
        following = await shop.start()
        again = await following.bridge.evaluation.evaluate(_request("killed"))

    assert whole.metrics.values["capitals/match/accuracy"] == 2 / 3
    assert (again.attempt, again.metrics) == (2, whole.metrics)


async def test_a_drain_takes_the_task_along(tmp_path: Path, temporary: Path) -> None:
    """In its time, with the process and the folder of the task."""
    calls = tmp_path / "calls"
    async with workshop(tmp_path, {"m": {"latency": 60.0, "call_file": str(calls)}}, inspect_roots=(TASKS,)) as shop:
        worker = await shop.start()
        await worker.bridge.evaluation.start_evaluation(_request("drained"))
        await until(lambda: count_lines(calls) > 0)
        assert len(list(temporary.glob("crucible-inspect-*"))) == len(_tasks_of(worker.pid)) == 1

        worker.terminate()

        assert await worker.exit_code(DRAIN_SECONDS) == 0
        assert not _tasks_of(worker.pid)
    assert not list(temporary.glob("crucible-inspect-*"))
