"""Reading a large JSON object member by member.

Python's parser lets no other thread run until it has read its whole text: seconds and gigabytes for the 100 MB of
`[[],[],[],...]`. Here it reads at most `MAX_VALUE_CHARS` at once, and between two values other threads run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["MAX_VALUE_CHARS", "JsonReader"]

MAX_VALUE_CHARS = 256 * 1024
"""Of a value that is read as a whole. The worst ones of this length take 20 ms."""
_USUAL_VALUE_CHARS = 2 * 1024
"""Tried first: a part of the text is copied before it is parsed."""
_END_OF_NUMBER = 4
"""Characters at the end of a part that may belong to a number which ends before them: `1` of `1e-5`."""
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


class JsonReader:
    """A position in a JSON text.

    Example: `for name in reader.members(): sizes[name] = reader.value()`.

    Raises:
        ValueError, RecursionError: by its methods, if the text is not JSON, or too deep.
    """

    def __init__(self, text: str) -> None:
        """Begin at the start of a text."""
        self._text = text
        self._at = 0
        self._skip()

    def members(self) -> Iterator[str]:
        """The names of the object at the position.

        After each name the caller reads its value, by `value`, or by `members` to the end.
        """
        self._expect("{")
        if self._sign() == "}":
            self._expect("}")
            return
        while True:
            name = self.value()
            if not isinstance(name, str):
                raise ValueError(f"character {self._at:,} follows a name that is no string")
            self._expect(":")
            yield name
            if self._sign() == "}":
                self._expect("}")
                return
            self._expect(",")

    def items(self) -> Iterator[None]:
        """The list at the position: after each step the caller reads one of its values, as after `members`."""
        self._expect("[")
        if self._sign() == "]":
            self._expect("]")
            return
        while True:
            yield
            if self._sign() == "]":
                self._expect("]")
                return
            self._expect(",")

    def value(self) -> Any:
        """The value at the position, as `json.loads` returns it; a ValueError if it is long."""
        for limit in (_USUAL_VALUE_CHARS, MAX_VALUE_CHARS):
            part = self._text[self._at : self._at + limit]
            whole = len(self._text) - self._at <= limit
            try:
                value, length = _DECODER.raw_decode(part)
            except ValueError:
                if whole:
                    raise
                continue
            if whole or length < limit - _END_OF_NUMBER:
                self._at += length
                self._skip()
                return value
        raise ValueError(f"character {self._at:,} begins no value of at most {MAX_VALUE_CHARS:,} characters")

    def text(self) -> str:
        """The text at the position, whatever its length."""
        if self._sign() != '"':
            raise ValueError(f"character {self._at:,} begins no text")
        value, self._at = _DECODER.raw_decode(self._text, self._at)
        self._skip()
        return value

    def pass_over(self) -> None:
        """Go to the end of the value at the position, whatever its length."""
        sign = self._sign()
        if sign == '"':
            self.text()
            return
        try:
            self.value()
        except ValueError:
            if sign not in ("{", "["):
                raise
        else:
            return
        for _ in self.members() if sign == "{" else self.items():
            self.pass_over()

    def ended(self) -> bool:
        """Whether nothing but space follows."""
        return self._at == len(self._text)

    def _sign(self) -> str:
        return self._text[self._at : self._at + 1]

    def _expect(self, sign: str) -> None:
        if self._sign() != sign:
            raise ValueError(f"character {self._at:,} is not {sign!r}")
        self._at += 1
        self._skip()

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        assert space is not None  # it matches nothing, too
        self._at = space.end()
