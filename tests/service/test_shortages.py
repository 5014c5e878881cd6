"""A worker that lacks descriptors or memory for a moment: what it refuses may be tried again, and no result is lost."""

from __future__ import annotations

import dataclasses
import errno
import os
import resource
from collections.abc import Sequence
from pathlib import Path

import pytest

from crucible_bridge.errors import ResourceExhausted
from crucible_bridge.types import EvaluationState, Limits, ModelInput, RowReader, SampledSequence, SamplingParams
from crucible_worker.datasets.jsonl import read_lines
from crucible_worker.datasets.tables import reader
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.evaluation_kit import SHOUT, samples_of

ROWS = RowReader({}, field="dataset.jsonl_path", cure="name the columns")
READS = {
    "jsonl": lambda path: read_lines(path, "dataset.jsonl_path", ROWS),
    "csv": lambda path: reader.rows({"format": "csv", "path": str(path), "columns": {}}),
}


@dataclasses.dataclass(kw_only=True)
class LackingModel(ScriptedModel):
    """Lacks descriptors at its first loads and calls."""

    lacking_loads: int = 0
    lacking_calls: int = 0

    @property
    def sampling(self) -> LackingModel:
        return self

    async def load(self) -> None:
        await super().load()
        if self.loads <= self.lacking_loads:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        answers = await super().sample(prompt, params, num_samples)
        if self.calls <= self.lacking_calls:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return answers


@pytest.mark.parametrize(("loads", "calls"), [(1, 0), (0, 1)], ids=["load", "call"])
async def test_an_evaluation_that_lacked_descriptors_can_be_repeated(loads: int, calls: int) -> None:
    """It fails with a problem that is retryable, and the same call completes it."""
    async with run_worker({"m": LackingModel(lacking_loads=loads, lacking_calls=calls)}) as worker:

        async def evaluated():
            return await worker.bridge.evaluation.evaluate(
                evaluation_id="e",
                model="embedded:m",
                evaluators=["accuracy"],
                dataset=SHOUT,
                sampling=SamplingParams(max_tokens=8),
                limits=Limits(concurrency=1, max_unscored=0),
            )

        failed = await evaluated()
        assert failed.state is EvaluationState.FAILED
        assert failed.problem is not None
        assert failed.problem.retryable
        again = await evaluated()
        assert (again.state, again.attempt, again.metrics.values["accuracy"]) == (EvaluationState.COMPLETED, 2, 1.0)
        assert [sample.problem for sample in await samples_of(worker.bridge, "e")] == [None, None]


@pytest.mark.parametrize("kind", READS)
def test_a_data_file_that_cannot_be_opened_for_want_of_descriptors_is_not_unreadable(tmp_path: Path, kind: str) -> None:
    """The refusal is retryable: nothing is wrong with the file."""
    path = tmp_path / "rows"
    path.write_text("input,target\na,b\n" if kind == "csv" else '{"input": "a", "target": "b"}\n')
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(ResourceExhausted) as refused:
            list(READS[kind](path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert refused.value.retryable
    assert len(list(READS[kind](path))) == 1
