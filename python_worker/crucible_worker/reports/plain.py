"""Values that every reader of JSON takes: no NaN, no infinity, no half of a surrogate pair."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["plain", "replace_surrogates"]

_SURROGATES = re.compile("[\ud800-\udfff]")


def plain(value: Any) -> Any:
    """The same value, with null for a number that is not finite and U+FFFD for half a surrogate pair."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {replace_surrogates(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def replace_surrogates(text: str) -> str:
    """Text that can be written as UTF-8: half a surrogate pair becomes U+FFFD."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)
