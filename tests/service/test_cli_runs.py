"""`crucible-worker runs` and `best`, of a journal that no worker has open, and of a worker."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.types import EvaluatorSpec, Limits, SamplingParams
from crucible_worker.testing import RunningWorker, run_worker
from tests.service.patience_kit import SAMPLES, answering, models
from tests.service.test_cli_results import run

SHARES = {"a": 0.4, "b": 0.9, "c": 0.905}


async def evaluated(worker: RunningWorker, *names: str, **fields: Any) -> None:
    """Three steps of the run `training`, of which the last two cannot be told apart; or steps of these models."""
    for step, name in enumerate(names or SHARES, 1):
        await worker.bridge.evaluation.evaluate(
            evaluation_id=f"{names[0] if names else 'e'}{step}",
            run_id="training",
            step=step,
            model=f"embedded:{name}",
            evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
            dataset=SAMPLES,
            sampling=SamplingParams(max_tokens=8),
            labels={"trainer": "own"},
            **fields,
        )


@pytest.fixture(params=["--state-dir", "--address"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sequence[str]]:
    """The options that name where the run is."""
    async with contextlib.AsyncExitStack() as running:
        worker = await running.enter_async_context(run_worker(models(**SHARES), state_dir=tmp_path))
        await evaluated(worker)
        if request.param == "--state-dir":
            await running.aclose()
            yield ("--state-dir", str(tmp_path))
        else:
            yield ("--address", worker.address)


async def test_runs_and_their_checkpoints(place: Sequence[str]):
    """Tables name runs and checkpoints with a star at the best value; JSON has everything."""
    listed = await run("runs", *place)
    assert (listed.code, listed.err) == (0, "")
    assert "training" in listed.out
    assert "3, steps 1" in " ".join(listed.out.split())
    shown = await run("runs", "training", *place)
    assert (shown.code, shown.err) == (0, "")
    assert "0.905*" in shown.out
    assert "0.4*" not in shown.out
    (found,) = json.loads((await run("runs", *place, "--json")).out)
    assert (found["run_id"], found["checkpoints"], found["completed"]) == ("training", 3, 3)
    assert found["best"][0]["metric"] == "accuracy"
    assert (found["best"][0]["value"], found["best"][0]["step"], found["best"][0]["goal"]) == (0.905, 3, "higher")
    whole = json.loads((await run("runs", "training", *place, "--json")).out)
    assert [one["model"] for one in whole["checkpoint_list"]] == ["embedded:a", "embedded:b", "embedded:c"]
    assert whole["checkpoint_list"][0]["labels"] == {"trainer": "own"}
    (result,) = whole["checkpoint_list"][2]["results"]
    assert (result["evaluation_id"], result["state"], result["retained"]) == ("e3", "completed", True)
    assert "accuracy" in result["best"]


async def test_a_run_that_is_not_there(place: Sequence[str]):
    """Is refused as it was typed."""
    for words in (("runs", "nothing"), ("best", "--run", "nothing", "--metric", "accuracy")):
        found = await run(*words, *place)
        assert found.code == 2
        assert "is 'nothing': no evaluation is of this run" in found.err


async def test_the_best_is_named_with_what_is_tied(place: Sequence[str]):
    """Whatever the samples cannot tell from it is tied, not worse."""
    found = await run("best", "--run", "training", "--metric", "accuracy", *place)
    assert (found.code, found.err) == (0, "")
    best, tied, worse = found.out.splitlines()
    assert best == "best: step 3, embedded:c: accuracy 0.905, 200 of 200 scored, evaluation e3"
    assert tied.startswith("tied with it: step 2, embedded:b: 0.9, 200 of 200 scored, difference -0.005 (95 %: ")
    assert worse.startswith("worse: step 1, embedded:a: 0.4, 200 of 200 scored, difference -0.505 (95 %: ")
    data = json.loads((await run("best", "--run", "training", "--metric", "accuracy", "--json", *place)).out)
    assert (data["best"]["evaluation_id"], data["by"], data["goal"]) == ("e3", "paired", "higher")
    assert [one["step"] for one in data["tied"]] == [2]
    assert [one["step"] for one in data["worse"]] == [1]


async def test_a_checkpoint_of_few_scores_is_not_the_best(tmp_path: Path):
    """It is named with what is missing, and ranked if that is requested."""
    async with run_worker({**models(**SHARES), "few": answering(32, "few")}, state_dir=tmp_path) as worker:
        await evaluated(worker)
        await evaluated(worker, "few", limits=Limits(max_unscored_share=1.0))
    words = ("best", "--run", "training", "--metric", "accuracy", "--state-dir", str(tmp_path))
    best, *_, left_out = (await run(*words)).out.splitlines()
    assert best.startswith("best: step 3, embedded:c: accuracy 0.905, 200 of 200 scored")
    assert left_out == (
        "not compared: step 1, embedded:few: accuracy 1, 32 of 200 scored, too few to be ranked "
        "(--min-scored-share 0 ranks it)"
    )
    best, *_ = (await run(*words, "--min-scored-share", "0")).out.splitlines()
    assert best.startswith("best: step 1, embedded:few: accuracy 1, 32 of 200 scored")
    shown = await run("runs", "training", "--state-dir", str(tmp_path))
    assert "accuracy 1, 32 of 200 scored" in " ".join(shown.out.split())
    compared = ("compare", "--run", "training", "--rank-by", "accuracy", "--state-dir", str(tmp_path))
    ranked = (await run(*compared)).out.splitlines()[-1]
    assert ranked.startswith("best by accuracy: e3; ")
    assert ranked.endswith("; not ranked, too few samples have a score (--min-scored-share 0 ranks them): few1")
    assert "best by accuracy: few1; " in (await run(*compared, "--min-scored-share", "0")).out


async def test_what_best_cannot_know_is_asked_for(place: Sequence[str]):
    """A metric that is not there, and one without a goal."""
    missing = await run("best", "--run", "training", "--metric", "acuracy", *place)
    assert missing.code == 2
    assert "--metric is 'acuracy', which no evaluation of the run has; there are: accuracy" in missing.err
    unknown = await run("best", "--run", "training", "--metric", "accuracy_stderr", *place)
    assert unknown.code == 2
    assert "--goal is missing: no evaluator declares which values of 'accuracy_stderr' are better" in unknown.err
    given = await run("best", "--run", "training", "--metric", "accuracy_stderr", "--goal", "lower", *place)
    assert given.out.splitlines()[1].startswith("by the values alone")


async def test_best_writes_no_file_for_what_is_no_folder(place: Sequence[str], tmp_path: Path):
    """An embedded model has no folder; the best is named, and the command fails."""
    found = await run("best", "--run", "training", "--metric", "accuracy", "--write", *place)
    assert found.code == 1
    assert "--write: the checkpoint is 'embedded:c'" in found.err
