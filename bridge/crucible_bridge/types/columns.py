"""Which column of a row is what: the mapping that data sets of files and of the hub share."""

from __future__ import annotations

from collections.abc import Mapping

from crucible_bridge.errors import InvalidField

__all__ = ["METADATA", "check_columns"]

METADATA = "metadata."
"""The prefix of keys for metadata: "metadata.level"."""

_KEYS = ("input", "target", "targets", "choices", "id")


def check_columns(columns: Mapping[str, str], field: str) -> None:
    """Refuse an impossible mapping.

    Raises:
        InvalidField: names the key, below `field`.
    """
    for key, column in columns.items():
        if key not in _KEYS and not (key.startswith(METADATA) and key != METADATA):
            known = ", ".join(_KEYS)
            raise InvalidField(f"{field}.columns", f"has the key {key[:60]!r}; there are {known} and metadata.NAME")
        if not column:
            raise InvalidField(f'{field}.columns["{key}"]', "is empty")
    if "target" in columns and "targets" in columns:
        raise InvalidField(f"{field}.columns", 'has both "target" and "targets"')
