r"""Runs of letters: which are words, names and functions, and which are products of symbols.

- A run of letters with a mathematical meaning (`sin`, `pi`, `and`) has that meaning; so have `sinx`, `xlnx`.
- After an operand, a run that abbreviates a unit (`cm`) is that unit; alone it is not.
- Two or more capitals are a name: `AB` is one symbol, different from `BA`.
- In upright type (`\text`, `\mathrm`, ...) two or more letters are a word.
- Elsewhere a run is a word if it has four letters or more, one of them a vowel, and is not a stretch of the alphabet
  (`abcd`); if it is a capital and two or more small letters; or if it is one of a few short English words. Every
  other run is a product of symbols: `xy`, `abc`, `Cx`.
"""

from __future__ import annotations

import functools
import itertools

from crucible_worker.grading.math.notation import FUNCTIONS, SHORT_WORDS, WORD_TOKENS

__all__ = ["MAX_LETTERS", "italic_letters", "upright_letters"]

MAX_LETTERS = 24
"""A longer run is always a word."""

_VOWELS = frozenset("aeiouAEIOU")
_ARGUMENTS = frozenset("xyz")


@functools.lru_cache(maxsize=4096)
def upright_letters(run: str) -> tuple[tuple[str, str], ...]:
    """The meaning of letters in upright type."""
    if len(run) == 1:
        return (("upright", run),)
    known = WORD_TOKENS.get(run) or WORD_TOKENS.get(run.lower())
    if known is not None:
        return (known,)
    if run in FUNCTIONS:
        return (("function", FUNCTIONS[run]),)
    if run.isupper() and run.isascii():
        return (("name", run),)
    return (("word", run),)


@functools.lru_cache(maxsize=4096)
def italic_letters(run: str) -> tuple[tuple[str, str], ...]:
    """The meaning of letters in plain text and in mathematics."""
    if len(run) == 1:
        return (("letter", run),) if run.isascii() else (("word", run),)
    known = WORD_TOKENS.get(run) or WORD_TOKENS.get(run.lower())
    if known is not None:
        return (known,)
    if run[:-1] in ("or", "and") and run[-1].isupper():  # 1orW
        return (WORD_TOKENS[run[:-1]], ("letter", run[-1]))
    head = int(run[0] in _ARGUMENTS)  # sinx, xlnx
    function = WORD_TOKENS.get(run[head:-1])
    if run[-1] in _ARGUMENTS and function is not None and function[0] == "function":
        return (*(("letter", letter) for letter in run[:head]), function, ("letter", run[-1]))
    if _is_word(run):
        return (("word", run),)
    if run.isupper():
        return (("name", run),)
    return tuple(("letter", letter) for letter in run)


def _is_word(run: str) -> bool:
    lower = run.lower()
    if not run.isascii() or lower in SHORT_WORDS:
        return True
    if run.isupper():
        return False
    if len(run) >= 3 and run[0].isupper() and run[1:].islower():
        return True
    if len(run) < 4 or not _VOWELS.intersection(run):
        return False
    return any(ord(after) - ord(before) != 1 for before, after in itertools.pairwise(lower))
