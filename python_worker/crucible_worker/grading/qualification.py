"""What the words around an answer do to it: they rule it out, take it back, or add a condition that is not part of it.

Nothing is understood: expressions with bounded reach are matched directly before and after an answer.
"""

from __future__ import annotations

import re

from crucible_worker.grading.joined import is_constant, kind_of, named

__all__ = [
    "MAX_CONDITION",
    "MAX_RULED_OUT",
    "REACH",
    "before_condition",
    "is_condition",
    "is_retracted",
    "is_said_of_extreme",
    "number_ruled_out",
    "rejected",
    "retraction_at",
    "ruled_out_in_line",
    "says_where",
    "without_condition",
]

# Whether a text names a choice only to rule it out: "not A", "anything but A", "A is wrong".
#
# Only a choice's own clause is examined, a few words on either side. Nothing is understood: a word of the lists below
# next to the choice is enough, but not with a verb, a comma or a "but" between them.

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


# Conditions after an answer, which are not part of it: "5, attained at x = 2", "x^2, where x is real".
#
# A condition begins with a word that introduces one ("at", "when", "for", "given that", "by substituting"). Before it
# there may be the consequence ("equality occurs when"); a separate sentence must refer back ("It is attained at").
# Words that introduce other things as well ("with", "as", "since") need a relation after them.

MAX_CONDITION = 200
"""Characters at the end of a sentence in which a condition is looked for."""

_EXTREME = (
    r"(?:minimum|maximum|min|max|minima|maxima|extremum|extreme|infimum|supremum|least|greatest|largest|smallest)"
)
_ABOUT = (
    rf"(?>(?:(?:and|which|this|it|that|is|are|being|the|{_EXTREME}|value|bound|equality"
    rf"|with(?=\s+(?:equality|(?:the\s+)?{_EXTREME}))|we\s+have(?=\s+equality))\s+){{0,6}})"
)
_ATTAINED = r"attained|achieved|reached|obtained|assumed|taken|occurs|occurring|happens|happening"
_HOLDS = rf"(?:(?:{_ATTAINED}|valid|holds?|holding|true)\s+(?:(?:only|exactly|precisely)\s+)?)?"
_FOR = (
    r"(?:at|when|whenever|for|if|iff|where|provided(?:\s+that)?|as\s+long\s+as|in\s+(?:the\s+)?case(?:\s+(?:of|that))?)"
)
_INSERTING = (
    r"(?:(?:by|on|upon|after|when)\s+)?(?:substituting|inserting|setting|taking|putting|letting|choosing"
    r"|plugging\s+in)"
)
# These introduce a condition only if a relation follows.
_WITH = (
    rf"(?:given(?:\s+that)?|assuming(?:\s+that)?|supposing(?:\s+that)?|since|because|while|unless|using|with|{_INSERTING}"
    r"|under\s+the\s+(?:condition|assumption|constraint|restriction)s?(?:\s+(?:that|of))?"
    r"|subject\s+to(?:\s+the\s+(?:condition|constraint)s?)?)"
)
_OVER = (
    r"(?>(?:\s+(?:all|any|every|each|some|both|the|a|an|points?|real|integers?|positive|nonnegative|negative|natural"
    r"|numbers?|values?|constants?|arbitrary|fixed|given|exactly|two|three|of|only|and|if))*)"
)
_INTRODUCED = (
    rf"(?:(?P<plain>{_FOR})|(?P<weak>{_WITH})|(?P<tends>as)|(?P<within>on|over|in)(?:\s+the\s+(?:interval|domain|range))?)"
    rf"(?!\w){_OVER}"
)
# A sentence about the conditions of what precedes.
_IS_REACHED = rf"(?:(?:is|are|was)\s+)?(?:{_ATTAINED})\s+(?:(?:only|exactly|precisely)\s+)?"
_BACK = (
    rf"(?:(?:it|this|that|(?P<noun>(?:the|this|that)\s+(?:{_EXTREME}\s+)?(?:value|{_EXTREME}|bound))|(?:the\s+)?equality)"
    rf"\s+{_IS_REACHED}"
    r"|(?:and\s+)?(?:we\s+have\s+)?(?:the\s+)?equality\s+(?:(?:holds|occurs)\s+)?(?:(?:only|exactly)\s+)?)"
)
_SENTENCE = rf"[*_)]{{0,4}}[.;:][*_]{{0,3}}\s+{_BACK}{_FOR}(?!\w){_OVER}"
# The text between an answer and a formula that is its condition.
_CONDITION = re.compile(rf"[\s,(;]*+{_ABOUT}{_HOLDS}{_INTRODUCED}:?\s*+", re.IGNORECASE)
_CONDITION_SENTENCE = re.compile(rf"{_SENTENCE}:?\s*+", re.IGNORECASE)
# The divisor of a remainder: "3 when divided by 7".
_BY = (
    r"[\s,(;]*+(?:(?:when|if|on|upon|after)\s+(?:(?:it|this|that|the\s+number)\s+is\s+)?(?:divided|division|dividing)"
    r"\s+by|modulo)\s+"
)
_DIVIDED = re.compile(_BY, re.IGNORECASE)
_DIVIDED_BY_NUMBER = re.compile(rf"(?<=[0-9)}}$]){_BY}[\\$(]{{0,2}}[0-9]{{1,9}}[\\$).]{{0,3}}\Z", re.IGNORECASE)
_WHERE = re.compile(r"[\s,(;]*+where(?:\s+[^\W\d_]+){0,3}\s*", re.IGNORECASE)
# "The minimum value 5" before "is attained at": a value that names its noun.
_OF_EXTREME = re.compile(rf"\b(?:{_EXTREME}(?:\s+value)?|value|bound)\s+[*_]{{0,3}}\Z", re.IGNORECASE)
_REACHED = re.compile(rf"\s*{_IS_REACHED}", re.IGNORECASE)
# "attains a maximum value of" before the value.
_ATTAINS = re.compile(
    rf"\b(?:attains?|reach(?:es)?|achieves?|takes?|assumes?|has|have|with)\s+(?:its|their|an?|the)\s+"
    rf"{_EXTREME}(?:\s+value)?(?:\s+of)?\s+[*_]{{0,3}}\Z",
    re.IGNORECASE,
)
_MAX_NOUN = 50

_ARROW = re.compile(r"->|\\(?:to|rightarrow|longrightarrow|uparrow|downarrow)(?![A-Za-z])|[\u2190-\u2193]")
_RELATION = re.compile(
    r"[=<>\u2260\u2264\u2265\u2208\u2209]|\\(?:[lg](?:eq?|t)(?:slant)?|neq?|in|notin|equiv|mid|approx)(?![A-Za-z])"
)
_ORDER = re.compile(r"[<>\u2260\u2264\u2265\u2208\u2209]|\\(?:[lg](?:eq?|t)(?:slant)?|neq?|in|notin)(?![A-Za-z])")
_INTERVAL = re.compile(r"(?:\\left\s?)?[\[(][^\])]{1,60}[,;]|\\mathbb|[\u2115\u211a\u211d\u2124]")
_WORD = re.compile(r"(?<![A-Za-z\\])(?!and\b|or\b)[A-Za-z]{2,}")

# A condition in words and plain formulas at the end of a line.
_BEGINS = re.compile(
    rf"(?:{_SENTENCE}\s+|(?<=[\w)}}\]!%])[*_]{{0,3}}[,;]?\s+\(?{_ABOUT}{_HOLDS}{_INTRODUCED}\s+)", re.IGNORECASE
)
_VERBS = ("attained", "achieved", "reached", "occurs", "occurring")
_IN_WORDS = re.compile(
    rf"(?<=[\w)}}\]]),?\s+\(?{_ABOUT}(?:{'|'.join(_VERBS)})\s+(?:only\s+)?(?:at|when|for|if)\b",
    re.IGNORECASE,
)
# "is" with a number, at the end.
_STATED = re.compile(
    rf"(?:(?<!\w)(?:is|are|be|was|equals?|of)|[=:]|\b{_EXTREME}(?:\s+value)?|\bvalue)"
    r"\s{0,3}[^\s\w]{0,3}[0-9][^\s,;]{0,40}(?:\s[^\W\d_]{1,20}){0,2}\Z",
    re.IGNORECASE,
)


def is_condition(answer: str, between: str, formula: str) -> bool:
    """Whether a formula after a text that follows an answer is a condition of that answer."""
    if len(between) > MAX_CONDITION or (kind_of(answer) == "equation" and named(formula)):
        return False  # "2x = 6 holds for x = 3"
    if named(answer) and named(formula) and between.strip(" ,").lower() == "with":
        return False  # "x = 3 with y = 4"
    if _DIVIDED.fullmatch(between):
        return True
    if sentence := _CONDITION_SENTENCE.fullmatch(between):
        return sentence["noun"] is None or is_constant(answer)
    found = _CONDITION.fullmatch(between)
    return found is not None and _may_follow(found, formula)


def is_said_of_extreme(text: str, start: int, end: int) -> bool:
    """Whether a formula of a text is a value that is attained: "the minimum value $5$ is attained"."""
    if _ATTAINS.search(text, max(0, start - _MAX_NOUN), start):
        return True
    noun = _OF_EXTREME.search(text, max(0, start - _MAX_NOUN), start)
    return noun is not None and _REACHED.match(text, end, end + _MAX_NOUN) is not None


def says_where(between: str) -> bool:
    """Whether a text between two formulas begins to define the letters of the first one."""
    return len(between) <= MAX_CONDITION and _WHERE.fullmatch(between) is not None


def without_condition(line: str) -> str:
    """An answer in words without the condition at its end; an inequality stays, after "for"."""
    end = max(0, len(line) - MAX_CONDITION)
    said = line[end:].lower()
    if any(verb in said for verb in _VERBS) and (match := _IN_WORDS.search(line, end)):
        return line[: match.start()]
    if ("divi" in said or "modulo" in said) and (match := _DIVIDED_BY_NUMBER.search(line, end)):
        return line[: match.start()]
    last = max((sign.end() for signs in (_RELATION, _ARROW) for sign in signs.finditer(said)), default=-1)
    if last < 0 or _WORD.search(said, last):  # a condition ends with its relation and the related terms
        return line
    begins = list(_BEGINS.finditer(line, end))
    if len(begins) != 1:  # with several cases, no condition is left out
        return line
    head, formula = line[: begins[0].start()], line[begins[0].end() :].rstrip(" \t\r\n*_.$)")
    if _WORD.search(formula) or not _may_follow(begins[0], formula):
        return line
    if not (_RELATION.search(formula) or _ARROW.search(formula)):
        return line
    return f"{head} for {formula}" if _ORDER.search(formula) else head


def before_condition(text: str) -> str:
    """A text without the condition at the end of its last sentence, if it belongs to a number before it."""
    cut = max(0, len(text) - MAX_CONDITION)
    line = text[cut:].rstrip(" \t\r\n*_.)")
    said = without_condition(line)
    if said == line:
        return text
    begins = _BEGINS.search(line)
    head = said if line.startswith(said) else line[: begins.start()] if begins else said
    return text[: cut + len(head)] if _STATED.search(head) else text


def _may_follow(introduced: re.Match[str], formula: str) -> bool:
    """Whether a formula can be a condition, by the word before it that introduces it."""
    if introduced["tends"]:
        return _ARROW.search(formula) is not None
    if introduced["within"]:
        return _INTERVAL.match(formula) is not None
    return not introduced["weak"] or _RELATION.search(formula) is not None
