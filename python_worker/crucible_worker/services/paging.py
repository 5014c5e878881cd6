"""How large a page may be."""

from __future__ import annotations

from crucible_bridge.errors import InvalidField

__all__ = ["page_size"]


def page_size(asked: int, default: int, largest: int) -> int:
    """The page size to use: the default for 0, which is what an unset field says.

    Raises:
        InvalidField: it is negative or too large.
    """
    if not 0 <= asked <= largest:
        raise InvalidField("page_size", f"is {asked}, must be within 1 and {largest:,}, or 0 for {default:,}")
    return asked or default
