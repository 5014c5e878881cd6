"""The answer in a phrase after a marker, and the answer that a last sentence states.

"The answer is" is followed by prose as often as by mathematics. All of this is one pass each: every expression starts
at a character that is not a blank, or reads a bounded run.
"""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Iterator, Sequence

from crucible_worker.grading.math.tokens import UNITS, WIDE_SPACE, spelled
from crucible_worker.grading.numbers import is_negated
from crucible_worker.grading.qualification import (
    MAX_JOINED,
    NAME,
    kind_of,
    named,
    rejected,
    together,
    without_condition,
    written,
)

__all__ = [
    "MAX_PARAGRAPH",
    "MAX_WHOLE_CHARS",
    "ending",
    "first_row",
    "has_words",
    "is_placeholder",
    "judges",
    "of_rows",
    "phrase",
    "result",
    "says_something",
    "side",
    "stated",
    "undelimited",
    "with_commas_for_rows",
    "with_rows_in_one_line",
    "without_bold",
    "words",
]

# The result of a formula: the last side of a chain of equalities, the values in its rows.
#
# In a computation, `3 + 4 = 7`, the last side is the result. Rows of a formula are its lines (`\\`, `\newline`) and
# parts between wide blanks (`\quad`, `\hspace{1cm}`); a row that begins with a sign of relation belongs to the one
# before. Rows are one answer by the same rule as formulas on separate lines: `x = 1 \\ x = 2` is a list, and in `2x = 6
# \\ x = 3` the last row is the answer. In an environment for derivations (`aligned`) values of names are a list, too.

# Commands that are letters, like x; pi is a number.
_LETTERS = frozenset(
    "\\" + name
    for name in spelled(
        "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau"
        " upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega ell"
    )
)

# Signs that a text is more than one chain of equalities.
_NO_CHAIN = frozenset(
    {
        *(",", ";", "<", ">", "<=", ">=", "!=", "\u2264", "\u2265"),
        *("\\le", "\\leq", "\\ge", "\\geq", "\\lt", "\\gt", "\\ne", "\\neq", "\\in", "\\text", "\\quad", "\\qquad"),
        *("\\land", "\\lor", "\\wedge", "\\vee", "\\mid"),
    }
)
_NUMERAL = re.compile(r"[-+\u2212]?[0-9.,]++")
_PIECE = re.compile(r"\\[A-Za-z]++|\\.|[<>!:=]=|[\[({})\]=,;<>\u2264\u2265]|(?<!\w)(?:and|or)(?!\w)|[^\W\d_]")
_NAME_OF = re.compile(rf"({NAME})\s{{0,4}}&?\s{{0,4}}=")
_LAST_NAME = re.compile(rf"(?<![\w\\])({NAME})\s{{0,4}}&?\s{{0,4}}\Z")
_MAX_NAME = 24

# A formula with rows has one of these.
_MAY_HAVE_ROWS = ("\\\\", "newline", "\\linebreak", "quad", "\\hspace", "\\cr", "\\par", "\\break")
# And in mathematics also one of these.
_MAY_DIVIDE = (*_MAY_HAVE_ROWS, "\\begin", "\n", "&", "~", "\\;", "\\:", "\\ ")
# A command that was escaped twice does not begin a row.
_SPACING = r"\\\\(?:\s?\[[-0-9. a-z]{2,10}\])?(?![A-Za-z]{2}|[,;:!()\[\]{}%$])"
_LINE = r"\\(?:newline|linebreak|tabularnewline|break|cr|par|q?quad)(?![A-Za-z])"
_ROW_ENDS = rf"(?>(?:(?:{_SPACING}|{_LINE}|{WIDE_SPACE})\s*+)+)"
_ROW_END = re.compile(rf"(?:[,;][ \t]?|[ \t])?{_ROW_ENDS}(?:(?P<joint>and|or)(?:\s*+{_ROW_ENDS}|\s++))?")
_ENVIRONMENT_EDGE = r"\\(?P<edge>begin|end)\s?\{(?P<name>[A-Za-z]{1,16})\*?\}(?:\s?\{[^{}]{0,20}\})?"
_MARK = re.compile(
    rf"(?P<row>{_SPACING}|{_LINE}|{WIDE_SPACE})|(?P<line>\n)|{_ENVIRONMENT_EDGE}|\\[{{}}]|[\[({{}})\]]"
    # Blanks before another equation separate rows, as in the parser.
    rf"|(?P<gap>(?:\\[;: ]|[~&])\s{{0,4}}(?={NAME}\s{{0,4}}&?\s{{0,4}}=))"
)
_WHOLE_ENVIRONMENT = re.compile(
    r"(?:\\left\s?\\\{\s*)?\\begin\s?\{(?P<name>[A-Za-z]{1,16})\*?\}(?:\s?\{[^{}]{0,20}\})?"
    r"(?P<body>.*)\\end\s?\{(?P=name)\*?\}(?:\s*\\right\s?\.)?\s*",
    re.DOTALL,
)
_DERIVATIONS = frozenset({"aligned", "align", "gathered", "gather", "split", "eqnarray", "equation", "multline"})
_CONTINUES = re.compile(
    r"(?:[=<>+*/\u2264\u2265\u2260]|\\(?:[lg](?:eq?|t)(?:slant)?|neq?|approx|equiv|times|cdot|div|pm)(?![A-Za-z]))"
)
_JOINT_IN_TEXT = re.compile(r"[ \t]?\\text\w{0,2}\s?\{\s{0,3}(and|or)\s{0,3}\}[ \t]?")
_ONLY_JOINT = re.compile(r"(?:\\text\w{0,2}\s?\{\s*)?(?:and|or)(?:\s*\})?")
_AROUND_ROW = " \t\r\n&,;.~"
# A line break in the source after the end of a row, and at the edges of an environment.
_BROKEN_ROW = re.compile(
    rf"({_SPACING}|\\newline(?![A-Za-z])|\\begin\{{[A-Za-z]{{1,16}}\*?\}}(?:\{{[^{{}}\n]{{0,20}}\}})?)"
    r"[ \t]*+\n\s*+(?!\\end)"
)
_BROKEN_END = re.compile(r"\n[ \t]*+(?=\\end\{)")


def result(math: str) -> str:
    """The result of a formula; an equation is unchanged. Linear.

    A computation has no unknowns on its left, and its left is not a single numeral: "5 = x" and "1 = 2" are equations.
    """
    if any(mark in math for mark in _MAY_DIVIDE) and (found := _of_formula(math)):
        return found
    depth = 0
    sides: list[int] = []  # starts of all sides except the first
    unknown = False
    for piece in _PIECE.finditer(math):
        token = piece[0]
        if token in "([{" or token == "\\begin":
            depth += 1
        elif token in ")]}" or token == "\\end":
            depth -= 1
        elif depth == 0 and token == "=":
            sides.append(piece.end())
        elif depth == 0 and (token in _NO_CHAIN or token in _JOINTS):
            return math.strip()
        elif not sides:
            unknown = unknown or token.isalpha() or token in _LETTERS
    last = math[sides[-1] :].strip() if sides else ""
    equation = len(sides) == 1 and (unknown or _of_numeral(math[: sides[0] - 1].strip(), last))
    return last if last and not equation and not _names_again(math, sides) else math.strip()


def of_rows(rows: Sequence[str], *, introduced: bool) -> str:
    """The answer in the last rows, which have only formulas.

    Args:
        rows: the last one is the answer, or a part of it.
        introduced: there are only these rows, or the text before announces them.
    """
    first = first_row(rows, introduced=introduced)
    if first == len(rows) - 1:
        return result(rows[-1])
    return written([side(row) for row in rows[first:]], [""] * (len(rows) - first - 1))


def first_row(rows: Sequence[str], *, introduced: bool) -> int:
    """The first of the rows that are one answer with the last one."""
    first = last = len(rows) - 1
    while first > 0 and last - first < MAX_JOINED - 1 and together(rows[first - 1], rows[first], ""):
        first -= 1
    return 0 if introduced and first == last and all(map(named, rows)) else first


def side(content: str) -> str:
    """A formula's result, with the name whose value it is."""
    value, name = result(content), _NAME_OF.match(content)
    return f"{name[1]} = {value}" if name and value != content.strip() else value


def with_commas_for_rows(text: str) -> str:
    """A text with a comma at the end of each row, and "and" and "or" in plain type."""
    if "\\text" in text:
        text = _JOINT_IN_TEXT.sub(r" \1 ", text)
    if not any(mark in text for mark in _MAY_HAVE_ROWS):
        return text
    return _ROW_END.sub(lambda end: f", {end['joint']} " if end["joint"] else ", ", text)


def with_rows_in_one_line(text: str) -> str:
    r"""A text whose rows continue on the same line, if a line of the source ends after `\\`."""
    if "\n" not in text or ("\\\\" not in text and "\\newline" not in text and "\\begin" not in text):
        return text
    text = _BROKEN_ROW.sub(r"\1 ", text)
    return _BROKEN_END.sub(" ", text) if "\\end" in text else text


def _of_formula(math: str) -> str:
    """The result of the rows of a formula; empty if it has no rows."""
    whole = _WHOLE_ENVIRONMENT.fullmatch(math.strip()) if "\\begin" in math else None
    rows = _rows(whole["body"], lines=False) if whole else _rows(math, lines=True)
    if not rows:
        return math.strip()
    if whole and whole["name"] in _DERIVATIONS:
        if len(rows) == 1:
            return result(rows[0])
        return of_rows(rows, introduced=True) if any("=" in row for row in rows) else math.strip()
    if whole:
        return of_rows(rows, introduced=True) if len(rows) > 1 and all(map(named, rows)) else math.strip()
    if len(rows) == 1:
        return result(rows[0]) if rows[0] != math.strip(_AROUND_ROW) else ""
    kinds = set(map(kind_of, rows))
    if len(kinds) > 1:
        return of_rows(rows, introduced=False)
    return written(list(map(side, rows)), [""] * (len(rows) - 1)) if kinds == {"name"} else math.strip()


def _rows(math: str, *, lines: bool) -> list[str]:
    """The rows of a formula, without alignment and empty rows; and whether lines of the source are rows."""
    ends: list[tuple[int, int]] = []
    depth = 0
    for mark in _MARK.finditer(math):
        token = mark[0]
        if mark["row"] or mark["gap"] or mark["line"]:
            if depth == 0 and (lines or not mark["line"]):
                ends.append(mark.span())
        elif mark["edge"]:
            depth += 1 if mark["edge"] == "begin" else -1
        else:
            depth += 1 if token[-1] in "([{" else -1
    rows: list[str] = []
    begin = 0
    for start, end in (*ends, (len(math), len(math))):
        row = math[begin:start].strip(_AROUND_ROW)
        if rows and _CONTINUES.match(row):
            rows[-1] = f"{rows[-1]} {row}"
        elif row and not _ONLY_JOINT.fullmatch(row):
            rows.append(row)
        begin = end
    return [row if "\\begin" in row else row.replace("&", "") for row in rows]


def _names_again(math: str, sides: Sequence[int]) -> bool:
    """Whether a later side of a chain repeats its first name: `x = 1 x = 2` are two equations."""
    name = _NAME_OF.match(math.lstrip()) if len(sides) > 1 else None
    if name is None:
        return False
    again = (_LAST_NAME.search(math, max(0, end - 1 - _MAX_NAME), end - 1) for end in sides[1:])
    return any(found and found[1] == name[1] and found.start() > sides[0] for found in again)


def _of_numeral(left: str, right: str) -> bool:
    """Whether an equation is not a computation: a numeral equals an unknown, or another numeral."""
    if not _NUMERAL.fullmatch(left):
        return False
    if _NUMERAL.fullmatch(right):
        return left != right
    return any(piece[0].isalpha() for piece in _PIECE.finditer(right))


# The end of a phrase, and the answer in it.
#
# A phrase ends with its sentence, its line, or a word that starts an explanation ("because", "since", "which", "where",
# "so"). In "the total is 5", only the text after the verb is the answer, and adverbs before it ("therefore", "exactly")
# are not part of it. If the whole phrase is math, its delimiters are removed, and its result is the answer.

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


# Answers at the end of a sentence, if no box, tag or marker names one.
#
# `stated` reads explicit statements: which choice is right ("Option D is correct", "I would go with (A)"), that there
# is no solution or no limit, and Yes, No, True or False as the first word of a paragraph that is the whole response.
# `ending` reads the end of the last sentence: a time or a date, an amount with its unit, that a statement is true or
# false, or a name after a verb ("the youngest is Alice"). A bound is part of it ("at least 5 km").
#
# Nothing is understood: patterns are matched in the last paragraph. A denial, a question, a supposition or a discarded
# idea states nothing: "Option D is wrong", "Is A correct?", "if k = 3 there is no solution", "no solution other than
# 3". Work is bounded: at most `MAX_PARAGRAPH` characters are read.

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
_ANY_LETTER = re.compile(r"[A-J](?![\w'\u2019])")
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
        rf"(?:故|应|應|所以|因此)[选選](?:择|擇)?[:\uff1a]?\s?{_LETTER}",
    )
)
_BESIDE = re.compile(r"(?:(?<![A-Za-z])[A-J]\)?\s*(?:,|&|and|or|nor)|\bneither|\bonly)\s*\(?\Z", re.IGNORECASE)
_AND_MORE = re.compile(r"\s*(?:,|&|and|or)\s*\(?[A-J](?![\w'])")

_NONE = re.compile(
    r"\b(?:there\s+(?:is|are|exists?)|has|have|having|with|admits?)\s+(?P<none>no\s+(?:(?P<kind>real|such|valid|possible"
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
    r"\s*(?:[.!,]|\Z|in\b|to\b|of\b|within\b|among\b|over\b|at\s+all\b|that\s+satisf|satisfying\b|because\b|since\b|as\b"
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
    rf"{_MONTH}\s[0-9]{{1,2}}(?:st|nd|rd|th)?(?:,?\s[0-9]{{4}})?|[0-9]{{1,2}}(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH}(?:,?\s[0-9]{{4}})?"
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
    r"\b(?:is|are|was|were|be|been|becomes|named|called|goes to|went to|belongs to)(?:\s(?:on|in|at|by|the))?"
    r"[:\s*\"'\u201c]{1,4}(?P<name>(?:(?:Mr|Mrs|Ms|Dr|St)\.\s)?[A-Z][\w'\u2019-]*"
    r"(?:\s(?:(?:of|the|and|de|van|von|la)\s)?[A-Z][\w'\u2019-]*){0,4})\Z"
)
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
