"""Commands that read evaluations, of a journal and of a worker: list, show, samples, compare, watch, cancel, rm."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import EvaluationState, EvaluatorSpec, Limits, Sample, SamplingParams
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from tests import commands
from tests.service.evaluation_kit import HeldModel

SAMPLES = [Sample(id=f"s{n}", input=f"in {n}", targets=("IN 1" if n % 2 else "IN 0",)) for n in range(4)]
MODELS = {
    "upper": ScriptedModel(),
    "one": ScriptedModel(answer=lambda prompt: "IN 1"),
}


class Result(NamedTuple):
    """What a command has said."""

    code: int
    out: str
    err: str


async def run(*words: str) -> Result:
    """Run a command in a process of its own, as people do."""
    done = await asyncio.to_thread(commands.run, *words)
    return Result(done.returncode, done.stdout, done.stderr)


async def evaluated(worker: RunningWorker) -> None:
    """Two evaluations of one run."""
    for step, model in ((1, "upper"), (2, "one")):
        await worker.bridge.evaluation.evaluate(
            evaluation_id=f"e{step}",
            run_id="run",
            step=step,
            model=f"embedded:{model}",
            evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
            dataset=SAMPLES,
            sampling=SamplingParams(max_tokens=8),
            labels={"branch": "main", "number": str(step)},
        )


@pytest.fixture(params=["--state-dir", "--address"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sequence[str]]:
    """The options that name where evaluations are: a journal that no worker has open, and a worker."""
    async with contextlib.AsyncExitStack() as running:
        worker = await running.enter_async_context(run_worker(MODELS, state_dir=tmp_path))
        await evaluated(worker)
        if request.param == "--state-dir":
            await running.aclose()
            yield ("--state-dir", str(tmp_path))
        else:
            yield ("--address", worker.address)


async def test_list_names_the_evaluations(place: Sequence[str]):
    """The newest first, each with its result in words; as JSON with every metric."""
    text = await run("list", *place)
    data = json.loads((await run("list", "--json", *place)).out)

    assert text.code == 0
    assert text.out.index("e2") < text.out.index("e1")
    assert [(one["evaluation_id"], one["run_id"], one["step"], one["state"], one["model"]) for one in data] == [
        ("e2", "run", 2, "completed", "embedded:one"),
        ("e1", "run", 1, "completed", "embedded:upper"),
    ]
    assert data[0]["metrics"]["accuracy"] == 0.5
    assert "accuracy_strict" not in text.out
    assert "accuracy_strict" in (await run("list", "--verbose", *place)).out
    assert json.loads((await run("list", "--json", "--limit", "1", *place)).out)[0]["evaluation_id"] == "e2"
    assert (await run("list", "--run", "other", *place)).out == "no evaluation matches\n"
    assert data[0]["labels"] == {"branch": "main", "number": "2"}
    assert (await run("list", "--state", "done", *place)).err.startswith(
        "crucible-worker: --state is 'done', must be one"
    )


async def test_list_finds_evaluations_by_their_labels(place: Sequence[str]):
    """All given labels must fit; --verbose shows them, with the data set."""

    async def listed(*labels: str) -> Sequence[str]:
        options = [part for label in labels for part in ("--label", label)]
        return [one["evaluation_id"] for one in json.loads((await run("list", "--json", *options, *place)).out)]

    verbose = await run("list", "--verbose", *place)

    assert await listed("branch=main") == ["e2", "e1"]
    assert await listed("branch=main", "number=1") == ["e1"]
    assert (await run("list", "--label", "branch=other", *place)).out == "no evaluation matches\n"
    assert "label number: 1" in verbose.out
    assert (await run("list", "--label", "branch", *place)).err.startswith(
        "crucible-worker: --label is 'branch', not KEY"
    )


async def test_show_says_the_result_in_a_sentence(place: Sequence[str]):
    """With its interval and how many were scored; --verbose adds every key."""
    brief = await run("show", "e2", *place)
    verbose = await run("show", "e2", "--verbose", *place)
    data = json.loads((await run("show", "e2", "--json", *place)).out)

    assert "accuracy 50.0 % (95 %: 15.0 to 85.0), 4 of 4 scored" in brief.out
    assert "accuracy_strict" not in brief.out
    assert "accuracy_strict" in verbose.out
    assert (data["evaluation_id"], data["metrics"]["accuracy"], data["evaluators"][0]["n"]) == ("e2", 0.5, 4)


async def test_samples_are_read_by_both_ways(place: Sequence[str]):
    """Of the verdict that is asked for."""
    found = await run("samples", "e2", "--verdict", "incorrect", "--jsonl", *place)

    rows = [json.loads(line) for line in found.out.splitlines()]
    assert [(row["sample_id"], row["output"], row["targets"]) for row in rows] == [
        ("s0", "IN 1", ["IN 0"]),
        ("s2", "IN 1", ["IN 0"]),
    ]


async def test_compare_says_the_difference(place: Sequence[str]):
    """With its interval, and which samples changed."""
    text = await run("compare", "e1", "e2", *place)
    data = json.loads((await run("compare", "--run", "run", "--json", *place)).out)

    assert text.out.startswith("e2 against e1, accuracy: mean 0.5, difference ")
    assert "worse: s0" in text.out
    assert "n_matched" not in text.out
    assert "\n  difference_stderr " in (await run("compare", "e1", "e2", "--verbose", *place)).out
    (difference,) = data["differences"]
    assert (difference["baseline_id"], difference["evaluation_id"], difference["n_matched"]) == ("e1", "e2", 4)
    assert [(change["sample_id"], change["input"]) for change in difference["regressions"]] == [("s0", "in 0")]


async def test_watch_of_what_has_ended_says_the_result(place: Sequence[str]):
    """At once, with the exit code of its state."""
    found = await run("watch", "e1", *place)

    assert found.code == 0
    assert found.out.splitlines()[0] == "e1: completed"
    assert (await run("watch", *place)).out == "nothing runs\n"


async def test_what_does_not_exist_is_named_as_it_was_typed(place: Sequence[str]):
    """By the command's own words, with exit code 2."""
    for words in (
        ("show", "gone"),
        ("samples", "gone"),
        ("watch", "gone"),
        ("cancel", "gone"),
        ("rm", "e1", "gone", "--yes"),
        ("compare", "e1", "gone"),
    ):
        found = await run(*words, *place)
        assert found.code == 2
        assert found.err.startswith("crucible-worker: ID")
        assert "'gone'" in found.err
        assert place[0] == "--address" or f"(read: {place[1]}; --state-dir names another)" in found.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare",), "give IDs of evaluations, or --run"),
        (("compare", "e1"), "ID is 'e1' alone: give two IDs or more"),
        (("compare", "e1", "--run", "run"), "give either IDs of evaluations or --run, not both"),
        (("rm",), "give IDs of evaluations, or --run"),
        (("rm", "e1", "--run", "run"), "give either IDs of evaluations or --run, not both"),
        (("rm", "e1"), "there is no terminal for the question whether to delete: --yes deletes without it"),
        (("list", "--token-file", "t"), "--token-file goes with --address"),
        (
            ("show", "e1", "--address", "127.0.0.1:1", "--state-dir", "d"),
            "--state-dir and --address exclude each other",
        ),
    ],
)
async def test_options_that_do_not_go_together_are_refused(words: Sequence[str], message: str):
    """With exit code 2, before anything is opened."""
    found = await run(*words)

    assert found.code == 2
    assert message in found.err


async def test_a_state_directory_without_a_journal_is_named(tmp_path: Path):
    """And nothing is made there."""
    found = await run("list", "--state-dir", str(tmp_path / "none"))

    assert found.code == 2
    assert f"{tmp_path / 'none'} has no journal" in found.err
    assert not (tmp_path / "none").exists()


async def test_watch_follows_to_the_end():
    """Line by line where there is no terminal; cancel ends what runs, and the watch with it."""
    held = HeldModel()
    async with run_worker({"held": held}) as worker:
        await worker.bridge.evaluation.start_evaluation(
            evaluation_id="slow",
            model="embedded:held",
            evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
            dataset=SAMPLES,
            sampling=SamplingParams(max_tokens=8),
            limits=Limits(concurrency=1),
        )
        place = ("--address", worker.address)
        watching = asyncio.create_task(run("watch", "slow", *place))
        while not json.loads((await run("list", "--json", "--state", "running", *place)).out):
            pass
        cancelled = await run("cancel", "slow", "--reason", "enough", *place)
        again = await run("cancel", "slow", *place)
        found = await watching

    assert cancelled.out == "slow: cancelled\n"
    assert again.out == "slow: had ended before: cancelled\n"
    assert found.code == 1
    assert found.out.splitlines()[-1] == "slow: cancelled, CANCELLED: enough"


async def test_ctrl_c_gives_a_terminal_back():
    """The cursor that a bar hides is shown again, and the evaluation continues."""
    held = HeldModel()
    async with run_worker({"held": held}) as worker:
        await worker.bridge.evaluation.start_evaluation(
            evaluation_id="slow",
            model="embedded:held",
            evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
            dataset=SAMPLES,
            sampling=SamplingParams(max_tokens=8),
        )
        ours, terminal = pty.openpty()
        watching = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "crucible_worker", "watch", "slow", "--address", worker.address),
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(terminal)
        shown = b""
        while b"running" not in shown:
            shown += await asyncio.wait_for(asyncio.to_thread(os.read, ours, 4096), 60)
        watching.send_signal(signal.SIGINT)
        while chunk := await asyncio.wait_for(asyncio.to_thread(_rest, ours), 60):
            shown += chunk
        code = await watching.wait()
        os.close(ours)
        state = (await worker.bridge.evaluation.get_evaluation("slow")).state
        held.let_go.set()

    assert code == 130
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l"), shown
    assert state is EvaluationState.RUNNING


def _rest(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the command has closed its end
        return b""


async def test_watch_shows_an_evaluator_when_it_has_ended():
    """Its metrics come before the evaluation's end, once; --verbose adds every key at the end."""
    held = HeldModel()
    async with run_worker({"held": held}) as worker:
        await worker.bridge.evaluation.start_evaluation(
            evaluation_id="two",
            model="embedded:held",
            evaluators=["nll", EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
            dataset=SAMPLES,
            sampling=SamplingParams(max_tokens=8),
        )
        watching = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "crucible_worker", "watch", "two", "--verbose", "--address", worker.address),
            stdout=subprocess.PIPE,
        )
        assert watching.stdout is not None
        before: list[str] = []
        while not before or not before[-1].startswith("two: nll "):
            before.append((await watching.stdout.readline()).decode())
            assert before[-1], before
        held.let_go.set()
        rest, _ = await watching.communicate()

    after = rest.decode().splitlines()
    assert before[-1].endswith(", 4 of 4 scored\n")
    assert "two: completed" in after
    assert sum("4 of 4 scored" in line for line in after) == 1
    assert any(line.startswith("  accuracy_stderr ") for line in after)


async def test_list_has_the_reason_of_a_failure(tmp_path: Path):
    """Its code alone, whether an evaluator or the whole evaluation failed; --verbose has the message, as show has."""
    broken = ScriptedModel(fault=lambda call: FailedPrecondition("is of no use at all", reason="BROKEN"))
    async with run_worker({"broken": broken, "held": HeldModel()}, state_dir=tmp_path) as worker:
        evaluation = worker.bridge.evaluation
        for name, call in (("broken", evaluation.evaluate), ("held", evaluation.start_evaluation)):
            await call(
                evaluation_id=name,
                model=f"embedded:{name}",
                evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
                dataset=SAMPLES,
                sampling=SamplingParams(max_tokens=8),
            )
        await evaluation.cancel_evaluation("held", "nobody waits for it")
    listed, verbose, data = [
        (await run("list", *words, "--state-dir", str(tmp_path))).out for words in ((), ("--verbose",), ("--json",))
    ]
    brief, whole = (" ".join(text.replace("│", " ").split()) for text in (listed, verbose))
    for reason, message in (("CANCELLED", "nobody waits"), ("UNSCORED", "is of no use")):
        assert reason in brief
        assert message not in brief
        assert message in whole
    assert [one["problem"] is not None for one in json.loads(data)] == [True, True]
