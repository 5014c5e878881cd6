"""The answer between tags: `<answer>42</answer>`, as recipes of reinforcement learning request it.

Tags are `answer`, `final_answer` and `solution` in angle brackets, in either case, `[ANSWER]` in brackets, and the
special tokens `<|begin_of_box|>` and `<|end_of_box|>`. The last complete pair with an answer counts; of nested pairs
the inner one counts. Pairs that only show the form have none: `<answer>...</answer>`,
`<answer>your answer</answer>`, `<answer> and </answer>`, and a pair in quotation marks that more words follow. Pairs of
one tag in one sentence are one answer, as `crucible_worker.grading.joined` says. If no pair is
complete, what follows the last opening tag is the answer, as in a response that was truncated or ended by a stop
string; so is a short line before a closing tag whose opening tag was in the prompt.
"""

from __future__ import annotations

import dataclasses
import re

from crucible_worker.grading.joined import MAX_JOINED, link, name_before
from crucible_worker.grading.phrase import MAX_WHOLE_CHARS, is_placeholder

__all__ = ["Tagged", "joined_tags", "last_tagged", "may_hold_tag"]

_TAG = re.compile(
    r"<(?P<close>/?) ?(?P<name>answer|final[_ -]?answer|solution) ?>|\[(?P<end>/?)(?-i:ANSWER)\]"
    r"|<\|(?:begin|(?P<last>end))_of_(?P<of>box|answer|solution)\|>",
    re.IGNORECASE,
)
# The beginning of every tag, in either case: "<<3*4=12>>", "x <y" and HTML have many brackets that begin no tag.
_TAG_BEGINS = re.compile("<[/|]? ?[abefsABEFS\u017f][nieoNIEO\u0130\u0131]")
_QUOTES = "`'\"\u201c\u2018"
_WORD = re.compile(r"[^\W\d_]")
# Text after a tag that is only mentioned: "<answer> tags", "<answer>, then".
_MENTIONED = re.compile(
    r"\s?(?:[`'\"\u201d\u2019,;]|(?:and|or|tags?|blocks?|elements?|sections?|format)\b)", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True, slots=True)
class Tagged:
    """An answer between tags."""

    start: int
    """The start of its content."""
    end: int
    """The end of its closing tag."""
    content: str
    """Its content, without white space around it."""
    name: str = ""
    """The name that the text before it gives it: `x` of `x = <answer>5</answer>`."""
    tag: str = ""
    """Its tag."""
    before: Tagged | None = None
    """The previous answer of the same sentence and tag, if both form one answer."""
    link: str = ""
    """The joint between the two."""


def last_tagged(text: str) -> tuple[Tagged | None, int]:
    """The last answer between tags with those it is joined to, if there is one; and how many tags there are. Linear."""
    if not may_hold_tag(text):
        return None, 0
    found: Tagged | None = None
    opened: re.Match[str] | None = None
    marks = 0
    for tag in _TAG.finditer(text):
        marks += 1
        if not (tag["close"] or tag["end"] or tag["last"]):
            opened = tag
        elif opened is None:
            if marks == 1 and tag.start() <= MAX_WHOLE_CHARS:
                found = _pair(text, 0, 0, tag)
        elif _name(opened) == _name(tag):
            pair = _pair(text, opened.start(), opened.end(), tag)
            found = _joined(text, found, pair, opened.start()) if pair else found
            opened = None
    if found is None and opened is not None and not _MENTIONED.match(text, opened.end()):
        content = text[opened.end() :].strip()
        found = Tagged(opened.end(), len(text), content) if content and not is_placeholder(content) else None
    return found, marks


def may_hold_tag(text: str) -> bool:
    """Whether a text may have a tag: most texts have none."""
    return ("<" in text and _TAG_BEGINS.search(text) is not None) or "ANSWER]" in text


def _pair(text: str, before: int, start: int, close: re.Match[str]) -> Tagged | None:
    """A pair with an answer; None if it only shows the form."""
    content = text[start : close.start()].strip()
    if not content or is_placeholder(content):
        return None
    shown = content.strip(_QUOTES + " ").casefold() in ("and", "or") or (before and text[before - 1] in _QUOTES)
    if shown and _WORD.search(text, close.end()):
        return None
    return Tagged(start, close.end(), content, name_before(text, before), _name(close))


def _joined(text: str, earlier: Tagged | None, pair: Tagged, start: int) -> Tagged:
    """A pair with a given start, and the previous pair if only a joint is between them."""
    if earlier is None or earlier.tag != pair.tag:
        return pair
    how = link(text[earlier.end : start])
    return pair if how is None else dataclasses.replace(pair, before=earlier, link=how)


def joined_tags(last: Tagged) -> list[Tagged]:
    """The answers that form one answer together, in their order."""
    tags = [last]
    while tags[-1].before is not None and len(tags) < MAX_JOINED:
        tags.append(tags[-1].before)
    return tags[::-1]


def _name(tag: re.Match[str]) -> str:
    written = f"|{tag['of']}|" if tag["of"] else tag["name"] or "[answer]"
    return re.sub(r"[_ -]", "", written).casefold()
