"""Which column of a row is what: the mapping that data sets of files and of the hub share."""

from __future__ import annotations

from collections.abc import Mapping

from crucible_bridge.errors import InvalidField, clipped

__all__ = ["METADATA", "check_columns"]

METADATA = "metadata."
"""The prefix of keys for metadata: "metadata.level"."""

_KEYS = ("input", "target", "targets", "index", "choices", "labels", "id", "tools")
_ANSWERS = ("target", "targets", "index")


def check_columns(columns: Mapping[str, str], field: str) -> None:
    """Refuse an impossible mapping.

    Raises:
        InvalidField: names the key, below `field`.
    """
    for key, column in columns.items():
        if key not in _KEYS and not (key.startswith(METADATA) and key != METADATA):
            known = ", ".join(_KEYS)
            raise InvalidField(f"{field}.columns", f"has the key {clipped(key)}; there are {known} and metadata.NAME")
        if not column:
            raise InvalidField(f'{field}.columns["{key}"]', "is empty")
    answers = [key for key in _ANSWERS if key in columns]
    if len(answers) > 1:
        raise InvalidField(f"{field}.columns", f'has both "{answers[0]}" and "{answers[1]}"')
    for key in ("index", "labels"):
        if key in columns and "choices" not in columns:
            raise InvalidField(f"{field}.columns", f'has "{key}" without "choices"')
