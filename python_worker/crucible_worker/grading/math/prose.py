r"""Sentences with formulas in them: `increasing on $(0, \frac12)$` means the same as `Increasing on $(0, 0.5)$`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from crucible_worker.grading.math.phrases import words_of

__all__ = ["MAX_FORMULAS", "formulas_of"]

MAX_FORMULAS = 16
"""Formulas of a sentence that are compared."""

_MAX_CHARS = 2_000
_PIECE = re.compile(r"\$\$[^$]{1,400}\$\$|\$[^$]{1,400}\$|\\\([^()]{1,400}\\\)|[^\s$]+|\$")
_DELIMITER = re.compile(r"\$|\\[()]")
_WORD = re.compile(
    r"[\"'(\u201c\u2018]?[^\W\d_]{2,}(?:['\u2019-][^\W\d_]{1,40}){0,4}[\"')\u201d\u2019]?[.,;:!?]*|[aAI]"
)
_ARTICLES = frozenset({"the", "a", "an"})
_AROUND = " \t\n.,;:!?"


def formulas_of(target: str, answer: str) -> list[tuple[str, str]] | None:
    """The formulas of two sentences that have the same words around them, in pairs; None if they have not.

    A formula is between delimiters, or is a run of text that is not words. Articles, the case of words and marks around
    them do not count.
    """
    if max(len(target), len(answer)) > _MAX_CHARS:
        return None
    expected, said = _pieces(target), _pieces(answer)
    words = [word for word, _ in expected if word is not None]
    if not any(len(word) > 1 for word in words) or not 0 < len(expected) - len(words) <= MAX_FORMULAS:
        return None
    if [word for word, _ in said if word is not None] != words or len(said) != len(expected):
        return None
    if any((word is None) != (other is None) for (word, _), (other, _) in zip(expected, said)):
        return None
    return [(text, other) for (word, text), (_, other) in zip(expected, said) if word is None]


def _pieces(text: str) -> Sequence[tuple[str | None, str]]:
    """Normalised words, and formulas in place of words; each with its text."""
    pieces: list[tuple[str | None, str]] = []
    for piece in _PIECE.findall(text):
        if _WORD.fullmatch(piece):
            word = words_of(piece)
            if word not in _ARTICLES:
                pieces.append((word, piece))
        elif pieces and pieces[-1][0] is None:
            pieces[-1] = (None, f"{pieces[-1][1]} {piece}")
        elif piece.strip(_AROUND):
            pieces.append((None, piece))
    return [(word, text if word else _DELIMITER.sub("", text).strip(_AROUND)) for word, text in pieces]
