r"""Conditions after an answer, which are not part of it: "5, attained at x = 2", "x^2, where x is real".

A condition begins with a word that introduces one ("at", "when", "for", "given that", "by substituting"). Before it
there may be the consequence ("equality occurs when"); a separate sentence must refer back ("It is attained at").
Words that introduce other things as well ("with", "as", "since") need a relation after them.
"""

from __future__ import annotations

import re

from crucible_worker.grading.joined import is_constant, kind_of, named

__all__ = [
    "MAX_CONDITION",
    "before_condition",
    "is_condition",
    "is_said_of_extreme",
    "says_where",
    "without_condition",
]

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
_AFTER = (
    r"(?:(?:by|on|upon|after|when)\s+)?(?:substituting|inserting|setting|taking|putting|letting|choosing"
    r"|plugging\s+in)"
)
# These introduce a condition only if a relation follows.
_WITH = (
    rf"(?:given(?:\s+that)?|assuming(?:\s+that)?|supposing(?:\s+that)?|since|because|while|unless|using|with|{_AFTER}"
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
