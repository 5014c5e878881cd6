"""JSON that stands inside of an HTML page, where nothing of it can end its element."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["inline_json", "json_bytes"]

# "</script" ends an element, and "<!--" changes how one is read; the last two are line ends in old JavaScript.
_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def inline_json(value: Any) -> str:
    """Write a plain value. It stays JSON, as these characters occur inside of strings alone."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def json_bytes(text: str) -> int:
    """What a text takes in JSON of ASCII alone, in which a tool answers; never less than in UTF-8."""
    return len(json.dumps(text))
