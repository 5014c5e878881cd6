"""What people read is plain: no long sentence, and no phrase that is wrong wherever it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.tables import rows

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_WORDS = 40
"""Of a sentence. A piece of code, a link and a number are one word each."""
WRONG_PHRASES = (
    "behind the thoughts",
    "goes on",
    "go on",
    "taken up",
    "is told",
    "are told",
    "was told",
    "is asked",
    "are asked",
    "whoever",
    "somebody",
    "nobody",
    "takes for",
    "taken for",
    "of ours",
    "that which",
)
"""Wrong in every context. Words that have a right sense as well, such as `cut` or `beside`, are left to the reader."""

_FENCE = re.compile(r"^ *(`{3,}|~{3,})")
_ITEM = re.compile(r"^ *(?:[-*+]|\d+\.) +")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"(`+).+?\1")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"""(?:(?<=[.!?])|(?<=[.!?]["')*_])|(?<=[.!?]["')*_]{2}))\s+(?=["'(*_\[]*(?:[A-Z0-9]|code\b))""")
_WORD = re.compile(r"[^\W_][\w'.,/^+%-]*")


class Sentence(NamedTuple):
    """A sentence of a page."""

    line: int
    """Of the page, from 1, where its block begins."""
    text: str
    """With each piece of code as the word `code`."""


class Block(NamedTuple):
    """A paragraph, a heading, an item of a list, or a cell of a table."""

    line: int
    text: str


def blocks_of(page: str) -> Iterator[Block]:
    """What a page says, without its code and its comments."""
    page = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), page)
    fence, begun, said, before = "", 0, list[str](), ""
    for number, line in enumerate([*page.splitlines(), ""], start=1):
        if fence:
            fence = "" if line.strip() == fence else fence
            line = ""
        elif found := _FENCE.match(line):
            fence, line = found[1], ""
        in_item = bool(said) or before.startswith(" ") or bool(_ITEM.match(before))
        indented_code = line.startswith("    ") and not in_item
        alone = line.lstrip().startswith(("|", "#"))
        if said and (not line.strip() or alone or _ITEM.match(line)):
            yield Block(begun, " ".join(said))
            said = []
        if line.lstrip().startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                yield Block(number, cell.strip())
        elif line.lstrip().startswith("#"):
            yield Block(number, line.strip("# "))
        elif line.strip() and not indented_code:
            begun = begun if said else number
            said.append(_ITEM.sub("", line).strip(" >"))
        before = line if line.strip() and not indented_code else before if not line.strip() else ""


def sentences_of(page: str) -> list[Sentence]:
    """The sentences of a page, block by block: none reaches from one paragraph, item or cell into the next."""
    return [
        Sentence(block.line, sentence)
        for block in blocks_of(page)
        for sentence in _END.split(_LINK.sub(r"\1", _CODE.sub("code", block.text)))
        if sentence
    ]


def words_of(sentence: str) -> int:
    """How many words a sentence has; a list of names with their defaults, as in a table's cell, has none."""
    if not _WORD.search(re.sub(r"\([^)]*\)|\bcode\b", "", sentence)):
        return 0
    return len(_WORD.findall(sentence))


def problems_of(page: str) -> list[tuple[int, str]]:
    """The line and the words of each sentence that is too long, and of each that has a wrong phrase."""
    return [
        (line, f"{words} words: {text}" if words > MOST_WORDS else f"{wrong[0]!r}: {text}")
        for line, text in sentences_of(page)
        if (words := words_of(text)) > MOST_WORDS or (wrong := _wrong(text))
    ]


def _wrong(sentence: str) -> list[str]:
    return [phrase for phrase in WRONG_PHRASES if re.search(rf"\b{phrase}\b", sentence, re.IGNORECASE)]


@rows("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_sentence_is_short_and_plain(page: Path):
    """No sentence of a page has more than 40 words or a phrase of the list."""
    found = [f"{page.relative_to(ROOT)}:{line}: {what}" for line, what in problems_of(page.read_text())]

    assert not found, "\n".join(found)


@rows(
    ("page", "sentences"),
    [
        ("One. Two\nthree! Four?\n", [(1, "One."), (1, "Two three!"), (1, "Four?")]),
        ("It is 1.5 of `a. B`. So\n", [(1, "It is 1.5 of code."), (1, "So")]),
        (
            "# A title\nA text\n\n- an item\n  of two lines\n- another\n",
            [
                (1, "A title"),
                (2, "A text"),
                (4, "an item of two lines"),
                (6, "another"),
            ],
        ),
        (
            "| a | b \\| c |\n|---|---|\n| D. | E. F |\n",
            [
                (1, "a"),
                (1, "b \\| c"),
                (2, "---"),
                (2, "---"),
                (3, "D."),
                (3, "E."),
                (3, "F"),
            ],
        ),
        (
            "Run:\n\n```console\nNobody. Reads\n```\n\nAnd:\n\n    nobody here\n\nEnd\n",
            [(1, "Run:"), (7, "And:"), (11, "End")],
        ),
        ("<!-- table: a\nB. C -->\nAfter\n", [(3, "After")]),
        ("[A link. Here](page.md) ends\n", [(1, "A link."), (1, "Here ends")]),
        ('He says "no." Then `x` goes.\n', [(1, 'He says "no."'), (1, "Then code goes.")]),
    ],
)
def test_a_page_is_split_into_its_sentences(page: str, sentences: list[tuple[int, str]]):
    """At the ends of sentences, paragraphs, items and cells, without code and comments."""
    assert sentences_of(page) == [Sentence(*each) for each in sentences]


@rows(
    ("page", "problem"),
    [
        (f"{'a ' * 40}\n", ""),
        (f"Short.\n\n{'a ' * 41}\n", "3: 41 words: a a"),
        (f"Short.\n- {'a ' * 20}\n  {'a ' * 21}\n", "2: 41 words: a a"),
        (f"| {'a ' * 41}|\n", "1: 41 words: a a"),
        (f"| {'`a` (1), ' * 41}|\n", ""),
        ("It stops and\ngoes on.\n", "1: 'goes on': It stops and goes on."),
        ("Whoever reads\n", "1: 'whoever': Whoever reads"),
        ("A `nobody`; cargoes on\n", ""),
    ],
)
def test_what_is_not_plain_is_found(page: str, problem: str):
    """One word above the bound, and a phrase of the list over the end of a line; neither in code nor within a word."""
    found = [f"{line}: {what}" for line, what in problems_of(page)]

    assert len(found) == bool(problem)
    assert all(each.startswith(problem) for each in found)
