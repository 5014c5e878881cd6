"""Rows of a data set of the hub, in the form of a file's records, from a child process."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Callable, Generator

from crucible_bridge.errors import FailedPrecondition, Unavailable
from crucible_bridge.reasons import Reason
from crucible_bridge.types import HubDataset, RowReader
from crucible_bridge.types.columns import METADATA
from crucible_worker.datasets.jsonl import JsonLine
from crucible_worker.datasets.row_process import rows_of, without_tokens

__all__ = ["FIELD", "read_rows"]

FIELD = "dataset.hub"
"""Where a request names a data set of the hub."""

_NEEDED = "datasets"
_READER = "crucible_worker.datasets.hub.reader"
_ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


def read_rows(
    source: HubDataset, *, network: bool, limit: int | None, go_on: Callable[[], None]
) -> Generator[JsonLine, None, None]:
    """The rows of a data set, in order, numbered from 1, malformed ones included. Closing it ends the child.

    Args:
        source: which data set.
        network: whether the hub may be queried; otherwise, or if the environment sets HF_HUB_OFFLINE or
            HF_DATASETS_OFFLINE, only the cache is read.
        limit: number of rows; all if None.
        go_on: called while the child is silent; it raises to stop the reading.

    Raises:
        FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED), or the data set cannot be read
            (HUB_DATASET_REFUSED).
        NotFound: there is no such data set, configuration or split (UNKNOWN_DATASET), or the cache does not have it
            (NOT_CACHED).
        InvalidField: a column does not exist (NO_SUCH_COLUMN), or the source does not say which one is the input or
            which configuration is meant.
        Unavailable: the hub cannot be reached (HUB_UNREACHABLE), or the child has died (HUB_READER_DIED).
    """
    if importlib.util.find_spec(_NEEDED) is None:
        raise FailedPrecondition(
            f"needs {_NEEDED}, which is not installed: install crucible-bridge[datasets]",
            reason=Reason.EXTRA_NOT_INSTALLED,
            field=FIELD,
        )
    request = {**dataclasses.asdict(source), "limit": limit}
    # The child selects the requested columns, so that it need not read the others, and names them by their keys.
    columns = {key: key for key in source.columns if not key.startswith(METADATA)}
    rows = RowReader(columns, field=FIELD, cure="name the columns, as in &input=question&target=answer")
    died = Unavailable(
        "the process that reads data sets of the hub has died", reason=Reason.HUB_READER_DIED, field=FIELD
    )
    yield from rows_of(_READER, request, rows, environment=_environment(network), died=died, go_on=go_on)


def _environment(network: bool) -> dict[str, str]:
    return {**os.environ, **_ENVIRONMENT} if network else {**without_tokens(), **_ENVIRONMENT, **_OFFLINE}
