"""Commands that were started with SIGINT ignored, as a shell script starts its background jobs: SIGTERM ends each."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.processes import alive, processes_below
from tests.service.processes_kit import WAIT_SECONDS, wait_until

STUCK = """
import asyncio
from pathlib import Path
from crucible_worker.evaluators.declared import AnswerEvaluator

class Stuck(AnswerEvaluator, keys={"stuck": "fraction of 1"}):
    \"\"\"Grades for ever.\"\"\"

    async def judge(self, answer, sample):
        Path("grading").touch()
        await asyncio.Event().wait()
"""
EVALUATE = ("evaluate", "--model=embedded:arithmetic@600", "--data=builtin:arithmetic", "--evaluator=stuck.py:Stuck")
EVALUATE += ("--max-tokens=8", "--samples=2")
HARD = "(x+1)^{40}"


@dataclasses.dataclass(frozen=True)
class _Case:
    """A command, and its end."""

    words: Sequence[str]
    ready: str
    """Pattern of a file that shows that the command is at work."""
    text: str
    """What the file then has."""
    code: int
    """The exit code."""
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)


CASES = {
    "serve": _Case(
        ("serve", "--port=0", "--state-dir=served", "--ready-file=ready"), "ready", "", 0, (signal.SIGTERM,)
    ),
    "serve-interrupted": _Case(
        ("serve", "--port=0", "--state-dir=served", "--ready-file=ready"), "ready", "", 0, (signal.SIGINT,)
    ),
    "evaluate": _Case((*EVALUATE, "--no-keep"), "grading", "", 1),
    "follow": _Case(("follow", "mine", "--data=builtin:arithmetic", "--evaluator=nll"), "stderr", "waits for this", 1),
    "watch": _Case(("watch", "--state-dir=state"), "stdout", "stuck: running", 1),
    "view": _Case(("view", "--state-dir=state"), "stdout", "Open ", 130, (signal.SIGTERM,)),
    "view-interrupted": _Case(("view", "--state-dir=state"), "stdout", "Open ", 130, (signal.SIGINT,)),
    "grade": _Case(("grade", "--input=pairs.jsonl", "--output=graded.jsonl"), ".graded.jsonl.*", "", 1),
    "demo": _Case(("demo", "--samples=100000"), "demo-output/events.jsonl", "", 1),
}


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextlib.contextmanager
def _running(words: Sequence[str], folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a command in a folder, which gets its output and its temporary files; the block waits for its end."""
    (folder / "temporary").mkdir()
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "crucible_worker", *words],
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder / "temporary"), "XDG_STATE_HOME": str(folder / "state-home")},
            stdout=stdout,
            stderr=stderr,
            preexec_fn=_ignore_interrupts,
        )
    with process:
        try:
            yield process
            process.wait(WAIT_SECONDS)
        except BaseException:
            process.kill()
            raise


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A journal with an evaluation that runs for as long as the tests do."""
    folder = tmp_path_factory.mktemp("running")
    (folder / "stuck.py").write_text(STUCK)
    with _running((*EVALUATE, "--state-dir=state", "--id=stuck"), folder) as process:
        wait_until(lambda: (folder / "grading").exists() or process.poll() is not None, "the evaluation runs")
        yield folder / "state"
        process.terminate()
    assert process.returncode == 1, (folder / "stderr").read_text()


@pytest.mark.parametrize("name", CASES)
def test_a_command_that_ignores_interrupts_ends_by_sigterm(name: str, tmp_path: Path, state_dir: Path):
    """With its exit code, its processes and its temporary files; only `serve` and `view` end by SIGINT even then."""
    case = CASES[name]
    (tmp_path / "stuck.py").write_text(STUCK)
    (tmp_path / "state").symlink_to(state_dir)
    hard = [json.dumps({"gold": f"{HARD}+{n}", "pred": f"{HARD}+{n}+z"}) for n in range(5_000)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(hard))

    def ready() -> bool:
        # The draft of `grade` is there before the loop that handles signals; its processes come later.
        at_work = name != "grade" or processes_below(process.pid)
        return bool(at_work) and any(case.text in file.read_text() for file in tmp_path.glob(case.ready))

    with _running(case.words, tmp_path) as process:
        wait_until(lambda: ready() or process.poll() is not None, f"{name} is at work")
        below = processes_below(process.pid)
        for number in case.signals:
            process.send_signal(number)

    assert process.returncode == case.code, (tmp_path / "stderr").read_text()
    wait_until(lambda: not alive(below), "its processes have ended")
    assert list((tmp_path / "temporary").glob("crucible*")) == []
    assert list(tmp_path.glob(".graded*")) == []
