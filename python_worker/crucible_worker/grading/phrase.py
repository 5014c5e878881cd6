"""The answer in a phrase after a marker.

"The answer is" is followed by prose as often as by mathematics. All of this is one pass each: every expression starts
at a character that is not a blank, or reads a bounded run.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence

from crucible_worker.grading.math.tokens import UNITS, WIDE_SPACE, spelled
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
from crucible_worker.grading.scope import SCOPE_REACH

__all__ = [
    "MAX_DENIED",
    "MAX_WHOLE_CHARS",
    "first_row",
    "has_words",
    "is_placeholder",
    "judges",
    "of_rows",
    "phrase",
    "result",
    "says_something",
    "side",
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
MAX_DENIED = 8
"""Clauses at the end of a phrase that may deny their values: "5, the wrong one is 6"."""

_LEAD = ' \t\r\n\f\v:=*_`"\u201c\u201d\u300c\u300e\uff1a\xa0#'
_TAIL = ' \t\r\n\f\v*_`"\u201c\u201d,;:'
_CLOSERS = {"$$": "$$", "\\[": "\\]", "\\(": "\\)", "$": "$"}
_SENTENCE_END = re.compile(r"[.?](?=[\s*\"\u201d)]|$)|(?<!\\);(?=\s|$)|[\u3002\uff1f\n]")
_EXPLANATION = re.compile(
    r"(?<=\s)\(?(?:because|since|which|where|so|rather than|instead of)\b"
    r"|(?<=,)\s(?:as|not)\b|(?<=\s)\((?:and )?not\b"
    r"|[\uff0c,]\s?而?(?:不是|并非|不为)|(?<=\s)\(?i\.e\.|(?<=\s)(?:or\s)?equivalently\b",
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
    r"(?<=[0-9$)}\]])\s(?:(?:are|were)\s(?:both\s|all\s)?(?:(?:the|its|my|our)\s)?(?:only\s|correct\s|final\s|real\s"
    r"|two\s)?"
    r"(?:answers|solutions|roots|zeros|values)"
    r"|(?:both\s|all\s)?(?:works?|satisf(?:y|ies)\s(?:it|(?:the|this)\s(?:given\s|original\s)?(?:equation|system"
    r"|condition)s?)))"
    r"\s?[.!]?\s{0,4}\Z"
    r"|(?<=[0-9$)}\]]):\s(?:yes|true|correct|right|ok|okay|confirmed|verified|it (?:does|is|works|holds|checks out))"
    r"\s?[.!]?\s{0,4}\Z",
    re.IGNORECASE,
)
_MAX_REMARK = 60
# The letter of a choice before its value: "D. 15 km".
_CHOICE = re.compile(r"[A-J]\.\s(?=[-+\u2212(]?(?:\\?\$|\\[(\\]|[0-9]))")
_VERB = re.compile(r"(?:(?<![\w\\{])(?:is|are|was|were|be|equal to|equals?)|(?<=\w)['\u2019]s)(?![\w}])", re.IGNORECASE)
_ADVERBS = re.compile(
    r"(?>(?:(?:so|therefore|thus|hence|then|simply|exactly|approximately|about|just|only|given by|equal to|indeed|also"
    r"|now|that|clearly|actually|definitely|certainly|obviously|surely|really|precisely|undoubtedly|evidently|in fact"
    r"|of course|without (?:a |any )?doubt|no doubt|nothing but|none other than"
    r"|(?:around|roughly|nearly)(?=\s[-+$\\(0-9])"
    r"|donc|environ|exactement|entonces|claramente|exactamente|por (?:lo )?tanto|daher|somit|folglich|deshalb|genau"
    r"|eindeutig|etwa|quindi|circa|esattamente|portanto|exatamente|значит|поэтому|итак|примерно|ровно)\b"
    r"[,:]?\s?)+)",
    re.IGNORECASE,
)
# The kind of a value before its brackets, if they agree: "the open interval (0, 1)", "the point (2, 3)".
_KIND = re.compile(
    r"(?:the\s)?(?:(?P<ends>open|closed)\s|(?:half-(?:open|closed)|real|ordered|solution)\s)?"
    r"(?:interval|pair|point|triple|tuple|set|vector)\s(?=[($\[{\\][^\n]{1,120}[)\]}$]\Z)",
    re.IGNORECASE,
)
_ENDS_OF = {"open": ")", "closed": "]"}
# A remark about an answer, not an answer: "so the answer is correct".
_JUDGEMENTS = re.compile(
    r"(?:in)?(?:correct|valid|consistent)|right|wrong|reasonable|confirmed|unique|as follows|below|above|not .*"
    r"|to be .*|in (?:the|this|a|an|terms) .*|(?:nicht|pas|не|non|não) .*|.*(?:では|じゃ)(?:ない|ありません|なく.*)"
    r"|.*とは(?:思わ|思い|考え|言え|限ら).*|.*[가이] (?:아니\w*|아닙니다)|.*(?:라고|지는?) (?:생각하지|보지).*",
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
    verbs = collections.deque(_VERB.finditer(line), maxlen=MAX_DENIED + 1)
    while verbs and rejected(line[max(0, verbs[-1].end() - SCOPE_REACH) : verbs[-1].end()] + " ", ""):
        comma = line.rfind(",", 0, verbs[-1].start())
        if comma <= 0:
            return ""  # "it cannot be 5"
        line = line[:comma]  # "5, the wrong one is 6"
        while verbs and verbs[-1].end() > comma:
            verbs.pop()
    if verbs and (rest := line[verbs[-1].end() :].strip(_LEAD)):
        line = rest
    if other := _NOT_ANOTHER.fullmatch(line):
        line = other[1]
    line = _COPULA.sub("", line.strip(_TAIL))
    line = _APART.sub(r"\1, \2", line)
    line = without_condition(_INNER.sub(lambda span: span[span.lastindex or 0].strip(), line)).strip(_TAIL)
    if adverbs := _ADVERBS.match(line):
        line = line[adverbs.end() :] or line
    if (kind := _KIND.match(line)) and (kind["ends"] is None or _ENDS_OF[kind["ends"].lower()] == line[-1:]):
        line = line[kind.end() :]
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
