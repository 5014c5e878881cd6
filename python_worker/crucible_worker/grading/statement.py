"""Answers at the end of a sentence, if no box, tag or marker names one.

`stated` reads explicit statements: which choice is right ("Option D is correct", "I would go with (A)"), that there
is no solution or no limit, and Yes, No, True or False as the first word of a paragraph that is the whole response.
`ending` reads the end of the last sentence: a time or a date, an amount with its unit, that a statement is true or
false, or a name after a verb ("the youngest is Alice"). A bound is part of it ("at least 5 km").

Nothing is understood: patterns are matched in the last paragraph. A denial, a question, a supposition or a discarded
idea states nothing: "Option D is wrong", "Is A correct?", "if k = 3 there is no solution", "no solution other than
3". Work is bounded: at most `MAX_PARAGRAPH` characters are read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from crucible_worker.grading.math.tokens import UNITS
from crucible_worker.grading.numbers import is_negated
from crucible_worker.grading.phrase import with_commas_for_rows
from crucible_worker.grading.qualification import rejected

__all__ = ["MAX_PARAGRAPH", "ending", "stated"]

MAX_PARAGRAPH = 600
"""Characters at the end of a response that are read."""

_PARAGRAPH_END = re.compile(r"\n\s*\n")
_ENDS_SENTENCE = re.compile(
    r"[.!?\n\u3002\uff01\uff1f](?:(?<=[\n\u3002\uff01\uff1f])|(?=[\s*\"\u201d)]|$)"
    r"(?i:(?<!\bMr.)(?<!\bMrs.)(?<!\bMs.)(?<!\bDr.)(?<!\bSt.)(?<![ap]\.m.))[*\"\u201d)]*)"
)
_DECORATION = " \t\r\n*_`#>\"'\u201c\u201d"

_NOUN = r"(?:options?|choices?|answers?|statements?|alternatives?|answer (?:choice|option))"
_LETTER = r"(?:\\text(?:bf)?\{)?[\s(*$]{0,4}(?P<letter>[A-J])(?![\w'\u2019])[)*$}]{0,4}"
_EASTERN_LETTER = r"(?<![A-Za-z])[(\uff08]?(?P<letter>[A-J])(?![A-Za-z0-9_])[)\uff09]?"
_ANY_LETTER = re.compile(r"[A-J](?![A-Za-z0-9_'\u2019])")
_RIGHT = (
    r"(?:is|must be|has to be|would be|should be)\s+(?:(?:therefore|thus|hence|clearly|indeed|definitely|also|the|only"
    r"|most likely|one that is)\s+){0,2}(?:correct|right|true|best|the answer|valid)"
    r"(?!\s+(?:only|if|when|unless|for)\b)"
)
_GOING = (
    r"(?:I|[Ww]e)(?:['\u2019](?:d|ll)|\s(?:would|will|shall|can|must|should))?(?:\s(?:therefore|thus|then))?"
    r"|(?:[Ss]o|[Ll]et['\u2019]s|[Ll]et me|[Ll]et us|to)"
)
_CHOICES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:(?i:{_NOUN})\s+)?(?<![A-Za-z\\]){_LETTER}\s+(?i:{_RIGHT})",
        rf"(?:{_GOING})\s(?i:go with|choose|pick|select|say|opt for|vote for|answer)\s+(?:(?i:{_NOUN})\s+)?{_LETTER}"
        r"(?!\s+(?!because|since|as\b|here|for\b|over|and\b|or\b)[a-z])",
        rf"(?i:correct|right|best|my|final)\s+(?i:{_NOUN}|one)\s+(?i:is|would be|must be|has to be)\s*:?\s*"
        rf"(?:(?i:{_NOUN})\s+)?{_LETTER}(?!\s+(?!because|since|as\b|here|for\b|and\b|or\b)[a-z])",
        rf"(?i:corresponds to|matches|match|which is|this is|that is|gives)\s+(?:(?i:the)\s+)?(?i:{_NOUN})\s+{_LETTER}",
        rf"(?:故|应|應|所以|因此)[选選](?:择|擇)?[:\uff1a]?\s?{_EASTERN_LETTER}",
        rf"{_EASTERN_LETTER}\s?(?:选项|選項|项|項)?(?:的说法|的說法)?(?:才?是)?(?:唯一)?(?:最佳|正确|正確|对)(?:的|答案|选项|選項){{0,2}}"
        r"(?=[\s\u3002\uff0c\uff01,.!*]|\Z)",
        rf"{_EASTERN_LETTER}(?:が|は)(?:正解|正しい|答え|適切)(?!では|と)",
        rf"{_EASTERN_LETTER}(?:번)?[가이]?\s?(?:정답|답|맞|옳)(?!이 아)",
    )
)
_BESIDE = re.compile(r"(?:(?<![A-Za-z])[A-J]\)?\s*(?:,|&|and|or|nor)|\bneither|\bonly)\s*\(?\Z", re.IGNORECASE)
_AND_MORE = re.compile(r"\s*(?:,|&|and|or)\s*\(?[A-J](?![\w'])")

_NONE = re.compile(
    r"\b(?:there\s+(?:is|are|exists?)|has|have|having|with|admits?)\s+(?P<none>no\s+(?:(?P<kind>real|such|valid"
    r"|possible"
    r"|feasible)\s+)?(?:solutions?|roots?))\b|\b(?P<exists>no\s+(?:real\s+|such\s+|valid\s+)?solutions?)\s+exists?\b"
    r"|\bthere\s+(?:is|are|exists?)\s+(?P<such>no\s+(?:such\s+(?:\w+\s+)?(?:number|value|integer|point|function)s?"
    r"|(?:real\s+)?(?:number|value)s?\s+(?:of\s+\S+\s+)?(?:that|which|satisf\w+|such)))\b",
    re.IGNORECASE,
)
_NOTHING = re.compile(r"\b(?:does\s+not|doesn['\u2019]t)\s+exist\b|\bis\s+(?P<undefined>undefined)\b", re.IGNORECASE)
# Every such sentence has one of these, so this is checked first.
_NO = re.compile(r"\bno\s", re.IGNORECASE)
_EXISTS = re.compile(r"exist|undefined", re.IGNORECASE)
_ON = re.compile(
    r"\s*(?:[.!,]|\Z|in\b|to\b|of\b|within\b|among\b|over\b|at\s+all\b|that\s+satisf|satisfying\b|because\b|since\b"
    r"|as\b"
    r"|for\s+(?:the|this|our)\b)",
    re.IGNORECASE,
)
_LIMITS = re.compile(
    r"\b(?:other\s+than|except|besides|but|unless|if|when|where|whenever|otherwise|so|hence|therefore|thus|however"
    r"|although|though|while)\b",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(
    r"\b(?:if|when|whenever|unless|whether|suppose|supposing|assume|assuming|let|for|case|would|could|might|may"
    r"|not|false|doubt|thought|think|believed?|claims?|initially|at first|wrong|incorrect|maybe|perhaps|check|look)\b"
    r"|because|since|as\b|n['\u2019]t",
    re.IGNORECASE,
)
_NOT_STATED = re.compile(
    r"\b(?:if|when|whether|unless|suppose|supposing|assume|assuming|false|doubt|thought|believed?|claims?|initially"
    r"|at first|might|maybe|perhaps|check|test|wonder|wrong|incorrect|some|says?|argues?)\b|n['\u2019]t\b|\bnot\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"\W*(?:if|when|for|suppose|assume|unless|in the case)\b", re.IGNORECASE)
_CLAUSE = re.compile(r"[,:;]\s|\b(?:so|but|hence|therefore|thus)\b", re.IGNORECASE)
_MATH = re.compile(r"\$|\\[(\[]|=")

_FIRST_WORD = re.compile(
    r"[\s*_#>\"'(]*(?P<word>yes|no|true|false)[*_\"')]{0,4}(?:\s*(?:[,!:;\u2014\u2013-]|\.(?!\s*\d))|\s*\n|\s*\Z)"
    r"(?!\s*(?:wait|let|hmm|hold|sorry|problem|worries|need|actually|that|we\b|i\b|of course|sure|here))",
    re.IGNORECASE,
)
_SECOND_THOUGHTS = re.compile(
    r"(?:^|[.!?\n]\s*)(?:yes|no|true|false)\b|\b(?:wait|actually|on second thought|correction|mistake)\b", re.IGNORECASE
)

_CLOCK = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?:\s?[ap]\.?\s?m\b\.?)?|[0-9]{1,2}\s?[ap]\.?\s?m\b\.?"
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|Jan\.?|Feb\.?|Mar\.?|Apr\.?|Jun\.?|Jul\.?|Aug\.?|Sept?\.?|Oct\.?|Nov\.?|Dec\.?)"
)
_DATE = (
    rf"{_MONTH}\s[0-9]{{1,2}}(?:st|nd|rd|th)?(?:,?\s[0-9]{{4}})?|[0-9]{{1,2}}(?:st|nd|rd"
    rf"|th)?\s(?:of\s)?{_MONTH}(?:,?\s[0-9]{{4}})?"
    r"|[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}|[0-9]{4}-[0-9]{2}-[0-9]{2}"
)
_RATIO = r"[0-9]{1,9}(?:\s?:\s?[0-9]{1,9}){1,4}"
_DAY = r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
_MOMENT_AT_END = re.compile(rf"(?<![\w:./-])(?:{_DATE}|{_DAY}|{_CLOCK}|{_RATIO})\Z", re.IGNORECASE)
_TRUTH_AT_END = re.compile(
    r"\b(?:statement|claim|proposition|assertion|hypothesis|conjecture)\s(?:is|must be)\s(?P<truth>true|false)\Z",
    re.IGNORECASE,
)
_QUANTITY = (
    r"[-\u2212]?[$\u20ac\u00a3]?[0-9][0-9,]{0,20}(?:\.[0-9]{1,20})?(?:\s[0-9]{1,9}/[0-9]{1,9})?\s?[^\W\d_]{1,20}"
)
_AMOUNT_AT_END = re.compile(rf"(?<![\w.,/:^-])(?P<first>{_QUANTITY}(?:(?:[,;]|,?\s(?:and|or))?\s{_QUANTITY}){{0,3}})\Z")
_PART = re.compile(r"(?!and\b)(?<![^\W\d_])[^\W\d_]{1,20}(?=\s*(?:,|and\b|[-\u2212$\u20ac\u00a30-9]|\Z))")
# Part of the answer: "at least 5 km" is not 5 km.
_BOUND = re.compile(
    r"\b(?:at (?:least|most)|(?:no )?(?:more|less|fewer|longer|shorter|later|earlier) than|up to|under|over|above|below"
    r"|between|before|after|until|by|past|exceeds?|within|multiples? of|half(?: of)?|twice)\s\Z",
    re.IGNORECASE,
)
_NAME_AT_END = re.compile(
    r"\b(?:is|are|was|were|be|been|becomes|named|called|goes to|went to|belongs to)"
    r"(?:\snot\s[\w .'\u2019-]{1,40}?,?\sbut(?:\srather)?)?(?:\s(?:on|in|at|by|the))?"
    r"[:\s*\"'\u201c]{1,4}(?P<name>(?:(?:Mr|Mrs|Ms|Dr|St)\.\s)?[A-Z][\w'\u2019-]*"
    r"(?:\s(?:(?:of|the|and|de|van|von|la)\s)?[A-Z][\w'\u2019-]*){0,4})\Z"
)
# "..., not London": what the end of the sentence is not.
_CONTRAST = re.compile(
    r"(?:,\s(?:and\s|but\s)?not|\s\((?:and\s)?not|,?\s(?:rather\sthan|instead\sof|as\sopposed\sto"
    r"|and\snot))\s[^,;:]{1,60}\Z",
    re.IGNORECASE,
)
_MAX_CONTRAST = 80
_NO_NAMES = frozenset({"I", "It", "The", "This", "That", "We", "They", "He", "She", "You", "Not", "A", "An"})


def stated(text: str) -> tuple[str, int]:
    """The statement of a response's last paragraph, empty if it makes none; and the work done."""
    paragraph = _last_paragraph(text)
    sentences = _sentences(paragraph)
    for answer in (_choice(paragraph, sentences), _none(sentences[-1] if sentences else ""), _first_word(text)):
        if answer:
            return answer, len(paragraph)
    return "", len(paragraph)


def ending(text: str) -> tuple[str, int]:
    """The end of a response's last sentence, empty if it is not a time, an amount or a name; and the work done."""
    text = with_commas_for_rows(text).replace(",\n", ", ")
    paragraph = _last_paragraph(text)
    sentences = _sentences(paragraph)
    last = sentences[-1].rstrip(_DECORATION + ".!)") if sentences else ""
    if last.endswith(("a.m", "p.m", "A.M", "P.M")):
        last += "."
    if not last or sentences[-1].rstrip(_DECORATION).endswith("?"):
        return "", len(paragraph)
    if contrast := _CONTRAST.search(last, max(0, len(last) - _MAX_CONTRAST)):
        last = last[: contrast.start()]
    for answer in (_moment(last), _amount(last), _truth(last), _name(last)):
        if answer == text.strip(_DECORATION + "."):
            return "", len(paragraph)  # it is not a sentence
        if answer and not rejected(before := last[: last.rfind(answer)], ""):
            bound = _BOUND.search(before)
            return (bound[0] if bound else "") + answer, len(paragraph)
    return "", len(paragraph)


def _last_paragraph(text: str) -> str:
    text = text.rstrip()[-MAX_PARAGRAPH:]
    ends = [end.end() for end in _PARAGRAPH_END.finditer(text)]
    return text[ends[-1] :] if ends else text


def _sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, each with its punctuation."""
    ends = [end.end() for end in _ENDS_SENTENCE.finditer(paragraph)]
    bounds = [0, *ends, len(paragraph)]
    found = (paragraph[start:end].strip() for start, end in itertools.pairwise(bounds))
    return [sentence for sentence in found if sentence.strip(_DECORATION)]


def _choice(paragraph: str, sentences: list[str]) -> str:
    """The letter in the last sentence that names one, if no mathematics follows."""
    if not _ANY_LETTER.search(paragraph):
        return ""
    for sentence in reversed(sentences):
        letters = set(_letters(sentence))
        if len(letters) == 1:
            return letters.pop()
        if letters or _MATH.search(sentence):
            break
    return ""


def _letters(sentence: str) -> Iterator[str]:
    """The letters of the choices that a sentence says are right."""
    if sentence.rstrip(_DECORATION).endswith("?"):
        return
    for pattern in _CHOICES:
        for match in pattern.finditer(sentence):
            before, behind = sentence[: match.start("letter")], sentence[match.end() :]
            lead = sentence[: match.start()]
            clauses = [end.end() for end in _CLAUSE.finditer(lead)]
            near = lead[clauses[-1] :] if clauses and not _CONDITION.match(lead) else lead
            if rejected(before, sentence[match.end("letter") :]) or _NOT_STATED.search(near):
                continue
            if _BESIDE.search(before) or _AND_MORE.match(behind) or re.match(r",?\s+but\b", behind):
                continue
            yield match["letter"]


def _none(sentence: str) -> str:
    """The answer "no solution" or "does not exist", if a sentence says nothing more."""
    places = list(_NONE.finditer(sentence)) if _NO.search(sentence) else None
    if places:
        found = places[-1]
        before, behind = sentence[: found.start()], sentence[found.end() :]
        # "there is no such number that": a description of the number follows, not an answer.
        if not (found["such"] or _ON.match(behind)) or _LIMITS.search(behind) or _is_supposed(before):
            return ""
        said = found["none"] or found["exists"] or "no solution"
        return said if found["kind"] in (None, "real") and "root" not in said else "no solution"
    found = _NOTHING.search(sentence) if _EXISTS.search(sentence) else None
    if found is None or _is_supposed(sentence[: found.start()]) or not _ON.match(sentence[found.end() :]):
        return ""
    return "" if _LIMITS.search(sentence[found.end() :]) else "undefined" if found["undefined"] else "does not exist"


def _is_supposed(before: str) -> bool:
    clauses = [end.end() for end in _CLAUSE.finditer(before)]
    return (
        _CONDITION.match(before) is not None
        or _SUPPOSED.search(before[clauses[-1] :] if clauses else before) is not None
    )


def _first_word(text: str) -> str:
    """Yes, No, True or False, if a response is one paragraph that begins with it and does not take it back."""
    text = text.strip()
    match = _FIRST_WORD.match(text) if len(text) <= MAX_PARAGRAPH else None
    if match is None or "\n\n" in text or _SECOND_THOUGHTS.search(text, match.end()):
        return ""
    return match["word"]


def _moment(sentence: str) -> str:
    match = _MOMENT_AT_END.search(sentence, max(0, len(sentence) - 40))
    return match[0] if match else ""


def _amount(sentence: str) -> str:
    """A number with a unit, or several that are one amount: "3 hours and 20 minutes"."""
    match = _AMOUNT_AT_END.search(sentence, max(0, len(sentence) - 120))
    if match is None:
        return ""
    units = _PART.findall(match[0])
    if not units or not all(unit in UNITS or unit.lower() in UNITS for unit in units):
        return ""
    return f"-{match[0]}" if is_negated(sentence, match.start()) else match[0]


def _truth(sentence: str) -> str:
    match = _TRUTH_AT_END.search(sentence, max(0, len(sentence) - 40))
    return match["truth"] if match and not _SUPPOSED.search(sentence[: match.start()]) else ""


def _name(sentence: str) -> str:
    match = _NAME_AT_END.search(sentence, max(0, len(sentence) - 120))
    return match["name"] if match and match["name"].split()[0] not in _NO_NAMES else ""
