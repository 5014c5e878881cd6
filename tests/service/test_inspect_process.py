"""The process of a task of Inspect: what it may ask, what it gets of the worker's, and that nothing of it is left."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import BackendError
from crucible_bridge.events import Event, EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluationState, EvaluatorSpec, Limits, Sample, Verdict
from crucible_worker.evaluators.inspect import evaluator, files, process
from crucible_worker.evaluators.inspect.process import MAX_QUESTIONS, run_in_process
from tests.processes import is_alive
from tests.service.evaluation_kit import HeldModel, asked, rig, samples_of
from tests.tables import rows

REAL_HOST = process._HOST

GONE_SECONDS = 10.0
"""For the kernel to take a killed process away, on a machine that has other things to do; a bound, no expectation."""


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where tasks have their folders; their processes follow the script of `scripted_host`."""
    monkeypatch.setattr(process, "_HOST", "tests.inspect_tasks.scripted_host")
    paths = (Path(__file__).parents[2], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def _said(question: Any) -> dict[str, Any]:
    return {"said": question["text"].upper()}


async def _run(task: str, answer: Any = _said, **order: Any) -> dict[str, Any]:
    return await run_in_process({"task": task, **order}, answer, network=False)


async def _gone(pid: int) -> None:
    async with asyncio.timeout(GONE_SECONDS):
        while is_alive(pid):
            await asyncio.sleep(0.005)


async def test_questions_are_answered_side_by_side(folders: Path) -> None:
    """Each answer reaches the question that it belongs to, whatever the order, and the folder is gone at the end."""
    waiting = asyncio.Event()

    async def answer(question: Any) -> dict[str, Any]:
        if question["text"] == "a":
            await waiting.wait()
        else:
            waiting.set()
        return await _said(question)

    assert await _run("ask", answer, texts=["a", "b\ud800"]) == {"op": "found", "answers": ["A", "B\ud800"]}
    assert list(folders.iterdir()) == []


async def test_the_last_word_ends_it_whatever_is_still_asked() -> None:
    """A question that the task no longer waits for is taken back."""
    asked, taken_back = asyncio.Event(), asyncio.Event()

    async def answer(question: Any) -> dict[str, Any]:
        if question["text"] == "once":
            await asked.wait()
            return {"said": ""}
        asked.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            taken_back.set()

    assert await _run("stop asking", answer) == {"op": "found"}
    async with asyncio.timeout(GONE_SECONDS):
        await taken_back.wait()


async def test_one_that_is_stopped_has_the_last_word() -> None:
    """The process receives the request to stop, and ends with what it has by then."""
    stop = asyncio.Event()

    async def answer(question: Any) -> dict[str, Any]:
        stop.set()
        return await _said(question)

    found = await run_in_process({"task": "stop when told"}, answer, network=False, stop=stop)

    assert found == {"op": "found", "stopped": True}


async def test_it_tells_how_far_it_is() -> None:
    """As often as it likes, before and between its questions."""
    told: list[tuple[int, int]] = []

    await run_in_process({"task": "count"}, _said, network=False, count=lambda *counts: told.append(counts))

    assert told == [(0, 2), (1, 2), (2, 2)]


@rows(
    "counts",
    [
        {"done": 3, "total": 2},
        {"done": -1, "total": 2},
        {"done": 0, "total": MAX_QUESTIONS + 1},
        {"done": 0.5, "total": 2},
        {"done": True, "total": True},
        {"done": "1", "total": 2},
        {"done": 1},
        {},
    ],
)
async def test_counts_that_are_none_are_refused(counts: dict[str, Any]) -> None:
    """They would stand in the journal's events; a task's process is not the worker's."""
    with pytest.raises(BackendError) as caught:
        await _run("count badly", count=counts)

    assert (caught.value.reason, caught.value.retryable) == ("INSPECT_PROTOCOL", False)


@rows(("task", "fails"), [("ask", False), ("exit", True), ("speak of nothing", True)])
async def test_what_it_wrote_is_looked_at_once_whatever_its_end(folders: Path, task: str, fails: bool) -> None:
    """After the end of its process, and before its folder is removed."""
    looked: list[bool] = []

    def keep(logs: Path) -> None:
        looked.append(logs.parent.is_dir() and logs.parent.parent == folders)

    with pytest.raises(BackendError) if fails else contextlib.nullcontext():
        await run_in_process({"task": task, "texts": []}, _said, network=False, keep=keep)

    assert looked == [True]
    assert list(folders.iterdir()) == []


async def test_nothing_of_the_worker_reaches_it_but_what_is_named(
    monkeypatch: pytest.MonkeyPatch, folders: Path
) -> None:
    """Neither keys nor tokens, whatever they are called, and it writes into its own folder."""
    for name in ("TINKER_API_KEY", "HF_TOKEN", "CRUCIBLE_TOKEN_FILE", "HTTPS_PROXY", "INSPECT_EVAL_MODEL"):
        monkeypatch.setenv(name, "canary-5d1e")
    monkeypatch.setenv("HF_HOME", "/cache")

    found = await _run("environment")

    variables = found["variables"]
    assert "canary-5d1e" not in str(variables)
    assert (variables["HF_HOME"], variables["HF_HUB_OFFLINE"], variables["HF_HUB_DISABLE_IMPLICIT_TOKEN"]) == (
        "/cache",
        "1",
        "1",
    )
    folder = Path(found["folder"])
    assert folder.parent == folders
    assert ".env" in found["files"]
    places = ("TMPDIR", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "INSPECT_CACHE_DIR", "INSPECT_LOG_DIR")
    own = [variables[name] for name in places]
    assert all(Path(path).is_relative_to(folder) for path in own)


async def test_the_network_is_asked_for_data_where_the_worker_may() -> None:
    """As for the worker's own data sets."""
    found = await run_in_process({"task": "environment"}, _said, network=True)

    assert not {"HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"} & found["variables"].keys()


async def test_one_that_ends_too_early_is_told_of() -> None:
    """With its exit status, as something that may go better another time."""
    with pytest.raises(BackendError, match="exit status 3") as caught:
        await _run("exit")

    assert (caught.value.reason, caught.value.retryable) == (Reason.INSPECT_ENDED, True)


async def test_inspect_that_cannot_be_imported_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what Python says: nothing that the process prints is read."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "inspect_ai.py").write_text("raise ImportError('half installed')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'path'}:{os.environ['PYTHONPATH']}")
    monkeypatch.setattr(process, "_HOST", REAL_HOST)

    assert await _run("any") == {"op": "failed", "message": "ImportError: half installed"}


async def test_one_that_is_killed_takes_along_what_it_started(folders: Path) -> None:
    """Though that holds its line open."""
    started: list[int] = []

    async def answer(question: Any) -> dict[str, Any]:
        started.append(question["pid"])
        return {}

    with pytest.raises(BackendError, match="signal 9"):
        await _run("leave a process", answer)

    await _gone(started[0])
    assert list(folders.iterdir()) == []


async def test_a_cancel_ends_one_that_hears_nothing() -> None:
    """Killed before anything is waited for."""
    hanging: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def answer(question: Any) -> dict[str, Any]:
        hanging.set_result(question["pid"])
        return {}

    task = asyncio.create_task(_run("hang", answer))
    pid = await hanging
    assert is_alive(pid)

    task.cancel()
    # Killed in the turn of the loop in which it is cancelled: whoever waits for it no longer finds it at work.
    await asyncio.sleep(0)

    await _gone(pid)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("task", ["speak of too much", "speak no JSON", "speak of nothing"])
async def test_nonsense_is_refused(task: str) -> None:
    """It would be the same another time."""
    with pytest.raises(BackendError) as caught:
        await _run(task)

    assert (caught.value.reason, caught.value.retryable) == ("INSPECT_PROTOCOL", False)


async def test_a_bug_in_answering_is_told_as_one() -> None:
    """The task does not wait for ever for an answer that nobody gives."""

    async def answer(question: Any) -> dict[str, Any]:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        await _run("ask", answer, texts=["a"])


async def test_one_that_cannot_be_started_is_told_of(monkeypatch: pytest.MonkeyPatch, folders: Path) -> None:
    """As something that may go better another time; nothing is left of it."""
    monkeypatch.setattr(sys, "executable", "/no/python")

    with pytest.raises(BackendError, match="cannot be started") as caught:
        await _run("ask", texts=[])

    assert (caught.value.reason, caught.value.retryable) == ("INSPECT_NOT_STARTED", True)
    assert list(folders.iterdir()) == []


async def test_what_it_finds_becomes_the_result_of_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a worker: the order holds options and sampling, the model is asked, every metric has its key."""
    monkeypatch.setattr(evaluator, "missing_extra", lambda: "")
    root = tmp_path / "root"
    root.mkdir()
    (root / "words.py").touch()
    spec = EvaluatorSpec(kind="inspect", name="i", options={"limit": 3, "task_args": {"x": 1}})
    sample = Sample(id="w", input="words.py@findings", metadata={"task_args": '{"y": [2]}', "epochs": "2"})

    async with rig(None, inspect_roots=[root]) as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[spec], dataset=[sample]))
        (result,) = await samples_of(r.worker.bridge)
        open_ended = asked(evaluation_id="o", evaluators=[spec], dataset=[sample], sampling=None)
        await r.evaluation.evaluate(open_ended)
        (other,) = await samples_of(r.worker.bridge, "o")

    assert evaluation.metrics.values == {
        "i/findings/samples": 1,
        "i/findings/errored_samples": 0,
        "i/findings/truncated_samples": 0,
        "i/findings/s/m": 0.5,
    }
    assert set(evaluation.metrics.undefined) == {"i/findings/s/none"}
    assert (result.verdict, result.score, result.method) == (Verdict.MEASURED, 0.5, "findings")
    assert (result.extracted, result.stop_reason, result.output_tokens, result.attempts) == ("s/m", "stop", 3, 1)
    ((record,), (open_record,)) = (json.loads(each.output)["samples"] for each in (result, other))
    assert record["said"] == "ABC"
    order = record["order"]
    assert order["task"] == f"{root / 'words.py'}@findings"
    assert (order["limit"], order["epochs"], order["task_args"], order["own_args"]) == (3, 2, {"x": 1, "y": [2]}, ["y"])
    assert order["config"] == {"temperature": 0.0, "max_tokens": 8, "top_p": 1.0}
    assert open_record["order"]["config"] == {}
    assert open_record["order"]["defaults"] == {"temperature": 1.0, "max_tokens": 1_000}
    assert open_record["order"]["metadata"] == {}


async def test_seed_answers_and_metadata_pass_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To Inspect, whose steps go before them; the request's sampling rules over all but these."""
    monkeypatch.setattr(evaluator, "missing_extra", lambda: "")
    (tmp_path / "words.py").touch()
    options = {"num_choices": 3, "seed": 11, "metadata": {"run": "7", "split": "mine"}}
    sample = Sample(input="words.py@findings", metadata={"limit": "1", "split": "test", "level": "hard"})

    async with rig(None, inspect_roots=[tmp_path]) as r:
        spec = EvaluatorSpec(kind="inspect", options=options)
        await r.evaluation.evaluate(asked(evaluators=[spec], dataset=[sample]))
        (result,) = await samples_of(r.worker.bridge)

    (record,) = json.loads(result.output)["samples"]
    order = record["order"]
    assert order["defaults"] == {"temperature": 1.0, "max_tokens": 1_000, "num_choices": 3, "seed": 11}
    assert order["metadata"] == {"run": "7", "split": "mine", "level": "hard"}


async def test_questions_show_as_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the task, which is one sample, is at work: an event says how many of its questions are done."""
    monkeypatch.setattr(evaluator, "missing_extra", lambda: "")
    (tmp_path / "words.py").touch()
    spec = EvaluatorSpec(kind="inspect")

    async with rig(HeldModel(), inspect_roots=[tmp_path]) as r:
        await r.evaluation.start_evaluation(asked(evaluators=[spec], dataset=[Sample(input="words.py@counts")]))
        seen = await r.told(EventKind.EVALUATION_PROGRESS)
        r.model.let_go.set()
        evaluation = await r.ended("e")

    assert (seen.measurements["questions_done"], seen.measurements["questions_total"]) == (3, 7)
    assert (seen.measurements["done"], seen.measurements["total"]) == (0, 1)
    assert seen.measurements["samples_per_second"] == 0
    assert evaluation.state is EvaluationState.COMPLETED


async def test_questions_of_several_tasks_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that have begun; those of samples that are one question each are not counted so."""
    monkeypatch.setattr(evaluator, "missing_extra", lambda: "")
    (tmp_path / "words.py").touch()
    samples = [Sample(id=name, input="words.py@counts") for name in "ab"]

    def all_asked(event: Event) -> bool:
        return event.measurements.get("questions_total") == 14

    async with rig(HeldModel(), inspect_roots=[tmp_path], max_inspect_tasks=2) as r:
        await r.evaluation.start_evaluation(asked(evaluators=["inspect"], dataset=samples))
        seen = await r.recorder.wait_for(all_asked)
        r.model.let_go.set()
        await r.ended("e")

    assert seen.measurements["questions_done"] == 6


async def test_a_log_is_kept_on_request_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the state directory, for each evaluator; it goes when the evaluation is forgotten."""
    monkeypatch.setattr(evaluator, "missing_extra", lambda: "")
    (tmp_path / "words.py").touch()
    state_dir = tmp_path / "state"
    specs = [
        EvaluatorSpec(kind="inspect", name=name, options={"keep_log": keep})
        for name, keep in (("a", True), ("b", True), ("c", False))
    ]
    sample = Sample(id="s", input="words.py@logs")

    async with rig(None, inspect_roots=[tmp_path], state_dir=state_dir) as r:
        await r.evaluation.evaluate(asked(evaluators=specs, dataset=[sample]))
        told = [json.loads(result.output) for result in await samples_of(r.worker.bridge)]
    kept = [state_dir / each["log"] for each in told if "log" in each]
    assert len(set(kept)) == 2
    assert "log" not in told[2]
    assert all(zipfile.is_zipfile(path) and path.is_relative_to(state_dir / "kept") for path in kept)

    forgetful = {"evaluation_retention_seconds": 1e-6, "retention_grace_seconds": 0}
    async with rig(None, inspect_roots=[tmp_path], state_dir=state_dir, **forgetful):
        async with asyncio.timeout(GONE_SECONDS):
            while list((state_dir / "kept").iterdir()):
                await asyncio.sleep(0.01)


async def test_the_log_of_a_task_that_is_cancelled_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that had been scored, as far as Inspect wrote it down; the evaluation has no result that names it."""
    monkeypatch.setattr(evaluator, "missing_extra", lambda: "")
    (tmp_path / "words.py").touch()
    state_dir = tmp_path / "state"
    spec = EvaluatorSpec(kind="inspect", options={"keep_log": True, "task_args": {"hang": True}})

    async with rig(HeldModel(), inspect_roots=[tmp_path], state_dir=state_dir) as r:
        await r.evaluation.start_evaluation(asked(evaluators=[spec], dataset=[Sample(input="words.py@logs")]))
        await r.model.asked.wait()
        await r.evaluation.cancel_evaluation("e")
        evaluation = await r.ended("e")
        async with asyncio.timeout(GONE_SECONDS):
            while not list(state_dir.glob("kept/*/0/logs-*.eval")):
                await asyncio.sleep(0.01)

    assert evaluation.state is EvaluationState.CANCELLED


async def test_the_default_time_of_a_sample_does_not_bound_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process alone takes longer to start than a sample may take by default here."""
    monkeypatch.setattr(evaluator, "missing_extra", lambda: "")
    (tmp_path / "words.py").touch()

    async with rig(None, inspect_roots=[tmp_path], default_sample_timeout_seconds=0.001) as r:
        request = asked(evaluators=["inspect"], dataset=[Sample(input="words.py@findings")])
        evaluation = await r.evaluation.evaluate(request)

    assert evaluation.metrics.values["findings/s/m"] == 0.5


async def test_what_was_scored_stands_when_the_time_of_a_task_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample is an ERROR, and its metrics and records are those of what had ended."""
    monkeypatch.setattr(evaluator, "missing_extra", lambda: "")
    (tmp_path / "words.py").touch()
    limits = Limits(sample_timeout_ms=500, max_unscored_share=1.0)

    async with rig(None, inspect_roots=[tmp_path]) as r:
        request = asked(evaluators=["inspect"], dataset=[Sample(input="words.py@stops")], limits=limits)
        evaluation = await r.evaluation.evaluate(request)
        (result,) = await samples_of(r.worker.bridge)

    assert result.problem is not None
    assert (result.verdict, result.score, result.problem.reason) == (Verdict.ERROR, None, "SAMPLE_TIMEOUT")
    assert len(json.loads(result.output)["samples"]) == 1
    assert evaluation.metrics.values["stops/s/m"] == 0.5
    assert evaluation.metrics.values["stops/samples"] == 1


@pytest.mark.torture
async def test_what_was_scored_stands_at_the_deadline_of_the_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shortly before it the task stops, and the evaluation completes with what there is; it waits for 18 s."""
    monkeypatch.setattr(evaluator, "missing_extra", lambda: "")
    (tmp_path / "words.py").touch()
    limits = Limits(deadline_ms=20_000, max_unscored_share=1.0)

    async with rig(None, inspect_roots=[tmp_path]) as r:
        request = asked(evaluators=["inspect"], dataset=[Sample(input="words.py@stops")], limits=limits)
        evaluation = await r.evaluation.evaluate(request)
        (result,) = await samples_of(r.worker.bridge)

    assert result.problem is not None
    assert (evaluation.state, result.problem.reason) == (EvaluationState.COMPLETED, "DEADLINE_EXCEEDED")
    assert evaluation.metrics.values["stops/s/m"] == 0.5


async def test_it_dies_with_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a SIGKILL of the worker, too, which closes nothing in order; its folder is removed before the next task."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(files, "UNHELD_SECONDS", 0.0)
    pid_file = tmp_path / "pid"
    program = f"""
import asyncio, pathlib, sys
from crucible_worker.evaluators.inspect import process
process._HOST = "tests.inspect_tasks.scripted_host"
async def answer(question):
    pathlib.Path({str(pid_file)!r}).write_text(str(question["pid"]))
    print(flush=True)
    return {{}}
asyncio.run(process.run_in_process({{"task": "hang"}}, answer, network=False))
"""
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert worker.stdout is not None
    assert await worker.stdout.readline()
    pid = int(pid_file.read_text())
    assert is_alive(pid)
    (left,) = tmp_path.glob("crucible-inspect-*")
    files.remove_abandoned()
    assert left.is_dir()

    worker.send_signal(signal.SIGKILL)

    await worker.wait()
    await _gone(pid)
    assert left.is_dir()
    assert await _run("ask", texts=["a"]) == {"op": "found", "answers": ["A"]}
    assert not left.exists()


def test_folders_of_others_stay(folders: Path) -> None:
    """One that is so young that its lock may be to come, a link, a file, and what has another name."""
    elsewhere = folders / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (folders / "crucible-inspect-link").symlink_to(elsewhere)
    (folders / "crucible-inspect-file").touch()
    young, old = folders / "crucible-inspect-young", folders / "crucible-inspect-old"
    for folder in (young, old):
        folder.mkdir(mode=0o700)
        (folder / "file").touch()
    long_ago = time.time() - files.UNHELD_SECONDS - 1
    for path in (old, elsewhere, folders / "crucible-inspect-file"):
        os.utime(path, (long_ago, long_ago))

    files.remove_abandoned()

    names = {path.name for path in folders.iterdir()}
    assert names == {"elsewhere", "crucible-inspect-link", "crucible-inspect-file", "crucible-inspect-young"}
    assert (young / "file").is_file()
