"""Clusters of samples, by a key of their metadata, as it is recorded with the evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_worker.journal.queries import Reads, metadata_by_sample

__all__ = ["Clusters"]

_MAX_SHOWN = 20  # keys that an error names


class Clusters:
    """The clusters of one data set's samples.

    Args:
        key: of the metadata; there are no clusters if it is empty.
        field: the path of the key in the request.
    """

    def __init__(self, key: str, field: str) -> None:
        self._key, self._field = key, field
        self._values: dict[str, str | None] = {}

    def read(self, connection: Reads, number: int, evaluator: int, dataset_fingerprint: str) -> None:
        """Read the values of one evaluator's samples, unless there are no clusters.

        Args:
            connection: to the journal.
            number: of an evaluation.
            evaluator: its index there.
            dataset_fingerprint: of its data set.

        Raises:
            FailedPrecondition: the metadata of a sample is not recorded, or truncated (METADATA_NOT_RECORDED).
            InvalidField: no sample has the key.
        """
        if not self._key:
            return
        keys: set[str] = set()
        read = 0
        for sample_id, metadata in metadata_by_sample(connection, number, evaluator, dataset_fingerprint):
            if metadata is None:
                raise FailedPrecondition(
                    f"{self._key!r} is not known of sample {sample_id[:60]!r}: what the samples are is not recorded "
                    "completely, see `record` and the limits of records",
                    reason=Reason.METADATA_NOT_RECORDED,
                    field=self._field,
                )
            self._values[sample_id] = metadata.get(self._key)
            keys.update(metadata)
            read += 1
        if read and self._key not in keys:
            shown = ", ".join(repr(key[:60]) for key in sorted(keys)[:_MAX_SHOWN]) or "none"
            raise InvalidField(self._field, f"is {self._key!r}, which no sample has; keys of their metadata: {shown}")

    def of(self, sample_ids: Sequence[str]) -> np.ndarray | None:
        """The number of each sample's cluster, from 0, int64, shape (samples,); None if there are no clusters."""
        if not self._key:
            return None
        numbers: dict[tuple[str, ...], int] = {}
        places = (_place(sample_id, self._values) for sample_id in sample_ids)
        return np.fromiter((numbers.setdefault(place, len(numbers)) for place in places), np.int64, len(sample_ids))


def _place(sample_id: str, values: Mapping[str, str | None]) -> tuple[str, ...]:
    """What tells a cluster from the others: its value, or a sample's id behind a blank for one by itself."""
    value = values.get(sample_id)
    return (value,) if value is not None else ("", sample_id)
