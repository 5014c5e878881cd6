"""A worker of the release before and one of this release at once, on one state directory.

The worker before runs from the sources of a commit, as git has them. Where there is no history, as in a source archive,
these tests are skipped.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import EvaluationState, Record
from tests.robustness.evidence import bits, check_interrupted_run, log_of, request, samples_of
from tests.robustness.harness import WorkerProcess, Workshop, count_lines, until, workshop

ROOT = Path(__file__).parent.parent.parent
RELEASE_BEFORE = "593254b"
"""The commit whose worker wrote no records yet."""
SAMPLES = 60
_FILTER: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.11.4


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> dict[str, str]:
    """The variables with which a worker of the release before is started."""
    folder = tmp_path_factory.mktemp("before")
    git = shutil.which("git")
    archive = git and subprocess.run(
        [git, "-C", str(ROOT), "archive", RELEASE_BEFORE, "bridge", "python_worker"], capture_output=True, check=False
    )
    if not archive or archive.returncode:
        pytest.skip(f"git or its commit {RELEASE_BEFORE} is missing (apt install git && git fetch --unshallow)")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, **_FILTER)
    assert not (folder / "python_worker" / "crucible_worker" / "runs" / "recording.py").exists()
    return {"PYTHONPATH": os.pathsep.join((str(folder / "bridge"), str(folder / "python_worker")))}


async def _start(shop: Workshop, environment: dict[str, str]) -> WorkerProcess:
    shop.environment = environment
    try:
        return await shop.start()
    finally:
        shop.environment = {}


@pytest.mark.parametrize("first", ["before", "this"])
async def test_each_reads_what_the_other_writes(tmp_path, before, first):
    """Whichever starts first: both evaluate, and each answers for the evaluations of the other."""
    async with workshop(tmp_path, {"m": {}}) as shop:
        if first == "before":
            older = await _start(shop, before)
            newer = await _start(shop, {})
        else:
            newer = await _start(shop, {})
            older = await _start(shop, before)
        by_older = await older.bridge.evaluation.evaluate(request("older", samples=SAMPLES))
        by_newer = await newer.bridge.evaluation.evaluate(request("newer", samples=SAMPLES))
        told_less = await newer.bridge.evaluation.evaluate(
            request("outputs", samples=SAMPLES, record=Record.OUTPUTS, labels={"a": "b"})
        )
        assert bits(by_older.metrics) == bits(by_newer.metrics) == bits(told_less.metrics)

        for evaluation_id in ("older", "newer", "outputs"):
            at_older = await older.bridge.evaluation.get_evaluation(evaluation_id)
            at_newer = await newer.bridge.evaluation.get_evaluation(evaluation_id)
            assert (at_older.state, bits(at_older.metrics)) == (EvaluationState.COMPLETED, bits(at_newer.metrics))
            assert at_older.request.labels == at_newer.request.labels
            read = [await samples_of(worker.bridge, evaluation_id) for worker in (older, newer)]
            assert [each.output for each in read[0]] == [each.output for each in read[1]]
            assert [each.sample for each in read[0]] == [None] * 2 * SAMPLES
            assert all((each.sample is not None) == (evaluation_id == "newer") for each in read[1])
        assert len((await older.bridge.evaluation.list_evaluations()).items) == 3


async def test_what_this_release_began_the_one_before_finishes(tmp_path, before):
    """The worker of this release is killed; the other one resumes, what was recorded stays, and the mixture is seen."""
    call_file = tmp_path / "calls"
    async with workshop(tmp_path, {"m": {"latency": 0.01, "call_file": str(call_file)}}) as shop:
        newer, older = await _start(shop, {}), await _start(shop, before)
        asked = request("shared", samples=SAMPLES, concurrency=4)
        await newer.bridge.evaluation.start_evaluation(asked)
        await until(lambda: count_lines(call_file) > 20)
        newer.kill()
        ended = await older.bridge.evaluation.evaluate(asked)
        assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 2)

        again = await _start(shop, {})
        assert (await again.bridge.evaluation.get_evaluation("shared")).rules_version == 0
        found = await samples_of(again.bridge, "shared")
        assert len(found) == 2 * SAMPLES
        recorded = [each for each in found if each.sample is not None]
        assert 0 < len(recorded) < len(found)
        assert all(each.sample is not None and each.sample.id == each.sample_id for each in recorded)


async def test_what_the_one_before_began_this_release_refuses(tmp_path, before):
    """The worker of the release before drains; this one measures by other rules, and says so."""
    call_file = tmp_path / "calls"
    async with workshop(tmp_path, {"m": {"latency": 0.01, "call_file": str(call_file)}}) as shop:
        older, newer = await _start(shop, before), await _start(shop, {})
        asked = request("shared", samples=SAMPLES, concurrency=4)
        await older.bridge.evaluation.start_evaluation(asked)
        await until(lambda: count_lines(call_file) > 20)
        older.terminate()
        assert await older.exit_code(30.0) == 0
        with pytest.raises(FailedPrecondition) as refused:
            await newer.bridge.evaluation.evaluate(asked)
        assert refused.value.reason == "RULES_CHANGED"
        left = await newer.bridge.evaluation.get_evaluation("shared")
        assert (left.state, left.attempt, left.rules_version) == (EvaluationState.INTERRUPTED, 1, 1)


async def test_a_lost_lock_gives_an_evaluation_to_one_of_them(tmp_path, before):
    """This release's worker stops when its lock file is gone: the one before, started then, runs the rest alone."""
    call_file = tmp_path / "calls"
    async with workshop(tmp_path, {"m": {"latency": 0.05, "call_file": str(call_file)}}) as shop:
        newer = await _start(shop, {})
        asked = request("shared", samples=SAMPLES, concurrency=1)
        await newer.bridge.evaluation.start_evaluation(asked)
        await until(lambda: count_lines(call_file) > 20)
        (shop.state_dir / "owners.lock").unlink()
        older = await _start(shop, before)
        ended = await older.bridge.evaluation.evaluate(asked)
        assert (ended.state, ended.attempt, ended.done) == (EvaluationState.COMPLETED, 2, 2 * SAMPLES)
        await until(lambda: "lock_file_was_replaced" in newer.log_file.read_text())
        check_interrupted_run(
            await log_of(newer.bridge), await newer.bridge.evaluation.get_evaluation("shared"), SAMPLES
        )
        assert count_lines(call_file) <= 2 * SAMPLES + 2
