r"""Which answers of a text form one answer together, and how it is written.

Answers in one sentence with a comma, "and", "or", white space or nothing else between them are one list:
`\boxed{8} and \boxed{4}` is `8 and 4`. A unit may follow an answer, and a name may precede it: `$3$ cm and $4$ cm`,
`$x = \boxed{3}$, $y = \boxed{4}$`. Any other word divides ("..., no, ...", "... so ..."), as does a full stop: then the
last answer is the answer. Work is bounded: longer texts between two answers divide them without being read.

A conjunction of several words, such as "as well as", joins like "and" and "or": `with_conjunctions` writes these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from crucible_worker.grading.math.extras.regional import with_joints
from crucible_worker.grading.math.tokens import spelled
from crucible_worker.grading.numbers import Numeral

__all__ = [
    "MAX_BETWEEN",
    "MAX_JOINED",
    "NAME",
    "is_constant",
    "kind_of",
    "link",
    "name_before",
    "named",
    "numbers_joined",
    "tied_number",
    "together",
    "with_conjunctions",
    "written",
]

# Conjunctions of several words between two answers, which join them like "and" and "or".

_AND = ("as well as", "and also", "together with", "along with", "in addition to")
_OR = ("or else", "or perhaps", "or possibly", "or maybe")
_ALL = (*_AND, *_OR)
# Mathematics follows: a number, a delimiter, a sign, a command, or a letter followed by a relation. What precedes is
# checked after the first character, because an expression that begins with a set of characters is searched faster.
_CONJUNCTION = re.compile(
    r"[, \n](?:(?<=[^\s,;],)[ \n]|(?<=[^\s,;][ \n]))"
    rf"(?:(?P<both>{'|'.join(_AND)})|(?:{'|'.join(_OR)}))[ \n]"
    r"(?=[-+\u2212$\\(\[{0-9\u221a\u03c0*]|[A-Za-z](?:_\w)?\s?[=<>])"
)


def with_conjunctions(text: str) -> str:
    """A text with "and" or "or" for each conjunction of several words before mathematics. Linear."""
    for conjunction in _ALL:
        if conjunction in text:
            return _CONJUNCTION.sub(lambda found: " and " if found["both"] else " or ", text)
    return text


MAX_JOINED = 32
"""Answers that may form one answer: the last ones of a text."""
MAX_BETWEEN = 80
"""Characters between two of them."""

_MARKUP = re.compile(
    r"\\(?:text(?:bf|it|rm)?|mathrm|mathbf|q?quad)(?![A-Za-z])|\\[()\[\],;:! \\]|\\n(?![A-Za-z])|[${}*&~]"
    r"|</?[A-Za-z][A-Za-z_ -]{0,15}>|<\|[A-Za-z_]{1,20}\|>"
)
# The start of a line of a list: a bullet, or a letter or number.
_BULLET = re.compile(r"\n\s*+(?:[-+\u2022]\s|\(?[A-Za-z0-9][.)]\s)|\([a-h]\)")
NAME = r"[A-Za-z](?:_(?:\w|\{\w{1,3}\}))?'{0,2}(?:\([a-z]\))?"
"""Expression of a name before a sign of equality: `x`, `x_1`, `f'(x)`."""
_NAMED = re.compile(rf"{NAME}\s*(?:[=:]|(?<=\s)is(?!\w))")
_NAME_BEFORE = re.compile(rf"(?<![\w\\])({NAME})\s*&?\s*=\s*(?:\\?\$|\\[(\[]|\s)*\Z")
_STARTS_WITH_NAME = re.compile(rf"({NAME}|\([a-z](?:, ?[a-z])+\))\s*&?\s*=(?!=)")
# Commands that change only the look of an answer, such as the size of a fraction.
_TYPE = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])(?![A-Za-z])|(?<=\\)(?:[dtcs]|nice)(?=frac)|[\s{}$]")
_THOUSANDS = re.compile(r"-?[0-9]{1,3}(?>(?:,[0-9]{3})+)(?:\.[0-9]++)?")
_INEQUALITY = re.compile(r"[<>\u2264\u2265\u2260]|\\(?:[lg](?:eq?|t)|neq?)(?![A-Za-z])")
_COMMAND = re.compile(r"\\(?:text|mathrm)\s?\{[^{}]*+\}|\\[A-Za-z]++")
_VARIABLE = re.compile(r"[A-Za-df-hj-z]|(?<![A-Za-z])e(?![\^A-Za-z])")
_JOINT = re.compile(r"[,;]|(?:and|or)(?!\w)")
_NOUN = re.compile(r"\\?%|\^?\\circ|\u00b0|[^\W\d_]+")
_COUNTED = re.compile(r"\s?(?P<noun>[^\W\d_]{1,20})")
_NUMBER_JOINT = re.compile(
    r"(?:\s?(?P<noun>(?!(?:and|or)\b)[^\W\d_]{1,20}))?\s?(?:,\s?(?P<more>and\b|or\b)?|\s(?P<word>and|or))\s?\\?\$?"
)
_ANNOUNCES = re.compile(r"(?:\b(?:are|were|be)|:)\s+\\?\$?\Z", re.IGNORECASE)
_MAX_NAME = 24
# Text before a number that makes it a part of something else: "2 followed by", "2 if n is odd, otherwise".
_TIED = re.compile(
    r"(?<![\w.])(?:[0-9][0-9.,/]{0,20}\s(?:followed by|plus|minus|times|over|divided by|through)"
    r"|[0-9][0-9.,/]{0,20},?\s(?:if|when|for)\s[^.;\n0-9]{1,60}\s(?:otherwise|else)|first\s[0-9][0-9.,/]{0,20},?\ssecond"
    r"|(?:zero|one|two|three|four|five|six|seven|eight|nine)\spoint),?\s\Z",
    re.IGNORECASE,
)
_MAX_TIE = 100
# Operators between two formulas of one line join them into one; on the next line they are bullets.
_IN_WORDS = ("to", "through", "plus", "minus", "times", "over", "divided by", "followed by")
_OPERATOR = re.compile(rf"[ ]?(?:([-+/*\u2212\u2013])|({'|'.join(_IN_WORDS)})(?!\w))[ ]?")
OPERATORS = frozenset({"-", "+", "/", "*", *_IN_WORDS})
"""Links that join answers into one expression, not a list: `\\boxed{2} to \\boxed{3}`."""
# If one of these follows an answer, the next answer corrects it, follows from it, or answers something else.
_DIVIDERS = spelled(
    "no not nor but wait hmm oops sorry actually rather instead wrong incorrect false mistake correction corrected"
    " correct right checking check really maybe perhaps probably initially first firstly so thus hence therefore then"
    " now finally final answer result is are was were be gives give giving equals means implies becomes since because"
    " as when where if at by with from to into than which that this it i we you he she they again recheck"
    " rechecking later earlier before after once simplified simplifies rounded approximately about namely ie"
)


def link(between: str) -> str | None:
    """The link between two answers with a text between them; None if they are not linked.

    It is ",", "and", "or", "" for white space, or one of `OPERATORS`.
    """
    if len(between) > MAX_BETWEEN:
        return None
    if operator := _OPERATOR.fullmatch(between):
        return "-" if operator[1] in ("\u2212", "\u2013") else operator[1] or operator[2]
    rest = _MARKUP.sub(" ", _BULLET.sub(" ", with_joints(between))).strip()
    nouns: list[str] = []
    while rest and not _JOINT.match(rest) and (noun := _NOUN.match(rest)) and not _NAMED.match(rest):
        nouns.append(noun[0])
        rest = rest[noun.end() :].lstrip()
    joints: list[str] = []
    while joint := _JOINT.match(rest):
        joints.append(joint[0])
        rest = rest[joint.end() :].lstrip()
    if rest and not _NAMED.fullmatch(rest):
        return None
    in_words = [joint for joint in joints if joint.isalpha()]
    if nouns and not (joints and _is_unit(nouns, 2 if in_words else 1)):
        return None
    return in_words[-1] if in_words else "," if joints else ""


def _is_unit(nouns: Sequence[str], most: int) -> bool:
    return len(nouns) <= most and not any(noun.lower() in _DIVIDERS or noun.endswith("ly") for noun in nouns)


def name_before(text: str, start: int) -> str:
    r"""The name at the beginning of an answer: `y` of `y = \boxed{4}`; empty without one."""
    match = _NAME_BEFORE.search(text[max(0, start - _MAX_NAME) : start])
    return match[1] if match else ""


def numbers_joined(text: str, numbers: Sequence[Numeral]) -> str:
    """The last of some numbers of a text, with those that it is joined to: "10, 12" of "either 10 or 12".

    There must be "and" or "or" before the last one, or a verb or colon before the first: in "in 2010, 50 people" only
    the last one is the answer. The counted noun may follow each number, if it is the same.
    """
    last = numbers[-1]
    noun = _COUNTED.match(text, last.start + len(last.text))
    first, words = len(numbers) - 1, ""
    while first > 0:
        before = numbers[first - 1]
        between = text[before.start + len(before.text) : numbers[first].start]
        joint = _NUMBER_JOINT.fullmatch(between) if len(between) <= MAX_BETWEEN else None
        if joint is None or (joint["noun"] and not (noun and noun["noun"] == joint["noun"])):
            break
        words = words or joint["word"] or joint["more"] or ","
        first -= 1
    listed = numbers[first:]
    if words in ("", ",") and not _ANNOUNCES.search(text[max(0, listed[0].start - _MAX_NAME) : listed[0].start]):
        return last.text
    return (" or " if words == "or" else ", ").join(number.text for number in listed)


def tied_number(text: str, number: Numeral) -> str:
    """A number with the expression that it is part of, "2 followed by 3"; empty if it is not part of one."""
    tie = _TIED.search(text, max(0, number.start - _MAX_TIE), number.start)
    return text[tie.start() : number.start] + number.text if tie else ""


def together(earlier: str, later: str, how: str) -> bool:
    r"""Whether two formulas that follow each other are two answers, and not steps of one computation.

    Both are values, or both are equations for a name: in `2x = 6`, `x = 3` the second follows from the first, as it
    does in `A = \pi r^2`, `A = 9 \pi`. Words may also join `x = 2` or `3`, and equations of another form.
    On separate lines there are steps as often as answers: there, both must be without letters, or name the same thing.

    Args:
        earlier: a formula.
        later: the one after it.
        how: their link.
    """
    kind, kind_later = kind_of(earlier), kind_of(later)
    if how in OPERATORS:
        return kind == kind_later == "value"
    if how == "or" and "equation" not in (kind, kind_later):
        return True  # x = 3 or x > 5
    if how in ("and", "or"):
        return kind == kind_later or (kind, kind_later) == ("name", "value")
    constant, constant_later = is_constant(earlier), is_constant(later)
    if how == "," and (kind, kind_later) == ("name", "value"):
        return constant and constant_later
    if kind != kind_later or kind == "equation":
        return False
    if how == ",":
        return kind != "name" or constant == constant_later or all("(" in _name(one) for one in (earlier, later))
    return constant and constant_later and (kind == "value" or _name(earlier) == _name(later))


def named(answer: str) -> bool:
    """Whether an answer is the value of a name, `x = 3`, without letters in it."""
    return kind_of(answer) == "name" and is_constant(answer)


def kind_of(answer: str) -> str:
    """The kind of a formula: "name" for an equation for a name, another "equation", "inequality", or "value"."""
    if _STARTS_WITH_NAME.match(answer):
        return "name"
    if "=" in answer:
        return "equation"
    return "inequality" if _INEQUALITY.search(answer) else "value"


def _name(answer: str) -> str:
    match = _STARTS_WITH_NAME.match(answer)
    return "".join(match[1].split()) if match else ""


def is_constant(answer: str) -> bool:
    """Whether an answer has no variables, except the name whose value it is."""
    match = _STARTS_WITH_NAME.match(answer)
    return _VARIABLE.search(_COMMAND.sub(" ", answer[match.end() :] if match else answer)) is None


def written(answers: Sequence[str], links: Sequence[str]) -> str:
    """Answers in their order, each with the next by its link, as one list; equal ones in a row are one.

    "and" only divides lists: between inequalities it would mean that both hold at once.

    Args:
        answers: one or more.
        links: one less, as `link` gives them; "" is a comma.
    """
    nested = any("," in answer for answer in answers)
    said = [answers[0]]
    for before, how, answer in zip(answers, links, answers[1:], strict=False):
        if how in OPERATORS or not _alike(before, answer):
            in_full = how in OPERATORS or how == "or" or (how == "and" and nested)
            said += [f" {how} " if in_full else ", ", answer]
    return "".join(said)


def _alike(answer: str, other: str) -> bool:
    """Whether two answers have the same text, except typography, blanks, and a name that one of them may have."""
    names = {_name(answer), _name(other)}
    return len(names | {""}) <= 2 and _plain(answer) == _plain(other)


def _plain(answer: str) -> str:
    match = _STARTS_WITH_NAME.match(answer)
    plain = _TYPE.sub("", answer[match.end() :] if match else answer)
    return plain.replace(",", "") if _THOUSANDS.fullmatch(plain) else plain
