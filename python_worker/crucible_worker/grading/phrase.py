r"""The end of a phrase after a marker, and the answer in it.

"The answer is" is followed by prose as often as by mathematics. A phrase ends with its sentence, its line, or a word
that starts an explanation ("because", "since", "which", "where", "so"). In "the total is 5", only the text after the
verb is the answer, and adverbs before it ("therefore", "exactly") are not part of it. If the whole phrase is math, its
delimiters are removed, and its result is the answer.

All of this is one pass each: every expression starts at a character that is not a blank, or reads a bounded run.
"""

from __future__ import annotations

import collections
import re

from crucible_worker.grading.condition import without_condition
from crucible_worker.grading.joined import MAX_JOINED
from crucible_worker.grading.math.tokens import spelled
from crucible_worker.grading.math.units import UNITS
from crucible_worker.grading.rejection import rejected
from crucible_worker.grading.results import result

__all__ = [
    "MAX_WHOLE_CHARS",
    "has_words",
    "is_placeholder",
    "judges",
    "phrase",
    "says_something",
    "undelimited",
    "without_bold",
    "words",
]

MAX_WHOLE_CHARS = 200
"""Characters of a line that can be an answer as a whole."""

_LEAD = ' \t\r\n\f\v:=*_`"\u201c\u201d\u300c\u300e\uff1a\xa0#'
_TAIL = ' \t\r\n\f\v*_`"\u201c\u201d,;:'
_CLOSERS = {"$$": "$$", "\\[": "\\]", "\\(": "\\)", "$": "$"}
_SENTENCE_END = re.compile(r"[.?](?=[\s*\"\u201d)]|$)|(?<!\\);(?=\s|$)|[\u3002\uff1f\n]")
_EXPLANATION = re.compile(
    r"(?<=\s)\(?(?:because|since|which|where|so|rather than|instead of)\b"
    r"|(?<=,)\s(?:as|not)\b|(?<=\s)\(?i\.e\.|(?<=\s)(?:or\s)?equivalently\b",
    re.IGNORECASE,
)
# A number, and another one that is excluded: "42 and not 17".
_NOT_ANOTHER = re.compile(
    r"((?>[\\$(]{0,3})[-\u2212]?[0-9][0-9.,/]{0,20}(?>[\\$)]{0,3})),?\s(?:and|but|et|und|y|e)\s(?:not|non|pas|nicht|no)"
    r"\s[\\$(]{0,3}[-\u2212]?[0-9][0-9.,/]{0,20}[\\$)]{0,3}\.?",
    re.IGNORECASE,
)
# A remark about a list after its last value: "10; 20 are the answers".
_ARE_ANSWERS = re.compile(
    r"(?<=[0-9$)}\]])\s(?:(?:are|were)\s(?:both\s|all\s)?(?:(?:the|its|my|our)\s)?(?:only\s|correct\s|final\s|real\s|two\s)?"
    r"(?:answers|solutions|roots|zeros|values)"
    r"|(?:both\s|all\s)?(?:works?|satisf(?:y|ies)\s(?:it|(?:the|this)\s(?:given\s|original\s)?(?:equation|system|condition)s?)))"
    r"\s?[.!]?\s{0,4}\Z",
    re.IGNORECASE,
)
_MAX_REMARK = 60
# The letter of a choice before its value: "D. 15 km".
_CHOICE = re.compile(r"[A-J]\.\s(?=[-+\u2212(]?(?:\\?\$|\\[(\\]|[0-9]))")
_VERB = re.compile(r"(?:(?<![\w\\{])(?:is|are|was|were|be|equals?|equal to)|(?<=\w)['\u2019]s)(?![\w}])", re.IGNORECASE)
_ADVERBS = re.compile(
    r"(?>(?:(?:so|therefore|thus|hence|then|simply|exactly|approximately|about|just|only|given by|equal to|indeed|also"
    r"|now|that|donc|entonces|por (?:lo )?tanto|daher|somit|folglich|deshalb|quindi|portanto|значит|поэтому|итак)\b"
    r"[,:]?\s?)+)",
    re.IGNORECASE,
)
# A remark about an answer, not an answer: "so the answer is correct".
_JUDGEMENTS = re.compile(
    r"(?:in)?(?:correct|valid|consistent)|right|wrong|reasonable|confirmed|unique|as follows|below|above|not .*"
    r"|to be .*|in (?:the|this|a|an|terms) .*|(?:nicht|pas|не|non|não) .*|.*(?:では|じゃ)(?:ない|ありません|なく.*)"
    r"|.*[가이] (?:아니\w*|아닙니다)",
    re.IGNORECASE | re.DOTALL,
)
# Words of placeholders, as in the form that a prompt shows: "your final answer here".
_PLACEHOLDERS = spelled("answer answers letter placeholder here")
_FILLERS = _PLACEHOLDERS | spelled(
    "a an and as choice chosen correct exact final go goes in insert is latex my number numeric numerical of only"
    " option or problem put question short single tag tags that the this to value write your"
)
_MAX_PLACEHOLDER_CHARS = 100
_HOLDS_PLACE = re.compile(r"answer|letter|placeholder|here|dots|[.\u2026]", re.IGNORECASE)
_DOTS = re.compile(r"(?:\\[lc]?dots|[.\u2026\s$])+")
_PUNCTUATION = re.compile(r"\\text\b|[\s\[\](){}<>$*_`'\".,:;-]")
# A span between dollars that are not prices, as in `extract`.
_INNER = re.compile(
    r"(?<!\\)\$\$([^$\n]++)\$\$|(?<!\\)\$(?=\S)([^$\n]++)(?<=[^\s\\])\$(?!\d)|(?<!\\)\$\s([^$\n]++)(?<=\s)\$"
    r"|\\\(([^\n\\]*+(?>(?:\\[^()\n][^\n\\]*+)*))\\\)|\\\[([^\n\\]*+(?>(?:\\[^\[\]\n][^\n\\]*+)*))\\\]"
)
_BOLD = re.compile(r"(?<!\w)\*\*([^*\n]++)\*\*(?!\w)")
# A formula directly after another one, which is not a unit or exponent.
_APART = re.compile(
    r"(?<=\S)(\$|\\[)\]])(?>(?:\s|\\q?quad|\\\\)+)(\$|\\[(\[])(?!\s*+(?:\\(?:text|mathrm|circ)|\^))(?<!\$(?=\s))"
)
# The possible ends of a line of a list.
_GOES_ON = re.compile(r"(?:[,&]|(?<!\w)(?:and|or))\s*\Z")
# The verb that ends a sentence of Japanese or Korean.
_COPULA = re.compile(
    r"[\u300d\u300f]?\s?(?:です|だ|である|となります|になります|となる|になる|입니다|이다|이에요|예요)\s?\Z"
)
_SAYING = re.compile(r"[^\W_]|[\\{}\u2205\u221e]")
_WORD = re.compile(r"\\[A-Za-z]++|[^\W\d_]{2,}+")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s?\{[A-Za-z]{1,16}\*?\}(?:\s?\{[^{}]{0,20}\})?")
_MAX_END = 8  # characters at the end of a line that show whether it continues
_JOINTS = frozenset({"and", "or"})
# Most phrases are numerals; none of the expressions above matches in them.
_ONLY_NUMERAL = re.compile(r"([-+\u2212]?[0-9]++(?>(?:[.,/:][0-9]++)*)%?)\.?\s*")


def phrase(text: str) -> str:
    """The answer at the start of a text that follows a marker; empty if there is none. Linear."""
    text = without_bold(text).lstrip(_LEAD)
    if numeral := _ONLY_NUMERAL.fullmatch(text):
        return numeral[1]
    opening = next((mark for mark in _CLOSERS if text.startswith(mark)), "")
    if opening:
        end = text.find(_CLOSERS[opening], len(opening))
        span = text[len(opening) : end].strip() if end > 0 else ""
        behind = text[end + len(_CLOSERS[opening]) :]
        if span and ("\n" in span or _ends(behind)):
            return result(span)
    line = _first_line(text)
    if said := _ARE_ANSWERS.search(line, max(0, len(line) - _MAX_REMARK)):
        line = line[: said.start()]
    label = _label(line)
    if end := _sentence_end(line[label:]):
        line = line[: label + end.start()]
    if end := _EXPLANATION.search(line):
        line = line[: end.start()]
    verbs = collections.deque(_VERB.finditer(line), maxlen=1)
    if verbs and rejected(line[: verbs[0].end()] + " ", ""):
        return ""  # "it cannot be 5"
    if verbs and (rest := line[verbs[0].end() :].strip(_LEAD)):
        line = rest
    if other := _NOT_ANOTHER.fullmatch(line):
        line = other[1]
    line = _COPULA.sub("", line.strip(_TAIL))
    line = _APART.sub(r"\1, \2", line)
    line = without_condition(_INNER.sub(lambda span: span[span.lastindex or 0].strip(), line)).strip(_TAIL)
    if adverbs := _ADVERBS.match(line):
        line = line[adverbs.end() :] or line
    return result(line.strip(_TAIL))


def _first_line(text: str) -> str:
    """The first line, with the next ones as long as each ends with a comma or "and"."""
    line, _, below = text.partition("\n")
    for _ in range(MAX_JOINED):
        if not below or not _GOES_ON.search(line[-_MAX_END:]):
            break
        following, _, below = below.partition("\n")
        line = f"{line} {following}"
    return line


def _sentence_end(line: str) -> re.Match[str] | None:
    """The end of the first sentence of a line; a semicolon between formulas or amounts belongs to a list."""
    semicolons: list[re.Match[str]] = []
    stop = None
    for end in _SENTENCE_END.finditer(line):
        if end[0] != ";":
            stop = end
            break
        semicolons.append(end)
    if not semicolons:
        return stop
    sentence = line[: stop.start()] if stop else line
    content = len(sentence.rstrip(_TAIL + "."))
    last_word = max((word.start() for word in _WORD.finditer(sentence) if _ends_list(word[0])), default=-1)
    return next((end for end in semicolons if end.end() >= content or last_word >= end.end()), stop)


def _label(line: str) -> int:
    """The length of a choice's letter, with its full stop, before a value that ends its line; 0 without one."""
    choice = _CHOICE.match(line)
    if choice is None or any(_ends_list(word[0]) for word in _WORD.finditer(line, choice.end())):
        return 0
    return choice.end()


def _is_word(word: str) -> bool:
    return not word.startswith("\\") and word not in _JOINTS


def _ends_list(word: str) -> bool:
    return _is_word(word) and word not in UNITS


def undelimited(text: str) -> str:
    """A text without the decoration around it; if it is one span of math, also without the delimiters."""
    text = text.strip(_LEAD + _TAIL)
    for opening, closing in _CLOSERS.items():
        inner = text[len(opening) : -len(closing)]
        if text == opening + inner + closing and opening not in inner and closing not in inner:
            return inner.strip()
    return text


def without_bold(text: str) -> str:
    """A text without the asterisks of bold parts."""
    return _BOLD.sub(r"\1", text) if "**" in text else text


def says_something(text: str) -> bool:
    """Whether a text can be an answer: it is not only punctuation."""
    return _SAYING.search(text) is not None


def is_placeholder(text: str) -> bool:
    """Whether a text is a placeholder: "...", "your answer", "$Answer"."""
    if text.isdecimal() or len(text) > _MAX_PLACEHOLDER_CHARS or not _HOLDS_PLACE.search(text):
        return False
    if _DOTS.fullmatch(text):
        return True
    words = set(_PUNCTUATION.sub(" ", text).casefold().split())
    return not words.isdisjoint(_PLACEHOLDERS) and words <= _FILLERS


def judges(text: str) -> bool:
    """Whether a phrase is a remark about an answer, not the answer: "the answer is correct"."""
    return bool(_JUDGEMENTS.fullmatch(text))


def has_words(text: str) -> bool:
    """Whether there are two adjacent letters outside of LaTeX commands, and not of "and" or "or"."""
    return any(_is_word(word[0]) for word in _WORD.finditer(_without_environments(text)))


def words(text: str) -> int:
    """How many words there are outside of LaTeX commands; a single letter is a symbol."""
    text = _without_environments(text)
    return sum(not word[0].startswith("\\") for word in _WORD.finditer(text))


def _without_environments(text: str) -> str:
    """A text without the names and columns of its environments, which are not words."""
    return _ENVIRONMENT.sub(" ", text) if "\\begin" in text or "\\end" in text else text


def _ends(text: str) -> bool:
    """Whether a phrase has ended: its sentence or line ends here, or an explanation starts."""
    rest = text[:40].lstrip(_TAIL.replace("\n", "").replace("\r", ""))
    return not rest or rest[0] in "\n\r?)" or bool(_SENTENCE_END.match(rest)) or bool(_EXPLANATION.match(" " + rest, 1))
