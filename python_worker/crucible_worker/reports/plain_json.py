"""Values and texts that every reader of JSON takes: no NaN, no half of a surrogate pair, nothing that HTML acts on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["inline_json", "json_bytes", "plain", "replace_surrogates"]

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


# JSON that stands inside of an HTML page, where nothing of it can end its element.

_PART_CHARS = 1 << 18

# "</script" ends an element, and "<!--" changes how one is read; the last two are line ends in old JavaScript.
_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def inline_json(value: Any) -> str:
    """Write a plain value. It stays JSON, as these characters occur inside of strings alone."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def json_bytes(text: str) -> int:
    """What a text takes in JSON of ASCII alone, in which a tool answers; never less than in UTF-8."""
    # In parts, so that no call holds the interpreter for long; each has two quotes of its own.
    parts = (text[start : start + _PART_CHARS] for start in range(0, len(text), _PART_CHARS))
    return 2 + sum(len(json.dumps(part)) - 2 for part in parts)
