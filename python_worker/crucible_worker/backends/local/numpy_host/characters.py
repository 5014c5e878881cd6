"""The tokenizer of an embedded model: a token is a character, or a special token by its name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Characters"]


class Characters:
    """Text to tokens and back, as tokenizer.json describes it."""

    def __init__(self, directory: Path) -> None:
        """Read the tokenizer of a checkpoint that ships with the worker."""
        read: dict[str, Any] = json.loads((directory / "tokenizer.json").read_bytes())
        self._vocabulary: dict[str, int] = read["model"]["vocab"]
        self._unknown = self._vocabulary[read["model"]["unk_token"]]
        self._special = {token["content"]: token["id"] for token in read["added_tokens"]}
        self._texts = {token: text for text, token in self._vocabulary.items()}
        self._pieces = re.compile("|".join([*map(re.escape, self._special), "."]), re.DOTALL)
        self.end: int = self._vocabulary[json.loads((directory / "tokenizer_config.json").read_bytes())["eos_token"]]
        """The end-of-sequence token."""

    def encode(self, text: str, *, named: bool) -> list[int]:
        """Tokens of a text; the name of a special token is this token if `named`, and text otherwise."""
        pieces = self._pieces.findall(text) if named else text
        return [self._vocabulary.get(piece, self._unknown) for piece in pieces]

    def decode(self, tokens: Iterable[int], *, special: bool) -> str:
        """The text of tokens, with the special ones if `special`."""
        hidden = () if special else self._special.values()
        return "".join(self._texts.get(token, "") for token in tokens if token not in hidden)

    def special_among(self, texts: Sequence[str]) -> frozenset[int]:
        """The special tokens that these texts name."""
        return frozenset(self._special[text] for text in texts if text in self._special)
