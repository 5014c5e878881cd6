r"""Other spellings of an answer, and notations of other countries: for two texts that are not equal as written.

Units with a prefix are written out, runs of capitals become products, italics at the end become units, and each further
spelling has an option. Both sides are respelled in the same way, so that `\mathbf{v}` and `\overrightarrow{v}` become
one name. Each expression is linear: its repetitions are bounded, or end at what they cannot contain.
"""

# ruff: noqa: RUF001 - this module is about signs that look like others.

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence

from crucible_bridge.types import MathPolicy
from crucible_worker.grading.math.lexer import MAX_CHARS
from crucible_worker.grading.math.reading import ParsedText, read_target, readings_of
from crucible_worker.grading.math.text import boxed
from crucible_worker.grading.math.tokens import (
    LETTER_UNITS,
    PREFIXED_UNITS,
    SI_PREFIXES,
    SI_UNITS,
    UNIT_ABBREVIATIONS,
    UNITS,
    UPRIGHT_ABBREVIATIONS,
)
from crucible_worker.grading.math.tree import (
    Node,
    Number,
    Power,
    Quantity,
    Relation,
    Sum,
    Symbol,
    arithmetic,
    free_symbols,
    nodes_of,
    walk,
)
from crucible_worker.grading.qualification import with_joints

__all__ = ["apart", "in_english", "in_upright_type", "is_bare_number", "is_measured", "respelled", "written_out_units"]


# Units, numbers and conjunctions in Chinese, in English words: the text around the formulas of an answer.


_UNIT_ROWS = (
    ("meter", "米 公尺"),
    ("centimeter", "厘米 公分"),
    ("millimeter", "毫米"),
    ("decimeter", "分米"),
    ("kilometer", "千米 公里"),
    ("micrometer", "微米"),
    ("nanometer", "纳米"),
    ("gram", "克"),
    ("kilogram", "千克 公斤"),
    ("milligram", "毫克"),
    ("microgram", "微克"),
    ("ton", "吨"),
    ("second", "秒 秒钟"),
    ("millisecond", "毫秒"),
    ("minute", "分钟 分鐘"),
    ("hour", "小时 小時"),
    ("day", "天"),
    ("week", "周 星期"),
    ("month", "个月"),
    ("year", "年"),
    ("liter", "升 公升"),
    ("milliliter", "毫升"),
    ("yuan", "元"),
    ("dollar", "美元"),
    ("euro", "欧元"),
    ("degree", "度"),
    ("radian", "弧度"),
    ("newton", "牛 牛顿"),
    ("joule", "焦 焦耳"),
    ("kilojoule", "千焦"),
    ("watt", "瓦 瓦特"),
    ("kilowatt", "千瓦"),
    ("volt", "伏 伏特"),
    ("ampere", "安 安培"),
    ("ohm", "欧 欧姆"),
    ("pascal", "帕 帕斯卡"),
    ("kilopascal", "千帕"),
    ("mole", "摩尔"),
    ("hertz", "赫兹"),
    ("hectare", "公顷"),
    ("person", "人 个人"),
    ("foot", "英尺"),
    ("inch", "英寸"),
    ("mile", "英里"),
)
_CHINESE_UNITS: Mapping[str, str] = {spelling: unit for unit, spellings in _UNIT_ROWS for spelling in spellings.split()}
_POWERS = {"": "", "平方": "square ", "立方": "cubic "}
_MULTIPLES = {"万": 4, "百万": 6, "亿": 8, "万亿": 12}
_PHRASES = {
    "无解": "no solution",
    "空集": "empty set",
    "不存在": "does not exist",
    "全体实数": "all real numbers",
}
# "The equation has no solution", only without numbers or letters, and without a negating word.
_UNSOLVABLE = re.compile(r"[^\x00-\x7f非不没当若如，。]{0,12}无(?:实数|整数)?解[。！]?")

_SIGN = re.compile("[\u3001\u4e00-\u9fff]")
_NAMES = "|".join(sorted(_CHINESE_UNITS, key=len, reverse=True))
_HOUR = "时"  # a unit only after a slash
# A value, and the text that may be between it and its unit.
_VALUE = r"([0-9)\]}%A-Za-zπ](?:\s|~|\$|\\[,;:! )\]]|\\(?:text|mathrm|textbf)\{){0,6})"
_CHINESE_UNIT = re.compile(
    rf"{_VALUE}((?:平方|立方)?(?:{_NAMES})(?:\s?[/每]\s?(?:(?:平方|立方)?(?:{_NAMES})|{_HOUR})){{0,2}})(?:(?=[或和与])|(?![一-鿿]|\s?[0-9]))"
)
_PART = re.compile(rf"(平方|立方|)({_NAMES}|{_HOUR})")
_MULTIPLE = re.compile(r"(?<=[0-9])(\s?)(百万|万亿|万|亿)")


def in_english(text: str, *, words: bool) -> str:
    """A text with Chinese in English: powers of ten, which belong to their number, and `words` of these tables.

    Other words are not changed.
    """
    if text.isascii() or _SIGN.search(text) is None:
        return text
    text = _MULTIPLE.sub(lambda found: rf"\times 10^{{{_MULTIPLES[found[2]]}}}", text)
    if not words:
        return text
    if (phrase := _PHRASES.get(text.strip(" 。.$"))) is not None:
        return phrase
    if _UNSOLVABLE.fullmatch(text):
        return "no solution"
    text = _CHINESE_UNIT.sub(lambda found: found[1] + _unit(found[2]), text)
    return with_joints(text)


def _unit(spelled: str) -> str:
    parts = [_POWERS[power] + _CHINESE_UNITS.get(name, "hour") for power, name in _PART.findall(spelled)]
    return f" {' per '.join(parts)} "


# Numerals in the notation of other countries, such as `1.234,5` or `1'234.5`: read if only one number can be meant.


_GROUP_BLANK = r"(?:[ ~\u00a0\u2009\u202f]|\\[,; ])"
# Groups of three by points, blanks or apostrophes, and decimals after a comma. A possible list does not match:
# three decimals may be a separate number, as in 1.234,567, unless there are two groups.
_NUMERAL = re.compile(
    rf"""
    (?<![0-9.,'’:/])
    (?: (?P<points> [1-9][0-9]{{0,2}} (?:\.[0-9]{{3}})+ ) (?:,|\{{,\}}) (?P<decimals> [0-9]+ )
      | (?P<blanks> [1-9][0-9]{{0,2}} (?:{_GROUP_BLANK}[0-9]{{3}})+ ) (?:,|\{{,\}}) (?P<places> [0-9]+ )
      | (?P<marks> [1-9][0-9]{{0,2}} (?:['’][0-9]{{3}})+ ) (?:[.](?P<rest> [0-9]+ ))?
      | (?P<groups> [1-9][0-9]{{0,2}} (?:\.[0-9]{{3}}){{2,}} )
    )
    (?![0-9.'’:/]|,[0-9])
    """,
    re.VERBOSE,
)
# Lakhs and crores, in groups of two digits: only after the rupee sign, as elsewhere they are lists.
_LAKHS = re.compile(r"(?<=₹)(\s?)([1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3})(?![0-9,])")
_DIVIDED = frozenset("()[]")
_NO_DIGIT = re.compile(r"[^0-9]")


def _with_points(text: str) -> str:
    """A text with a point before decimals, and without marks between groups."""
    if _DIVIDED.isdisjoint(text) and "\\{" not in text:  # in brackets a comma divides
        text = _NUMERAL.sub(_plain, text)
    return _LAKHS.sub(lambda found: found[1] + found[2].replace(",", ""), text)


def _plain(found: re.Match[str]) -> str:
    groups = found["points"] or found["blanks"] or found["marks"] or found["groups"]
    decimals = found["decimals"] or found["places"] or found["rest"] or ""
    whole = _NO_DIGIT.sub("", groups)
    if not found["rest"] and len(decimals) == 3 and len(whole) < 7:
        return found[0]
    return f"{whole}.{decimals}" if decimals else whole


# Units with a prefix, written out: `\mu\text{m}`, with either micro sign, is a micrometer.

_SYMBOL = r"(\\Omega|mol|Pa|Hz|eV|Sv|Bq|[mgsLlAVFCHWJNTKSΩ\u2126])(?![A-Za-z])"
_UPRIGHT = r"\\(?:text|mathrm|textrm|mbox|rm)\s?\{(?:\\[,;: ]|[ ~]){0,3}"
_SPACES = r"(?:\\[,;:! ]|[ ~]){1,4}"
# The micro sign is not a letter, and a mu in or before upright type is a prefix. In italics it is one only in
# `5 \mu m`: a friction times a force or a weight is not a quantity. The letter of Unicode is one after any blank.
_MICRO = re.compile(
    rf"µ ?({_UPRIGHT}|){_SYMBOL}|\$?(?:\\mu(?![A-Za-z])|μ)\$? ?({_UPRIGHT}){_SYMBOL}"
    rf"|({_UPRIGHT})\$?(?:\\mu(?![A-Za-z])|μ)\$? ?{_SYMBOL}"
)
_ITALIC = re.compile(
    rf"(?<=[0-9}}])({_SPACES})(?:(?:\\mu(?![A-Za-z])|μ) ?(?=[msLFCAV](?![A-Za-z])|mol|Pa|Hz|eV|Sv|Bq)|μ){_SYMBOL}"
    r"(?=[\s.,;$)]{0,3}\Z)"
)
_PREFIXED = re.compile(rf"({_UPRIGHT})(?!pH)([pnmcdkMGT]){_SYMBOL}")
_PREFIXED_OHM = re.compile(rf"{_UPRIGHT}([mkMG]) ?\}} ?(?:\\Omega(?![A-Za-z])|[Ω\u2126])")
# Solar units, of a number and at the end: in a formula M_\odot is a mass.
_ODOT = r"_ ?(?:\{ ?\\odot ?\}|\\odot)"
_SOLAR = re.compile(
    r"(?<=[0-9}])(?:\\[,;: ]|[ ~]){0,4}"
    rf"(?:{_UPRIGHT}(?P<within>[MLR]){_ODOT} ?\}}|{_UPRIGHT}(?P<upright>[MLR]) ?\}}{_ODOT}|(?P<plain>[MLR]){_ODOT})"
    r"(?=[\s.$)]{0,3}\Z)"
)
_SOLAR_UNITS = {"M": "solar mass", "L": "solar luminosity", "R": "solar radius"}
_METRE = re.compile(r"(?<=[a-z])(met|lit)re(?=s?\b)")


def written_out_units(text: str) -> str:
    """A text in which units with a prefix are words, `5 micrometer`."""
    foreign = not text.isascii()
    if "odot" in text:
        text = _SOLAR.sub(lambda found: rf" \text{{ {_SOLAR_UNITS[found[found.lastgroup or 0]]}}}", text)
    if foreign or "\\mu" in text:
        text = _MICRO.sub(_micro, text)
        text = _ITALIC.sub(lambda found: f" micro{SI_UNITS[found[2]]}", text)
    if foreign or "\\Omega" in text:
        text = _PREFIXED_OHM.sub(lambda found: f"\\text{{ {SI_PREFIXES[found[1]]}ohm}}", text)
    if foreign or "\\" in text:
        text = _PREFIXED.sub(_prefixed, text)
    return _METRE.sub(lambda found: found[1] + "er", text) if "tre" in text else text


def _prefixed(found: re.Match[str]) -> str:
    if UNITS.get(spelling := found[2] + found[3], spelling) != spelling:
        return found[0]  # the parser knows its name
    return f"{found[1]} {SI_PREFIXES[found[2]]}{SI_UNITS[found[3]]}"


def _micro(found: re.Match[str]) -> str:
    opening, symbol = next((found[at], found[at + 1]) for at in (1, 3, 5) if found[at + 1])
    return f"{opening} micro{SI_UNITS[symbol]}"


# Runs of capitals as products: `\frac{1}{\sqrt{LC}}` is `\frac{1}{\sqrt{L C}}`, and LC is L times C.
#
# A run of capitals is read as a name first, as `AB` is a segment. It is a product if its letters are separate on the
# other side, or if both sides are formulas and one has two letters in the other order. The text is divided, not the
# tree: the exponent of `LC^2` belongs to C.

_MAX_LETTERS = 6
# A name with its index and exponent; after a root or fraction without braces only its first letter counts.
_COMMAND_OR_NAME = re.compile(
    r"\\(?:text|math|operatorname|tag|label)[a-z]*\*? ?\{[^{}]*+\}|\\(?:sqrt|(?:[dtcs]|nice)?frac) ?[A-Z]++"
    r"|\\[A-Za-z]++"
    rf"|(?<![A-Za-z])([A-Z]{{2,{_MAX_LETTERS}}})(?![A-Za-z'!]|\s{{0,2}}_\s?\{{?\s?[0-9]{{2}}|\s{{0,2}}\()"
    r"((?:\s{0,2}_\s?(?:\{[^{}]{1,20}\}|[0-9A-Za-z]))?(?:\s{0,2}\^\s?(?:\{[^{}]{1,40}\}|[0-9A-Za-z]))?)(?!\s{0,2}[_^])"
)
# Signs that are only next to names of points.
_GEOMETRY = re.compile(
    r"\\(?:angle|measuredangle|triangle|Delta|square|odot|parallel|perp|cong|sim|over[a-z]+|vec|bar|hat|widehat"
    r"|mathbf|boldsymbol|bm|stackrel|circ|degree)(?![a-z])|[\u2220\u25b3\u25b1\u2225\u22a5\u2245\u00b0]"
)
_HINT = re.compile("[A-Z][A-Z]")
_SIGNS = re.compile(r"\\(?:cdot|times|left|right|[,;:! ()\[\]])|[\s*$()\u00b7\u00d7]")


def apart(target: str, answer: str) -> tuple[str, str] | None:
    """Both texts with the letters of such names separated; None if there are none."""
    if max(len(target), len(answer)) > MAX_CHARS or not (_HINT.search(target) or _HINT.search(answer)):
        return None
    texts = [boxed(text) or text for text in (target, answer)]
    if any(map(_GEOMETRY.search, texts)):
        return None
    names = [frozenset(_names(text)) for text in texts]
    if not any(names):
        return None
    expected = read_target(target)
    nodes = [expected.nodes, [node for reading in readings_of(answer, expected) for node in reading.nodes]]
    products: set[str] = set()
    bare = [_SIGNS.sub("", text) for text in texts]
    for side, other in ((0, 1), (1, 0)):
        letters = _letters(nodes[other])
        # If a name is a whole answer, the other side must have its letters in the same order: AB is not B A.
        alone = bare[side] in names[side] and bare[other] != bare[side]
        products |= set() if alone else {name for name in names[side] if frozenset(name) <= letters}
    if all(map(_is_formula, nodes)):
        products |= {name for name in names[0] ^ names[1] if len(name) == 2 and name[::-1] in names[0] | names[1]}
    return (_divided(target, products), _divided(answer, products)) if products else None


def _names(text: str) -> Iterator[str]:
    return (found[1] for found in _COMMAND_OR_NAME.finditer(text) if found[1])


def _letters(nodes: Sequence[Node]) -> frozenset[str]:
    """Single capitals, with an index or without."""
    symbols = (part.name.partition("_")[0] for node in nodes for part in walk(node) if isinstance(part, Symbol))
    return frozenset(name for name in symbols if len(name) == 1 and name.isupper())


def _is_formula(nodes: Sequence[Node]) -> bool:
    """Whether there is a quotient, a root or an exponent with variables, with every name in it or with a variable."""
    for node in nodes:
        powers = [part for part in walk(node) if isinstance(part, Power) and _divides(part)]
        inside = frozenset().union(*(free_symbols(power.base) for power in powers))
        symbols = free_symbols(node)
        if powers and (any(len(name) == 1 for name in symbols) or symbols <= inside):
            return True
    return False


def _divides(power: Power) -> bool:
    exponent = power.exponent
    return not isinstance(exponent, Number) or exponent.value < 0 or exponent.value.denominator > 1


def _divided(text: str, products: set[str]) -> str:
    """A text with the letters of some names separated, each name a group with its index and exponent."""

    def divided(found: re.Match[str]) -> str:
        return f"{{{' '.join(found[1])}{found[2]}}}" if found[1] in products else found[0]

    return _COMMAND_OR_NAME.sub(divided, text)


# Units in italics, `757 g`, `5 N m` and `5 mV`: letters after a number and a blank, at the end of an answer.
#
# They may be products as well, of 757 and g. They are units only if the target is a bare number, which no answer gives
# as a multiple of an unknown, or has a unit in upright type. Without a blank, `5m`, they stay a product.

_MAX_CHARS = 80
"""Characters at the end of an answer in which its unit is sought."""

# Also other words: ordinals, a time of day.
_NO_UNITS = frozenset({"in", "st", "nd", "rd", "th", "sq", "deg", "pts", "pm"})
_OHM = "\\Omega"
_UNIT = r"(?:[A-Za-z]{1,4}|\\Omega(?![A-Za-z]))(?:\^(?:-?[1-9]|\{ ?-?[1-9] ?\}))?"
_TIMES = r"(?: ?(?:\*|\\cdot(?![A-Za-z])|\u00b7) ?|[ ~]|\\[ ,])"
_UNITS = rf"{_UNIT}(?:{_TIMES}{_UNIT}){{0,3}}"
_RATE = rf"{_UNITS}(?: ?/ ?(?:{_UNIT}|\( ?{_UNITS} ?\)))?"
# A blank after a command only ends its name: in `12\pi m` it is unknown whether a blank is meant.
_BLANK = r"(?:(?<=[0-9})])\$?[ ~]{1,4}|(?<=[0-9A-Za-z})])\$?\\[ ,;:][ ~]{0,4})"
_ENDING = re.compile(rf"{_BLANK}\$?(?P<unit>{_RATE})(?P<rest>[ $.]{{0,4}})\Z")
# The possible end of a unit, which most answers do not have: a letter, its power, or the bracket after it.
_LAST = re.compile(r"[A-Za-z)][0-9^{} -]{0,6}[ $.]{0,4}\Z")
_MAX_LAST_CHARS = 12
_UNIT_LETTERS = re.compile(r"[A-Za-z]+|\\Omega|\\cdot")


def in_upright_type(answer: str) -> str | None:
    r"""An answer with the unit at its end in upright type, `757\text{ g}`; None if it ends differently."""
    if (" " not in answer and "~" not in answer and "\\" not in answer) or not _LAST.search(answer[-_MAX_LAST_CHARS:]):
        return None
    tail = answer[-_MAX_CHARS:]
    found = _ENDING.search(tail)
    if found is None or not all(map(_is_unit, _UNIT_LETTERS.findall(found["unit"]))):
        return None
    unit = found["unit"].replace(_OHM, "ohm")
    return f"{answer[: len(answer) - len(tail) + found.start()]}\\text{{ {unit}}}{found['rest'].replace('.', '')}"


def _is_unit(name: str) -> bool:
    if name in (_OHM, "\\cdot"):
        return True
    if name in LETTER_UNITS or name in PREFIXED_UNITS or name in UPRIGHT_ABBREVIATIONS:
        return name not in _NO_UNITS
    return name in UNIT_ABBREVIATIONS and name not in _NO_UNITS


def is_bare_number(reading: ParsedText) -> bool:
    """Whether a text is a number, without a unit or a variable."""
    return bool(reading.nodes) and all(
        arithmetic(node) and not free_symbols(node) and not any(isinstance(part, Quantity) for part in nodes_of(node))
        for node in reading.nodes
    )


def is_measured(reading: ParsedText) -> bool:
    """Whether a text is one value with a unit; in `3 + 2 m` the letter belongs only to the last term."""
    match reading.nodes:
        case (Quantity(value),) | (Relation((_, Quantity(value))),):
            return not isinstance(value, Sum) and arithmetic(value) and not free_symbols(value)
        case _:
            return False


# Spellings that an option makes equal.


_BARE_LOG = re.compile(r"(?<![A-Za-z])log(?![A-Za-z0-9]|\s{0,4}_)")
# Names in bold and under long arrows, except those that already have another mark: \hat{\mathbf{v}}.
_BOLD = re.compile(
    r"(?<![a-z]\{)\\(?:mathbf|boldsymbol|bold|bm|overrightarrow)"
    r"(?=\s?\{ ?(?:[A-Za-z](?:_[^{}\s]|_\{\w{1,9}\})?|[A-Z]{2}) ?\}| [A-Za-z](?![A-Za-z]))"
)
_UNIT_VECTOR = re.compile(
    r"\\(?:vec|widehat|hat)(?:(\s?\{ ?)\\?([ijk])(?:math)?(?= ?\})|\s?\\([ij])math(?![A-Za-z])| ([ijk])(?![A-Za-z]))"
)
_HAT = re.compile(r"\\hat(?: |\s?\{ ?)[ijk]")
_PLAIN_UNIT_VECTOR = re.compile(r"(?<![A-Za-z\\_])[ijk](?![A-Za-z_])")
_PLAIN_J_OR_K = re.compile(r"(?<![A-Za-z\\_])[jk](?![A-Za-z_])")
# A number that is a term of a sum, which no vector has.
_SCALAR_TERM = re.compile(r"(?:^|[-+=(])\s?[0-9.]{1,40}\s?(?:[-+]|$)")
_DIGITS = string.digits + string.ascii_uppercase
_BASED = re.compile(
    r"(?<![A-Za-z0-9\\_^{])((?:\\(?:text|mathrm)\{ ?)?)([0-9A-Za-z]{1,60})(?= ?\}?_\{ ?(1[1-9]|2[0-9]|3[0-6]) ?\})"
)


@dataclasses.dataclass(frozen=True, slots=True)
class _Rule:
    """How texts are respelled if a policy sets an option."""

    option: str
    """The field of the policy."""
    needs: re.Pattern[str]
    """An expression that matches in every ASCII text that this changes: most answers do not match.

    Each alternative begins with one character, so that a search skips all others at once.
    """
    respell: Callable[[str], str]
    """The text in the other spelling."""

    def respelled(self, text: str) -> str:
        return self.respell(text) if self.needs.search(text) or not text.isascii() else text


def respelled(target: str, answer: str, policy: MathPolicy) -> tuple[str, str] | None:
    """Both texts in other spellings that the policy considers equal; None if they have none."""
    if len(target) > MAX_CHARS or len(answer) > MAX_CHARS:
        return None
    if target.isascii() and answer.isascii() and not (_NEEDS.search(target) or _NEEDS.search(answer)):
        return None
    spelled = target, answer
    for rule in _RULES:
        if getattr(policy, rule.option):
            spelled = rule.respelled(spelled[0]), rule.respelled(spelled[1])
    if policy.vector_notations:
        spelled = _with_hats(*spelled)
    return None if spelled == (target, answer) else spelled


def _in_capitals(found: re.Match[str]) -> str:
    """A numeral with a base, its letters as capitals: not a single letter, which may have an index, nor others."""
    digits, base = found[2].upper(), int(found[3])
    if len(digits) == 1 or any(character not in _DIGITS[:base] for character in digits):
        return found[0]
    return found[1] + digits


def _hatted(found: re.Match[str]) -> str:
    return "\\hat" + (found[1] or " ") + (found[2] or found[3] or found[4])


def _with_hats(target: str, answer: str) -> tuple[str, str]:
    r"""Two texts with hats on both sides, if one has them and the other has plain letters: 2i + 3j."""
    hats = [_HAT.search(text) is not None for text in (target, answer)]
    if hats == [True, False]:
        return target, _hatted_sum(answer)
    if hats == [False, True]:
        return _hatted_sum(target), answer
    return target, answer


def _hatted_sum(text: str) -> str:
    """A sum of plain unit vectors with their hats: i alone is the imaginary unit, and so it is next to a number."""
    if _PLAIN_J_OR_K.search(text) is None or _SCALAR_TERM.search(text) is not None:
        return text
    return _PLAIN_UNIT_VECTOR.sub(r"\\hat{\g<0>}", text)


def _with_natural_log(text: str) -> str:
    return _BARE_LOG.sub("ln", text)


def _with_arrows(text: str) -> str:
    return _UNIT_VECTOR.sub(_hatted, _BOLD.sub(r"\\vec", text))


def _with_capitals(text: str) -> str:
    return _BASED.sub(_in_capitals, text)


_RULES = (
    _Rule("regional_numerals", re.compile(r" [0-9]{3}|~[0-9]{3}|\.[0-9]{3}|'[0-9]{3}|,[0-9]{3}"), _with_points),
    _Rule("unit_names", re.compile(r"\\(?:text|math|mbox|rm|mu|Omega|odot)|tre"), written_out_units),
    _Rule("log_is_natural", re.compile("log"), _with_natural_log),
    _Rule("vector_notations", re.compile(r"\\(?:bold|bm|hat|mathbf|over|vec|wide)"), _with_arrows),
    _Rule("fold_base_letters", re.compile(r"_\{ ?[123][0-9]"), _with_capitals),
)
_NEEDS = re.compile("|".join(rule.needs.pattern for rule in _RULES))
