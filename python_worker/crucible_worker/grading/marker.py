r"""Answers after markers: "the answer is 42", "Answer: 42", "#### 42", in about 20 languages.

The last marker with an answer counts. Markers of one kind that follow each other with only their answers between
them, "Answer: 8" over "Answer: 4", are one answer together, as `crucible_worker.grading.qualification` says; after
more reasoning, or after a full stop, a marker corrects the one before it. Markup that begins before a marker and ends
after its answer belongs to neither.

Markup around a marker, which continues after it: `\text{The answer is } (D)`, `<b>Answer:</b> 7`.

The text after a marker loses the brace that closes the marker's `\text{}`. It ends at the end of the mathematics
around the marker, or before a tag of HTML or a special token of a model. Work is bounded, except for one pass over
the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from crucible_worker.grading.enclosed import is_taken_back
from crucible_worker.grading.formulas import listed_below
from crucible_worker.grading.math.tokens import spelled
from crucible_worker.grading.phrase import (
    MAX_WHOLE_CHARS,
    has_words,
    is_placeholder,
    judges,
    phrase,
    says_something,
    words,
)
from crucible_worker.grading.qualification import MAX_JOINED, together, written
from crucible_worker.grading.scope import MAX_MENTIONS, is_asked, is_hedged, mention

__all__ = ["MAX_BEFORE", "final_line", "has_marker", "last_marked", "numeral_at_end", "without_exclamation"]

MAX_BEFORE = 200
"""Characters before a marker, on its line, in which markup is sought."""

_TEXT = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:rm|bf|it|sf)|mbox|operatorname|underline)\s?\{[^{}]*\Z")
_TOKEN = re.compile(r"\\.|[{}]")
_OPENS = re.compile(r"\\[(\[]|(?<!\\)\$\$?")
_CLOSES = {"\\(": "\\)", "\\[": "\\]", "$": "$", "$$": "$$"}
_HTML = r"</?(?:b|strong|em|i|u|p|span|div|h[1-6]|code|font|center)>"
_OPENING_HTML = re.compile(rf"(?:[\s*_`:]{{0,8}}{_HTML})+[\s:]{{0,8}}", re.IGNORECASE)
_END = re.compile(rf"{_HTML}|<br ?/?>|<\|", re.IGNORECASE)


def _unwrapped(before: str, rest: str) -> str:
    """The text after a marker, without the markup around the marker.

    Args:
        before: the text before the marker; its end is examined.
        rest: the text after it.
    """
    _, end_of_line, line = before[-MAX_BEFORE:].rpartition("\n")
    if "\\" not in line and "$" not in line and "<" not in rest:
        return rest
    if html := _OPENING_HTML.match(rest):
        rest = rest[html.end() :]
    if _TEXT.search(line):
        rest = _without_closing_brace(rest)
    # Whether a truncated line begins within mathematics is unknown.
    if (end_of_line or len(before) < MAX_BEFORE) and (closing := _open_mathematics(line)):
        inside, closed, behind = rest.partition(closing)
        if closed:
            rest = inside if inside.strip(" \t.:~\\") else behind
    end = _END.search(rest)
    return rest[: end.start()] if end else rest


def _without_closing_brace(rest: str) -> str:
    depth = 0
    for token in _TOKEN.finditer(rest.partition("\n")[0]):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth < 0:
            return rest[: token.start()] + " " + rest[token.end() :]
    return rest


def _open_mathematics(line: str) -> str:
    """The delimiter that closes the mathematics at the end of a line; empty if there is none."""
    closing = ""
    at = 0
    while True:
        if closing:
            end = line.find(closing, at)
            if end < 0:
                return closing
            at, closing = end + len(closing), ""
            continue
        opening = _OPENS.search(line, at)
        if opening is None:
            return ""
        at, closing = opening.end(), _CLOSES[opening[0]]


# "Answer" in the languages of multilingual test sets: "Antwort: 7".
_WORDS = (
    *("answer", "answers", "réponse", "respuesta", "resposta", "risposta", "antwort", "antwoord", "svar", "odpowiedź"),
    *("ответ", "ответом", "відповідь", "cevap", "jawaban", "jibu", "đáp án", "đáp số", "ìdáhùn", "idahun"),
    *("答案", "答え", "答", "回答", "解答", "正解", "答复", "답", "답변", "정답", "उत्तर", "উত্তর", "సమాధానం", "คำตอบ"),
    *("الإجابة", "إجابة", "الجواب", "جواب"),
)
_LAST_LETTERS = "".join(sorted({word[-1] for word in _WORDS}))  # checked first: most characters are not among them
# This and the next read a reversed text: the first match is the last one of the text.
_MARKER = re.compile(
    rf"####|:(?-i:A)(?=[\s*]|\Z)|(?=[{_LAST_LETTERS}])(?:{'|'.join(word[::-1] for word in _WORDS)})", re.IGNORECASE
)
# The same for a text with only the English word: one character of eight may end a marker.
_ENGLISH_MARKER = re.compile(r"[#:rRsS](?:(?<=#)###|(?<=:)A(?=[\s*]|\Z)|(?i:(?<=r)ewsna|(?<=s)rewsna))")
_OTHER_WORDS = tuple(word for word in _WORDS if not word.startswith("answer"))
_OTHER_ASCII_WORDS = tuple(filter(str.isascii, _OTHER_WORDS))
# "50 is the answer.": the verb and the article before such a word, and the end of the sentence after it.
_NAMES = re.compile(
    r"[\s*]{1,4}(?:(?:(?:must|would|should|will|has to) )?(?:be|is|are|was)"
    r"(?: (?:therefore|thus|indeed|clearly|hence|then))? (?:the|our|my)(?: (?:final|correct|right|only))?"
    r"|est (?:la|ma)(?: bonne)?|es (?:la|mi)|ist (?:die|meine)(?: richtige)?|\u00e9 a|\u00e8 la|is het)[\s*]{1,4}\Z"
    r"|(?:是|就是)(?:正确|正確|最终|最終)?的?\Z|\s?[이가은는]\s\Z|[がは]\Z",
    re.IGNORECASE,
)
_ENDS_NAMING = re.compile(
    r"[*_`\")]{0,4}(?:[.!\u3002\uff01]|,\s(?:I\s(?:think|believe|guess|am)|not)\b|\s*\n|\s*\Z|です|だ|입니다|이다)"
)
_STOP = re.compile(r"[.!?](?=\s)|[;:\u3002\uff0c\uff1f]")
# Words that may come before the value: "so 50", "I think that 50".
_BEFORE_NAMED = re.compile(
    r"\b(?:so|thus|hence|therefore|then|that|think|believe|say|guess|conclude|doubt|whether|if|suppose|assume|but|and"
    r"|means|see"
    r"|clearly|finally|also|donc|entonces|quindi|portanto|所以|因此)\b[,\s]{0,2}|,\s(?![^()\[\]{}\n]{0,40}[)\]}])",
    re.IGNORECASE,
)
_NOT_NAMED = re.compile(
    r"(?:this|that|it|which|what|here|there|these|those|none|neither|nor|not|no|both|all|each|one|he|she|they"
    r"|the (?:following|above|latter|former|value|number|result|last|first)"
    r"|ce|c|das|esta?|essa|questa|这|那|以上|これ|それ|이것)\W{0,4}(?:\s|\Z)"
    r"|(?:option|choice|answer|statement|选项|選項)?\s?\(?[A-J]\)?(?:选项|選項|项)?\W{0,4}\Z",
    re.IGNORECASE,
)
_IS_HEDGED = re.compile(r"(?:n['\u2019]t|\b(?:not|cannot|can|could|may|might|never|only))\Z", re.IGNORECASE)
_MAX_NAMED, _MAX_NAMED_WORDS = 120, 4
# The answer of another person, or an earlier one.
_OF_ANOTHER = spelled(
    "your his her their student student's user user's model's author's given proposed submitted claimed initial first"
    " previous earlier original old intuitive obvious example sample"
)
# What must follow such a word, read forwards: at most some characters.
_MARKED = re.compile(
    r"(?:\s?(?:finale?|correct[aeo]?|exact[ae]?|nihai|النهائية|الصحيحة|النهائي|الصحيح))?[*_`}\xa0 ]{0,4}"
    r"(?:</?\w{1,6}>){0,2}[*_`}\xa0 ]{0,4}"
    r"(?:[:=\uff1a\uff1d\u0983\u2192\u21d2]>?|[-\u2013\u2014](?=\s)"
    r"|(?:is|are|was|(?:would|should|will|must) be|equals)(?!\w)"
    r"|(?:est|es|ist|lautet|é|è|sind|som|är|är|равен|равно|является|будет|هي|هو)(?!\w)"
    r"|[应應]?[该該]?是|[选選]择?|为|為|等于|等於|는|은|は"
    r"|(?:to|of|for|auf) [^\n.:]{1,80}?(?::| (?:is|are|ist)\b))",
    re.IGNORECASE,
)
_LABELLED = re.compile(
    rf"[\s*_`#>(\[-]{{0,8}}(?:(?:the|my|final|correct|la|die|最终|最終)\s?){{0,3}}"
    rf"(?:{'|'.join(_WORDS)})(?:\s(?:finale?|correct[aeo]?))?[*_ ]{{0,4}}[:\uff1a]|####\s",
    re.IGNORECASE,
)
# A line that is only "Final answer", with the answer below it.
_HEADING = re.compile(r"[*_` ]{0,4}\n")
_BEFORE_HEADING = re.compile(r"[#*_`> ]*(?:(?:the |my )?final )?", re.IGNORECASE)
_MAX_LEAD = 24
# Text before a marker that belongs to it: decoration, a bullet or number, "my final".
_LEAD = re.compile(
    r"(?:(?:[-\s*_`>#\u2022]|\(?[a-z0-9][.)]\s|(?<!\w)(?:the|my|final|correct)(?!\w)){1,12})?\Z", re.IGNORECASE
)
_JOINT = re.compile(r"(?:[,;]?\s{0,2}(?P<word>and|or)|(?P<comma>[,;\uff0c\u3001\uff1b]))\Z")
# Other text that may precede a marker on its line; in "step answer: 5" the answer is another one.
_BEFORE_LEAD = re.compile(r"(?<!\w)(?:so|thus|hence|therefore|then)[\s,:]{0,3}\Z", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"\w[^\S\n]{0,3}\Z")
_WRONG = ("wrong", "incorrect")
# An answer that its sentence, or the next one, replaces: "41. Wait, no, 42."
_VALUE = r"(?:\\?\$)?[-+\u2212]?[0-9][0-9.,/]{0,30}%?|\$[^$\n]{1,60}\$"
_REPLACED = re.compile(
    rf"[\s*:]{{0,4}}(?:{_VALUE})[\s.,;(\u2026\u2013\u2014-]{{1,6}}"
    r"(?:(?:wait|no|hmm|oops|sorry|actually|correction|scratch\sthat|or\srather|I\smean(?:t)?|make\sthat)\b"
    r"[\s,.:;!\u2026\u2013\u2014-]{1,4}){1,4}"
    r"(?:(?:it|that|this|the\sanswer)(?:['\u2019]s|\s(?:is|was|should\sbe|must\sbe|would\sbe))\s|should\sbe\s)?"
    rf"(?P<value>{_VALUE})[.!)*\s]{{0,6}}\Z",
    re.IGNORECASE,
)
_MAX_REPLACED = 200
_LETTERS = 4  # letters of a marker, with which another one of its kind must begin
_NEAR = 200  # characters at the end of a text that are searched first: most markers are there
_MAX_MARK = max(map(len, _WORDS)) + 1  # characters that the search for a marker reads from its match on
# The end of the last line of most responses with a marker: the marker and a numeral, without markup to close.
_AT_END = re.compile(
    r"(?:(?P<sign>A:|####)|(?P<word>[Aa]nswer)(?: is(?=[: ]):?|:)(?:\*\*)?) ?"
    r"(?P<numeral>[-+]?[0-9]++(?>(?:[.,/][0-9]++)*)%?)\.?"
)


def has_marker(text: str) -> bool:
    """Whether there is a marker, also one without an answer."""
    return next(_marks(text), None) is not None


def without_exclamation(answer: str, said: str, text: str) -> str:
    """A number of prose without its exclamation mark, unless the text has factorials: "The answer is 42!".

    Args:
        answer: the number.
        said: the part of the text that it was found in; in a formula, a delimiter follows it.
        text: the whole text.
    """
    exclaimed = _EXCLAIMED.fullmatch(answer)
    if exclaimed is None or not _IN_PROSE.match(said, said.rfind(answer) + len(answer)):
        return answer
    return answer if text.count("!") > 1 or _FACTORIALS.search(text) else exclaimed["number"]


def final_line(text: str) -> str:
    """The answer in a last line that is labelled as one, "**Answer: D**" or "#### 5"; empty without such a line."""
    end = text.rstrip()[-MAX_WHOLE_CHARS:]
    line = end[end.rfind("\n") + 1 :]
    if len(line) == MAX_WHOLE_CHARS or not _LABELLED.match(line) or "box" in line:
        return ""
    answer, _ = last_marked(line)
    return "" if words(answer) > _MAX_NAMED_WORDS or "above" in answer else answer


def numeral_at_end(text: str) -> str:
    """The numeral after a marker if they are the last line of a text, and no earlier marker is of the same kind."""
    end = text.rstrip()
    line = end.rfind("\n") + 1
    word = end.rfind("nswer", line) - 1
    start = word if word >= line else line
    said = _AT_END.fullmatch(end, start)
    if said is None or (said["sign"] and start > line) or (start > line and mention(end, said.start("numeral")) >= 0):
        return ""
    begins = (said["sign"] or said["word"])[:_LETTERS].lower()
    return "" if begins in end[:start].lower() else said["numeral"]


def last_marked(text: str) -> tuple[str, int]:
    """The answer of the last marker that has one, or of the last ones together; and the work done.

    Markers that only mention an answer are passed over, as `crucible_worker.grading.scope` says. The answer of another
    one ("your answer", "the first answer") counts if there is no other.
    """
    size = later = len(text)
    marks, mentions, of_another = 0, 0, ""
    for start, begin, end, marks in _marks(text):
        if begin > later:
            continue
        if (clause := mention(text, begin)) >= 0:
            later, mentions = clause, mentions + 1
            if mentions == MAX_MENTIONS:
                break
            continue
        said = _unwrapped(text[max(0, start - MAX_BEFORE) : start], text[begin : min(later, end)])
        replaced = _REPLACED.match(said) if len(said) <= _MAX_REPLACED else None
        answer = phrase(replaced["value"]) if replaced else _answer(text, begin, said)
        later = start
        *_, before = ("", *text[max(0, start - _MAX_LEAD) : start].split())
        if answer and before.lower().replace("\u2019", "'") in _OF_ANOTHER:
            of_another = of_another or answer
        elif answer:
            joined = answer if start == begin else _with_those_before(text, answer, start, begin)
            return joined, 2 * (size - start) + marks
    return of_another, 2 * size + marks


def _answer(text: str, begin: int, said: str) -> str:
    """The answer at the start of the text after a marker; empty if there is none, or the text takes it back."""
    answer = (_LINE_BREAK.search(said) and listed_below(said)) or phrase(said)
    if "?" in said[:MAX_WHOLE_CHARS] or "\uff1f" in said[:MAX_WHOLE_CHARS]:
        end = begin + text[begin : begin + MAX_WHOLE_CHARS].find(answer) + len(answer)
        if is_asked(text, begin, max(begin, end)):
            return ""
    if is_hedged(text, begin):
        return ""
    if answer.endswith("!"):
        answer = without_exclamation(answer, said, text)
    # "Answer: correct" is an answer, "the answer is correct" is not.
    judged = text[begin - 1] not in ":=\uff1a\n#" and judges(answer)
    if not says_something(answer) or is_placeholder(answer) or judged or is_taken_back(said, answer):
        return ""
    # "Answer: 41 is wrong", but "Answer: wrong".
    return "" if answer in _WRONG and any(map(str.isdigit, said[: said.find(answer)])) else answer


def _with_those_before(text: str, last: str, start: int, begin: int) -> str:
    """The answer of a marker with those of the markers before it that it is joined to."""
    answers, links = [last], list[str]()
    for _ in range(MAX_JOINED - 1):
        floor = max(0, start - MAX_WHOLE_CHARS)
        if text[start : min(begin, start + _LETTERS)].lower() not in text[floor:start].lower():
            break
        lead = _lead(text, start)
        marks = _marks(text[floor:lead])
        mark = next(marks, None)
        if mark is None:
            break
        earlier, behind = floor + mark[0], floor + mark[1]
        if mention(text, behind) >= 0:
            break
        value, how = _joint(text[behind:lead])
        answer = phrase(value) if "\n" not in value and not has_words(value) else ""
        alike = _kind(text, earlier, behind) == _kind(text, start, begin)
        if (
            not answer
            or not alike
            or _is_described(text, earlier)
            or value.endswith((".", "?", "!"))
            or not together(answer, answers[-1], how or ",")
        ):
            break
        answers.append(answer)
        links.append(how)
        start, begin = earlier, behind
    return written(answers[::-1], links[::-1]) if links else last


def _lead(text: str, start: int) -> int:
    """The start of the text before a marker that belongs to it."""
    before = text[max(0, start - _MAX_LEAD) : start]
    lead = _LEAD.search(before)
    return start - len(before) + lead.start() if lead else start


def _is_described(text: str, start: int) -> bool:
    """Whether other words belong to a marker: "step answer: 5"."""
    before = text[max(0, start - _MAX_LEAD) : _lead(text, start)]
    return _WORD_BEFORE.search(before) is not None and not _BEFORE_LEAD.search(before)


def _kind(text: str, start: int, begin: int) -> str:
    """The letters of a marker with the text that belongs to it: "thefinalansweris"."""
    return re.sub(r"[\W_]", "", text[_lead(text, start) : begin].lower()) or text[start]


def _joint(between: str) -> tuple[str, str]:
    """The answer of a marker up to the next one, and the joint between them: "and", "or", a comma or nothing."""
    value = between.strip()
    joint = _JOINT.search(value[-8:])
    if joint is None:
        return value, ""
    return value[: len(value) - len(joint[0])].rstrip(), joint["word"] or ","


def _marks(text: str) -> Iterator[tuple[int, int, int, int]]:
    """The start of each marker, from the last one on, where its answer begins, and how many were examined so far.

    The third place is where the answer ends at the latest: for an answer before its marker, "50 is the answer".
    """
    size = len(text)
    last_line = -1
    for marks, mark in enumerate(_found_in(text), 1):
        start = size - mark.end()
        if last_line < 0 and text[start] == "#":
            last_line = _last_lines(text)
        begin = _marked(text, start, size - mark.start(), last_line)
        if begin is not None:
            yield start, begin, size, marks
        elif before := _named_before(text, start, size - mark.start()):
            yield before[0], *before, marks


def _named_before(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Where an answer begins and ends that a marker at the end of its sentence names: "50 is the answer."."""
    begin = max(0, start - _MAX_NAMED)
    begin = max(begin, text.rfind("\n", begin, start) + 1)
    if not _ENDS_NAMING.match(text, end) or not (named := _NAMES.search(text, begin, start)):
        return None
    if "nswer" in text[begin:start]:
        return None  # "Answer: 5 and 7 are the answers"
    *_, sentence = (begin, *(stop.end() for stop in _STOP.finditer(text, begin, named.start())))
    *_, first = (sentence, *(word.end() for word in _BEFORE_NAMED.finditer(text, sentence, named.start())))
    value = text[first : named.start()].strip()
    if not value or words(value) > _MAX_NAMED_WORDS or _NOT_NAMED.match(value) or _IS_HEDGED.search(value):
        return None
    if value.endswith(",") or mention(text, first) >= 0:
        return None
    return first, named.start()


def _found_in(text: str) -> Iterator[re.Match[str]]:
    """Candidates for markers in a reversed text; those near the text's end are found before the rest is searched."""
    reverse, at = text[::-1], 0
    if len(text) > _NEAR:
        # A match that begins here is read completely, so that it is the same as in the whole text.
        sure = _NEAR - _MAX_MARK
        for mark in _marker_in(text[-_NEAR:]).finditer(reverse, 0, _NEAR):
            if mark.start() >= sure:
                break
            at = mark.end()
            yield mark
        at = max(at, sure)
    yield from _marker_in(text).finditer(reverse, at)


def _last_lines(text: str) -> int:
    """The start of the last line, or of the last lines if each begins with the sign of an answer."""
    start = text.rstrip().rfind("\n") + 1
    for _ in range(MAX_JOINED if text.startswith("####", start) else 0):
        above = text[: max(0, start - 1)].rstrip()
        line = above.rfind("\n") + 1
        if not text.startswith("#### ", line) or start - line > MAX_WHOLE_CHARS:
            break
        start = line
    return start


def _marker_in(text: str) -> re.Pattern[str]:
    """The expression that finds the markers of a text."""
    lowered = text.lower()
    words = _OTHER_ASCII_WORDS if text.isascii() else _OTHER_WORDS
    for word in words:
        if word in lowered:
            return _MARKER
    return _ENGLISH_MARKER


def _marked(text: str, start: int, end: int, last_line: int) -> int | None:
    """The start of the answer of a marker; None if it is not a marker."""
    if text[start] == "#":
        return end if start >= last_line else None  # elsewhere it is a heading
    line = text[max(0, start - 24) : start].rpartition("\n")
    if text[end - 1] == ":":
        return end if not line[2].strip(_DECORATION) else None
    if match := _MARKED.match(text, end):
        return match.end()
    heads = bool(line[1] or start <= 24) and _BEFORE_HEADING.fullmatch(line[2])
    heading = _HEADING.match(text, end) if heads else None
    return heading.end() if heading else None


# Where `str.splitlines` divides.
_LINE_BREAK = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_EXCLAIMED = re.compile(r"(?:[A-Za-z]{2,12} ){0,4}(?P<number>[-+\u2212]?[0-9][0-9.,]{0,20})!")
_IN_PROSE = re.compile(r"[*_\s\"')]{0,8}\Z")
_FACTORIALS = re.compile(r"factorial|permut|arrang|\border|\bways?\b", re.IGNORECASE)
_DECORATION = " \t\r\f\v*_`"
