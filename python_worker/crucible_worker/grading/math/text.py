"""An answer in words, and an answer within a longer text.

How words are spelled, and which phrases are mathematics; where a box, a marker or the last formula is; which words
around an answer may be dropped, and which are provisos of it; sentences with formulas in them.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from crucible_worker.grading import enclosed as enclosed_answers
from crucible_worker.grading.enclosed import json_answer, without_retracted
from crucible_worker.grading.extract import Extraction, extract
from crucible_worker.grading.math.identity import MathOutcome, different, equal
from crucible_worker.grading.math.lexer import restored
from crucible_worker.grading.math.quantities import NUMBER_WORDS, number_of_words
from crucible_worker.grading.math.tokens import (
    MAX_UNIT_WORDS,
    NO_COUNTED_WORDS,
    NO_NOUNS,
    NUMBER_SETS,
    UNITS,
    is_unit,
    singular,
    spelled,
)
from crucible_worker.grading.math.tree import Collection, Constant, Node, Number, Quantity, Symbol, Text
from crucible_worker.grading.numbers import last_numerals
from crucible_worker.grading.qualification import is_retracted, rejected

__all__ = [
    "MAX_FORMULAS",
    "are_judgements",
    "as_list",
    "boxed",
    "choice",
    "compare_text",
    "condition",
    "counted",
    "enclosed",
    "ends_with",
    "formulas_of",
    "has_words",
    "is_claim",
    "is_empty_set",
    "last_amount",
    "marked",
    "may_drop",
    "node_of_words",
    "other_domains",
    "with_decimal_point",
    "words_of",
]

# Words: how an answer in words is spelled, and which phrases are mathematics.

_MARKUP = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mbox|boxed|left|right|operatorname|displaystyle|quad|qquad)"
    r"(?![A-Za-z])|\\(?:text)?color\s?\{[^{}]{0,80}+\}|\\[,;:!() \[\]]|[\s{}$~]"
)
_AROUND_WORD = ".,;:!?\"'`()[]*\u2018\u2019\u201c\u201d"

_AROUND_NUMBER = ".,;:?\"'`*\u2018\u2019\u201c\u201d"
_DIGIT = re.compile(r"[0-9]")
_NUMERAL_START = re.compile(r"[-+\u2212$(.]*+[0-9]")

_BRACKETS = frozenset("()[]")
_BELOW_ZERO = ("minus", "negative")

_PHRASE_ROWS: tuple[tuple[Node, tuple[str, ...]], ...] = (
    (Collection("set", ()), ("no solution", "no solutions", "no real solution", "no real solutions", "none")),
    (
        Collection("set", ()),
        ("there is no solution", "there are no solutions", "no solution exists", "no such solution"),
    ),
    (Collection("set", ()), ("empty set", "the empty set", "empty")),
    (Symbol(NUMBER_SETS["R"]), ("all real numbers", "all reals", "all real", "real numbers", "the real numbers")),
    (Symbol(NUMBER_SETS["Z"]), ("all integers", "integers", "the integers")),
)
_PHRASES: Mapping[str, Node] = {phrase: node for node, phrases in _PHRASE_ROWS for phrase in phrases}


def node_of_words(words: str) -> Node:
    """Words as a node: a phrase that is mathematics, a number, or text."""
    if words in _PHRASES:
        return _PHRASES[words]
    parts = words.replace("-", " ").split()
    if (number := number_of_words(parts)) is not None:
        return number
    if len(parts) > 1 and parts[0] in _BELOW_ZERO and parts[1] not in _BELOW_ZERO:
        match node_of_words(" ".join(parts[1:])):
            case Number(value):
                return Number(-value)
            case Quantity(Number(value), unit):
                return Quantity(Number(-value), unit)
            case _:
                return Text(words)
    for end in range(len(parts) - 1, max(0, len(parts) - 1 - MAX_UNIT_WORDS), -1):
        number, noun = number_of_words(parts[:end]), parts[end:]
        if (
            number is not None
            and noun[-1] not in NO_NOUNS
            and NO_COUNTED_WORDS.isdisjoint(noun)
            and NUMBER_WORDS.isdisjoint(noun)
            and not any(map(_NUMERAL_START.match, noun))
        ):
            return Quantity(number, " ".join((*noun[:-1], singular(noun[-1]))))  # "five apples"
    return Text(words)


def words_of(text: str) -> str:
    r"""An answer as words: case folded, without markup, single spaces, each word without punctuation around it.

    If one of two answers is words, both are compared as words: `odd` and `\text{Odd}`. Linear time.
    """
    words = _MARKUP.sub(" ", restored(text)).casefold().split()
    bare = [*map(_bare, words)]
    if "" in bare and _DIGIT.search(text):
        bare = [said or _bracket(word) for said, word in zip(bare, words)]
    return " ".join(filter(None, bare))


def _bracket(word: str) -> str:
    r"""The bracket that a word is, which may be that of an interval next to numbers: `(0, \frac{1}{2}]`."""
    word = word.rstrip(".,;:")
    return word if word in _BRACKETS else ""


def _bare(word: str) -> str:
    """A word without punctuation around it; at a number, brackets and exclamation marks may be mathematics."""
    return word.strip(_AROUND_NUMBER if _DIGIT.search(word) else _AROUND_WORD)


# The position of an answer in a longer text: in boxes, after a marker, in the last formula.

# In brackets a comma divides: (2,5) is a pair.
_NO_BRACKET = r"(?<![(\[])(?<![(\[]\s)(?<!\\\{)(?<!\\\{\s)"
_DECIMAL_COMMA = re.compile(rf"[^0-9,]*+{_NO_BRACKET}(?:0(?=,)|[0-9]++(?=,(?![0-9]{{3}}(?![0-9])))),([0-9]++)[^0-9,]*+")
_THOUSANDS = re.compile(r"\$?-?[1-9][0-9]{0,2}(?:,[0-9]{3})+\$?")
_CHOICE = re.compile(
    r"(?:\\\w+\{ ?\(?(?P<marked>[A-J])(?:\)|[.:]) ?\}|(?:\\\w+\{)?\(?(?P<plain>[A-J])(?:\)\}?|\}?[.:])(?=\\ |\s|~))"
    r"(?>(?:\\ |\s|~)*)(?=[\w\\$(-])"
)
# A choice after its text: `12 \text{ (B)}`, `12 \text{ (choice B)}`, and `12 (B)` of a numeral.
_NAMED = r"(?:[Cc]hoice|[Oo]ption)\s\(?(?P<{}>[A-J])\)?"
_CHOICE_AFTER = re.compile(
    r"(?:\\q?quad|\\[ ,;:!]|[\s~,])*\\text(?:bf|rm|it)?\{\s?"
    rf"(?:\((?P<marked>[A-J])\)|\(?{_NAMED.format('named')}\)?)\s?\}}\.?\Z"
    rf"|(?<=[0-9])(?:\s|\\ |~|\\q?quad)+\((?:(?P<plain>[A-J])|{_NAMED.format('called')})\)\.?\Z"
)
_EXTRACTED_LATELY = 4
_CHOICE_ENDS = (")", "}", ").", "}.")
_MAX_CHOICE_AFTER = 40
_NOUNS = ("hoice", "ption")
# Not the text of a choice: a single sign, or a bound of something that follows.
_UNFINISHED = re.compile(r"\A\W+\Z|(?<![A-Za-z])(?:than|least|most|of|from)[\s}]{0,4}\Z", re.IGNORECASE)
_MAX_AFTER_LETTER = 4  # characters from the bracket of that choice to the end
_PLAIN_NUMERAL = re.compile(r"-?[0-9][0-9.,/]*+")
_UNIT_AFTER = re.compile(r"(?: |~|\\[ ,;])?(?:\\(?:text|mathrm)\{[ ~]{0,3})?(?P<unit>[A-Za-z]{2,20})(?![A-Za-z])")
# The further words of a unit.
_MORE_OF_UNIT = re.compile(r"\}?\s?(?:[\^/*\u00b2\u00b3]|\\cdot|(?:per|an|a|squared|cubed|each|and)(?![A-Za-z]))")
_LONG_WORD = re.compile(r"(?<![\\\w])[^\W\d_]{2,}+(?!\w)")
# Thai, Lao, Burmese and Khmer have no blanks between words.
_SPACELESS_WORDS = re.compile("[\u0e01-\u0e4e\u0e81-\u0ecd\u1000-\u103f\u1780-\u17d3]{5}")


def boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{}`, or of the last ones that are joined; None without one."""
    if "boxed" not in text and "fbox" not in text:
        return None
    if is_retracted(text):
        text = without_retracted(text).text
    return enclosed_answers.boxed(text)[0]


def enclosed(text: str) -> str | None:
    """The content of answer tags or of a JSON object's answer, empty if there is none; None for other texts."""
    if not ("<" in text or "{" in text) or "answer" not in text.casefold():
        return None
    answer, _ = json_answer(text)
    if answer is not None:
        return answer
    extraction = _extracted_lately(text)
    return extraction.answer if extraction.how == "tag" else None


def marked(text: str, *, numbers: bool = True) -> str | None:
    """The answer in a text of words: after a marker, in the last formula, or the last number.

    Without `numbers` only the text after a marker counts: a target in words is not a number that it mentions.
    """
    extraction = _extracted_lately(text)
    if not numbers:
        return extraction.answer if extraction.how == "marker" else None
    if extraction.answer != text and extraction.how:
        return extraction.answer
    return None


@functools.lru_cache(maxsize=_EXTRACTED_LATELY)
def _extracted_lately(text: str) -> Extraction:
    """The answer in a text; the last few are cached, as one decision needs them again."""
    return extract(text)


def has_words(text: str) -> bool:
    """Whether this is a sentence, however short: two words at least."""
    if len(list(itertools.islice(_LONG_WORD.finditer(text), 2))) == 2:
        return True
    return not text.isascii() and _SPACELESS_WORDS.search(text) is not None


def last_amount(text: str) -> str | None:
    """The last number of a text, with the unit after it: "5 kilometers" of "she walked 5 kilometers home".

    A unit of several words is left out, "5 miles per hour": the unit is then missing, not wrong.
    """
    numbers = last_numerals(text, 1)
    if not numbers:
        return None
    unit = _UNIT_AFTER.match(text, numbers[0].start + len(numbers[0].text))
    if unit is None or unit["unit"] == "percent" or not is_unit(unit["unit"]) or _MORE_OF_UNIT.match(text, unit.end()):
        return numbers[0].text
    return f"{numbers[0].text} {unit['unit']}"


def with_decimal_point(text: str, *, decimals: int) -> str | None:
    """A text whose only numeral has a decimal comma, which cannot divide thousands, with a point instead; or None.

    It has at least so many decimals: 1,2 may well be a list.
    """
    match = _DECIMAL_COMMA.fullmatch(text)
    return text.replace(",", ".") if match is not None and len(match[1]) >= decimals else None


def as_list(text: str) -> str | None:
    """A numeral with thousands as the list that it may also be: 70,110, but not 1,000; None for other texts."""
    return text.replace(",", ", ") if ",0" not in text and _THOUSANDS.fullmatch(text) else None


def choice(text: str) -> tuple[str, str] | None:
    """The letter of a choice and its text, if both are there: "(B) 12", "B. 12", "12 (B)"."""
    if (match := _CHOICE.match(text)) is not None:
        return match["marked"] or match["plain"], text[match.end() :]
    if not text.endswith(_CHOICE_ENDS):
        return None
    if ")" not in text[-_MAX_AFTER_LETTER:] and not any(noun in text[-_MAX_CHOICE_AFTER:] for noun in _NOUNS):
        return None
    match = _CHOICE_AFTER.search(text, max(0, len(text) - _MAX_CHOICE_AFTER))
    value = text[: match.start()] if match is not None else ""
    if (
        match is None
        or not value
        or not (match["marked"] or match["named"] or _PLAIN_NUMERAL.fullmatch(value))
        or _UNFINISHED.search(value)
        or rejected(value.replace("}", " ") + " ", "")
    ):
        return None
    return match["marked"] or match["named"] or match["plain"] or match["called"], value


# Whether the words around an answer may be dropped: none of them may change its meaning.
#
# "She has 5 apples" means 5; "at least 5", "not 5", "half of 5", "4 or 5" and "n < 5" do not, though 5 is the last
# number in each. The sentence around the answer is searched, but not understood: one word of the lists below is enough
# to keep the sentence as words. So a right answer in a complicated sentence is lost, but a wrong one is never graded as
# right because of dropped words.
#
# Words that negate, or offer a choice, count anywhere in the sentence. Words that bound or transform a value count if
# they are next to it: before it since the last verb, comma, colon or sign of equality ("the square of 2 is 4" is 4),
# and after it up to the next comma or the word that starts an explanation.

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
    " decreased followed addition otherwise else point mod modulo"
)
_AFTER = spelled(
    "least most than times squared cubed factorial doubled tripled halved dozen hundred thousand million billion"
    " trillion plus minus divided multiplied half halves quarters mod modulo choose if when otherwise"
    " even odd too st nd rd th binary octal hexadecimal zillion gazillion"
) | frozenset(word for word in NUMBER_WORDS if word.endswith(("ths", "thirds")))
# A part of a number, or a number that is only described: the first 5, divisible by 5, ending in 5.
_DESCRIBED = re.compile(
    r"\b(?:divisible by|(?:end|start|begin)(?:s|ing|ning)? (?:in|with)|congruent to|(?:co|relatively )prime (?:to|with)"
    r"|first|last)[\s$(){}\\]{1,4}\Z",
    re.IGNORECASE,
)
_CHANGED = re.compile(
    r"\b(?:below|under|beneath)\s(?:zero|0|sea level|freezing|par)\b|\bper (?:hundred|thousand|mille?|million)\b"
    r"|\bto the (?:\w{1,12} )?power\b|\braised to\b|\A\s?grand\b(?!\s[a-z]{4})",
    re.IGNORECASE,
)
# Denials and bounds in other languages: parts of words, and short words alone.
_NEGATED = re.compile(
    r"不|没有|並非|并非|ではない|ではありま|ではなく|じゃない|아니|아닙|않"
    r"|ไม่|ผิด|อย่างน้อย|อย่างมาก|มากกว่า|น้อยกว่า"
    r"|नहीं|गलत|ग़लत|कम से कम|अधिकतम|से अधिक|से ज़्यादा|से कम"
    r"|নয়|নেই|ভুল|অন্তত|কমপক্ষে|সর্বোচ্চ|চেয়ে"
    r"|ليس|غير|خطأ|على الأقل|على الأكثر|أكثر من|أقل من"
    r"|نیست|غلط|نادرست|حداقل|حداکثر|بیش از|بیشتر از|کمتر از"
    r"|(?<!\S)(?:না|لا|نه)(?!\w)"
)
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
_JOINED = re.compile(
    r"(?:[0-9]\W{0,6}(?:to|and|or|in|out of|second|[,:\u2013\u2014-])"
    r"|\b(?:one|two|three|four|five|six|seven|eight|nine|ten) (?:in|to|out of)"
    r"|[0-9][^0-9.,:;\n]{1,40}\b(?:for (?:every|each)|per))\W{0,6}$",
    re.IGNORECASE,
)
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
# Other exclamation marks end a sentence.
_FACTORIAL = re.compile(r"!(?:!|\s?[a-z(^*/+=\\-])")
_DELIMITERS_BEFORE = re.compile(r"(?:\\?\$|\\[(\[]|\*\*|\s)+$")
_DELIMITERS_AFTER = re.compile(r"(?:\$|\\[)\]]|\*\*)+")
_AMOUNT = re.compile(r"[-+\u2212]?[0-9.,/]++ ?\\?%?")
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
    if _FACTORIAL.match(behind) and answer[-1].isdigit():
        return False
    ends = [end.end() for end in _SENTENCE_END.finditer(before)]
    sentence = before[ends[-1] :] if ends else before
    if end := _CLAUSE_END.search(behind):
        behind = behind[: end.start()]
    if _AMOUNT.fullmatch(answer) and (_is_operand(sentence, behind) or _is_in_formula(before, sentence)):
        return False
    if _EXCLUSION.search(sentence) or _EXCLUSION.search(behind) or _RELATED.search(sentence[-_MAX_BOUNDED:]):
        return False
    if _DESCRIBED.search(sentence[-_MAX_BOUNDED:]) or _CHANGED.search(behind):
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


# Provisos of answers: the set of numbers of a variable, and the condition under which an answer holds.
#
# Neither is required, so it is not part of the first comparison. If both sides have one, they must not contradict each
# other.

_LETTERS = {name: letter for letter, name in NUMBER_SETS.items()}
# `\in \mathbb{Z}`, with a plus after it for those above zero.
_DOMAIN = re.compile(
    r"(?:\\in(?![a-z])|\u2208)\s*(?:\\(?:mathbb|Bbb|mathbf))?[\s{]*\\?"
    r"([RZNQ\u211d\u2124\u2115\u211a])(?![A-Za-z])\}*(\^?\{?\+)?"
)
_COUNTED = re.compile(
    r"([A-Za-z])\s*(?:\\in(?![a-z])|\u2208)\s*(?:\\(?:mathbb|Bbb|mathbf))?[\s{]*\\?([ZNQ\u2124\u2115\u211a])(?![A-Za-z])"
)
_PROVISO = re.compile(r"(?:f(?<!\w.)or|w(?<!\w.)he(?:n|re)|i(?<!\w.)f)\b(?:[\s{}$~]|\\[ ,;:]|\\text\b|\\q?quad\b)*")
_INEQUALITY = re.compile(
    r"[<>\u2260\u2264\u2265]|\\(?:neq?|[lg](?:eq?|t)|(?:leq|geq)slant)(?![A-Za-z])|\\in\s?(?:\\left)?\s?(?:[\[(]|\\\{)"
)
_MAX_CONDITION_CHARS = 60


def other_domains(target: str, answer: str) -> bool:
    r"""Whether both give the set of numbers of a variable, `k \in \mathbb{Z}`, and no set of numbers is in both."""
    domains, others = _domains(target), _domains(answer)
    return bool(domains and others) and domains.isdisjoint(others)


def _domains(text: str) -> frozenset[str]:
    r"""The stated sets of variables; the integers above zero are usually \mathbb{N}."""
    if "\\in" not in text and "\u2208" not in text:
        return frozenset()
    return frozenset(
        "N" if found[1] == "Z" and found[2] else _LETTERS.get(found[1], found[1]) for found in _DOMAIN.finditer(text)
    )


def counted(text: str) -> frozenset[str]:
    r"""The variables that are stated to be integers, naturals or rationals: x of `x \in \mathbb{Z}`."""
    if "\\in" not in text and "\u2208" not in text:
        return frozenset()
    return frozenset(found[1] for found in _COUNTED.finditer(text))


def condition(text: str) -> str | None:
    """The one inequality or interval at the end of a text after "for", "when", "where" or "if"; None without one."""
    found = None if "\\begin" in text else _PROVISO.search(text[-_MAX_CONDITION_CHARS:])
    if found is None:
        return None
    said = text[-_MAX_CONDITION_CHARS:][found.end() :].strip("$}. ")
    return said if _INEQUALITY.search(said) else None


# Sentences with formulas in them: `increasing on $(0, \frac12)$` and `Increasing on $(0, 0.5)$` are equal.


MAX_FORMULAS = 16
"""Formulas of a sentence that are compared."""

_MAX_CHARS = 2_000
_PIECE = re.compile(r"\$\$[^$]{1,400}\$\$|\$[^$]{1,400}\$|\\\([^()]{1,400}\\\)|[^\s$]+|\$")
_DELIMITER = re.compile(r"\$|\\[()]")
_PROSE_WORD = re.compile(
    r"[\"'(\u201c\u2018]?[^\W\d_]{2,}(?:['\u2019-][^\W\d_]{1,40}){0,4}[\"')\u201d\u2019]?[.,;:!?]*|[aAI]"
)
_ARTICLES = frozenset({"the", "a", "an"})
_AROUND_SENTENCE = " \t\n.,;:!?"


def formulas_of(target: str, answer: str) -> list[tuple[str, str]] | None:
    """The formulas of two sentences that have the same words around them, in pairs; None if they have not.

    A formula is between delimiters, or is a run of text that is not words. Articles, the case of words and marks around
    them do not count.
    """
    if max(len(target), len(answer)) > _MAX_CHARS:
        return None
    expected, said = _pieces(target), _pieces(answer)
    words = [word for word, _ in expected if word is not None]
    if not any(len(word) > 1 for word in words) or not 0 < len(expected) - len(words) <= MAX_FORMULAS:
        return None
    if [word for word, _ in said if word is not None] != words or len(said) != len(expected):
        return None
    if any((word is None) != (other is None) for (word, _), (other, _) in zip(expected, said)):
        return None
    return [(text, other) for (word, text), (_, other) in zip(expected, said) if word is None]


def _pieces(text: str) -> Sequence[tuple[str | None, str]]:
    """Normalised words, and formulas in place of words; each with its text."""
    pieces: list[tuple[str | None, str]] = []
    for piece in _PIECE.findall(text):
        if _PROSE_WORD.fullmatch(piece):
            word = words_of(piece)
            if word not in _ARTICLES:
                pieces.append((word, piece))
        elif pieces and pieces[-1][0] is None:
            pieces[-1] = (None, f"{pieces[-1][1]} {piece}")
        elif piece.strip(_AROUND_SENTENCE):
            pieces.append((None, piece))
    return [(word, text if word else _DELIMITER.sub("", text).strip(_AROUND_SENTENCE)) for word, text in pieces]


# Comparing words, and names written as words.

_BY_WORDS = "text"
_EMPTY_WORDS = frozenset(
    {
        "no solution",
        "no solutions",
        "no real solution",
        "no real solutions",
        "there is no solution",
        "there are no solutions",
        "empty set",
        "the empty set",
        "empty",
    }
)
"""Words for the empty set."""

_JUDGEMENTS = spelled(
    "true false t f yes no correct incorrect right wrong valid invalid always sometimes never even odd rational"
    " irrational increasing decreasing increases decreases convergent divergent converges diverges"
)
_INFINITE_WORDS = frozenset(
    {"infinity", "infinite", "infinitely many", "infinitely many solutions", "an infinite number", "positive infinity"}
)
_SPELLINGS = {
    "dne": "does not exist",
    "doesn't exist": "does not exist",
    "limit does not exist": "does not exist",
    "limit doesn't exist": "does not exist",
}
_CLAIMS = (*_EMPTY_WORDS, *_INFINITE_WORDS, *_SPELLINGS, *_SPELLINGS.values(), "none", "undefined", "impossible")
# In "a x + b" it is a factor. "All" is one before a noun with another word: "1 and all odd primes".
_ARTICLE = re.compile(r"\b(?:the (?=\w)|an? (?=\w\w))|(?:\A|(?<=\band ))all (?=[a-z]{1,40} [a-z])")
_HYPHEN = re.compile(r"_|(?<=\w)-(?=[^\W\d])")  # otherwise it is a sign
_BLANKS = re.compile(r"[\s,]+")
_AROUND_SIGN = re.compile(r" ?([=<>]) ?")
_AROUND = " .,:;!?()[]'\"*"
_AROUND_NUMBERS = " .,:;?'\"*"  # brackets and exclamation marks may be mathematics


def _words_in(node: Node) -> str | None:
    """The words of a node that is a text or a name of letters; None if it is neither."""
    if isinstance(node, Text):
        return node.words
    if isinstance(node, Symbol):
        return node.name.casefold()
    return None


def are_judgements(nodes: Iterable[Node]) -> bool:
    """Whether each answers a separate question, so that their order matters: true, false."""
    return all(_words_in(node) in _JUDGEMENTS for node in nodes)


def is_empty_set(node: Node) -> bool:
    """Whether this is the empty set, in signs or in words."""
    if isinstance(node, Collection):
        return not node.items and node.kind in ("set", "list")
    return isinstance(node, Text) and node.words in _EMPTY_WORDS


def is_claim(node: Node) -> bool:
    """Whether this is, or ends with, words that are an answer by themselves: "infinitely many", "does not exist"."""
    return is_empty_set(node) or (isinstance(node, Text) and node.words.endswith(_CLAIMS))


def compare_text(target: Node, answer: Node) -> MathOutcome:
    """Compare two nodes at least one of which is text."""
    if is_empty_set(target) and is_empty_set(answer):
        return equal(_BY_WORDS)
    if _infinite(target) and _infinite(answer):
        return equal(_BY_WORDS)
    expected, said = _words_in(target), _words_in(answer)
    if expected is None or said is None:
        return different(_BY_WORDS, "words on one side, mathematics on the other")
    if _plain(expected) == _plain(said):
        return equal(_BY_WORDS)
    return different(_BY_WORDS, "different words")


def _infinite(node: Node) -> bool:
    if isinstance(node, Constant):
        return node.name == "infinity"
    return isinstance(node, Text) and node.words in _INFINITE_WORDS


def _plain(words: str) -> str:
    """Words without articles, hyphens and punctuation around them: "the x-axis" is "x axis", "at x = 1" is "at x=1"."""
    around = _AROUND_NUMBERS if _DIGIT.search(words) else _AROUND
    words = _AROUND_SIGN.sub(r"\1", _BLANKS.sub(" ", _HYPHEN.sub(" ", words))).strip(around)
    words = _ARTICLE.sub("", words)
    return _SPELLINGS.get(words, words)
