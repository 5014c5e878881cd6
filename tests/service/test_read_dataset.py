"""ReadDataset: the samples of a data set as an evaluation gets them, batch by batch, by both clients."""

import asyncio
import json
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.errors import InvalidField, NotFound
from crucible_bridge.types import (
    BuiltinDataset,
    ChatMessage,
    Conversation,
    Dataset,
    JsonlDataset,
    Sample,
)
from crucible_bridge.v1 import evaluation_pb2
from crucible_worker.datasets.loading import BUILTIN_DATASETS, load
from crucible_worker.rpc import evaluation as evaluation_service
from crucible_worker.testing import run_worker

pytestmark = pytest.mark.core

ROWS = [{"question": f"{n}+{n}=", "answer": str(2 * n), "level": n % 3} for n in range(2_500)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root with a file of rows."""
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


def sample_of(index: int) -> Sample:
    """What a row is read as."""
    row = ROWS[index]
    metadata = {"level": str(row["level"])}
    return Sample(id=str(index), input=str(row["question"]), targets=(str(row["answer"]),), metadata=metadata)


async def test_samples_are_read_in_order_from_anywhere(root: Path) -> None:
    """Offset and limit count what filter and shuffle have left; past the end there is nothing."""
    async with run_worker({}, data_roots=[root]) as worker:
        read = worker.bridge.evaluation.read_dataset

        every = [sample async for sample in read("jsonl:q.jsonl")]
        some = [sample async for sample in read("jsonl:q.jsonl", offset=2_400, limit=3)]
        hard = Dataset(source=JsonlDataset("q.jsonl"), where={"level": "2"}, limit=10)
        few = [sample async for sample in read(hard, offset=8)]
        none = [sample async for sample in read("jsonl:q.jsonl", offset=2_500)]

        def ask() -> list[Sample]:
            with crucible_bridge.connect_sync(worker.address) as bridge:
                return list(bridge.evaluation.read_dataset("jsonl:q.jsonl", offset=7, limit=2))

        assert await asyncio.to_thread(ask) == [sample_of(7), sample_of(8)]

    assert every == [sample_of(index) for index in range(2_500)]
    assert some == [sample_of(index) for index in (2_400, 2_401, 2_402)]
    assert few == [sample_of(index) for index in (26, 29)]
    assert none == []


async def test_batches_are_bounded_and_tell_of_the_whole(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message ends at a number of samples, or at a size; each has the total and the evaluation's fingerprint."""
    fingerprint = load(Dataset(source=JsonlDataset("q.jsonl")), data_roots=[root], builtins={}).fingerprint
    async with run_worker({}, data_roots=[root]) as worker:
        client = worker.bridge.evaluation
        request = evaluation_pb2.ReadDatasetRequest(dataset=evaluation_pb2.Dataset(jsonl_path="q.jsonl"))

        async def batches() -> list[evaluation_pb2.ReadDatasetResponse]:
            async with client._calls.answers(client._stub.ReadDataset, request) as call:
                return [batch async for batch in call.frames()]

        by_count = await batches()
        monkeypatch.setattr(evaluation_service, "BATCH_BYTES", 10_000)
        by_size = await batches()
        request.offset = 3_000
        (empty,) = await batches()

    assert [len(batch.samples) for batch in by_count] == [1_000, 1_000, 500]
    assert max(batch.ByteSize() for batch in by_size) < 10_200
    assert sum(len(batch.samples) for batch in by_size) == 2_500
    for batch in (*by_count, *by_size, empty):
        assert (batch.total, batch.dataset_fingerprint) == (2_500, fingerprint)
    assert not empty.samples


async def test_a_malformed_line_is_told_in_its_place(root: Path) -> None:
    """The samples around it keep their ids; the client leaves it out."""
    (root / "bad.jsonl").write_text('{"input": "a"}\n{"inptu": "b"}\n{"input": "c"}\n')
    dataset = Dataset(source=JsonlDataset("bad.jsonl"), skip_malformed=True)
    async with run_worker({}, data_roots=[root]) as worker:
        client = worker.bridge.evaluation
        found = [sample.id async for sample in client.read_dataset(dataset)]
        request = evaluation_pb2.ReadDatasetRequest(
            dataset=evaluation_pb2.Dataset(jsonl_path="bad.jsonl", skip_malformed=True)
        )
        async with client._calls.answers(client._stub.ReadDataset, request) as call:
            (batch,) = [batch async for batch in call.frames()]

    assert found == ["0", "2"]
    (skipped,) = batch.skipped
    assert (skipped.id, skipped.index, skipped.problem.reason) == ("1", 1, "MALFORMED_LINE")
    assert skipped.problem.message == (
        'line 2 has no "input": found: inptu; the rows before are {input, target | output | targets}; '
        'it reads \'{"inptu": "b"}\''
    )


async def test_rows_of_a_list_and_built_in_samples_come_back(root: Path) -> None:
    """Whatever an evaluation takes can be read."""
    async with run_worker({}, data_roots=[root]) as worker:
        read = worker.bridge.evaluation.read_dataset
        rows = [{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}]
        (chat,) = [sample async for sample in read(rows)]
        first = [sample async for sample in read("builtin:arithmetic", limit=3)]

    assert chat.input == Conversation((ChatMessage("user", "2+2?"), ChatMessage("assistant", "4")))
    builtin = load(Dataset(source=BuiltinDataset("arithmetic"), limit=3), data_roots=[], builtins=BUILTIN_DATASETS)
    assert first == list(builtin.samples)


async def test_what_is_wrong_is_named(root: Path) -> None:
    """By the fields of the call, and of its data set."""
    async with run_worker({}, data_roots=[root]) as worker:
        read = worker.bridge.evaluation.read_dataset
        for field, kind, call in (
            ("offset", InvalidField, read("jsonl:q.jsonl", offset=-1)),
            ("limit", InvalidField, read("jsonl:q.jsonl", limit=0)),
            ("dataset.jsonl_path", NotFound, read("jsonl:gone.jsonl")),
            ("dataset.where", InvalidField, read(Dataset(source=JsonlDataset("q.jsonl"), where={"level": "9"}))),
        ):
            with pytest.raises(kind) as caught:
                [sample async for sample in call]
            assert caught.value.field == field
