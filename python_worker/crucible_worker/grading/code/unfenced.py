"""Programs outside of fenced blocks: the code between sentences, headings and marks such as `<answer>`.

Only what cannot be Python separates code: a line at the outermost level of the code, outside of brackets and strings,
that is a sentence, a heading or a mark. A faulty line of code is none of these, and stays in its program. So no program
becomes right here by what is left out of it.
"""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["MAX_CHARS", "NEXT_TURN", "Segment", "begins_as_code", "continues", "segments_of"]

MAX_CHARS = 100_000
"""A longer text is code as a whole."""

NEXT_TURN = re.compile(
    r"[*_]{0,3}(?:Question|Q|Human|User)(?: ?[0-9]{1,4})?[*_]{0,3}[:.][ \t*_]"
    r"|[*_]{0,3}(?:Question|Human|User)[*_]{0,3}:[*_]{0,3}[ \t\r]*$"
    r"|#{2,4} (?:Instruction|Question|Human|User):?[ \t\r]*$",
    re.MULTILINE,
)
"""The start of a line with which another question begins, after the answer."""

_TOKEN = re.compile(
    r"(?P<string>(?>(?<!\w)[rbfuRBFU]{1,2}|)(?:"
    r'"""(?>(?:[^"\\]++|\\.|"(?!""))*)(?:"""|(?P<open>\Z))'
    r"|'''(?>(?:[^'\\]++|\\.|'(?!''))*)(?:'''|(?P<opened>\Z))"
    r"|\"(?>(?:[^\"\\\n]++|\\.)*)\"?|'(?>(?:[^'\\\n]++|\\.)*)'?))"
    r"|(?P<comment>\#[^\n]*+)"
    r"|(?P<opening>[(\[{])|(?P<closing>[)\]}])|(?P<end>\n)|\\(?s:.)"
    r"|(?P<mark>(?:</[A-Za-z][\w-]{0,40}>|`{3,}+|~{3,}+)(?=[ \t\r]*(?:\n|\Z)))|[`~]++"
    # An apostrophe after a letter belongs to a word: "don't"; but "return'a'" is Python.
    rf"|(?:{'|'.join(keyword.kwlist)})(?=')|[^\W\d]\w*+'?|[^\w\"'#()\[\]{{}}\n\\<`~]++|.",
    re.DOTALL,
)
_MARK = re.compile(
    r"(?:[ \t]*+(?P<mark></[A-Za-z][\w-]{0,40}>|<[A-Za-z][\w-]{0,40}(?: [^<>\n]{0,80})?>|`{3,}+|~{3,}+)"
    r"|(?P<word>\[/?(?:BEGIN|DONE|END|PYTHON|CODE|ANSWER|SOLUTION)\])(?![ \t]*[=.,\[+*/-]))[ \t\r]*+"
)
_INDENTED = re.compile(r"(?>(?:[ \t\r]*\n)+)[ \t]++\S")
_CLOSING = ("</", "[/", "[DONE]", "[END]", "`", "~")
_LAST_MARK = "[DONE]"  # it ends the answer; prompts with examples have the next question behind it
_CODE = re.compile(
    r"[ \t]*(?:(?:async|def|class|for|while|with|if|try|import|from|return|yield|raise|assert|del|global|nonlocal|pass"
    r"|break|continue|lambda|not|await|match)\b|@\w|#|\(|[rbfuRBFU]{0,2}[\"']"
    r"|[^\W\d][\w.]{0,200}(?:\[[^\n]{0,200}\])?[ \t]{0,20}(?:\(|[-+*/%&|^@<>]{0,3}=|:[^=\n]{1,200}=|,[^=\n]{1,200}=))"
)
_WORD = re.compile(r"(?P<word>[^\W\d_]\w*(?:['\u2019-]\w+)*)|(?P<blank>[ \t]+)|(?P<stop>[\"'#=(\[{\\@])|.")
_LABEL = re.compile(r"[*_]{0,3}[^\W\d_a-z][\w ]{0,60}[*_]{0,3}:[*_]{0,3}")
_MARKUP = re.compile(r"(?:[-*+\u2022\u2013\u2014]|[0-9]{1,3}[.)])[ \t]+|[*_]{1,3}(?=\w)")
_NEVER_PYTHON = re.compile(r"\*\*\w|`\w|>[> ]|[|\u2022\u25cf\u25aa\u2013\u2014\u2192]|[-=*_]{3,}[ \t]*\Z")
_FULL_WIDTH = re.compile(r"[^\W\d_a-zA-Z][^\"'=#\n(]{0,100}[\uff1a\uff0c\u3002\uff01\uff1f\u3001\uff1b]")
_FULL_STOP = re.compile(r"[^\W\d_][.!?]\Z")  # an attribute without a name, or an operator without an operand
_SHORT = re.compile(r"[^\W\d_a-z][\w ,;:'\u2019-]{0,60}[.!?]")
_WORD_ALONE = re.compile(r"[A-Z][a-z]{1,30}")
_LOWER = re.compile(r"[a-z][\w ,;:'\u2019`()/-]+[.!?:]")
_STATEMENTS = frozenset({*keyword.kwlist, "print", "exec", "elseif", "function", "match", "case"})
_LINE_CHARS = 300  # of a line, that are read
_LEAST_WORDS, _MOST_WORDS = 3, 6
_ENDS = (".", "!", "?", ":")


class Segment(NamedTuple):
    """Code between prose."""

    text: str
    """Its lines."""
    marked: bool
    """Whether a mark stands before or behind it."""
    alone: bool
    """Whether nothing stands before it."""


def segments_of(text: str) -> tuple[Sequence[Segment], bool]:
    """The code in a text, and whether anything divides it from other text; in time linear in the text's length.

    A text that continues with another question ends there. Code whose brackets or strings do not end is left out, as is
    what does not begin as code does.
    """
    return ((), False) if len(text) > MAX_CHARS else _Reader(text).read()


def continues(text: str, at: int) -> bool:
    """Whether the next line that is not blank is indented: a mark before it would divide a block of Python."""
    return _INDENTED.match(text, at) is not None


def begins_as_code(text: str) -> bool:
    """Whether the first line of a text that is not blank looks like Python."""
    return _CODE.match(text.lstrip()) is not None


class _Reader:
    """Reads a text line by line; a line of code reaches to the end of its brackets and strings."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[Segment] = []
        self._begin: int | None = None  # of the code that is being read
        self._marked = False  # a mark stands before it
        self._divided = False

    def read(self) -> tuple[Sequence[Segment], bool]:
        text, at = self._text, 0
        while at < len(text):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            if (found := _MARK.match(text, at)) is not None:
                mark = found["mark"] or found["word"]
                closes = mark.startswith(_CLOSING)
                if not (closes and self._begin is not None and continues(text, found.end())):
                    self._divide(at, marked=closes)
                    self._marked = not closes
                    if mark == _LAST_MARK and self._found:
                        break
                    at = found.end()
                    at += at < len(text) and text[at] == "\n"
                    continue
            if text[at:end].isspace() or at == end:
                at = end + 1
                continue
            if text[at] == "#" or self._is_prose(at, end):
                if self._found_before and NEXT_TURN.match(text, at):
                    self._divide(at)
                    break
                if text[at] != "#":
                    self._divide(at)
                    self._marked = False
                    at = end + 1
                    continue
            if self._begin is None:
                self._begin = at
            behind = self._behind(at)
            if behind is None:
                self._begin, at = None, len(text)  # it never ends, and is no program
            else:
                at = behind
        self._divide(len(text), last=True)
        return self._found, self._divided

    @property
    def _found_before(self) -> bool:
        """Whether code stands before this line."""
        return bool(self._found) or (self._begin is not None and _CODE.match(self._text, self._begin) is not None)

    def _divide(self, at: int, *, marked: bool = False, last: bool = False) -> None:
        """End the code that is being read."""
        if self._begin is not None:
            text = self._text[self._begin : at].rstrip()
            if _CODE.match(text):
                self._found.append(Segment(f"{text}\n", self._marked or marked, alone=not self._divided))
        self._begin = None
        self._divided |= not last

    def _behind(self, at: int) -> int | None:
        """Where the next line begins after one of code; None if its brackets or strings do not end."""
        depth = 0
        for token in _TOKEN.finditer(self._text, at):
            match token.lastgroup:
                case "opening":
                    depth += 1
                case "closing":
                    depth -= depth > 0
                case "end" if depth == 0:
                    return token.end()
                case "mark":
                    if depth or continues(self._text, token.end()):
                        return None
                    self._divide(token.start(), marked=True)
                    return token.start()
                case "string" if token["open"] is not None or token["opened"] is not None:
                    return None
                case _:
                    pass
        return None if depth else len(self._text)

    def _is_prose(self, at: int, end: int) -> bool:
        """Whether a line is a sentence or a heading, which Python can never be."""
        text = self._text
        if text[at] in " \t":
            return False
        line = text[at : min(end, at + _LINE_CHARS)].rstrip()
        indents = text[end + 1 : end + 2] in (" ", "\t")  # the next line
        if indents and self._begin is not None:
            return False  # the head of a block, even if it is none of Python's
        if _NEVER_PYTHON.match(line) or unicodedata.category(line[0]) == "So":
            return True
        markup = _MARKUP.match(line)
        said = line[markup.end() :] if markup else line
        if not said:
            return False
        words, adjacent, whole = _words(said)
        if not words or not said[0].isalnum():
            return False
        if said[0].islower() and said[0].isascii() and markup is None:
            ends = _ENDS if self._begin is None else _ENDS[:3]
            return (
                adjacent
                and len(words) >= _LEAST_WORDS
                and words[0] not in _STATEMENTS
                and line.endswith(ends)
                and _LOWER.fullmatch(line) is not None
            )
        if words[0].lower() in _STATEMENTS and (
            indents or not adjacent or (len(words) < _MOST_WORDS and not line.endswith(_ENDS))
        ):
            return False
        if adjacent or (whole and len(words) >= _LEAST_WORDS and _FULL_STOP.search(line)) or _SHORT.fullmatch(line):
            return True
        if self._begin is None and not self._found and _WORD_ALONE.fullmatch(line) and not hasattr(builtins, line):
            return True
        return _LABEL.fullmatch(line) is not None or _FULL_WIDTH.match(line) is not None


def _words(line: str) -> tuple[Sequence[str], bool, bool]:
    """The words of a line up to a quote or the like, whether two stand beside each other, and whether that is all.

    Two words stand beside each other if there are only blanks between them, and none is a word of Python.
    """
    words: list[str] = []
    beside = adjacent = False
    for found in _WORD.finditer(line):
        match found.lastgroup:
            case "word":
                plain = not keyword.iskeyword(found[0])
                adjacent |= beside and plain
                words.append(found[0])
                beside = plain
            case "blank":
                pass
            case "stop":
                return words, adjacent, False
            case _:
                beside = False
    return words, adjacent, True
