"""Whether the words around an answer may be dropped: none of them may change its meaning.

"She has 5 apples" means 5; "at least 5", "not 5", "half of 5", "4 or 5" and "n < 5" do not, though 5 is the last number
in each. The sentence around the answer is searched, but not understood: one word of the
lists below is enough to keep the sentence as words. So a right answer in a complicated sentence is lost, but a wrong
one is never graded as right because of dropped words.

Words that negate, or offer a choice, count anywhere in the sentence. Words that bound or transform a value count if
they are next to it: before it since the last verb, comma, colon or sign of equality ("the square of 2 is 4" is 4), and
after it up to the next comma or the word that starts an explanation.
"""

from __future__ import annotations

import re

from crucible_worker.grading.math.notation import spelled
from crucible_worker.grading.math.units import UNITS

__all__ = ["ends_with", "may_drop"]

_REACH = 400
"""Characters on either side of an answer in which its sentence is sought."""

_MAX_LISTED = 64
_MAX_BOUNDED = 24
"""Characters before an answer in which a bound of its equation is sought."""

_NEGATIONS = spelled(
    "not no never neither nor none nothing cannot except excluding without unless or either instead rather wrong"
    " incorrect anything false undefined impossible infinite infinitely infinity hardly nicht kein"
    " keine pas non não не нет"
)
_OFFERS = frozenset({"or", "either"})  # which a list of values may have
_BEFORE = spelled(
    "least most more less greater fewer larger smaller bigger higher lower over under above below up between beyond"
    " than from of times divided multiplied multiple multiples half double triple twice thrice root square cube log"
    " logarithm lim limit goes tends approaches reciprocal inverse negative minus plus opposite and if when where until"
    " while exceeds exceeding but before after next previous successor predecessor increase increased decrease"
    " decreased followed addition otherwise else point"
)
_AFTER = spelled(
    "least most than times squared cubed factorial doubled tripled halved dozen hundred thousand million billion"
    " trillion plus minus divided multiplied half halves thirds quarters fourths mod modulo choose if when otherwise"
    " even odd too st nd rd th"
)
_NEGATED = re.compile(r"不|没有|並非|并非|ではない|ではありま|ではなく|じゃない|아니|아닙|않")
_SENTENCE_END = re.compile(r"[.?!;](?=\s)|\n")
_CLAUSE_END = re.compile(r"[.?!](?=\s|$)|[,;:\n]")
_EXCLUSION = re.compile(r"\\notin|\\nin(?![a-z])|\\not\s?\\in|\u2209")
_EXPLANATION = re.compile(r"\b(?:because|since|which|where|so|as|that|after)\b|i\.e\.", re.IGNORECASE)
_WORD = re.compile(r"(?<!\\)\b[^\W\d_]+(?:['\u2019]t\b)?")
_RESETS = re.compile(
    r"\b(?:is|are|was|were|be|equals?|equal to|total of|answer of|result of|has|have|had|gives?|gave|gets?|got|makes?"
    r"|made|yields?|needs?|becomes?|leaves?|left|remains?|costs?|pays?|paid|earns?|spends?|spent|takes?)\b|\w['\u2019]s\b|[,:=\u2248]",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"\b(?:for|when|if|at|where|as|until|while)\b[^,;:]{0,20}$", re.IGNORECASE)
# The bounded value may be an equation: "less than x = 9".
_BOUNDED = re.compile(
    r"\b(?:than|least|most|over|under|above|below|exceeds?|beyond|up to)[\s$]{1,3}[A-Za-z]\w{0,2}\s?=\s?\Z",
    re.IGNORECASE,
)
# A relation without its other side: `\\neq $5$`.
_RELATED = re.compile(
    r"(?:(?:^|\s)[<>]|[\u2260\u2264\u2265]|\\(?:neq?|not|[lg](?:eq?|t)(?:slant|q)?)(?![A-Za-z])\s?=?)[\s$({\\\[]{0,8}\Z"
)
_LINK = re.compile(r", | (?:and|or) ")
# A number and a word before the answer: one of two, a range, odds.
_JOINED = re.compile(r"[0-9]\W{0,6}(?:to|and|or|in|out of|second|[,:\u2013\u2014-])\W{0,6}$", re.IGNORECASE)
# Signs that a number is part of something: an operator, a command, a function, a fraction or a group.
_OPERATOR_BEFORE = re.compile(
    r"(?:[-+/^_<>{}|\u00d7\u00f7\u00b7\u221a\u2264\u2265]|(?<!\*)\*|\w\()\s*$|\\[A-Za-z]+\s*$"
)
_NO_OPERATOR = re.compile(r"(?:^|[\n:=,]\s*)-\s*$|\\(?:approx|quad|qquad|implies|Rightarrow)\s*$")
_OPERATOR_AFTER = re.compile(
    r"\s*(?:\*(?!\*)|[/^_+!<>{](?!\{?\\circ)|\((?![A-Za-z]{2})|\\(?:[a-su-z]|t(?!ext))(?<!\\[nqmc])|-\s*[0-9\\(]|-\s[a-z]\b)"
)
# The end of `\text{The answer is }`.
_TEXT_BEFORE = re.compile(r"\\text(?:bf|it|rm)?\{[^{}]*\}\s*\Z")
_DELIMITERS_BEFORE = re.compile(r"(?:\\?\$|\\[(\[]|\*\*|\s)+$")
_DELIMITERS_AFTER = re.compile(r"(?:\$|\\[)\]]|\*\*)+")
_NUMERAL = re.compile(r"[-+\u2212]?[0-9.,/]++ ?\\?%?")
# A rejected value may be followed by the answer: "it is not 4, so it is 5".
_REJECTED = re.compile(r"(?:\bnot|n['\u2019]t(?: be)?)(?: equal to)?\W{1,4}[0-9]", re.IGNORECASE)
_SPAN = re.compile(r"\$[^$]*+\$|\\\(.*?\\\)|\\\[.*?\\\]", re.DOTALL)
_STRUCTURE = re.compile(r"&|\\\\|\\(?!n\b|quad|qquad|implies|Rightarrow|approx)[A-Za-z]")
_PERCENTAGE = re.compile(r"(?<=%)\s*of\b|\s*(?:\\?%|percent)\s*of\b")
_GLUED = re.compile(r"[A-Za-z]+(?!\^?[23\u00b2\u00b3])")


def may_drop(text: str, answer: str) -> bool:
    """Whether an answer has the same meaning as the text around it. Bounded work; its last occurrence counts.

    Args:
        text: the whole text.
        answer: a part of it, as written there; one that does not occur in it was composed, and is not a quotation.
            A numeral must not be a part of a formula either.
    """
    start = _last_place(text, answer)
    end, offers = start + len(answer), frozenset[str]()
    if start < 0:
        place = _place_of_list(text, answer)
        if place is None:
            return True
        (start, end), offers = place, _OFFERS
    before, behind = text[max(0, start - _REACH) : start], text[end : end + _REACH]
    ends = [end.end() for end in _SENTENCE_END.finditer(before)]
    sentence = before[ends[-1] :] if ends else before
    if end := _CLAUSE_END.search(behind):
        behind = behind[: end.start()]
    if _NUMERAL.fullmatch(answer) and (_is_operand(sentence, behind) or _is_in_formula(before, sentence)):
        return False
    if _EXCLUSION.search(sentence) or _EXCLUSION.search(behind) or _RELATED.search(sentence[-_MAX_BOUNDED:]):
        return False
    if end := _EXPLANATION.search(behind):
        behind = behind[: end.start()]
    return _words_allow(sentence, behind, offers)


def ends_with(text: str, answer: str) -> bool:
    """Whether no other number follows an answer: in "5? Or 6" the last word is not 5."""
    start = _last_place(text, answer)
    return start < 0 or not any(character.isdigit() for character in text[start + len(answer) :])


def _place_of_list(text: str, answer: str) -> tuple[int, int] | None:
    """The start and end of the values of a composed list in the text; None if unknown."""
    values = _LINK.split(answer, maxsplit=_MAX_LISTED)
    if len(values) < 2 or not (values[0] and values[-1]):
        return None
    end = _last_place(text, values[-1])
    start = _last_place(text, values[0], end) if end > 0 else -1
    return None if start < 0 else (start, end + len(values[-1]))


def _last_place(text: str, answer: str, end: int | None = None) -> int:
    """The last occurrence of the answer, not within a word or a numeral; -1 without one."""
    end = len(text) if end is None else end
    while (start := text.rfind(answer, 0, end)) >= 0:
        joined = answer[0].isalnum() and text[start - 1 : start].isalnum()
        if not joined or start == 0:
            return start
        end = start + len(answer) - 1
    return -1


def _words_allow(sentence: str, behind: str, offers: frozenset[str]) -> bool:
    resets = list(_RESETS.finditer(sentence))
    near = sentence[resets[-1].end() :] if resets else sentence
    if resets and resets[-1][0] == "=" and _CONDITION.search(sentence[: resets[-1].start()]):
        return False
    if _BOUNDED.search(sentence[-_MAX_BOUNDED:]):
        return False
    words, words_near, words_behind = map(_words, (_after_rejected(sentence), near, behind))
    if any(word.endswith(("n't", "n\u2019t")) for word in words | words_behind):
        return False
    if _NEGATED.search(sentence) or _NEGATED.search(behind):
        return False
    return (
        _NEGATIONS.isdisjoint((words | words_behind) - offers)
        and _BEFORE.isdisjoint(words_near)
        and _AFTER.isdisjoint(words_behind)
    )


def _after_rejected(sentence: str) -> str:
    """The text after the last number that is ruled out: " but 6" of "it is not 5 but 6"."""
    ends = [rejected.end() for rejected in _REJECTED.finditer(sentence)]
    return sentence[ends[-1] :] if ends else sentence


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(text))


def _is_in_formula(before: str, sentence: str) -> bool:
    """Whether a number is one of several, or within a formula that has words in it, or is not closed."""
    if _JOINED.search(sentence) or before.count("\\begin") > before.count("\\end"):
        return True
    resets = list(_RESETS.finditer(sentence))
    near = sentence[resets[-1].end() :] if resets else sentence
    return _STRUCTURE.search(_SPAN.sub(" ", near)) is not None


def _is_operand(before: str, behind: str) -> bool:
    """Whether a number is a part of a formula, like 5 in x^5, 5x and 3 + 5."""
    before = _DELIMITERS_BEFORE.sub(" ", _TEXT_BEFORE.sub(" ", before))
    if _OPERATOR_BEFORE.search(before) and not _NO_OPERATOR.search(before):
        return True
    behind = _DELIMITERS_AFTER.sub("", behind, count=1)
    glued = _GLUED.match(behind)
    if glued and glued[0] not in UNITS and glued[0].lower() not in UNITS:
        return True
    return bool(_OPERATOR_AFTER.match(behind) or _PERCENTAGE.match(behind))
