"""The child process that reads a hub's data set: `python -m crucible_worker.datasets.hub.reader`.

Only it imports `datasets`.
"""

from __future__ import annotations

import datetime
import decimal
import logging
from collections.abc import Iterator
from typing import Any

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField, NotFound
from crucible_bridge.reasons import Reason
from crucible_worker.datasets.hub.columns import FIELD as COLUMNS
from crucible_worker.datasets.hub.columns import find_columns, read_with, record_of, row_of, whole_rows
from crucible_worker.datasets.hub.loading import FIELD
from crucible_worker.datasets.row_process import answer

__all__ = ["main", "rows"]

_BATCH_ROWS = 64
"""Rows that are read from the files at once."""

_log = logging.getLogger(__name__)


def main() -> None:
    """Answer one request."""
    answer(__spec__.name, rows, _plain)


def _plain(value: object) -> str:
    """Dates and decimals as text; other types that JSON lacks, such as images, have no useful text form."""
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta | decimal.Decimal):
        return str(value)
    raise InvalidField(COLUMNS, f"names a column of type {type(value).__name__}, which has no text form")


def rows(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a data set as records.

    Args:
        request: what `loading.read_rows` writes.

    Raises:
        BridgeError: see there.
    """
    data = _opened(request)
    if data is None:
        return
    whole = None if request["columns"] else whole_rows(data.features)
    columns = whole or find_columns(request["columns"], data.features)
    # Other columns may be large, or need decoding.
    data = data.select_columns(read_with(columns, data.features))
    if request["limit"] is not None:
        data = data.take(min(request["limit"], len(data)))
    try:
        for batch in data.iter(_BATCH_ROWS):
            for values in zip(*batch.values(), strict=True):
                row = dict(zip(batch, values, strict=True))
                yield row_of(row, columns) if whole else record_of(row, columns)
    except Exception as error:
        raise _refused(request, error) from error


def _opened(request: dict[str, Any]) -> Any:
    """The split, its rows still on disk; None if it has no rows, as the library makes no data set of it then."""
    from datasets import config

    from crucible_worker.datasets.hub.caching import cached, find
    from crucible_worker.datasets.hub.fetching import fetched

    found = find(request)
    # A commit does not change: if it is in the cache, the hub need not be queried.
    if config.HF_HUB_OFFLINE or (request["revision"] is not None and found):
        builder = cached(request, found)
    else:
        builder = fetched(request)
    splits = list(builder.info.splits or ())
    if request["split"] not in splits:
        raise NotFound(
            f"has no split {request['split']!r}; there are {', '.join(splits)}",
            reason=Reason.UNKNOWN_DATASET,
            field=f"{FIELD}.split",
        )
    if builder.info.splits[request["split"]].num_examples == 0:
        return None
    try:
        return builder.as_dataset(split=request["split"])
    except Exception as error:
        raise _refused(request, error) from error


def _refused(request: dict[str, Any], error: Exception) -> BridgeError:
    # The text may contain paths of this machine, and goes only to the worker's log.
    _log.error("data set %s cannot be read", request["repo_id"], exc_info=error)
    return FailedPrecondition(f"cannot be read: {type(error).__name__}", reason=Reason.HUB_DATASET_REFUSED, field=FIELD)


if __name__ == "__main__":
    main()
