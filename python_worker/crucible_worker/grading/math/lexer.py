"""Tokens of an answer, the lines that divide it, and a position in the tokens.

Every character is examined a bounded number of times: the
quantifiers are possessive or bounded.
"""

# ruff: noqa: RUF001 - some tables are about signs that look like others.

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from typing import NoReturn

from crucible_worker.grading.math.tokens import (
    BOXES,
    CHARACTERS,
    CUSTOMARY_RATES,
    ENDING_UNITS,
    FIXED,
    FUNCTIONS,
    GRAPHIC_TAGS,
    SHORT_WORDS,
    UNIT_ABBREVIATIONS,
    UPRIGHT_COMMANDS,
    WIDE_SPACE,
    WORD_TOKENS,
    spelled,
)

__all__ = [
    "MAX_CHARS",
    "MAX_DEPTH",
    "MAX_LETTERS",
    "MAX_TOKENS",
    "OPERAND_ENDS",
    "Cursor",
    "TokenColumns",
    "TooLarge",
    "Unreadable",
    "divided",
    "restored",
    "tokenize",
    "written_out",
]

# Lines divide: several lines, or several formulas, are a list.
#
# `x = 1` over `y = 2`, `x = 1 \\ y = 2` and `$x = 1$ $y = 2$` are `x = 1, y = 2`. A line that begins with a sign of
# relation, an operator, a unit or a word continues the one before, and so does one in brackets that were opened there.
# An environment has its own rows: its lines do not divide.

OPERAND_ENDS = frozenset({"number", "letter", "constant", "}", ")", "]", "|", "upright", "%", "degree", "name", "word"})
"""Kinds of tokens at the possible end of an operand."""

_ENDS = OPERAND_ENDS | {"set}", "angle)", "floor)", "ceil)", "'", "!", "dots", "emptyset", "based", "end environment"}
_STARTS = frozenset(
    {"number", "based", "letter", "name", "constant", "currency", "dots", "emptyset", "-", "plusminus", "box{"}
    | {
        "frac",
        "binom",
        "sqrt",
        "cbrt",
        "function",
        "series",
        "integral",
        "limit",
        "overline",
        "mark",
        "angle",
        "mathbb",
    }
    | {"(", "[", "set{", "|", "floor(", "ceil(", "angle("}
)
_OPENING = frozenset({"(", "[", "{", "box{", "set{", "angle(", "begin"})
_CLOSING = frozenset({")", "]", "}", "set}", "angle)", "end environment"})
_LINE = " \\newline "
_GAP = r"(?>(?:\n[ \t]*+[-*\u2022]\s|\s|\\q?quad(?![A-Za-z])|\\[,;: ])*)"
# A closed and reopened formula, also after a bullet; the end of a line with a bullet after it; or a wide blank.
_BOUNDARY = re.compile(
    r"\n\s*+(?:[*\u2022]\s)?|(?<!\\)\$(?>(?:" + _GAP + r"\$)+)|\\[)\]]" + _GAP + r"\\[(\[]"
    r"|(?<![)\\\s])\s?(?:\\q?quad(?![A-Za-z])|" + WIDE_SPACE + r")(?!\s*+\()"
)
_GOES_ON = re.compile(r"[-+]\s")
_BULLET = re.compile(r"(?:\A|\n)[ \t]*+[-*\u2022]\s")


def _marked_lines(text: str) -> str:
    """A text with a token for each place where a line or a formula ends and another one follows."""
    if "\n" in text or "quad" in text or "\\hspace" in text or text.count("$") > 2 or "\\)" in text or "\\]" in text:
        if "\n" in text and _BULLET.match(text):  # a list, with a dash for a bullet too
            text = _BULLET.sub("\n", text).strip()
        return _BOUNDARY.sub(_mark, text)
    return text


def _mark(boundary: re.Match[str]) -> str:
    if boundary[0][0] == "\n":
        return "\n" if _GOES_ON.match(boundary.string, boundary.end()) else _LINE
    # A remaining dollar sign is money.
    return _LINE + "$" * (boundary[0].count("$") % 2)


def divided(kinds: list[str], values: list[str]) -> None:
    """Put a comma at a line end that divides, and nothing at others; rows outside of environments are lines."""
    if "line" not in kinds and "row" not in kinds:
        return
    found = list(zip(kinds, values, strict=True))
    kinds.clear()
    values.clear()
    opened: list[str] = []
    for at, (kind, value) in enumerate(found):
        if kind in _OPENING:
            opened.append(kind)
        elif kind in _CLOSING and opened:
            opened.pop()
        following = [later for later, _ in found[at + 1 : at + 4]]
        if kind == "&" and "relation" in (*kinds[-1:], *following[:1]):
            continue  # an equation is aligned at its sign
        if kind == "line" or (kind == "row" and "begin" not in opened):
            ends = len(kinds) - (kinds[-1:] == ["."])  # a full stop belongs to the sentence
            if opened.count("box{") == len(opened) and _starts_operand(following) and _ends_operand(kinds, ends):
                del kinds[ends:], values[ends:]
                kind = value = ","
            elif kind == "line" or opened.count("box{") == len(opened):
                continue
        kinds.append(kind)
        values.append(value)


def _starts_operand(following: list[str]) -> bool:
    return next((kind for kind in following if kind not in ("line", "row")), "") in _STARTS


def _ends_operand(kinds: list[str], end: int) -> bool:
    """Whether an operand may end there; a word is the end of one if it is the unit of a value."""
    if not end or kinds[end - 1] not in _ENDS:
        return False
    return kinds[end - 1] != "word" or (end > 1 and kinds[end - 2] in _ENDS and kinds[end - 2] != "word")


# Raised and lowered characters of Unicode as LaTeX: a run of them is one exponent or one index.


_PLAIN_RAISED = "0123456789+-=()abcdefghijklmnoprstuvwxyzABDEGHIJKLMNOPRTUVW/"
_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻᴬᴮᴰᴱᴳᴴᴵᴶᴷᴸᴹᴺᴼᴾᴿᵀᵁⱽᵂᐟ"
_PLAIN_LOWERED = "0123456789+-=()aehijklmnoprstuvx"
_LOWERED = "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ"

_PLAIN = {
    **{ord(sign): plain for sign, plain in zip(_RAISED, _PLAIN_RAISED, strict=True)},
    **{ord(sign): plain for sign, plain in zip(_LOWERED, _PLAIN_LOWERED, strict=True)},
}
_FRACTION = re.compile(f"([{_RAISED[:10]}]++)[⁄/]([{_LOWERED[:10]}]++)")
_RUN = re.compile(f"([{_RAISED}]++)|([{_LOWERED}]++)")


def written_out(text: str) -> str:
    """A text with `x^{10}` for x¹⁰, `x_{12}` for x₁₂, and fractions for raised over lowered digits. Linear time."""
    return _RUN.sub(_grouped, _FRACTION.sub(_divided, text))


def _divided(found: re.Match[str]) -> str:
    above, below = (part.translate(_PLAIN) for part in found.groups())
    return f"\\frac{{{above}}}{{{below}}}"


def _grouped(found: re.Match[str]) -> str:
    return f"{'^' if found[1] else '_'}{{{found[0].translate(_PLAIN)}}}"


MAX_CHARS = 10_000
"""Characters of an answer."""
MAX_TOKENS = 3_000
"""Tokens of an answer."""


# Tokens.


class Unreadable(ValueError):
    """An answer is beyond a budget, or is neither mathematics nor words."""

    steps = 0
    """Work done until reading stopped."""


class TooLarge(Unreadable):
    """An answer is beyond a budget: it is unknown whether it is right."""


@dataclasses.dataclass(slots=True, kw_only=True)
class TokenColumns:
    """Tokens, as columns; the last one is of kind `end`."""

    kinds: list[str] = dataclasses.field(default_factory=list)
    """Their kinds."""
    values: list[str] = dataclasses.field(default_factory=list)
    """Their values, in one spelling."""
    words: bool = False
    """Whether some are words without a mathematical meaning."""


# Thousands: 1{,}000, 1\,000 and 1'000; or 1,000, but not in 45,30,105, where the commas divide a list. In 1.234 the
# meaning of the point is unknown, in 1.234.567 it is clear.
_GROUP = (
    r"(?:,\\!\s?|\{,\}|')[0-9]{3}(?![0-9])|\\,[0-9]{3}(?![0-9]|\s{0,4}/)"
    r"|(?:\\[;: ]|[ ~])[0-9]{3}(?![0-9]|\s{0,4}/|\.[0-9])"
)
_POINTED_GROUPS = r"(?<![0-9.])[1-9][0-9]{0,2}(?>(?:\.[0-9]{3}(?![0-9])){2,})(?!\.)"
_PLAIN_GROUPS = r"(?<![0-9],)[1-9][0-9]{0,2}(?>(?:,[0-9]{3}(?![0-9]))+)(?!,[0-9])"
_BASE = r"_(?:\{ ?(?:[12][0-9]|3[0-6]|[2-9]) ?\}|(?:[12][0-9]|3[0-6]|[2-9])(?![0-9]))"
_BLOCK = r"(?:\{ ?[0-9]++ ?\}|[0-9])"
_HEXADECIMAL = r"(?=[0-9]{0,20}[A-Fa-f]{1,20}[0-9])[0-9A-Fa-f]{2,60}+_\{ ?1[1-6] ?\}"
# Alternatives with the same beginning are adjacent, and single characters come first, so few are tried for a token.
_TOKEN = re.compile(
    r"\s*+("
    r"[{}()\[\],^_&$|]"
    r"|\\(?:"
    r"(?:begin|end)\s{0,3}\{[A-Za-z]{1,12}\*?\}(?:\s{0,3}\{[clr|@ ]{1,40}\})?"
    r"|(?:hspace|vspace|hphantom|vphantom|phantom|color|textcolor|label|tag)\*?\s?\{[^{}]{0,80}+\}"
    rf"|(?:text|mathrm)\{{ ?[0-9][0-9A-Za-z]{{0,60}}\}}{_BASE}"
    r"|operatorname\*|not=|not\\in(?![A-Za-z])"
    r"|(?:left|right)\s{0,3}\.|[A-Za-z]++|\\(?:\s?\[-?[0-9.]{1,6} ?[a-z]{2}\])?|.)"
    r"|(?=[0-9.])(?:"
    rf"(?<!\^)[0-9]++(?>(?:\.[0-9]++)?){_BASE}|[0-9]++[A-Z][0-9A-Z]{{0,60}}+_\{{ ?(?:1[1-9]|2[0-9]|3[0-6]) ?\}}"
    rf"|{_HEXADECIMAL}"
    rf"|[0-9]*+\.[0-9]*+\\(?:overline|bar) ?{_BLOCK}"
    rf"|[0-9]*+\.[0-9]*+(?:\\dot ?{_BLOCK}[0-9]*+){{1,2}}"
    r"|[0-9]++\.[0-9]*+\([0-9]++\)"
    r"|[0-9]*+\.[0-9]++ ?(?:\.\.\.|\\[lc]?dots)"
    rf"|{_POINTED_GROUPS}"
    rf"|(?:{_PLAIN_GROUPS}|[1-9][0-9]{{0,2}}(?>(?:{_GROUP})+))(?>(?:\.[0-9]++)?)"
    r"|[0-9]++\{,\}[0-9]++"
    r"|(?:[0-9]++(?>(?:\.[0-9]++)?)|\.[0-9]++)(?>(?:[eE][+-]?[0-9]++)?))"
    rf"|{_HEXADECIMAL}"
    r"|US\\?\$(?=[0-9.])|Rs\.|[^\W\d_]++"
    r"|\*\*|\+/-|\.\.\.|\'\'|[<>=:!]=|=>|->"
    r"|.)",
    re.DOTALL,
)
# A digit directly after a letter is its index, b1 and x2; but 2x2 and 1.5x10^3 multiply, and e2, i2 are products.
_INDEXED = re.compile(
    r"([A-DF-HJ-Za-df-hj-z])(?=[0-9])(?<![A-Za-z\\].)(?<!frac .)(?:(?<=[a-wyz])|(?<![0-9].)(?!10\s?\^))"
    r"([0-9]++)(?![._A-Z])"
)
# {}_6C_3, the number of ways to choose 3 of 6.
_CHOSEN = re.compile(r"\{\s?\}_(?:\{(\w{1,9})\}|(\w))\s?C_(?:\{(\w{1,9})\}|(\w))")
_ANGSTROM = re.compile(r"\\mathring\s?\{ ?(?:A|\\(?:text|mathrm) ?\{ ?A ?\}) ?\}")
# The empty group that a document converter puts before an index or a degree sign: `45{ }^{\circ}`.
_EMPTY_GROUP = re.compile(r"(?<![\\A-Za-z])\{[ ~]?\}(?=\s?[\^_])")
# A wide blank before another equation divides: `x = 1 \quad x = 2`.
_WIDE = re.compile(r"(?:(?<!\\)\\(?:q?quad(?![A-Za-z])|[;,: ])|(?<![,;])~)\s*(?=[A-Za-z](?:_(?:\w|\{\w{1,3}\}))?\s?=)")
_DOUBLE_ESCAPE = re.compile(r"(?<!\\)\\\\(?=[A-Za-z]{2}|[,;:!()\[\]{}%$])(?!\[-?[0-9.]{1,6} ?[a-z]{2}\])")
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\t": "\\t", "\v": "\\v", "\f": "\\f", "\r": "\\r"}
_CONTROL = re.compile(r"[\a\b\t\v\f\r]")
_UNESCAPED = re.compile(
    r"\f(?=rac|box|orall)|[\b](?=egin|inom|oxed|mod|eta|ar\b|ig)|\r(?=ight|ho\b|angle|floor|ceil|vert)|\a(?=lpha|pprox|ngle|rc)"
    r"|\t(?=ext|imes|heta|frac|binom|riangle|an\b|au\b)|\v(?=ec|ert|arnothing)"
)
_ENVIRONMENT = re.compile(r"\\(begin|end)\s*\{([A-Za-z]+)\*?\}")


def restored(text: str) -> str:
    r"""A text with its LaTeX repaired, if `\f` of `\frac` and the like became control characters."""
    if text.isprintable() or not _CONTROL.search(text):
        return text
    return _UNESCAPED.sub(lambda found: _ESCAPES[found[0]], text)


def tokenize(text: str) -> TokenColumns:
    """Divide an answer into tokens.

    Raises:
        TooLarge: there is more than `MAX_CHARS` or `MAX_TOKENS`.
        Unreadable: there is a control character.
    """
    if len(text) > MAX_CHARS:
        raise TooLarge(f"longer than {MAX_CHARS:,} characters")
    if not text.isascii():
        text = written_out(text).translate(CHARACTERS)
    if "\\\\" in text and "\\begin" not in text:
        # Commands that were escaped twice: a row begins with a letter alone, or a blank.
        text = _DOUBLE_ESCAPE.sub(r"\\", text)
    if "</s" in text:
        for tag, sign in GRAPHIC_TAGS:
            text = text.replace(tag, sign)
    if "\\mathring" in text:
        text = _ANGSTROM.sub(r"\\AA ", text)
    if "C_" in text:
        text = _CHOSEN.sub(r"\\binom{\g<1>\g<2>}{\g<3>\g<4>}", text)
    if "{ }" in text or "{}" in text or "{~}" in text:
        text = _EMPTY_GROUP.sub("", text)
    if ("\\" in text or "~" in text) and text.count("=") > 1:
        text = _WIDE.sub(",", text)
    text = _marked_lines(text.strip())
    found = _TOKEN.findall(_INDEXED.sub(_with_index, text))
    if len(found) > MAX_TOKENS:
        raise TooLarge(f"more than {MAX_TOKENS:,} tokens")
    tokens = _Lexer(found).run()
    if len(tokens.kinds) > MAX_TOKENS + 1:
        raise TooLarge(f"more than {MAX_TOKENS:,} tokens")
    return tokens


def _with_index(found: re.Match[str]) -> str:
    return f"{found[1]}_{{{found[2]}}}"


class _Lexer:
    """One pass over the matches of the master expression."""

    __slots__ = (
        "_at",
        "_box_next",
        "_braces",
        "_brackets",
        "_found",
        "_kinds",
        "_lines",
        "_lone_dollar",
        "_money",
        "_tokens",
        "_upright_from",
        "_upright_next",
        "_values",
    )

    def __init__(self, found: list[str]) -> None:
        self._found = found
        self._at = 0
        self._tokens = TokenColumns()
        self._kinds = self._tokens.kinds
        self._values = self._tokens.values
        self._braces = self._brackets = 0
        self._upright_from: list[int] = []  # depths of the braces that upright type is in
        self._upright_next = False
        self._box_next = False
        self._lines = False
        # Dollar signs around mathematics come in pairs: a lone one is money, and so are all that begin amounts.
        self._lone_dollar = found.count("$") % 2 == 1
        self._money = _begin_amounts(found)

    def run(self) -> TokenColumns:
        """Everything."""
        kinds, values = self._kinds, self._values
        for at, token in enumerate(self._found):
            pair = FIXED.get(token)
            if pair is None:
                self._at = at
                self._read(token)
            elif pair[0]:
                kinds.append(pair[0])
                values.append(pair[1])
        if self._lines:
            self._join_lines()
        divided(kinds, values)
        if self._braces > 0 and not BOXES.isdisjoint(self._found):  # a truncated box
            kinds.extend("}" * self._braces)
            values.extend("}" * self._braces)
        kinds.append("end")
        values.append("")
        return self._tokens

    def _join_lines(self) -> None:
        """Divide aligned lines by commas; a line that begins with a sign of relation continues the previous one."""
        found = [pair for pair in zip(self._kinds, self._values, strict=True) if pair[0] not in ("&", "line")]
        kinds, values = [kind for kind, _ in found], [value for _, value in found]
        self._kinds.clear()
        self._values.clear()
        for at, kind in enumerate(kinds):
            if kind != "row":
                self._put(kind, values[at])
            elif kinds[at + 1 : at + 2] != ["relation"]:
                self._put(",", ",")

    def _put(self, kind: str, value: str) -> None:
        self._kinds.append(kind)
        self._values.append(value)

    def _read(self, token: str) -> None:
        """Append a token whose meaning depends on its context."""
        first = token[0]
        if first in "0123456789." or "}_" in token or (first.isalpha() and "_" in token):
            self._number(token)
        elif first == "\\" and len(token) > 1:
            self._command(token)
        elif first.isalpha():
            self._run(token)
        elif token in "{}":
            self._brace(token)
        elif token in "()[]":
            self._brackets += 1 if token in "([" else -1
            self._put(token, token)
        elif token == "$":
            self._dollar()
        elif first.isnumeric():
            self._tokens.words = True
            self._put("word", token)
        elif first.isprintable():
            self._put("junk", token)
        elif not first.isspace():
            raise Unreadable("control characters")

    def _brace(self, token: str) -> None:
        """A brace; those around upright type are not a group."""
        if token == "{":
            self._braces += 1
            if self._box_next:
                self._box_next = False
                self._put("box{", token)
                return
            if self._upright_next:
                self._upright_next = False
                self._upright_from.append(self._braces)
                return
        else:
            self._braces -= 1
            if self._upright_from and self._upright_from[-1] == self._braces + 1:
                self._upright_from.pop()
                return
        self._put(token, token)

    def _dollar(self) -> None:
        following = self._found[self._at + 1][0] if self._at + 1 < len(self._found) else "0"
        if self._money:
            self._put("currency", "dollar")
        elif self._lone_dollar and following in "0123456789.":
            self._put("currency", "dollar")
            self._lone_dollar = False

    def _number(self, token: str) -> None:
        if "_" in token:
            if token[0] == "\\":
                token = token[token.index("{") + 1 :].strip().replace("}", "", 1)
            self._put("based", token)
        elif (
            "," in token
            and self._brackets > 0
            and "\\" not in token
            and "{" not in token
            and self._kinds[-1:] != ["currency"]
        ):
            # In brackets a comma divides: (1,234) is a pair.
            for number, part in enumerate(token.split(",")):
                if number:
                    self._put(",", ",")
                self._put("number", part)
        else:
            self._put("number", token)

    def _command(self, token: str) -> None:
        if token in UPRIGHT_COMMANDS:
            self._upright_next = True
        elif token in BOXES:
            self._box_next = True
        elif (environment := _ENVIRONMENT.match(token)) and environment[2] in _LINES:
            self._lines = True
        elif environment:
            self._put("begin" if environment[1] == "begin" else "end environment", environment[2])
        elif token in _SET_BRACES:
            self._brackets += 1 if token == "\\{" else -1
            self._put("set" + token[1], token[1])
        elif token.startswith("\\\\"):
            self._put("row", token)
        elif token.startswith(_GLUED_SPACES):
            self._run(token[token.index("quad") + 4 :])
        elif token[-1].isalpha():
            self._put("letter", token[1:])
        elif not token[1].isspace() and token[-1] not in ".}":  # \right. and \hspace{1cm} have no meaning
            self._put("junk", token)

    def _run(self, run: str) -> None:
        """A run of letters."""
        upright = self._upright_next or bool(self._upright_from)
        self._upright_next = False
        if self._kinds[-1:] == ["."] and self._kinds[-2:-1] == ["word"] and run in UNIT_ABBREVIATIONS:
            del self._kinds[-1], self._values[-1]  # "sq. ft"
        if len(run) > MAX_LETTERS:
            self._tokens.words = True
            self._put("word", run)
            return
        if self._kinds and self._kinds[-1] in OPERAND_ENDS and self._is_unit(run, upright):
            self._tokens.words = True
            self._put("word", run)
            return
        if not upright and self._kinds and self._kinds[-1] in OPERAND_ENDS and (unit := self._plain_unit(run)):
            self._put(*unit)
            return
        if run in ENDING_UNITS and self._is_divisor(upright):
            self._tokens.words = True
            self._put("word", run)
            return
        if run == "at" and self._kinds[-1:] == ["function"] and self._values[-1] in _EXTREMES:
            self._tokens.words = True  # "max at x = 1"; elsewhere a product: sin at
            self._put("word", run)
            return
        for kind, value in _upright_letters(run) if upright else _italic_letters(run):
            if kind == "word":
                self._tokens.words = True
            self._put(kind, value)

    def _is_unit(self, run: str, upright: bool) -> bool:
        """Whether letters after a value abbreviate a unit; in plain text some do only at the end (`sec`, `in`)."""
        if upright or run not in ENDING_UNITS:
            return run in UNIT_ABBREVIATIONS
        return self._is_last()

    def _is_last(self) -> bool:
        return self._at + 1 == len(self._found) or self._found[self._at + 1] in _AFTER_UNITS

    def _is_divisor(self, upright: bool) -> bool:
        r"""Whether there is a unit before a slash here, or nothing after this position: the `min` of `\text{ft/min}`.

        In plain text both must hold, as in `5 km/min`.
        """
        divides = self._kinds[-1:] == ["/"] and self._kinds[-2:-1] in (["word"], ["upright"], ["name"])
        if divides or not upright:
            return divides and (upright or self._is_last())
        following = (token for token in self._found[self._at + 1 : self._at + 4] if token != "}")
        return next(following, "") in _AFTER_UNITS | {""} and self._kinds[-1:] in (["{"], ["*"])

    def _plain_unit(self, run: str) -> tuple[str, str] | None:
        """The meaning of letters after a value, by what follows: the `m` of `9.8 m/s`, or "in" before an interval."""
        following = self._found[self._at + 1 : self._at + 3]
        if run in CUSTOMARY_RATES and following[:1] == ["/"]:
            return ("upright", run) if following[1:] and following[1] in CUSTOMARY_RATES[run] else None
        return ("relation", "in") if run == "in" and following and following[0] in _SET_STARTS else None


def _begin_amounts(found: list[str]) -> bool:
    """Whether each of several dollar signs is before a numeral, and after nothing that a formula may end with."""
    places = [at for at, token in enumerate(found) if token == "$"]
    return len(places) > 1 and all(
        found[at + 1 : at + 2] and found[at + 1][0] in _AMOUNT_STARTS and (at == 0 or found[at - 1] in _BEFORE_AMOUNTS)
        for at in places
    )


_AMOUNT_STARTS = frozenset("0123456789.")
_BEFORE_AMOUNTS = frozenset("+-*/=(,:;x\u00d7\u00f7") | spelled(r"\times \cdot \div \approx and or plus minus times is")
_EXTREMES = frozenset({"max", "min", "sup", "inf"})
_LINES = frozenset({"aligned", "align", "gathered", "gather", "split", "eqnarray", "equation", "multline"})
_AFTER_UNITS = frozenset(".,;)^$}") | {"\\newline"}
_SET_STARTS = frozenset({"[", "(", "\\{", "{", "\\left", "\\mathbb"})
_GLUED_SPACES = ("\\quad", "\\qquad")
_SET_BRACES = frozenset({"\\{", "\\}"})


# A position in the tokens.

MAX_DEPTH = 40
"""Brackets, groups, exponents and functions within each other."""

# End tokens after the end, so that looking ahead needs no check.
_LOOK_AHEAD = 8
_PADDING_KINDS = ["end"] * _LOOK_AHEAD
_PADDING_VALUES = [""] * _LOOK_AHEAD


class Cursor:
    """Tokens, read from left to right: `at` grows, except for a unit or a subscript that is read in two ways.

    It is the only state while an answer is read: it is passed to the parts of the grammar, which have none.
    """

    __slots__ = ("at", "bar", "bound", "depth", "kinds", "steps", "values")

    def __init__(self, tokens: TokenColumns) -> None:
        self.kinds = tokens.kinds + _PADDING_KINDS
        self.values = tokens.values + _PADDING_VALUES
        self.at = 0
        """The next token."""
        self.depth = 0
        """Nested brackets, groups and so on around it."""
        self.steps = 0
        """Operands read so far: work is proportional to it."""
        self.bar = "opens"
        """The meaning of `|` after an operand: it "opens" an absolute value, "closes" one, or means "such that"."""
        self.bound: tuple[str, ...] = ()
        """Variables that a sum, product, integral or limit binds: there `i` is not a constant."""

    def fail(self, reason: str = "") -> NoReturn:
        """Give up."""
        raise Unreadable(reason or f"unexpected {self.values[self.at] or 'end'}")

    def expect(self, kind: str) -> None:
        """Skip a required token."""
        if self.kinds[self.at] != kind:
            self.fail(f"{kind} expected")
        self.at += 1

    def enter(self) -> None:
        """Go one level deeper; `leave` must follow."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge(f"nested deeper than {MAX_DEPTH}")

    def leave(self) -> None:
        """Go back one level."""
        self.depth -= 1


# Runs of letters are words, names, functions, or products of symbols:
#
# - A run of letters with a mathematical meaning (`sin`, `pi`, `and`) has that meaning; so have `sinx`, `xlnx`.
# - After an operand, a run that abbreviates a unit (`cm`) is that unit; alone it is not.
# - Two or more capitals are a name: `AB` is one symbol, different from `BA`.
# - In upright type (`\text`, `\mathrm`, ...) two or more letters are a word.
# - Elsewhere a run is a word if it has four letters or more, one of them a vowel, and is not a stretch of the alphabet
#   (`abcd`); if it is a capital and two or more small letters; or if it is one of a few short English words. Every
#   other run is a product of symbols: `xy`, `abc`, `Cx`.

MAX_LETTERS = 24
"""A longer run is always a word."""

_VOWELS = frozenset("aeiouAEIOU")
_ARGUMENTS = frozenset("xyz")


@functools.lru_cache(maxsize=4096)
def _upright_letters(run: str) -> tuple[tuple[str, str], ...]:
    """The meaning of letters in upright type."""
    if len(run) == 1:
        return (("upright", run),)
    known = WORD_TOKENS.get(run) or WORD_TOKENS.get(run.lower())
    if known is not None:
        return (known,)
    if run in FUNCTIONS:
        return (("function", FUNCTIONS[run]),)
    if run.isupper() and run.isascii():
        return (("name", run),)
    return (("word", run),)


@functools.lru_cache(maxsize=4096)
def _italic_letters(run: str) -> tuple[tuple[str, str], ...]:
    """The meaning of letters in plain text and in mathematics."""
    if len(run) == 1:
        return (("letter", run),) if run.isascii() else (("word", run),)
    known = WORD_TOKENS.get(run) or WORD_TOKENS.get(run.lower())
    if known is not None:
        return (known,)
    if run[:-1] in ("or", "and") and run[-1].isupper():  # 1orW
        return (WORD_TOKENS[run[:-1]], ("letter", run[-1]))
    head = int(run[0] in _ARGUMENTS)  # sinx, xlnx
    function = WORD_TOKENS.get(run[head:-1])
    if run[-1] in _ARGUMENTS and function is not None and function[0] == "function":
        return (*(("letter", letter) for letter in run[:head]), function, ("letter", run[-1]))
    if _is_word(run):
        return (("word", run),)
    if run.isupper():
        return (("name", run),)
    return tuple(("letter", letter) for letter in run)


def _is_word(run: str) -> bool:
    lower = run.lower()
    if not run.isascii() or lower in SHORT_WORDS:
        return True
    if run.isupper():
        return False
    if len(run) >= 3 and run[0].isupper() and run[1:].islower():
        return True
    if len(run) < 4 or not _VOWELS.intersection(run):
        return False
    return any(ord(after) - ord(before) != 1 for before, after in itertools.pairwise(lower))
