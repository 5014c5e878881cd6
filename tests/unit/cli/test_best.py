"""`crucible-worker best`: which checkpoints can be the best one."""

from __future__ import annotations

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Checkpoint, CheckpointResult, EvaluationState, parse_model
from crucible_worker.cli.best import _candidates, _keys


def measured(step: int, *, superseded: bool) -> Checkpoint:
    """A checkpoint with one evaluation."""
    result = CheckpointResult(
        evaluation_id=f"e{step}",
        state=EvaluationState.COMPLETED,
        dataset_fingerprint="d",
        metrics={"accuracy": 0.5},
        superseded=superseded,
    )
    return Checkpoint(step=step, model=parse_model("local:run/a"), results=(result,))


def test_a_metric_of_files_that_are_gone_has_no_best_checkpoint() -> None:
    """The error names an evaluation, and what to do; one checkpoint that is still there is a candidate."""
    gone = [measured(1, superseded=True), measured(2, superseded=True)]

    with pytest.raises(InvalidField, match="written again since, such as step 1, local:run/a, evaluation e1") as caught:
        _candidates(gone, "accuracy", None)

    assert caught.value.field == "metric"
    assert len(_candidates([*gone, measured(3, superseded=False)], "accuracy", None)) == 3


def test_the_end_of_several_metrics_names_them() -> None:
    """And what no evaluation has is named with all that there are."""
    metrics = {"a/nll": 0.5, "b/nll": 0.4, "c": 1.0}
    result = CheckpointResult(
        evaluation_id="e", state=EvaluationState.COMPLETED, dataset_fingerprint="d", metrics=metrics
    )
    checkpoints = [Checkpoint(step=1, model=parse_model("local:run/a"), results=(result,))]

    assert _keys(checkpoints) == ["a/nll", "b/nll", "c"]
    with pytest.raises(InvalidField, match=r"'nll', which is the end of several: a/nll, b/nll$"):
        _candidates(checkpoints, "nll", None)
    with pytest.raises(InvalidField, match="which no evaluation of the run has; there are: a/nll, b/nll, c"):
        _candidates(checkpoints, "x", None)
