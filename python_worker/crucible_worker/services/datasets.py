"""The call of EvaluationService that reads data sets: decode, call, encode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from crucible_bridge.codec.data import dataset_from_v1, sample_to_v1
from crucible_bridge.codec.fields import at_least
from crucible_bridge.codec.outcomes import problem_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_worker.interceptors.methods import Context, Encoded
from crucible_worker.runs.datasets import LoadedDataset, MalformedSample
from crucible_worker.runs.evaluations import Evaluations

__all__ = ["BATCH_BYTES", "BATCH_SAMPLES", "DatasetCalls"]

BATCH_SAMPLES = 1_000
"""Samples of a message, at most."""
BATCH_BYTES = 8 * 1024 * 1024
"""A message ends with the sample that exceeds this size: one sample is far below the limit of messages."""
_FRAME_BYTES = 6
"""What a message takes within another beside its own bytes, at most."""


class DatasetCalls:
    """Data sets, over the wire."""

    _evaluations: Evaluations

    async def _read_dataset(self, request: pb.ReadDatasetRequest, context: Context) -> AsyncIterator[Encoded]:
        """Its samples, batch by batch."""
        if not request.HasField("dataset"):
            raise InvalidField("dataset", "is not given")
        at_least(request.offset, 0, "offset")
        if request.HasField("limit"):
            at_least(request.limit, 1, "limit")
        # By threads: both the inline samples of the request and those of a batch may be many.
        dataset = await asyncio.to_thread(dataset_from_v1, request.dataset, "dataset")
        loaded = await self._evaluations.read_dataset(dataset)
        total = len(loaded.samples)
        end = min(total, request.offset + request.limit) if request.HasField("limit") else total
        start = min(request.offset, end)
        while True:
            batch, start = await asyncio.to_thread(_batch, loaded, start, end)
            yield batch
            if start >= end:
                return


def _batch(loaded: LoadedDataset, start: int, end: int) -> tuple[bytes, int]:
    """The next samples as a message, and where those after them begin."""
    message = pb.ReadDatasetResponse(total=len(loaded.samples), dataset_fingerprint=loaded.fingerprint)
    size, index = 0, start
    while index < min(end, start + BATCH_SAMPLES) and size < BATCH_BYTES:
        sample = loaded.samples[index]
        if isinstance(sample, MalformedSample):
            skipped = pb.SkippedLine(id=sample.id, index=index, problem=problem_to_v1(sample.problem))
            message.skipped.append(skipped)
            size += skipped.ByteSize() + _FRAME_BYTES
        else:
            encoded = sample_to_v1(sample)
            message.samples.append(encoded)
            size += encoded.ByteSize() + _FRAME_BYTES
        index += 1
    return message.SerializeToString(), index
