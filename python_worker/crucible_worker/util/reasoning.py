"""An answer, and the reasoning that a model wrote down before it.

    <think>12+34</think>46        reasoning "12+34", answer "46"
    12+34</think>46               likewise: the prompt opened the reasoning
    [THINK]12+34[/THINK]46        likewise, as Mistral's models write
    <|channel|>analysis<|message|>12+34<|end|><|start|>assistant<|channel|>final<|message|>46
                                  likewise, as models with channels write
    <think>12+                    reasoning that is not finished: there is no answer

Every part of the worker separates them by these functions: graders of raw text, evaluators, judges, reports, and the
process that generates.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ChatMessage, ReasoningPart

__all__ = [
    "CHANNEL",
    "CHANNEL_MARKS",
    "OPENING_TOKENS",
    "TAGS",
    "Parted",
    "Turned",
    "opening_of_prompt",
    "part_thinking",
    "parted",
    "reasoning_spans",
    "refuse_parted_reasoning",
    "turned",
]

_PAIRS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
TAGS = frozenset(tag for pair in _PAIRS for tag in pair)
"""The tags around reasoning, as tokenizers have them among their special tokens."""

CHANNEL = "<|channel|>"
"""A tokenizer with this special token has channels."""
CHANNEL_MARKS = frozenset({CHANNEL, "<|message|>", "<|start|>", "<|end|>", "<|constrain|>"})
"""The special tokens that separate channels."""

OPENING_TOKENS = 64
"""Tokens at the end of a prompt in which an opening tag is sought; a tokenizer may make one of each byte."""

# By kind: the opening tag, and the closing one.
_FORMS = {
    "think": (r"<(?i:think(?:ing)?)>", r"</(?i:think(?:ing)?)>"),
    "mistral": (r"\[THINK\]", r"\[/THINK\]"),
    "seed": (r"<seed:think>", r"</seed:think>"),
    "kimi": ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    "cohere": (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
}
_OPENING = re.compile("|".join(f"(?P<{kind}>{opening})" for kind, (opening, _) in _FORMS.items()))
_CLOSING = {kind: re.compile(closing) for kind, (_, closing) in _FORMS.items()}
_ANY_CLOSING = re.compile("|".join(closing for _, closing in _FORMS.values()))
_TAG = re.compile("|".join(tag for form in _FORMS.values() for tag in form))
_NOTHING = re.compile(r"(?!)")
_HEADER = re.compile(r"<\|channel\|>\s*+(\w{1,40}+)[^<]{0,200}+(?:<\|constrain\|>[^<]{0,200}+)?<\|message\|>")
"""The head of a message in a channel; `final` is the answer's."""
_MESSAGE_END = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
_CHANNELS, _FINAL = "channels", "final"
_MARKS, _ENDS = ("<", "[", "\u25c1"), (">", "]", "\u25b7")
"""How all of these tags begin and end; a text without such a mark has none of them."""
_MAX_OPENING = 300  # characters at the end of a prompt in which an opening tag is sought


class Parted(NamedTuple):
    """A model's output, separated."""

    reasoning: str
    """The reasoning, its parts in paragraphs and without tags; empty if there is none."""
    answer: str
    """The rest, up to the first stop string in it; empty if the reasoning is not finished."""
    unfinished: bool
    """Whether the output ends within its reasoning: then it has no answer."""
    end: int
    """Where the answer ends in the output: at a stop string, or at its end."""
    open: bool
    """Whether the reasoning extends to the end because nothing closes it."""


class Turned(NamedTuple):
    """A mark at which reasoning begins or ends."""

    start: int
    """Where the mark begins."""
    end: int
    """Where it ends."""
    inside: str
    """The kind of reasoning that follows it; empty if an answer follows."""


def refuse_parted_reasoning(message: ChatMessage, path: str) -> None:
    """Refuse reasoning that is not all before the text of a message: servers and chat templates have no form for it.

    Raises:
        InvalidField: there is such reasoning; the field is `path`.
    """
    if any(isinstance(part, ReasoningPart) for part in message.parts):
        raise InvalidField(
            path,
            "has reasoning in several parts, or after a text, for which only tinker-cookbook's renderers have a form: "
            "put it into one part at the beginning, or name a renderer such as tinker:NAME",
        )


def part_thinking(text: str) -> tuple[str, str]:
    """The reasoning of an output, and the rest, see `parted`."""
    return parted(text)[:2]


def parted(text: str, *, opening: str = "", stops: Sequence[str] = (), truncated: bool = False) -> Parted:
    """Separate the reasoning from the answer, in one pass, and end the answer at the first stop string after it.

    - Reasoning ends with the first closing tag of its kind after its opening tag; a second opening tag in it is text.
    - A closing tag without an opening one closes reasoning that the prompt opened, as chat templates do: all text
      before it is reasoning.
    - Unclosed reasoning extends to the end. The output has no answer then, unless it ended by itself and there is text
      before the reasoning: that text is the answer.
    - In a text with channels, the channel `final` is the answer, and all others are reasoning.
    - A stop string within the reasoning does not end the answer. Of several, the first one in the text does.

    Text without such a tag is returned unchanged; if something is removed, so is white space around the rest.

    Args:
        text: what a model generated.
        opening: the tag with which its prompt ended, see `opening_of_prompt`; empty if there is none or it is unknown.
        stops: the stop strings.
        truncated: whether the output ended at its token limit.
    """
    if not opening and not any(mark in text for mark in _MARKS):  # the usual case
        stop = _first_stop(text, [(0, len(text))], stops) if stops else None
        end = len(text) if stop is None else stop
        return Parted("", text[:end], False, end, False)
    parts = _parts(text, opening)
    ends = [0, *(part.end for part in parts)]
    starts = [*(part.start for part in parts), len(text)]
    pieces = list(zip(ends, starts, strict=True))
    stop = _first_stop(text, pieces, stops)
    if stop is not None:
        # What follows a stop string is no part of the output.
        parts = [part for part in parts if part.end <= stop]
        pieces = [*pieces[: len(parts)], (pieces[len(parts)][0], stop)]
    end = len(text) if stop is None else stop
    if not parts:
        return Parted("", text[:end], False, end, False)
    thoughts = [text[part.opened : part.closed] for part in parts]
    if parts[0].prompted:  # once, and not at each such tag: a text may consist of tags alone
        thoughts[0] = _TAG.sub("", thoughts[0])
    # With a space in between, the two remaining parts never form a tag.
    said = " ".join(text[start:stop] for start, stop in pieces).strip()
    unfinished = parts[-1].open and (truncated or not said)
    reasoning = "\n\n".join(filter(None, map(str.strip, thoughts)))
    return Parted(reasoning, "" if unfinished else said, unfinished, end, parts[-1].open)


def reasoning_spans(text: str, opening: str = "") -> Sequence[tuple[int, int]]:
    """Where the parts that `parted` separates begin and end in a text, their tags included, in order."""
    return [(part.start, part.end) for part in _parts(text, opening)]


def opening_of_prompt(prompt: str) -> str:
    """The tag of reasoning with which a prompt ends; empty if it ends with none."""
    tail = prompt[-_MAX_OPENING:].rstrip()
    if not tail.endswith(_ENDS):  # the usual case
        return ""
    for tag in _OPENING.finditer(tail):
        if tag.end() == len(tail):
            return tag[0]
    for header in _HEADER.finditer(tail):
        if header.end() == len(tail) and header[1] != _FINAL:
            return header[0]
    return ""


def turned(text: str, inside: str) -> Turned | None:
    """The first mark in a text at which reasoning begins, if none has begun, or else ends.

    Args:
        text: a part of an output.
        inside: the kind of reasoning in which it begins, or the opening tag of that; empty if it begins in an answer.
    """
    kind = _kind_of_opening(inside) if inside else ""
    for header in _HEADER.finditer(text):
        if not kind and header[1] != _FINAL:
            return Turned(header.start(), header.end(), _CHANNELS)
        if kind == _CHANNELS and header[1] == _FINAL:
            return Turned(header.start(), header.end(), "")
    tag = (_CLOSING.get(kind, _NOTHING) if kind else _OPENING).search(text)
    return None if tag is None else Turned(tag.start(), tag.end(), "" if kind else tag.lastgroup or "")


class _Part(NamedTuple):
    """A part of a text that is reasoning, or a mark around an answer."""

    start: int
    opened: int
    closed: int
    end: int
    prompted: bool = False
    open: bool = False


def _kind_of_opening(opening: str) -> str:
    if _HEADER.fullmatch(opening):
        return _CHANNELS
    tag = _OPENING.fullmatch(opening)
    return opening if tag is None else tag.lastgroup or ""


def _first_stop(text: str, pieces: Sequence[tuple[int, int]], stops: Sequence[str]) -> int | None:
    """Where the first stop string in the answer begins."""
    if not any(stops):
        return None
    for index, (start, end) in enumerate(pieces):
        if index < len(pieces) - 1 and not text[start:end].strip():
            continue  # white space before reasoning
        found = [at for stop in stops if stop and (at := text.find(stop, start, end)) >= 0]
        if found:
            return min(found)
    return None


def _parts(text: str, opening: str) -> Sequence[_Part]:
    kind = _kind_of_opening(opening) if opening else ""
    if kind == _CHANNELS or (CHANNEL in text and _HEADER.search(text)):
        return _channel_parts(text, prompted=kind == _CHANNELS)
    parts: list[_Part] = []
    # Where the reasoning that has begun began, and where its text did.
    begun: tuple[int, int] | None = (0, 0) if kind else None
    at = 0
    # By searches for the next tag that matters: a model may write millions of others.
    while True:
        if begun is not None:
            closing = _CLOSING.get(kind, _NOTHING).search(text, at)
            if closing is None:
                parts.append(_Part(*begun, len(text), len(text), prompted=begun == (0, 0), open=True))
                return parts
            parts.append(_Part(*begun, closing.start(), closing.end(), prompted=begun == (0, 0)))
            begun, at = None, closing.end()
        opened = _OPENING.search(text, at)
        unopened = _last(_ANY_CLOSING.finditer(text, at, len(text) if opened is None else opened.start()))
        if unopened is not None:
            parts = [_Part(0, 0, unopened.start(), unopened.end(), prompted=True)]
        if opened is None:
            return parts
        begun, kind, at = opened.span(), opened.lastgroup or "", opened.end()


def _last(found: Iterator[re.Match[str]]) -> re.Match[str] | None:
    return next(iter(collections.deque(found, maxlen=1)), None)


def _channel_parts(text: str, *, prompted: bool) -> Sequence[_Part]:
    """All that is not the text of the channel `final`."""
    parts: list[_Part] = []
    at = 0  # where the text begins that belongs to no part yet
    headers = list(_HEADER.finditer(text))
    first = headers[0].start() if headers else len(text)
    if prompted or text[:first].strip():  # the text of a channel that the prompt opened
        ended = _MESSAGE_END.search(text)
        parts.append(_Part(0, 0, first if ended is None else ended.start(), first, open=not headers))
        at = first
    for index, header in enumerate(headers):
        following = headers[index + 1].start() if index + 1 < len(headers) else len(text)
        ended = _MESSAGE_END.search(text, header.end(), following)
        closed = following if ended is None else ended.start()
        if header[1] == _FINAL:
            parts.append(_Part(at, header.end(), header.end(), header.end()))
            at = closed
        else:
            unclosed = ended is None and following == len(text)
            parts.append(_Part(at, header.end(), closed, following, open=unclosed))
            at = following
    if at < len(text) and headers and headers[-1][1] == _FINAL and _MESSAGE_END.match(text, at):
        parts.append(_Part(at, at, at, len(text)))
    return parts
