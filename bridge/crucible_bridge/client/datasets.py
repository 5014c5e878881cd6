"""The call of EvaluationService that reads data sets, typed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from crucible_bridge.client.calls import Calls
from crucible_bridge.client.given import DatasetLike
from crucible_bridge.codec.data import sample_from_v1
from crucible_bridge.codec.datasets import dataset_to_v1
from crucible_bridge.codec.fields import made
from crucible_bridge.errors import InternalError, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Dataset, Sample
from crucible_bridge.v1 import evaluation_pb2

__all__ = ["DatasetCalls"]


class DatasetCalls:
    """Data sets as the worker reads them."""

    _calls: Calls
    _stub: Any

    def read_dataset(self, dataset: DatasetLike, *, offset: int = 0, limit: int | None = None) -> AsyncIterator[Sample]:
        """The samples of a data set, each with its id, in the order in which an evaluation reads them.

        If the data set skips malformed lines, they are left out. Batches are read when they are needed.

        Args:
            dataset: as for `evaluate`; its own filter, shuffling and limit come first.
            offset: how many samples to leave out from the beginning.
            limit: at most so many after the offset; all if None.
        """
        request = made(
            evaluation_pb2.ReadDatasetRequest,
            "",
            dataset=dataset_to_v1(Dataset.of(dataset)),
            offset=offset,
            limit=limit,
        )
        return self._samples(request)

    async def _samples(self, request: evaluation_pb2.ReadDatasetRequest) -> AsyncIterator[Sample]:
        async with self._calls.answers(self._stub.ReadDataset, request) as call:
            async for batch in call.frames():
                for index, message in enumerate(batch.samples):
                    try:
                        sample = sample_from_v1(message, f"samples[{index}]")
                    except InvalidField as error:
                        text = f"the worker's reply is malformed: {error}"
                        raise InternalError(text, reason=Reason.MALFORMED_REPLY) from error
                    yield sample
