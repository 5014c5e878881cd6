"""Which letters of prose are given as answers, and which mentions of choices their sentences rule out or doubt.

    I choose C.                   C is given: "choose" is before it, and nothing belongs to it
    C is correct.                 C is given by what follows
    Vitamin C. It is 20 C.        nothing is given
    C can be eliminated.          C is ruled out
    I don't think it is C.        C is doubted, as in a question or after "if"

Nothing is understood: expressions with bounded reach are matched directly before and after a mention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from crucible_worker.grading.qualification import REACH, rejected

__all__ = [
    "MAX_MENTIONS",
    "REACH_OF_CLAUSE",
    "concludes",
    "decisive",
    "in_prose",
    "is_ruled_out",
    "leading",
    "letters_of",
    "options_in",
]

MAX_MENTIONS = 2_000
"""Letters, and occurrences of a choice's text, that rule it out and are skipped; after so many the rest is not read."""
REACH_OF_CLAUSE = 160
"""Characters on either side of a mention in which its clause is read."""

_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_QUOTE = r"['\u2019]"
_OPENING = r"[\s\"'\u201c\u2018(*_$`\\{:\uff1a]{0,8}"
_CLOSING = r"[\s\"'\u201d\u2019)*_$`}\\]{0,8}"
_OPTION_IN_CHINESE = "[选選]?[项項]?"

# A capital letter as a word, except "A" and "I" before another word, which are English words, and "B-cell" and "C++".
_WORDS_AFTER = r"(?:or|and|because|since|as|but|is)\b"
_NOT_IN_WORD = rf"(?![^\W{_CJK}]|{_QUOTE}|-\w|[+#])"
_BARE = (
    rf"(?:(?<![\w'\u2019])|(?<=[{_CJK}]))"
    rf"(?:[B-HJ-Z]{_NOT_IN_WORD}|[AI]{_NOT_IN_WORD}(?!\s+(?!{_WORDS_AFTER})[a-z]))"
)
_LETTER = re.compile(_BARE)
_JOINT = (
    r"\s{0,2}(?:[/&\u3001\uff0c]|\band/or\b|(?:\bor|\band)\b(?:\s(?:maybe|perhaps|possibly|probably|even|also|else)\b)?|[和或])"
    r"\s{0,2}"
)
_COMMA = r"\s?,\s{0,2}"
_NO_CLAUSE = r"(?!\s+(?:is|was|being|seems|looks|fits|must|would|has)\b)"  # "between C and D, D is right"
_LETTERS = re.compile(
    rf"{_BARE}(?>(?:{_COMMA}{_BARE}){{1,30}},\s?(?:and|or)\s{_BARE}"
    rf"|(?:{_JOINT}{_BARE}|{_COMMA}{_BARE}{_NO_CLAUSE}){{0,30}})"
)
# After a marker the first letter decides, or the first ones: "the answer is B, because A ...", "answer: A or B".
_LEADING = re.compile(rf"[^\w\n]{{0,8}}({_LETTERS.pattern})")
_OPTION = re.compile(
    rf"(?:\b(?i:option|choice|letter)\s{{1,2}}|[选選][项項])[(*\s]{{0,4}}(?P<letters>{_LETTERS.pattern})"
)
# A lower-case word after a letter makes it a part of a name, "C major", except one of these.
_FUNCTION_WORDS = (
    r"(?:or|and|because|since|as|but|is|are|was|were|would|must|should|seems?|looks?|appears?|has|have|which|that|this"
    r"|with|for|due|it|its|the|an?|we|where|while|when|not|rather|instead|given|by|in|on|from|if|so|thus|therefore"
    r"|hence|then|to|at|of|only|based|according|my|correct|right|final|fits?|works|matches)\b"
)
_PART_OF_NAME = re.compile(rf"[^\S\n]{{1,3}}(?!{_FUNCTION_WORDS})[^\W\d_A-Z{_CJK}]")

# A letter in prose is an answer after these words, if nothing belongs to it; or before those of `_IS_ANSWER`.
_ADVERBS = r"(?:definitely|clearly|probably|certainly|obviously|simply|just|only|likely|most likely|either|both)"
_CONCLUSIONS = r"(?:therefore|thus|so|hence|then|namely|finally)"
_CHOOSING = (
    r"(?:choose|chose|choosing|pick|picked|select|selected|go(?:ing)?\s+with|say|guess|prefer|left\s+with|down\s+to"
    r"|remains?|leaves?|(?:vote|opt|go|settle|went)\s+(?:for|on))"
)
_BEFORE_ANSWER = re.compile(
    rf"(?:(?:[:\uff1a\u2192\u21d2\u2013\u2014]|[-=]>|\bno,|\b(?:match(?:es)?|corresponds?\s+to|is|be|are|was|(?:it|that){_QUOTE}s|answer|options?|choices?|letters?|but|hmm|well|maybe|perhaps|possibly"
    rf"|doubt|sure|okay|yes|{_CHOOSING}|{_CONCLUSIONS}|{_ADVERBS}),?)"
    rf"(?:\s{{1,2}}(?:{_ADVERBS}|{_CONCLUSIONS}|the|option|choice|letter|answer)){{0,2}}{_OPENING}"
    rf"|(?:[选選][择擇项項]?|答案|[是为為故\u306f\uc740\ub294]|因此|所以|只有)(?:[选選][择擇项項]?)?{_OPENING})\Z",
    re.IGNORECASE,
)
_BEGINS_SENTENCE = re.compile(rf"(?:^|[.!?;\u3002\uff1b\n]){_OPENING}\Z")
_ENDS_SENTENCE = re.compile(rf"{_CLOSING}(?:\Z|[^\w\s]|\n|(?:or|and)\b)")
_ENDS_ANSWER = re.compile(rf"{_CLOSING}(?:\Z|[^\w\s]|[{_CJK}]|\n|(?i:{_FUNCTION_WORDS})|[A-Z])")
_IS_ANSWER = re.compile(
    rf"{_CLOSING}(?:(?:is|are|was|must\s+be|would\s+be|has\s+to\s+be|seems|looks|appears)\s+"
    rf"(?:(?:also|thus|therefore|to\s+be|all|indeed|{_ADVERBS})\s+){{0,2}}(?:(?:the|my|our|an?)\s+)?"
    r"(?:(?:only|most|more|best|single|final|likely|correct|right)\s+){0,2}"
    r"(?:correct|right|true|answers?|best|choices?|options?|valid|accurate|appropriate|likely|possible|plausible|acceptable|fine|pick|guess|one|mine)\b"
    r"|(?:fits|works|matches|remains|is\s+left|it\s+(?:is|was))\b|[,;]?\s{0,2}(?:because|since)\b"
    rf"|{_OPTION_IN_CHINESE}是?(?:正确|正確|[对對]的|答案|正解))",
    re.IGNORECASE,
)

# A choice that is ruled out, in further words than those of `rejected`: "C can be eliminated".
_RULED_OUT_AFTER = re.compile(
    rf"{_CLOSING}(?:(?:can|could|must|should|may|has\s+to)\s+(?:(?:also|safely|now|thus|therefore)\s+)?be\s+"
    r"(?:eliminated|excluded|ruled\s+out|rejected|discarded|dismissed|crossed\s+out|false|wrong|incorrect)"
    rf"|(?:does|do|did|will|would)\s?(?:not\b|n\s?{_QUOTE}\s?t\b)|fails\b"
    r"|(?:is|are|was|were)\s+(?:(?:un|im)(?:likely|possible|true)|(?:the\s+)?(?:least|wrong|incorrect|false))\b"
    rf"|{_OPTION_IN_CHINESE}的?(?:[说說]法|表述|描述|内容)?[也都是均并则显然明]{{0,3}}(?:[错錯不]|有[误誤]|排除))",
    re.IGNORECASE,
)
_RULED_OUT_BEFORE = re.compile(
    r"(?:排除|不能?应?[选選]|不是)(?:[选選][项項])?[\s(\uff08]{0,3}\Z"
    r"|\b(?:least\s+likely|eliminat\w{1,3}|exclud\w{1,3}|rul(?:e|es|ed|ing)\s+out|wrong|incorrect|reject\w{0,3}"
    r"|discard\w{0,3})(?:\s+\w{1,12}){0,3}?[\s:(*\"']{1,4}\Z",
    re.IGNORECASE,
)
# "not (A) or " before a choice: what rules A out rules it out, too.
_LISTED_BEFORE = re.compile(r"(?:\(?[A-Z]\)?\s?,\s?){0,8}\(?\b[A-Z]\)?,?\s(?:or|nor|and)\s\(?\Z")
# A clause that denies, doubts, supposes or asks what it says: "I don't think the answer is C."
_DOUBTED = re.compile(
    rf"(?:\b(?:do|does|did|could|would|can|ca|wo|is|was)\s?(?:not|n\s?{_QUOTE}\s?t)\s+(?:really\s+)?"
    r"(?:think|believe|know|agree|suppose|say|sure|see|tell)\b|\bcannot\s+(?:\w{1,10}\s+)?(?:tell|say|be)\b"
    r"|(?<!no )(?<!without a )(?<!without )\bdoubt|\b(?:disagree|unlikely|unsure|uncertain|wonders?)\b"
    r"|\bnot\s+(?:\w{1,10}\s+)?(?:true|the\s+case|clear|sure|certain|correct|right|likely)\b"
    r"|\bit\s+is\s+(?:false|wrong|incorrect)\b"
    r"|\b(?:you|one|some|many|people|students?|we)\s+(?:might|may|could|would|can)\s+"
    r"(?:think|say|guess|believe|argue|choose|pick|be\s+tempted)\b"
    r"|\b(?:wrong|incorrect|common|naive|tempting)\s+(?:answer|choice|option|mistake|guess)\b"
    r"|\b(?:if(?!\s+not\b)|whether|suppos(?:e|ing)|assum(?:e|ing))\b[^,]{0,160}\Z)",
    re.IGNORECASE,
)
_GIVEN_UP = re.compile(
    r"[^.!?\n]{0,80}(?:\?|\bbut\s+I\s+"
    rf"(?:cannot|can{_QUOTE}t|do(?:\s?not|n{_QUOTE}t)|am\s+not|could(?:\s?not|n{_QUOTE}t))\b)",
    re.IGNORECASE,
)
# A question to which a mention belongs: "Could the answer be C?"
_ASKS = re.compile(
    r"\s{0,3}(?:(?:so|but|hmm|well),?\s)?(?:is|are|was|could|would|can|might|should|does|do|what|which|why|how)\b",
    re.IGNORECASE,
)
_ASKED_IN_CHINESE = re.compile(r"[^\u3002\uff01\uff1f?!\n]{0,20}[\u5417\u55ce]\s?[\uff1f?]")
_IS_ASKED = re.compile(r"[^.!?\n]{0,80}\?")
_CLAUSE_ENDS = re.compile(
    r"[.!?;\n\u3002\uff0c\uff1b]|,\s(?=(?:and|which|I|we)\b)|\b(?:then|so|but|thus|hence|therefore)\b,?|因此",
    re.IGNORECASE,
)

_SENTENCE_ENDS = re.compile(r"[.!?]\s|[\n\u3002\uff01\uff1f]")
_EXPLAINS = re.compile(r"[,;]?\s(?:because|since|whereas|while|unlike|as opposed to)\s", re.IGNORECASE)
_CONCLUDES = re.compile(
    rf"\b(?:so|thus|therefore|hence|finally|overall|conclu\w{{1,6}}|answer|correct|must\s+be|remains?|leaves|best"
    rf"|I(?:{_QUOTE}(?:ll|d|m)|\s+will|\s+would|\s+am)?\s+(?:go|going|choose|choosing|pick|picking|select|say))\b"
    r"|因此|所以|故|[综綜]上|[选選]",
    re.IGNORECASE,
)


def letters_of(matches: Iterable[re.Match[str]], text: str, *, ruled_out: bool = False) -> list[str]:
    """The letters, or labels, of matches in a text, in order; those that the text rules out only if these count too."""
    found: dict[str, None] = {}
    passed = 0
    for match in matches:
        letter = match[match.lastindex or 0]
        if letter in found:
            continue
        if ruled_out or not is_ruled_out(text, match.start(), match.end()):
            found[letter] = None
            continue
        passed += 1
        if passed == MAX_MENTIONS:
            break
    return list(found)


def leading(text: str, *, ruled_out: bool) -> list[str]:
    """The letters that the text after a marker begins with."""
    match = _LEADING.match(text)
    if match is None or _PART_OF_NAME.match(text, match.end()):
        return []
    if not ruled_out and is_ruled_out(text, *match.span(1)):
        return []
    return letters_of(_LETTER.finditer(text, match.start(1), match.end(1)), text, ruled_out=ruled_out)


def in_prose(text: str, *, ruled_out: bool) -> list[str]:
    """The letters that prose gives as answers; those that it rules out, wherever they are, if these count too."""
    if ruled_out:
        return letters_of(_LETTER.finditer(text), text, ruled_out=True)
    letters: dict[str, None] = {}
    for passed, match in enumerate(_LETTERS.finditer(text)):
        if passed == MAX_MENTIONS:
            break
        start, end = match.span()
        reach = max(0, start - REACH)
        given = (_BEFORE_ANSWER.search(text, reach, start) and _ENDS_ANSWER.match(text, end)) or (
            _BEGINS_SENTENCE.search(text, reach, start) and _ENDS_SENTENCE.match(text, end)
        )
        if (given or _IS_ANSWER.match(text, end)) and not is_ruled_out(text, start, end):
            letters |= dict.fromkeys(letters_of(_LETTER.finditer(text, start, end), text))
    return list(letters)


def is_ruled_out(text: str, start: int, end: int, *, by_what_follows: bool = True) -> bool:
    """Whether the text around a mention rules it out, doubts it or asks for it. Bounded work."""
    before, behind = text[max(0, start - REACH_OF_CLAUSE) : start], text[end : end + REACH_OF_CLAUSE]
    if (listed := _LISTED_BEFORE.search(before)) and not _IS_ANSWER.match(behind):
        before = before[: listed.start()]
    if rejected(before[-REACH:], behind[:REACH] if by_what_follows else ""):
        return True
    sentence = before[max((cut.end() for cut in _SENTENCE_ENDS.finditer(before)), default=0) :]
    if (_ASKS.match(sentence) and _IS_ASKED.match(behind)) or _ASKED_IN_CHINESE.match(behind):
        return True
    if by_what_follows and (_RULED_OUT_AFTER.match(behind) or _GIVEN_UP.match(behind)):
        return True
    clause = before[max((cut.end() for cut in _CLAUSE_ENDS.finditer(before)), default=0) :]
    return _RULED_OUT_BEFORE.search(clause) is not None or _DOUBTED.search(clause) is not None


def options_in(response: str, answer: str) -> list[str]:
    """The letters of "so we get 4, thus option D", in the sentence of an answer or after it; the last such ones."""
    sentence = 0
    for end in _SENTENCE_ENDS.finditer(response, 0, max(0, response.rfind(answer))):
        sentence = end.end()
    found: list[str] = []
    for passed, match in enumerate(_OPTION.finditer(response, sentence)):
        if passed == MAX_MENTIONS:
            break
        if not is_ruled_out(response, *match.span("letters")):
            found = _LETTER.findall(match["letters"])
    return found


def decisive(response: str) -> Iterator[str]:
    """The parts of a response that decide if all of it names several choices: its conclusion, or what it explains."""
    response = response.rstrip()
    start = 0
    for end in _SENTENCE_ENDS.finditer(response):
        start = end.end()
    if start and concludes(response[start : start + REACH_OF_CLAUSE]):
        yield response[start:]
    if (reason := _EXPLAINS.search(response)) and not _CONCLUDES.search(response, reason.end()):
        yield response[: reason.start()]


def concludes(text: str) -> bool:
    """Whether a text has words of a conclusion."""
    return _CONCLUDES.search(text) is not None
