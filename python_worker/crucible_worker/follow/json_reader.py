"""Reading a large JSON object member by member.

Python's parser lets no other thread run until it has read its whole text, which is a second for 100 MB. Between two
members other threads run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["JsonReader"]

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


class JsonReader:
    """A position in a JSON text.

    Example: `for name in reader.members(): sizes[name] = reader.value()`.

    Raises:
        ValueError, RecursionError: by both methods, if the text is not JSON, or too deep.
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
        if self._text[self._at : self._at + 1] == "}":
            self._expect("}")
            return
        while True:
            name = self.value()
            if not isinstance(name, str):
                raise ValueError(f"character {self._at:,} follows a name that is no string")
            self._expect(":")
            yield name
            if self._text[self._at : self._at + 1] == "}":
                self._expect("}")
                return
            self._expect(",")

    def value(self) -> Any:
        """The value at the position, as `json.loads` returns it."""
        value, self._at = _DECODER.raw_decode(self._text, self._at)
        self._skip()
        return value

    def ended(self) -> bool:
        """Whether nothing but space follows."""
        return self._at == len(self._text)

    def _expect(self, sign: str) -> None:
        if self._text[self._at : self._at + 1] != sign:
            raise ValueError(f"character {self._at:,} is not {sign!r}")
        self._at += 1
        self._skip()

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        assert space is not None  # it matches nothing, too
        self._at = space.end()
