r"""The result of a formula: the last side of a chain of equalities, the values in its rows.

In a computation, `3 + 4 = 7`, the last side is the result. Rows of a formula are its lines (`\\`, `\newline`) and parts
between wide blanks (`\quad`, `\hspace{1cm}`); a row that begins with a sign of relation belongs to the one before. Rows
are one answer by the same rule as formulas on separate lines: `x = 1 \\ x = 2` is a list, and in `2x = 6 \\ x = 3`
the last row is the answer. In an environment for derivations (`aligned`) values of names are a list, too.

All of this is one pass each: every expression starts at a character that is not a blank, or reads a bounded run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from crucible_worker.grading.joined import MAX_JOINED, NAME, kind_of, named, together, written
from crucible_worker.grading.math.tokens import WIDE_SPACE, spelled

__all__ = ["first_row", "of_rows", "result", "side", "with_commas_for_rows", "with_rows_in_one_line"]

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
_JOINTS = frozenset({"and", "or"})
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
_ENVIRONMENT = r"\\(?P<edge>begin|end)\s?\{(?P<name>[A-Za-z]{1,16})\*?\}(?:\s?\{[^{}]{0,20}\})?"
_MARK = re.compile(
    rf"(?P<row>{_SPACING}|{_LINE}|{WIDE_SPACE})|(?P<line>\n)|{_ENVIRONMENT}|\\[{{}}]|[\[({{}})\]]"
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
