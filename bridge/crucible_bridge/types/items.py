"""Items of a list of samples in Python: samples, rows of any shape, and Datums."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types.data import Conversation, Datum, Sample
from crucible_bridge.types.rows import MalformedRow, RowReader

__all__ = ["sample_maker"]


def sample_maker(field: str) -> Callable[[int, Any], Sample]:
    """A function that makes samples from the items of one list, called in order with their indices.

    An object with `model_input` and `loss_fn_inputs`, as tinker's Datums have them, is a Datum.

    Args:
        field: of the list, for errors; InvalidField is raised for an item that cannot become a sample.
    """
    rows = RowReader({}, field=field, cure="leave out the columns of one of them, or make Samples")

    def sample_of(index: int, item: Any) -> Sample:
        place = f"{field}.samples[{index}]"
        if isinstance(item, Sample):
            return item
        if isinstance(item, Mapping):
            return _row(rows, item, place)
        if isinstance(item, Conversation):
            return Sample(input=item)
        if hasattr(item, "model_input") and hasattr(item, "loss_fn_inputs"):
            return Sample(input=_datum(item, place))
        raise InvalidField(place, f"is a {type(item).__name__}, neither a Sample, a row (a mapping) nor a Datum")

    return sample_of


def _datum(item: Any, place: str) -> Datum:
    if isinstance(item, Datum):
        return item
    try:
        given = item.model_input
        tokens = (
            given.to_ints() if hasattr(given, "to_ints") else given
        )  # tinker's has chunks, and returns their tokens
        return Datum(model_input=tokens, loss_fn_inputs=item.loss_fn_inputs)
    except InvalidField as error:
        raise InvalidField(f"{place}.{error.field}", error.message, reason=error.reason) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidField(place, f"is not a Datum of tokens: {error}") from error


def _row(rows: RowReader, item: Mapping[Any, Any], place: str) -> Sample:
    for key in item:
        if not isinstance(key, str):
            raise InvalidField(place, f"has the key {clipped(key)}, which is not text")
    try:
        return rows.sample({key: _plain_entry(value, f'{place}["{key}"]') for key, value in item.items()})
    except MalformedRow as error:
        told = f"{error}: {error.more}" if error.more else str(error)
        raise InvalidField(place, told, reason=Reason.MALFORMED_LINE) from None
    except (RecursionError, ValueError) as error:
        raise InvalidField(place, f"cannot be written as JSON: {error}") from error


def _plain_entry(value: Any, place: str) -> Any:
    try:
        return _plain(value, place)
    except RecursionError:
        raise InvalidField(place, "is nested too deeply") from None


def _plain(value: Any, place: str) -> Any:
    """A value as JSON has it."""
    match value:
        case bool() | int() | str() | None:
            return value
        case float():
            return None if math.isnan(value) else value
        case np.generic() | np.ndarray():
            return _plain(value.tolist(), place)
        case Mapping():
            return {str(key): _plain(item, place) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item, place) for item in value]
        case datetime.date() | datetime.time() | datetime.timedelta() | decimal.Decimal():
            return str(value)
        case _:
            raise InvalidField(place, f"has a value of type {type(value).__name__}, which has no text form")
