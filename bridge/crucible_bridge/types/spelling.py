"""The text form of something with options: NAME, or NAME?KEY=VALUE&KEY=VALUE.

Options follow the first "?". If there is one, "%", "?", "&" and "=" are spelled %25, %3F, %26 and %3D wherever they are
not separators; a text without a "?" is the name unchanged. So every name has one spelling, and can be read back.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from crucible_bridge.errors import InvalidField, clipped

__all__ = ["quoted", "read_spelling", "write_spelling"]

_QUOTED = str.maketrans({"%": "%25", "?": "%3F", "&": "%26", "=": "%3D"})


def write_spelling(name: str, options: Mapping[str, str]) -> str:
    """Spell a name and its options, in their order."""
    if not options and "?" not in name:
        return name
    pairs = (f"{quoted(key)}={quoted(value)}" for key, value in options.items())
    return f"{quoted(name)}?{'&'.join(pairs)}"


def quoted(text: str) -> str:
    """Spell a name, key or value of a text with options."""
    return text.translate(_QUOTED)


def read_spelling(text: str, field: str) -> tuple[str, dict[str, str]]:
    """Read the text that `write_spelling` writes.

    Raises:
        InvalidField: an option is not KEY=VALUE, occurs twice, or a "%" is not followed by a byte of UTF-8.
    """
    name, separator, rest = text.partition("?")
    if not separator:
        return name, {}
    options: dict[str, str] = {}
    for part in rest.split("&") if rest else ():
        key, equals, value = (_unquoted(piece, field) for piece in part.partition("="))
        if not (key and equals):
            raise InvalidField(field, f"has the option {clipped(part)}, which is not KEY=VALUE")
        if key in options:
            raise InvalidField(field, f"has the option {clipped(key)} twice")
        options[key] = value
    return _unquoted(name, field), options


def _unquoted(text: str, field: str) -> str:
    try:
        return urllib.parse.unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidField(field, f"has {clipped(text)}, in which a % is not followed by a byte of UTF-8") from None
