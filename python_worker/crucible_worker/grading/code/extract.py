"""The program inside a response: a fenced block of it, code between marks or sentences, or all of it.

Reasoning is no part of the answer, see `crucible_worker.util.reasoning`: a draft in it is not the program. The answer
ends where a special token of a model, or another question, begins.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crucible_worker.grading.code.unfenced import NEXT_TURN, Segment, begins_as_code, continues, segments_of
from crucible_worker.util.reasoning import TAGS, reasoning_spans

__all__ = ["NO_PROGRAM", "program_of"]

NO_PROGRAM = "there is no program"
"""The reason if the program is blank."""

# They never backtrack: each character of a line is read once.
_FENCE = re.compile(
    r"^(?P<before>[^\n`~]*+)(?P<mark>`{3,}+|~{3,}+)[ \t]*+(?P<language>[^\s`{<]*+)(?P<rest>[^\n`]*+)$", re.MULTILINE
)
_LEAD = re.compile(r"(?P<indent> {0,3}+)(?>(?:</?[A-Za-z][\w-]*+>[ \t]*+)*)")
_LIST_LEAD = re.compile(r"[ \t]*+(?:(?:[-*+>]|[0-9]{1,3}[.)])[ \t]++)?")
_PYTHON = re.compile(r"(?:i?python|py)[0-9.]*(?:[^\w.].*)?", re.IGNORECASE)
_LAST_MARK = re.compile(r"(?<!`)(?<!~)(?P<mark>`{3,}+|~{3,}+)[ \t]*+$", re.MULTILINE)
_DEFINITION = re.compile(
    r"^(?:(?:async[ \t]++)?(?:def|class)[ \t]++([^\W\d]\w*+)|([^\W\d]\w*+)[ \t]*+[:=])", re.MULTILINE
)
_LINE_OF_BODY = re.compile(
    r"^(?P<indent>[ \t]*)(?:(?P<head>(?:def|class|async)\b|[@)\]}])|(?P<ends>return|yield|nonlocal)\b|\S)", re.M
)
_SCRIPT = re.compile(r"^(?:async def|def|class|import|from|@)\b|\b(?:input|print)\(|\bstdin\b", re.MULTILINE)
_MAX_INDENT = 200  # that is taken from a program
_MAX_BLOCKS = 1_000  # that are read, the first one aside: the last ones
_DEEPEST = 3  # blanks before a fence, beyond those of the block's own indent
_NEXT_TURN = re.compile(f"^(?:{NEXT_TURN.pattern})", re.MULTILINE)

# Special tokens of models. None of them is Python, unless it is in a string or a comment.
_TOKEN = r"<\|[A-Za-z_][\w.-]{0,40}\|>|<\uff5c[^<>\n]{1,40}\uff5c>|</s>|<(?:eos|end_of_turn|start_of_turn)>"
_LEADING_TOKENS = re.compile(rf"(?:\s{{0,9}}(?:{_TOKEN}|<s>|<bos>)(?:assistant\b|model\b)?)+[ \t]*\n?")
_TOKEN_OR_QUOTES = re.compile(rf"(?P<quotes>\"\"\"|''')|{_TOKEN}")
_OPENING_TAG = re.compile("|".join(re.escape(tag) for tag in sorted(TAGS) if "/" not in tag and "END" not in tag), re.I)
_REASONING_TAG = re.compile("|".join(map(re.escape, sorted(TAGS))), re.IGNORECASE)
# A text in quotes on one line; a quote after a letter is an apostrophe, unless the letters are a prefix of Python's.
_QUOTED = re.compile(
    r"(?:(?<![\w\"'])|(?<=\b[rbfuRBFU])|(?<=\b[rbfRBF][rbfRBF]))"
    r"(?:\"(?!\"\")(?>(?:[^\"\\\n]++|\\.)*)\"?|'(?!'')(?>(?:[^'\\\n]++|\\.)*)'?)"
)
_TRIPLE = re.compile(
    r'"""(?>(?:[^"\\]++|\\.|"(?!""))*)(?:"""|\Z)' + r"|'''(?>(?:[^'\\]++|\\.|'(?!''))*)(?:'''|\Z)", re.DOTALL
)
_COMMENT = re.compile(r"#[^\n]*+")


class _Block(NamedTuple):
    """A fenced block, or the beginning of the answer up to a mark that closes a block of the prompt."""

    start: int
    """Where the line of its first fence begins."""
    inside: int
    """Where the line after that begins."""
    end: int
    """Where the text after the block begins."""
    text: str
    """What is in it."""
    python: bool = True
    """Whether its tag is that of Python, or absent."""
    bare: bool = False
    """Whether its first fence is nothing but marks."""
    closed: bool = False
    """Whether a fence closes it."""
    torn: bool = False
    """Whether no fence closes it, or another block begins in it."""
    lead: bool = False
    """Whether it is the beginning of the answer."""


class _FoundProgram(NamedTuple):
    """Text that may be the program."""

    at: int
    """About where it stands."""
    text: str
    """Its lines."""
    extraction: str
    """How it was found."""


def program_of(response: str, wanted: Iterable[str] = ()) -> tuple[str, str]:
    """Extract the program from a response, in time linear in its length.

    Args:
        response: the model's response.
        wanted: names that the program must define.

    Returns:
        The program, and how it was found: "block", the last block of Python that defines a wanted name, or the last
        one if none does; "whole" if it is all of the answer, or its beginning. A block is fenced, or it stands between
        marks such as `<answer>` or `[BEGIN]`, or between sentences. A fenced block that was never closed ends at the
        first mark that ends a line, or with the response. A block that is indented as a whole loses its indent.
    """
    text, names = _first_turn(_answered(response)), frozenset(wanted)
    text, blocks = _within_turn(text, _blocks(text, names))
    if not blocks:
        found, divided = segments_of(text)
        if not found or not divided:
            return _dedented(text, names), "whole"
        marked = [_candidate(segment, 0, names) for segment in found if segment.marked]
        return _last([_candidate(segment, 0, names) for segment in found if not segment.marked] + marked, names)
    tagged = any(block.python for block in blocks)
    candidates = [each for block in blocks if block.python or not tagged for each in _in_block(block, names)]
    outside = [(at, segment) for at, part in _outside(text, blocks) for segment in segments_of(part)[0]]
    candidates += [_candidate(segment, at, names) for at, segment in outside if segment.marked]
    if names and not any(_defines(each.text, names) for each in candidates):
        torn = any(continues(text, block.inside - 1) for block in blocks)  # a faulty line in a program
        plain = [_candidate(segment, at, names) for at, segment in outside if not (segment.marked or torn)]
        candidates += [each for each in plain if _defines(each.text, names)]
    candidates.sort(key=lambda each: each.at)
    lead = [each for each in candidates if blocks[0].lead and each.at == 0]
    return _last(candidates, names, lead)


def _last(
    candidates: Sequence[_FoundProgram], names: frozenset[str], default: Sequence[_FoundProgram] = ()
) -> tuple[str, str]:
    """The last one that defines a name; if none does, the last of the default, or of all."""
    defining = (each for each in reversed(candidates) if names and _defines(each.text, names))
    chosen = next(defining, (default or candidates)[-1])
    return chosen.text, chosen.extraction


def _defines(program: str, names: frozenset[str]) -> bool:
    return any(found[1] in names or found[2] in names for found in _DEFINITION.finditer(program))


def _candidate(segment: Segment, at: int, names: frozenset[str]) -> _FoundProgram:
    return _FoundProgram(at, _dedented(segment.text, names), "whole" if segment.alone and not at else "block")


def _in_block(block: _Block, names: frozenset[str]) -> Sequence[_FoundProgram]:
    """A block, or the code in one that nothing closes: prose may follow it there."""
    found, divided = ((), False) if block.closed else segments_of(block.text)
    if not found or not divided:
        return [_FoundProgram(block.start, _dedented(block.text, names), "whole" if block.lead else "block")]
    candidates = [_candidate(segment, block.start, names) for segment in found]
    return candidates if block.lead else [each._replace(extraction="block") for each in candidates]


def _dedented(text: str, names: frozenset[str]) -> str:
    """A program without the indent that all of its lines have; the body of a function keeps it."""
    begin = len(text) - len(text.lstrip())
    if text[begin - 1 : begin] not in (" ", "\t"):  # the usual case
        return text
    if begin - text.rfind("\n", 0, begin) > _MAX_INDENT:
        return text
    program = textwrap.dedent(text)
    if program.lstrip("\n")[:1] in (" ", "\t") or _is_body(program):
        return text
    if names:
        return program if any(found[1] in names for found in _DEFINITION.finditer(program)) else text
    return program if _SCRIPT.search(program) else text


def _is_body(program: str) -> bool:
    """Whether lines belong into a function, because one of them returns outside of any."""
    within = False
    for line in _LINE_OF_BODY.finditer(program):
        if not line["indent"]:
            within = line["head"] is not None
        if line["ends"] and not within:
            return True
    return False


def _outside(text: str, blocks: Sequence[_Block]) -> Iterator[tuple[int, str]]:
    """The texts before, between and after blocks."""
    for start, end in zip([0, *(block.end for block in blocks)], [*(block.start for block in blocks), len(text)]):
        if start < end:
            yield start, text[start:end]


def _within_turn(text: str, blocks: Sequence[_Block]) -> tuple[str, Sequence[_Block]]:
    """A text and its blocks, up to where another question follows one of them."""
    for index, block in enumerate(blocks):
        until = blocks[index + 1].start if index + 1 < len(blocks) else len(text)
        if (found := _NEXT_TURN.search(text, block.end, until)) is not None:
            return text[: found.start()], blocks[: index + 1]
    return text, blocks


def _blocks(text: str, names: frozenset[str]) -> Sequence[_Block]:
    """The fenced blocks of a text; its beginning is one, too, if the prompt opened it."""
    blocks = _fenced(text)
    if not blocks or not blocks[0].bare or not _opened_by_prompt(text, blocks, names):
        return blocks
    start, inside = blocks[0].start, blocks[0].inside
    return [_Block(0, 0, inside, text[:start], lead=True), *_fenced(text, inside)]


def _opened_by_prompt(text: str, blocks: Sequence[_Block], names: frozenset[str]) -> bool:
    """Whether the first fence closes a block: code stands before it, and the blocks do not fit if it opens one."""
    found, _ = segments_of(text[: blocks[0].start])
    if not found or continues(text, blocks[0].inside - 1):
        return False
    usable = [block for block in blocks if block.python] or blocks
    torn = any(block.torn for block in blocks)
    if names and any(_defines(_dedented(segment.text, names), names) for segment in found):
        return torn or not any(_defines(block.text, names) for block in usable)
    if names and any(_defines(block.text, names) for block in usable):
        return False
    return torn or (not names and not any(begins_as_code(block.text) for block in usable))


def _fenced(text: str, at: int = 0) -> Sequence[_Block]:
    """The fenced blocks of a text from a line on."""
    spans: list[_Span] = []
    opened: re.Match[str] | None = None
    torn, deepest, indent = False, _DEEPEST, 0
    prose = not begins_as_code(text[at:])  # a program may have such fences in its strings
    for fence in _FENCE.finditer(text, at):
        lead, language = _LEAD.fullmatch(fence["before"]), fence["language"]
        if opened is None:
            if lead is not None and not fence["rest"].startswith("<"):  # "```</answer>" only closes
                opened, torn, deepest, indent = fence, False, _DEEPEST, len(lead["indent"])
            elif lead is None and prose and _is_late(fence):
                within = len(fence["before"]) if _LIST_LEAD.fullmatch(fence["before"]) else 0
                opened, torn, deepest, indent = fence, False, within + _DEEPEST, within
        elif not _fits(fence["mark"], opened["mark"]):
            continue
        elif not language and (lead is not None or (fence["before"].isspace() and len(fence["before"]) <= deepest)):
            spans.append(_Span(opened, fence, indent, torn))
            opened = None
        elif lead is not None and _PYTHON.fullmatch(language):
            torn = True
    if opened is not None:
        spans.append(_Span(opened, None, indent, torn=True))
    return [_block(text, span) for span in (*spans[:1], *spans[1:][-_MAX_BLOCKS:])]


class _Span(NamedTuple):
    """The fences of a block."""

    opened: re.Match[str]
    """The first one."""
    closed: re.Match[str] | None
    """The other one, if any."""
    indent: int
    """Blanks before the lines of the block."""
    torn: bool
    """As of a block."""


def _block(text: str, span: _Span) -> _Block:
    opened, closed = span.opened, span.closed
    language, inside = opened["language"], min(opened.end() + 1, len(text))
    if closed is not None:
        end, program = min(closed.end() + 1, len(text)), text[inside : closed.start()]
    else:
        # A mark at the end of a line of the program closes nothing, unless nothing else does.
        end, program = len(text), text[inside:]
        ends = (found.start() for found in _LAST_MARK.finditer(program) if _fits(found["mark"], opened["mark"]))
        program = program[: next(ends, None)]
    return _Block(
        start=opened.start(),
        inside=inside,
        end=end,
        text=_unindented(program, span.indent),
        python=not language or _PYTHON.fullmatch(language) is not None,
        bare=not language and not opened["rest"].strip() and not opened["before"].strip(),
        closed=closed is not None,
        torn=span.torn,
    )


def _is_late(fence: re.Match[str]) -> bool:
    """Whether a fence opens a block of Python though it is deeply indented, or other text stands before it."""
    before, language = fence["before"], fence["language"]
    if not before.endswith((" ", "\t", ":", ">", "*")) or "#" in before or fence["rest"].strip():
        return False
    return bool(language) and _PYTHON.fullmatch(language) is not None


def _fits(mark: str, opening: str) -> bool:
    """Whether a mark can close a block: the same character, at least as often."""
    return mark[0] == opening[0] and len(mark) >= len(opening)


def _unindented(text: str, indent: int) -> str:
    """The lines of a block, without the indent of its fence: a block in a list is indented."""
    return re.sub(rf"^ {{1,{indent}}}", "", text, flags=re.MULTILINE) if indent else text


def _answered(response: str) -> str:
    """A response without its reasoning; tags in texts of a program, and in its comments, are no tags."""
    if not any(mark in response for mark in "<[\u25c1") or not (spans := reasoning_spans(response)):
        return response
    masked = _TRIPLE.sub(_blanked, response) if _is_code(response[: _first_tag(response)]) else response
    spans = reasoning_spans(_COMMENT.sub(_without_opening, _QUOTED.sub(_blanked, masked)))
    starts, ends = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(response)]
    return "\n".join(response[start:end] for start, end in zip(starts, ends)) if spans else response


def _first_tag(response: str) -> int:
    found = _REASONING_TAG.search(response)
    return 0 if found is None else found.start()


def _is_code(text: str) -> bool:
    """Whether a text ends in code: it begins as code, or its last block is open."""
    return begins_as_code(text) or bool((blocks := _fenced(text)) and not blocks[-1].closed)


def _blanked(found: re.Match[str]) -> str:
    """As many other characters; a string that does not end stays as it is."""
    text = found[0]
    quotes = text[:3] if text[0] == text[1:2] == text[2:3] else text[0]
    ends = text[0] == "#" or (len(text) >= 2 * len(quotes) and text.endswith(quotes))
    return "x" * len(text) if ends else text


def _without_opening(comment: re.Match[str]) -> str:
    return _blanked(comment) if _OPENING_TAG.search(comment[0]) else comment[0]


def _first_turn(text: str) -> str:
    """An answer up to the first special token of a model behind it, and without such tokens before it."""
    if "<|" not in text and "<\uff5c" not in text and not ("<" in text and re.search(_TOKEN, text)):
        return text
    leading = _LEADING_TOKENS.match(text)
    text = text[leading.end() :] if leading else text
    masked = _COMMENT.sub(_blanked, _QUOTED.sub(_blanked, text))
    behind = 0  # the long string that has begun
    for found in _TOKEN_OR_QUOTES.finditer(masked):
        if found.start() < behind:
            continue
        if quotes := found["quotes"]:
            behind = masked.find(quotes, found.end()) + len(quotes)
        elif before := text[: found.start()].rstrip():
            return f"{before}\n"
    return text
