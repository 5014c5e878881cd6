"""Regular expressions that do not backtrack, RE2 with limits of memory and computation, and the grader of them."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any

from crucible_worker.grading.base import DirectGrader, Grade, right, undecided, wrong

__all__ = [
    "MAX_PATTERN_CHARS",
    "MAX_PATTERN_MEMORY",
    "MAX_PATTERN_WORK",
    "BadPattern",
    "Pattern",
    "Regex",
    "TooMuchText",
    "compiled",
]


MAX_PATTERN_CHARS = 10_000
"""A longer pattern is refused."""
MAX_PATTERN_MEMORY = 1_000_000
"""Bytes that RE2 may use for a pattern; one that needs more is refused."""
MAX_PATTERN_WORK = 100_000_000
"""Instructions of a pattern, times bytes of a text: at most about half a second, usually some milliseconds."""

_CACHED = 32  # compiled patterns, each up to its memory limit
_SURROGATES = re.compile("[\ud800-\udfff]")


class BadPattern(ValueError):
    """A pattern is not valid in RE2, or is too large; the message continues a sentence about it."""


class TooMuchText(Exception):
    """A text is too long for this pattern."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern."""

    program: Any
    """RE2's."""
    size: int
    """Instructions."""

    def find(self, text: str, *, full: bool = False, limit: int = MAX_PATTERN_WORK) -> str | None:
        """The first match of the pattern in a text, or None; lone surrogates are read as U+FFFD.

        Args:
            text: the text to search.
            full: the whole text must match.
            limit: instructions times bytes that may be spent.

        Raises:
            TooMuchText: it would take more than the limit.
        """
        match = self._match(text, full=full, limit=limit)
        return None if match is None else match[0].decode("utf-8", "replace")

    def capture(self, text: str) -> str | None:
        """The first match of the pattern's first group, or of the whole pattern without groups; None without a match.

        Raises:
            TooMuchText: it would take more than `MAX_PATTERN_WORK`.
        """
        match = self._match(text, full=False, limit=MAX_PATTERN_WORK)
        found = None if match is None else match[1 if self.program.groups else 0]
        return None if found is None else found.decode("utf-8", "replace")

    def _match(self, text: str, *, full: bool, limit: int) -> Any:
        data = _SURROGATES.sub("\ufffd", text).encode()
        if self.size * len(data) > limit:
            raise TooMuchText(f"the pattern, of {self.size:,} instructions, is not run on {len(data):,} bytes")
        return self.program.fullmatch(data) if full else self.program.search(data)


@functools.lru_cache(maxsize=_CACHED)
def compiled(pattern: str) -> Pattern:
    """Compile a pattern.

    Raises:
        BadPattern: it cannot be compiled.
    """
    import re2  # imported only if it is needed

    if len(pattern) > MAX_PATTERN_CHARS:
        raise BadPattern(f"is longer than {MAX_PATTERN_CHARS:,} characters")
    if _SURROGATES.search(pattern):
        raise BadPattern("has a lone surrogate")
    options = re2.Options()
    options.max_mem = MAX_PATTERN_MEMORY
    options.log_errors = False
    try:
        # Bytes, because translating the offsets of matches to characters takes a step for each character.
        program = re2.compile(pattern.encode(), options)
        # The re2 module caches 128 patterns, whatever memory they take: clear its cache.
        re2.purge()
    except re2.error as error:
        cause = error.args[0] if error.args else ""
        text = cause.decode("utf-8", "replace") if isinstance(cause, bytes) else str(cause)
        raise BadPattern(f"is none of RE2: {text[:200]}") from None
    return Pattern(program, program.programsize)


# The grader of regular expressions: targets are expressions in RE2's syntax that a response must match.

_METHOD = "regex"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Regex(DirectGrader):
    """A target, as a regular expression of RE2, matches in the response.

    Case counts; `(?i)` at the start of an expression ignores it. A target that is not such an expression is
    UNDECIDED, and so is a response that is too long for the first expressions together
    (`crucible_worker.grading.patterns.MAX_PATTERN_WORK`).
    """

    full: bool = False
    """The whole response must match, white space around it included."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Search for the targets, in their order. Choices are ignored."""
        left = MAX_PATTERN_WORK
        for target in targets:
            try:
                pattern = compiled(target)
                found = pattern.find(response, full=self.full, limit=left)
                left -= pattern.size * len(response)
            except BadPattern as error:
                return undecided(f"the target {error}", method=_METHOD)
            except TooMuchText as error:
                return undecided(str(error), method=_METHOD)
            if found is not None:
                return right(found, _METHOD)
        return wrong("", _METHOD)
