"""Plain values to msgpack and back.

Example: `unpack(pack({"step": 3})) == {"step": 3}`.

Texts of files and models may hold lone surrogates, which are no Unicode. msgspec refuses them, and msgpack packs them
in the same format, so that `pack_text` and `unpack_text` use it only for such texts.
"""

from __future__ import annotations

from typing import Any, cast

import msgpack
import msgspec

__all__ = [
    "pack",
    "pack_text",
    "unpack",
    "unpack_text",
]

pack = msgspec.msgpack.encode
"""The msgpack of plain values; raises UnicodeEncodeError for a text that is no Unicode."""

unpack = msgspec.msgpack.decode
"""The values; raises msgspec.DecodeError."""


def pack_text(value: object) -> bytes:
    """The msgpack of plain values; a lone surrogate is packed as three bytes."""
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        return cast("bytes", msgpack.packb(value, unicode_errors="surrogatepass"))


def unpack_text(record: bytes) -> Any:
    """The values that `pack_text` was given, with lists for tuples; raises msgspec.DecodeError."""
    try:
        return msgspec.msgpack.decode(record)
    except UnicodeDecodeError:
        return msgpack.unpackb(record, unicode_errors="surrogatepass")
