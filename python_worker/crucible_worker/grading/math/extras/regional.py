"""Notations of other countries: words in Chinese, and numerals such as `1.234,5` or `1'234.5`.

A numeral is read in such a notation if only one number can be meant.
"""

# ruff: noqa: RUF001 - this module is about signs that look like others.

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["in_english", "with_joints", "with_points"]

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
_UNITS: Mapping[str, str] = {spelling: unit for unit, spellings in _UNIT_ROWS for spelling in spellings.split()}
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
_JOINTS = {
    "或": " or ",
    "或者": " or ",
    "和": " and ",
    "与": " and ",
    "以及": " and ",
    "、": ", ",
    "，": ", ",
    "；": "; ",
}

_SIGN = re.compile("[\u3001\u4e00-\u9fff]")
_NAMES = "|".join(sorted(_UNITS, key=len, reverse=True))
_HOUR = "时"  # a unit only after a slash
# A value, and the text that may be between it and its unit.
_VALUE = r"([0-9)\]}%A-Za-zπ](?:\s|~|\$|\\[,;:! )\]]|\\(?:text|mathrm|textbf)\{){0,6})"
_UNIT = re.compile(
    rf"{_VALUE}((?:平方|立方)?(?:{_NAMES})(?:\s?[/每]\s?(?:(?:平方|立方)?(?:{_NAMES})|{_HOUR})){{0,2}})(?:(?=[或和与])|(?![一-鿿]|\s?[0-9]))"
)
_PART = re.compile(rf"(平方|立方|)({_NAMES}|{_HOUR})")
_MULTIPLE = re.compile(r"(?<=[0-9])(\s?)(百万|万亿|万|亿)")
_JOINT = re.compile("或者|以及|[或和与、，；]")


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
    text = _UNIT.sub(lambda found: found[1] + _unit(found[2]), text)
    return with_joints(text)


def with_joints(text: str) -> str:
    """A text with Chinese conjunctions and commas in English: the joints between two answers."""
    return text if text.isascii() else _JOINT.sub(lambda found: _JOINTS[found[0]], text)


def _unit(spelled: str) -> str:
    parts = [_POWERS[power] + _UNITS.get(name, "hour") for power, name in _PART.findall(spelled)]
    return f" {' per '.join(parts)} "


# Numerals in the notation of other countries.


_BLANK = r"(?:[ ~\u00a0\u2009\u202f]|\\[,; ])"
# Groups of three by points, blanks or apostrophes, and decimals after a comma. A possible list does not match:
# three decimals may be a separate number, as in 1.234,567, unless there are two groups.
_NUMERAL = re.compile(
    rf"""
    (?<![0-9.,'’:/])
    (?: (?P<points> [1-9][0-9]{{0,2}} (?:\.[0-9]{{3}})+ ) (?:,|\{{,\}}) (?P<decimals> [0-9]+ )
      | (?P<blanks> [1-9][0-9]{{0,2}} (?:{_BLANK}[0-9]{{3}})+ ) (?:,|\{{,\}}) (?P<places> [0-9]+ )
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


def with_points(text: str) -> str:
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
