"""Words and numbers of a text, so that a search for one text in another never splits a word or a number.

A token is
- a number: a minus that follows no word or bracket, digits, and digits after `.`, `,` or `/` ("-1,460.5", "3/4");
- a word: letters, digits, underscores and diacritics ("46km", "don" in "don't");
- any other character except white space; in scripts that are written without spaces (Chinese, Japanese, Thai ...) every
  letter is one.
White space only separates.
"""

from __future__ import annotations

import re

__all__ = ["DIVIDER", "tokens_of"]

DIVIDER = "\x1f"
"""Between tokens; white space itself, so never in one."""

_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u31ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = rf"(?:(?![{_SPACELESS}])\w|[\u0300-\u036f])"
# Every alternative consumes what it has read, or gives back one separator with its digits: linear.
_TOKEN = re.compile(rf"(?:(?<![\w)\]}}])[-\u2212](?=\d))?\d++(?:[.,/]\d++)*(?!{_LETTER})|{_LETTER}++|\S")


def tokens_of(text: str) -> str:
    """Write a text's tokens, each between dividers; empty if there are none.

    Text b contains text a, in whole words and numbers, if `tokens_of(a) in tokens_of(b)`.
    """
    found = _TOKEN.findall(text)
    if not found:
        return ""
    return DIVIDER + DIVIDER.join(found).replace("\u2212", "-") + DIVIDER
