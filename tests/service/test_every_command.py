"""Every command of `crucible-worker` once, as a process, on the journal of a small run of embedded models."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import typer.core
import typer.main

import crucible_bridge
from crucible_bridge.types import BuiltinDataset, Dataset, Limits, SamplingParams
from crucible_worker.cli import app
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from crucible_worker.util.limits import WorkerLimits
from tests.service.processes_kit import WAIT_SECONDS, serving

pytestmark = pytest.mark.core

RUN = "training"
STEPS = (320, 600)
OPEN = ("first", "to-pause", "to-bound", "to-cancel", "to-resume")
"""Evaluations that were interrupted; all but the first had not begun."""
MODEL = ("--model=embedded:arithmetic@600", "--data=builtin:arithmetic")
HERE = "--state-dir=state"
POLICY = '[[metrics]]\nkey = "accuracy"\nmax_drop = 0.5\nmin_n = 10\n'


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Case:
    """A command that ends by itself, and its end."""

    words: Sequence[str]
    """What follows its name; with `HERE` it runs where the journal is, otherwise in an empty folder."""
    given: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Files that it reads, with their texts."""
    out: str = ""
    """A regular expression, which fits a part of stdout."""
    err: str = ""
    """The beginning of stderr."""
    file: str = ""
    """What it writes, if it writes a file."""
    text: str = ""
    """A part of that file."""
    code: int = 0
    """The exit code."""


ENDS: Mapping[str, _Case] = {
    "demo": _Case(
        words=("--samples=2", "--output=shown", "--json"),
        out=r'"step": 600, .*"sample_count": 2',
        file="shown/report.html",
        text="demo-step-600",
    ),
    "init": _Case(
        words=("started",),
        out=r"^started/suite\.toml: .*\n(?s:.*)  cd started\n  crucible-worker evaluate ",
        file="started/questions.jsonl",
        text='"target": "46"',
    ),
    "evaluate": _Case(
        words=(*MODEL, "--evaluator=nll", "--samples=10", "--id=new", HERE), out="nll 0.05062, 10 of 10 scored"
    ),
    "follow": _Case(
        words=("mine", "--data=builtin:arithmetic", "--evaluator=nll", "--exit-when-idle=0.1", HERE),
        err="no checkpoint was found in ",
    ),
    "show": _Case(words=("step-320", HERE), out=r"nll 0\.1171, 10 of 10 scored\naccuracy 90\.0 %"),
    "samples": _Case(
        words=("step-320", "--verdict=incorrect", "--jsonl", HERE),
        out=r'^\{.*"sample_id": "19\+11".*"targets": \["30"\]',
    ),
    "compare": _Case(
        words=("step-320", "step-600", HERE), out=r"step-600 against step-320, nll: mean 0\.06, difference -0\.06146"
    ),
    "runs": _Case(words=(HERE,), out=f"{RUN} .* 2 completed "),
    "best": _Case(
        words=(f"--run={RUN}", "--metric=nll", HERE),
        out=r"^best: step 600, embedded:arithmetic@600: nll 0\.0506.*\nworse: step 320, ",
    ),
    "report": _Case(words=(f"--run={RUN}", HERE), out=r"^report\.html\n$", file="report.html", text="step-320"),
    "watch": _Case(words=("step-320", HERE), out=r"^step-320: completed\n  nll 0\.1171, "),
    "pause": _Case(words=("to-pause", HERE), out="^to-pause: interrupted, paused\n$"),
    "resume": _Case(words=("to-resume", HERE), out=r"completed in [^\n]*\n(?s:.*)nll 0\.1171, 10 of 10 scored"),
    "concurrency": _Case(words=("to-bound", "3", HERE), out="^to-bound: interrupted, concurrency 3\n$"),
    "cancel": _Case(words=("to-cancel", "--reason=enough", HERE), out="^to-cancel: cancelled"),
    "export": _Case(
        words=("step-320", "--format=jsonl", "--output=rows.jsonl", HERE),
        out=r"^rows\.jsonl\n$",
        file="rows.jsonl",
        text='"sample_id": "23+74"',
    ),
    "prompt": _Case(words=(*MODEL, "--evaluator=accuracy"), out=r"--- accuracy: renderer raw, 6 tokens\n23\+74=\n"),
    "suites": _Case(words=("math",), out='name = "gsm8k"'),
    "evaluators": _Case(words=("pass_at_k", "--json"), out='"pass_at_k"'),
    "graders": _Case(words=("numeric", "--json"), out='"relative_tolerance"'),
    "grade": _Case(
        words=("--input=pairs.jsonl", "--output=graded.jsonl", "--processes=2"),
        given={"pairs.jsonl": '{"gold": "1/2", "pred": "0.5"}\n'},
        file="graded.jsonl",
        text='"verdict": "correct"',
    ),
    "doctor": _Case(words=("--port=0", "--json"), out='"ok": true'),
    "list": _Case(words=(f"--run={RUN}", "--json", HERE), out='"evaluation_id": "step-600"'),
    "gate": _Case(
        words=("--baseline=step-320", "--candidate=step-600", "--policy=gate.toml", HERE),
        given={"gate.toml": POLICY},
        out="^PASS: step-600 against step-320\n",
    ),
    "rm": _Case(words=("to-remove", "--yes", HERE), out="^to-remove: deleted, with 2 samples\n$"),
    # Refused before Ray is looked for, which need not be installed.
    "ray": _Case(words=("up",), err="crucible-worker: --journal is needed: the workers share ", code=2),
}
UNTIL_A_SIGNAL = ("serve", "health", "view")
"""Commands with a test each: `health` queries what `serve` serves."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the journal `state`, and without a checkpoint in `mine`."""
    folder = tmp_path_factory.mktemp("commands")
    asyncio.run(_evaluate(folder / "state"))
    (folder / "mine").mkdir()
    return folder


async def _evaluate(state_dir: Path) -> None:
    """Complete a run of two steps and an evaluation to remove, and interrupt others by the worker's end."""
    settings = Settings(
        port=0,
        state_dir=state_dir,
        grading_processes=0,
        code_sandboxes=0,
        limits=WorkerLimits(max_running_evaluations=1),
    )
    async with Worker(settings.validate()) as worker, crucible_bridge.connect(worker.address) as bridge:
        for evaluation_id, step, samples in (*((f"step-{step}", step, 10) for step in STEPS), ("to-remove", 600, 1)):
            await bridge.evaluation.evaluate(
                evaluation_id=evaluation_id,
                run_id=RUN if evaluation_id != "to-remove" else "",
                step=step,
                model=f"embedded:arithmetic@{step}",
                evaluators=["nll", "accuracy"],
                dataset=Dataset(source=BuiltinDataset("arithmetic"), limit=samples),
                sampling=SamplingParams(max_tokens=8),
            )
        for evaluation_id in OPEN:
            # Each of all samples takes a call of the model by itself: the first one still runs at the end.
            await bridge.evaluation.start_evaluation(
                evaluation_id=evaluation_id,
                model="embedded:arithmetic@320",
                evaluators=["nll"],
                dataset=Dataset(source=BuiltinDataset("arithmetic"), limit=None if evaluation_id == OPEN[0] else 10),
                limits=Limits(concurrency=1),
            )


def _environment(folder: Path) -> Mapping[str, str]:
    """Of a command: no settings of the user's, no journal of theirs, and lines that do not depend on a terminal."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CRUCIBLE_")}
    own = {"CRUCIBLE_GRADING_PROCESSES": "0", "CRUCIBLE_CODE_SANDBOXES": "0", "COLUMNS": "160"}
    return {**kept, **own, "XDG_STATE_HOME": str(folder / "state-home")}


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "crucible_worker", *words],
        cwd=folder,
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


def test_each_command_is_here() -> None:
    """A command that is added to the program needs a row, or a test, of this file."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)

    assert sorted(group.commands) == sorted([*ENDS, *UNTIL_A_SIGNAL])


@pytest.mark.parametrize("command", ENDS)
def test_a_command_ends_as_it_should(command: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """With its exit code, what it is for on stdout or in a file, and no traceback."""
    case = ENDS[command]
    folder: Path = request.getfixturevalue("folder") if HERE in case.words else tmp_path
    for name, text in case.given.items():
        (folder / name).write_text(text)

    done = _run(folder, command, *case.words)

    assert done.returncode == case.code, done.stderr
    assert re.search(case.out, done.stdout), done.stdout
    assert done.stderr.startswith(case.err)
    assert "Traceback" not in done.stderr
    assert case.text in ((folder / case.file).read_text("utf-8") if case.file else "")


def test_serve_and_health(tmp_path: Path) -> None:
    """A worker is ready once it has written its address; SIGTERM ends it with 0."""
    with serving(tmp_path) as (worker, address):
        health = _run(tmp_path, "health", f"--port={address.rpartition(':')[2]}")
        worker.send_signal(signal.SIGTERM)
        code = worker.wait(WAIT_SECONDS)

    assert (health.returncode, health.stdout, health.stderr) == (0, f"{address}: ready\n", "")
    assert code == 0


def test_view(folder: Path) -> None:
    """The address that it prints has the pages, and they have the run; Ctrl-C ends it with 130."""
    command = [sys.executable, "-m", "crucible_worker", "view", HERE]
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with subprocess.Popen(
        command, cwd=folder, env=_environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as view:
        try:
            assert view.stdout is not None
            address = view.stdout.readline().removeprefix("Open ").strip()
            with browser.open(address) as page:
                html = page.read().decode()
            with browser.open(f"{address.partition('?')[0]}api/index") as answer:
                index = json.load(answer)
            view.send_signal(signal.SIGINT)
            _, said = view.communicate(timeout=WAIT_SECONDS)
        finally:
            view.kill()

    assert str(folder / "state") in html
    assert RUN in json.dumps(index)
    assert (view.returncode, said) == (130, "")
