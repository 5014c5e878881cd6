"""`crucible-worker evaluate` that is ended by a signal, and a second one that asked for the same evaluation."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.types import EvaluationState
from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.cli.evaluate import EvaluateOptions
from crucible_worker.cli.requests import evaluations_to_run
from crucible_worker.cli.running import EvaluationRun, NotRun, run
from crucible_worker.config import Settings
from crucible_worker.evaluations import Evaluations
from crucible_worker.journal.schema import JOURNAL_FILE
from tests import needs
from tests.service.logging_kit import restored_logging
from tests.service.openai_kit import Fault, Request, ScriptedServer, shout

pytestmark = needs.installed("aiohttp")

TYPED = EvaluateOptions(
    model=("openai:held/model",),
    data="jsonl:sums.jsonl",
    evaluator=("accuracy",),
    evaluation_id="run-7",
)
SUITE = """
name = "two"

[[evaluations]]
name = "sums"
dataset = "jsonl:sums.jsonl"
evaluators = ["accuracy"]
sampling = { max_tokens = 8 }

[[evaluations]]
name = "held"
dataset = "jsonl:held.jsonl"
evaluators = ["accuracy"]
sampling = { max_tokens = 8 }
"""
ONE = (f"--data={TYPED.data}", "--evaluator=accuracy")
KEPT = ("--state-dir=state", f"--id={TYPED.evaluation_id}")


@pytest.fixture(autouse=True)
def logging_of_a_command() -> Iterator[None]:
    """What runs here as in a process of its own configures logging as a command does."""
    with restored_logging():
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the data lies and the journal is kept; temporary files have a folder of their own there."""
    (tmp_path / "sums.jsonl").write_text('{"input": "a", "target": "A"}\n')
    (tmp_path / "temporary").mkdir()
    return tmp_path


def _port(server: ScriptedServer) -> int:
    """The port of a server that has ended: at another address it would be another server."""
    return int(server.url.removesuffix("/v1").rpartition(":")[2])


async def _started(
    folder: Path,
    url: str,
    *arguments: str,
    command: Sequence[str] | None = None,
    stderr: int = asyncio.subprocess.PIPE,
) -> asyncio.subprocess.Process:
    evaluate = ("evaluate", f"--model={TYPED.models[0]}", f"--openai-server=held={url}", *arguments)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "crucible_worker", *(evaluate if command is None else command)),
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "temporary")},
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
    )


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 1), (signal.SIGINT, 130)])
@pytest.mark.parametrize("kept", [True, False])
async def test_a_command_that_is_ended_says_so_and_leaves_nothing(
    number: signal.Signals, expected: int, kept: bool, folder: Path
):
    """With --no-keep no journal stays behind; otherwise it says how to resume the evaluation."""
    arguments = (*ONE, *KEPT) if kept else (*ONE, "--no-keep")
    async with ScriptedServer(lambda request: Fault.STALL).serving() as server:
        process = await _started(folder, server.url, *arguments)
        await server.stalled.wait()
        process.send_signal(number)
        output, errors = await process.communicate()

    said = "crucible-worker: ended before all was evaluated" + ("; the same command resumes it" if kept else "")
    assert (process.returncode, output) == (expected, b"")
    assert errors.decode().splitlines()[-1] == said
    assert list((folder / "temporary").iterdir()) == []


async def test_an_evaluation_without_an_id_can_be_resumed(folder: Path):
    """What a command says when it is ended names the id that was made for it."""
    async with ScriptedServer(lambda request: Fault.STALL).serving() as server:
        first = await _started(folder, server.url, *ONE, "--state-dir=state")
        await server.stalled.wait()
        first.terminate()
        _, errors = await first.communicate()
    said = errors.decode().splitlines()[-1]
    again = re.fullmatch(r".*; the same command with (--id model-sums-[\w-]+) resumes it", said)
    assert again is not None, said
    async with ScriptedServer(shout).serving(port=_port(server)) as server:
        second = await _started(folder, server.url, *ONE, "--state-dir=state", *again[1].split(), "--json")
        output, errors = await second.communicate()

    assert second.returncode == 0, errors
    assert json.loads(output)["evaluation_id"] == again[1].removeprefix("--id ")


@pytest.mark.parametrize(("number", "held"), [(signal.SIGTERM, 0), (signal.SIGINT, 1)])
async def test_what_ctrl_c_has_ended_waits_for_a_command(number: signal.Signals, held: int, folder: Path):
    """No worker of the journal resumes behind its user what the user has ended; `resume` runs the rest."""
    async with ScriptedServer(lambda request: Fault.STALL).serving() as server:
        first = await _started(folder, server.url, *ONE, *KEPT)
        await server.stalled.wait()
        first.send_signal(number)
        await first.communicate()
    with contextlib.closing(sqlite3.connect(folder / "state" / JOURNAL_FILE)) as journal:
        assert journal.execute("SELECT held FROM resumptions").fetchall() == [(held,)]
    which = "run-7" if held else "--all-interrupted"
    async with ScriptedServer(shout).serving(port=_port(server)) as server:
        command = ("resume", which, "--state-dir=state", f"--openai-server=held={server.url}")
        second = await _started(folder, server.url, command=command)
        output, errors = await second.communicate()
        third = await _started(folder, server.url, command=("resume", "--all-interrupted", "--state-dir=state"))
        nothing, _ = await third.communicate()

    assert second.returncode == 0, errors
    assert "accuracy 100.0 %" in output.decode()
    assert (third.returncode, nothing) == (0, b"")


async def test_a_time_limit_ends_an_evaluation(folder: Path):
    """It is cancelled, and the command fails and names the option, wherever the time was spent."""
    async with ScriptedServer(lambda request: Fault.STALL).serving() as server:
        process = await _started(folder, server.url, *ONE, "--no-keep", "--timeout=3")
        output, errors = await process.communicate()

    assert process.returncode == 1
    assert re.search(r"--timeout( 3 is over, all attempts together| was over before )", (output + errors).decode())


STUCK = """
import asyncio
from crucible_worker.evaluators.declared import AnswerEvaluator

class Stuck(AnswerEvaluator, keys={"stuck": "fraction of 1"}):
    \"\"\"Grades for ever.\"\"\"

    async def judge(self, answer, sample):
        await asyncio.Event().wait()
"""


@pytest.mark.parametrize(
    ("answers", "evaluator", "phase"),
    [
        (lambda request: Fault.STALL, "accuracy", b" preparing the model "),
        (lambda request: Fault.STALL if request.method == "POST" else shout(request), "accuracy", b" asking "),
        (shout, "stuck.py:Stuck", b" grading "),
    ],
    ids=["loading", "asking", "grading"],
)
async def test_a_terminal_shows_what_is_done(
    answers: Callable[[Request], Any], evaluator: str, phase: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """A server that is silent, a query that is not answered, and a judge that does not end are different phases."""
    (folder / "stuck.py").write_text(STUCK)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    terminal, its_end = os.openpty()
    async with ScriptedServer(answers).serving() as server:
        process = await _started(
            folder, server.url, f"--data={TYPED.data}", f"--evaluator={evaluator}", "--no-keep", stderr=its_end
        )
        os.close(its_end)
        painted = b""
        while phase not in painted:
            read = asyncio.get_running_loop().run_in_executor(None, os.read, terminal, 65_536)
            painted += await asyncio.wait_for(read, 60)
        process.kill()
        await process.communicate()
    os.close(terminal)


async def test_a_resumed_evaluation_says_so_before_its_model_is_loaded(folder: Path):
    """The model of a second run may take its time to load: what is done of the evaluation is shown first."""
    (folder / "sums.jsonl").write_text('{"input": "a", "target": "A"}\n{"input": "b", "target": "B"}\n')
    async with ScriptedServer(lambda request: Fault.STALL).serving() as server:
        first = await _started(folder, server.url, *ONE, *KEPT)
        await server.stalled.wait()
        first.kill()
        await first.communicate()
    async with ScriptedServer(shout).serving(port=_port(server)) as server:
        second = await _started(folder, server.url, *ONE, *KEPT)
        _, errors = await second.communicate()

    lines = errors.decode().splitlines()
    assert second.returncode == 0, lines
    assert lines[0] == f"{TYPED.models[0]}: resuming: preparing the model, 0 of 2 done"


async def test_what_of_a_suite_has_ended_is_told(folder: Path):
    """Hours of work are not lost with the one that is interrupted."""
    (folder / "two.toml").write_text(SUITE)
    (folder / "held.jsonl").write_text('{"input": "b", "target": "B"}\n')
    async with ScriptedServer(
        lambda request: shout(request) if _is_first(request) else Fault.STALL
    ).serving() as server:
        process = await _started(folder, server.url, "--suite=two.toml", "--json")
        await server.stalled.wait()
        process.send_signal(signal.SIGTERM)
        output, _ = await process.communicate()

    assert process.returncode == 1
    (told,) = json.loads(output)["evaluations"]
    assert (told["name"], told["metrics"]["sums/accuracy"]) == ("sums", 1.0)


def _is_first(request: Request) -> bool:
    return request.method != "POST" or request.text == "a"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_second_one_goes_on_where_the_first_is_ended(
    number: signal.Signals, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """The same command twice at once is one evaluation; whoever is left finishes it."""
    found: list[EvaluationState] = []
    start = Evaluations.start

    async with ScriptedServer(lambda request: Fault.STALL).serving() as server:
        first = await _started(folder, server.url, *ONE, *KEPT)
        await server.stalled.wait()

        async def started(self: Evaluations, *arguments, **named):
            evaluation, existed = await start(self, *arguments, **named)
            if not found:
                server.script = shout
                first.send_signal(number)
            found.append(evaluation.state)
            return evaluation, existed

        monkeypatch.setattr(Evaluations, "start", started)
        settings = Settings(
            state_dir=folder / "state",
            data_roots=(folder,),
            endpoints=(OpenAIServer(name="held", base_url=server.url),),
        ).validate()
        _, asked = evaluations_to_run(TYPED)
        ended: list[EvaluationRun | NotRun] = []
        await run(settings, asked, TYPED.evaluator, ended, quiet=True)
        await first.communicate()

    (ran,) = ended
    assert isinstance(ran, EvaluationRun)
    assert found[0] is EvaluationState.RUNNING
    assert (ran.evaluation.state, ran.evaluation.metrics.values["accuracy"]) == (EvaluationState.COMPLETED, 1.0)
