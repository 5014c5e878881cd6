"""Whether a text names a choice only to rule it out: "not A", "anything but A", "A is wrong".

Only a choice's own clause is examined, a few words on either side. Nothing is understood: a word of the lists below
next to the choice is enough, but not with a verb, a comma or a "but" between them.
"""

from __future__ import annotations

import re

__all__ = [
    "MAX_RULED_OUT",
    "REACH",
    "is_retracted",
    "number_ruled_out",
    "rejected",
    "retraction_at",
    "ruled_out_in_line",
]

REACH = 60
"""Characters on either side of a choice in which it may be ruled out."""
MAX_RULED_OUT = 8
"""Answers at the end of a text that may be ruled out ("it is not 5") before an earlier one is the answer."""

# Words of these lists begin at the start of a word, except those of the second list: this is checked once, first.
_NOT = r"(?:not|cannot|never|neither|nor|nicht|keine?|pas|no es|\u043d\u0435|não é|non è)"
_NOT_IN_WORDS = r"(?:n\s?['\u2019]\s?t|不是|不为|不等于|並非|并非)"
_OTHER_THAN = (
    r"(?:except(?: for)?|excluding|without|other than|rather than|instead of|rules? out|ruled out|eliminated?"
    r"|(?:any|every)(?:thing|one)? but|all but|(?:reject|discard|dismiss)(?:s|ed|ing|es)?)"
)
_VERB = r"(?:is|are|was|were|be|has|have|had|so|but|because|since)"
_GAP = r"(?:\\text(?:bf|it|rm)?\s?\{|[\s\"'\u201c\u2018(*$\\}~]){0,8}"
# Three words may be in between: "not the second choice, A", but "not a mammal is A" rules nothing out.
_WORDS = rf"(?:\s+(?!{_VERB}\b)\w{{1,12}}){{0,3}}"
# "if option A is correct" does not name A.
_IF = r"(?:(?<!only\s)if|whether|unless|suppos(?:e|ing)|assum(?:e|ing))"
_SUPPOSED = rf"{_IF}(?:\s+(?:that|the|an?|option|choice|answer|statement)){{0,3}}"
# The rejected value may be the end of an equation or a ratio: "not x = 5", "not 2 : 3".
_FIRST_PART = r"(?:(?:[A-Za-z]\w{0,2}(?:\([a-z0-9]\))?\s?=|[0-9]{1,9}\s?:)\s?)?"
_BE = r"(?:\s+(?:to\s+)?be\b)?"
_BETWEEN = rf"{_WORDS}{_GAP}{_FIRST_PART}"
_BEFORE = re.compile(
    rf"(?:\b(?:(?:{_NOT}{_BE}|{_OTHER_THAN}){_BETWEEN}|{_SUPPOSED}{_GAP})|{_NOT_IN_WORDS}{_BE}{_BETWEEN}|\bno\s?\}}{_GAP})\Z",
    re.IGNORECASE,
)
# Every such word contains one of these: most texts have none.
_MAY_BE_BEFORE = re.compile(
    r"no|n\s?['\u2019]\s?t|never|neither|nicht|kein|pas|\u043d\u0435|n\u00e3o|\u4e0d|[\u5e76\u4e26]\u975e"
    r"|excep|exclud|without|other|rather|instead|rule|elimin|reject|discard|dismiss|but|if|whether|unless|suppos|assum",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"[\s\"'\u201d\u2019)*$\\]{0,8}"
    r"(?:(?:nor\s+\w{1,12}\s+)?(?:(?:is|are|was|were|can|could|would|should|must)\s*(?:not\b|n\s?['\u2019]\s?t\b)|cannot\b"
    r"|(?:is|are|was|were|must\s+be)\s+(?:(?:also|clearly|definitely|simply|therefore|thus)\s+)?"
    r"(?:wrong|incorrect|false|out\b|ruled\s+out|eliminated|excluded|impossible|rejected|discarded|inadmissible"
    r"|(?:an?\s+)?(?:extraneous|spurious|invalid)))|isn\s?['\u2019]\s?t\b"
    r"|(?:では|じゃ)(?:ない|ありま|なく)|[가이] ?아[니닙]|不正确|不对|是错)",
    re.IGNORECASE,
)


# Text that takes the preceding answer back: "is wrong", ", which is wrong", ". No, that is not right."
_QUALIFIED = (
    r"(?:(?:also|clearly|definitely|obviously|actually|certainly|simply|still|however|indeed|just|in fact)\s+){0,2}"
)
_RIGHT = r"(?:right|correct|valid|(?:the\s+)?(?:(?:right|correct|final|actual|true)\s+)?(?:answer|solution|result))"
_WRONG = (
    rf"(?:(?:is|was|are|were|seems|looks|['\u2019]s)\s+{_QUALIFIED}(?:wrong|incorrect|mistaken|erroneous|a\s+mistake"
    rf"|an\s+error|not\s+{_RIGHT})|(?:is|was)\s?n\s?['\u2019]\s?t\s+{_RIGHT})"
)
_EXCLAMATION = r"(?:(?:no|wait|hmm|oops|sorry|actually|but|however|well|unfortunately)\b[\s,.!:\u2014-]{0,4}){0,3}"
_POINTED = (
    r"(?:that|this|it|(?:the|my)\s(?:(?:above|previous|first|last|initial)\s)?(?:answer|result|value)(?:\sabove)?)"
)
_RETRACTION = re.compile(
    r"(?:\s{0,2}(?:```|~~~)\s{0,2})?[ \t*_`$\"'\u201d\u2019)\]}\\]{0,12}"
    rf"(?:{_WRONG}|,?\s{{0,2}}(?:which|(?:but|and)\s(?:that|this|it))\s?{_WRONG}"
    rf"|[\s.,;:!\u2014\u2013-]{{0,6}}{_EXCLAMATION}(?:{_POINTED}\s?{_WRONG}|(?:wrong|incorrect)\s?[.!]"
    r"|I\s(?:made|see|notice|found)\s(?:a|an|my)\s(?:mistake|error))"
    r"|[\s\u3002\uff0c,.]{0,4}(?:[这這]?是?(?:错误?的|錯誤?的|错了|錯了|不对|不對|不正确|不正確)))"
    r"(?![\w-])(?!\s(?:if|unless|when|only|to|about|for|in|of)\b)(?![^.!?\n]{0,80}\?)",
    re.IGNORECASE,
)
# The only text that most responses have after their box.
_AFTER_BOX = " \n.$\\])}"
# Every text that takes an answer back has one of these.
_SAYS_WRONG = (
    *(
        "wrong",
        "Wrong",
        "ncorrect",
        "mistake",
        "error",
        "rroneous",
        "\u9519",
        "\u932f",
        "\u4e0d\u5bf9",
        "\u4e0d\u5c0d",
        "\u4e0d\u6b63",
    ),
    *("not right", "not correct", "not valid", "not the", "not answer", "sn't", "sn\u2019t", "n \u2019", "n '"),
)

# "no solution other than 3" names 3.
_NONE_BUT = re.compile(
    r"\b(?:no|none|nothing|never|not|n['\u2019]t)\b[^.;\n]{0,50}\b(?:other than|except(?: for)?|but|besides)\W{0,8}"
    r"(?:\w\W{1,8}=\s?)?\Z",
    re.IGNORECASE,
)


# Values before another one in a list: "$3$, $" and "3, 4 or ".
_LISTED = re.compile(
    r"(?:\$[^$\n]{1,20}\$\s?(?:,\s?(?:(?:and|or|nor)\s)?|(?:and|or|nor)\s)"
    r"|(?:-?[0-9][0-9./]{0,11},\s){0,8}-?[0-9][0-9./]{0,11},?\s(?:and|or|nor)\s){1,8}"
    r"\\?\$?\Z"
)


def number_ruled_out(text: str, start: int, end: int) -> bool:
    """Whether a number is ruled out, or the first value of its list, or the formula that contains it."""
    if ruled_out_in_line(text, start, end):
        return True
    before = text[max(0, start - REACH) : start].rstrip("\\$")
    ends = before.rstrip().endswith((",", "and", "or"))
    match = _LISTED.search(text, max(0, start - REACH), start) if ends else None
    if match and ruled_out_in_line(text, match.start(), end):
        return True
    opening, closing = text.rfind("$", max(0, start - REACH), start), text.find("$", end, end + REACH)
    return opening >= 0 and closing >= 0 and ruled_out_in_line(text, opening, closing + 1)


def rejected(before: str, behind: str) -> bool:
    """Whether the text around a choice rules it out. Bounded work: at most `REACH` characters on each side are read."""
    before, behind = before[-REACH:], behind[:REACH]
    if _AFTER.match(behind):
        return True
    return _MAY_BE_BEFORE.search(before) is not None and _BEFORE.search(before) is not None


def ruled_out_in_line(text: str, start: int, end: int) -> bool:
    """Whether the text around a part of a text, on its line, rules it out."""
    before = text[max(0, start - REACH) : start].rpartition("\n")[2]
    if _NONE_BUT.search(before):
        return False
    return rejected(before, text[end : end + REACH].partition("\n")[0]) or retraction_at(text, end) is not None


def is_retracted(text: str) -> bool:
    """Whether a text may take an answer back: it has words for it."""
    return bool(text.strip(_AFTER_BOX)) and any(word in text for word in _SAYS_WRONG)


def retraction_at(text: str, end: int) -> re.Match[str] | None:
    """The text that takes back an answer with this end; None if there is none. Bounded work."""
    return _RETRACTION.match(text, end)
