"""What Inspect's own reader gets of exported evaluations and of the folder of logs."""

from __future__ import annotations

import io
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crucible_bridge.types import SampleResult
from crucible_worker.exports.eval_file import EvalFileWriter
from crucible_worker.reports.plain_json import replace_surrogates
from tests.service.exports_kit import evaluate_into, exported
from tests.unit.exports.results import evaluation_of, results

pytestmark = pytest.mark.inspect


async def read(path: Path) -> Any:
    """The log, as Inspect reads it."""
    from inspect_ai.log import read_eval_log_async  # pyright: ignore[reportMissingImports]

    return await read_eval_log_async(str(path))


async def test_inspect_reads_an_exported_evaluation(tmp_path: Path):
    """Its header, samples, messages and scores; an unscored result stays unscored."""
    state_dir = await evaluate_into(tmp_path)
    output = tmp_path / "out.eval"
    result = await exported("e", "--format", "inspect", "--output", output, "--state-dir", state_dir)
    assert result.exit_code == 0, result.stderr

    log = await read(output)

    assert (log.status, log.eval.task, log.eval.model) == ("success", "data", "embedded:m")
    assert log.eval.metadata["labels"] == {"team": "blue"}
    exact, number = log.results.scores
    assert (exact.name, exact.scored_samples, exact.unscored_samples) == ("exact", 2, 1)
    assert exact.metrics["accuracy"].value == 0.5
    assert (number.scored_samples, number.unscored_samples) == (0, 3)
    assert "accuracy" not in number.metrics
    right, undecided, wrong = sorted(log.samples, key=lambda sample: sample.id)
    assert right.scores["exact"].as_float() == 1.0
    assert wrong.scores["exact"].as_float() == 0.0
    assert math.isnan(undecided.scores["exact"].as_float())
    assert undecided.scores["exact"].reason == "UNDECIDED"
    assert right.metadata == {"level": "easy", "naïve": "\U0001f600"}
    assert [message.role for message in wrong.input] == ["system", "user"]
    assert [message.role for message in wrong.messages] == ["system", "user", "assistant"]
    assert wrong.target == ["no", "nor this"]
    assert right.output.completion == "AB"


async def test_inspect_finds_the_logs_of_a_folder(tmp_path: Path):
    """A worker's folder of logs is a folder of logs for Inspect: headers and single samples are read as well."""
    from inspect_ai.log import list_eval_logs, read_eval_log_sample_async, read_eval_log_sample_summaries_async  # pyright: ignore[reportMissingImports]

    folder = tmp_path / "logs"
    await evaluate_into(tmp_path, ("e", "f"), log_dir=folder)

    logs = list_eval_logs(str(folder))

    assert len(logs) == 2
    for log in logs:
        sample = await read_eval_log_sample_async(log, id="wrong/two ünï", epoch=1)
        assert sample.scores["exact"].as_float() == 0.0
        summaries = await read_eval_log_sample_summaries_async(log)
        assert [summary.id for summary in summaries] == ["right", "wrong/two ünï", "undecided"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(results(), max_size=3, unique_by=lambda result: replace_surrogates(result.sample_id)))
def test_inspect_reads_whatever_a_result_has(written: list[SampleResult]):
    """Texts, numbers and None come back; half a surrogate pair as U+FFFD."""
    from inspect_ai.log import read_eval_log  # pyright: ignore[reportMissingImports]

    file = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        writer = EvalFileWriter(file, evaluation_of(written), version="1", folder=Path(folder))
        writer.add(evaluation_of(written), written)
        writer.end()
        writer.close()

    log = read_eval_log(io.BytesIO(file.getvalue()))

    samples = {sample.id: sample for sample in log.samples or []}
    assert set(samples) == {replace_surrogates(result.sample_id) for result in written}
    for result in written:
        sample = samples[replace_surrogates(result.sample_id)]
        assert sample.scores is not None
        score = sample.scores["accuracy"]
        value = score.as_float()
        assert math.isnan(value) if result.score is None else value == result.score
        assert score.answer == (replace_surrogates(result.extracted) or None)
        if result.output:
            assert sample.output.completion == replace_surrogates(result.output)
