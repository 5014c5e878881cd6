"""Units, with one spelling each.

A unit is spelled in the singular and in full: `square centimeter`, `mile per hour`, `meter per square second`. Nothing
is converted here.
"""

from __future__ import annotations

from collections.abc import Mapping

from crucible_worker.grading.math.tokens import spelled

__all__ = [
    "CUSTOMARY_RATES",
    "ENDING_UNITS",
    "LETTER_UNITS",
    "MAX_UNIT_WORDS",
    "NO_COUNTED_WORDS",
    "NO_NOUNS",
    "NO_UNIT_WORDS",
    "PREFIXED_UNITS",
    "SI_PREFIXES",
    "SI_UNITS",
    "UNITS",
    "UNIT_ABBREVIATIONS",
    "UPRIGHT_ABBREVIATIONS",
    "is_unit",
    "powered",
    "singular",
]

MAX_UNIT_WORDS = 4
"""Words of a unit that is in no table: `17 red apples`."""

LETTER_UNITS: Mapping[str, str] = {
    "m": "meter", "s": "second", "g": "gram", "h": "hour", "L": "liter", "l": "liter", "N": "newton", "J": "joule",
    "W": "watt", "V": "volt", "A": "ampere", "K": "kelvin", "C": "coulomb", "F": "farad", "T": "tesla",
    "Omega": "ohm",
}  # fmt: skip
"""Units of one letter. They count only in upright type: `5m` and `5\\Omega` are products."""

CUSTOMARY_RATES: Mapping[str, frozenset[str]] = {
    "m": frozenset({"s", "min"}),
    "mi": frozenset({"h", "hr", "min"}),
    "L": frozenset({"min"}),
    "l": frozenset({"min"}),
    "g": frozenset({"L", "mL", "ml", "cm"}),
}
"""Letters, above and below, whose quotient is a unit in plain text too: `9.8 m/s^2`."""

_REGULAR = spelled(
    "meter centimeter millimeter kilometer decimeter micrometer nanometer inch foot yard mile gram kilogram milligram"
    " microgram ton pound ounce liter milliliter gallon quart pint cup second minute hour day week month year decade"
    " millisecond microsecond nanosecond newton joule kilojoule calorie watt kilowatt megawatt volt kilovolt ampere ohm"
    " pascal kilopascal kelvin radian steradian mole acre hectare knot lightyear bit byte kilobyte megabyte gigabyte"
    " kilohertz megahertz coulomb farad tesla unit electronvolt atmosphere bar dollar cent euro pound rupee yen"
    " yuan peso rouble franc nickel dime quarter coin percent point"
)
# Irregular plurals and other spellings.
_SPELLINGS = (
    ("foot", "feet"),
    ("inch", "inches"),
    ("penny", "penny pennies pence"),
    ("century", "century centuries"),
    ("hertz", "hertz"),
    ("meter", "metre metres"),
    ("centimeter", "centimetre centimetres"),
    ("millimeter", "millimetre millimetres"),
    ("kilometer", "kilometre kilometres"),
    ("liter", "litre litres"),
    ("milliliter", "millilitre millilitres"),
    ("ton", "tonne tonnes"),
    ("dollar", "usd buck bucks"),
    ("yuan", "rmb"),
    ("person", "people persons"),
    ("child", "children"),
    ("man", "men"),
    ("woman", "women"),
    ("gram", "gm gms"),
    ("cubic centimeter", "cc"),
)
_ABBREVIATIONS = (
    ("centimeter", "cm"),
    ("millimeter", "mm"),
    ("kilometer", "km"),
    ("decimeter", "dm"),
    ("nanometer", "nm"),
    ("kilogram", "kg"),
    ("milligram", "mg"),
    ("milliliter", "ml mL"),
    ("pound", "lb lbs"),
    ("ounce", "oz"),
    ("foot", "ft"),
    ("yard", "yd yds"),
    ("hour", "hr hrs"),
    ("minute", "min mins"),
    ("second", "sec secs"),
    ("mile per hour", "mph"),
    ("kilometer per hour", "kph kmh"),
    ("revolution per minute", "rpm"),
    ("hertz", "Hz"),
    ("kilohertz", "kHz"),
    ("megahertz", "MHz"),
    ("gigahertz", "GHz"),
    ("kilowatt", "kW"),
    ("kilowatt hour", "kWh"),
    ("kilojoule", "kJ"),
    ("electronvolt", "eV"),
    ("kiloelectronvolt", "keV"),
    ("megaelectronvolt", "MeV"),
    ("gigaelectronvolt", "GeV"),
    ("pascal", "Pa"),
    ("kilopascal", "kPa"),
    ("kilonewton", "kN"),
    ("mole", "mol"),
    ("gallon", "gal"),
    ("kilocalorie", "kcal"),
    ("radian", "rad rads"),
    ("atmosphere", "atm"),
    ("point", "pts"),
    ("square", "sq"),
    ("degree", "deg"),
)
# Also words or products of symbols: they count only in upright type.
_UPRIGHT_ABBREVIATIONS = (
    ("inch", "in"),
    ("mile", "mi"),
    ("millisecond", "ms"),
    ("milliampere", "mA"),
    ("millivolt", "mV"),
    ("kilovolt", "kV"),
    ("megawatt", "MW"),
    ("kilobyte", "kB"),
    ("megabyte", "MB"),
    ("gigabyte", "GB"),
    ("cubic", "cu"),
)
UPRIGHT_ABBREVIATIONS = frozenset(name for _, names in _UPRIGHT_ABBREVIATIONS for name in names.split()) - {"cu"}
"""Abbreviations that are a unit also after a blank, if nothing else can be meant: `5 mi`."""

ENDING_UNITS = frozenset({"in", "min", "sec"})
"""Abbreviations that are something else if more follows: `x in [0, 1]`, `min(a, b)`, `sec x`."""

_POWERS = ("square", "cubic", "squared", "cubed")

UNIT_ABBREVIATIONS = spelled("in st nd rd th").union(*(names.split() for _, names in _ABBREVIATIONS))
"""Abbreviations that are units anywhere after a value, also in plain text; and the ends of ordinals."""

SI_PREFIXES: Mapping[str, str] = {
    "p": "pico", "n": "nano", "m": "milli", "c": "centi", "d": "deci", "k": "kilo", "M": "mega", "G": "giga",
    "T": "tera",
}  # fmt: skip
"""Prefixes by their letter. Micro signs are handled where units are written out."""

SI_UNITS: Mapping[str, str] = {
    "m": "meter", "g": "gram", "s": "second", "L": "liter", "l": "liter", "A": "ampere", "V": "volt", "F": "farad",
    "C": "coulomb", "H": "henry", "W": "watt", "J": "joule", "N": "newton", "T": "tesla", "Pa": "pascal", "Hz": "hertz",
    "mol": "mole", "eV": "electronvolt", "K": "kelvin", "Sv": "sievert", "Bq": "becquerel", "S": "siemens",
    "Ω": "ohm", "Ω": "ohm", "\\Omega": "ohm",
}  # fmt: skip
"""Units that may have a prefix, by their symbol."""

PREFIXED_UNITS = frozenset(prefix + symbol for prefix in SI_PREFIXES for symbol in SI_UNITS if symbol.isascii()) - {
    "pH"
}
"""Symbols of units with their prefixes: mV."""

UNITS: Mapping[str, str] = {
    # The case of a prefix matters: mPa is not MPa. Two small letters are left out: 2 PS is twice a segment.
    **{
        spelling: spelling
        for spelling in (prefix + symbol for prefix in SI_PREFIXES for symbol in SI_UNITS)
        if not spelling.islower() or len(spelling) > 2
        if spelling != "pH"
    },
    **{unit: unit for unit in (*_REGULAR, *_POWERS)},
    **{unit + "s": unit for unit in _REGULAR},
    **{
        spelling: unit
        for unit, names in (*_SPELLINGS, *_ABBREVIATIONS, *_UPRIGHT_ABBREVIATIONS)
        for name in names.split()
        for spelling in (name.lower(), name)
    },
}
"""Units by every spelling."""

_PREFIX_NAMES = ("micro", *SI_PREFIXES.values())

NO_UNIT_WORDS = spelled(
    "is are was if then than more less most least greater fewer and or not when where for with either neither such"
    " that matrix matrices so because since therefore thus hence has have does to from only exactly at about"
    " approximately but"
)
"""Words that no unit has."""

NO_COUNTED_WORDS = NO_UNIT_WORDS | spelled(
    "infinite infinity infinitely many none not no non never nothing nowhere nonexistent dne undefined indeterminate"
    " impossible unknown cannot can't doesn't isn't aren't don't exist exists except excluding without always sometimes"
    " divergent diverges unbounded"
)
"""Words that do not occur in counted nouns: `0.5 infinitely many` are two answers, not an amount."""

NO_NOUNS = spelled("true false yes odd even rational irrational prime composite positive negative")
"""Words that do not end a counted noun: 5 odd numbers are 5, but "5 odd" is a statement about 5."""


def is_unit(word: str) -> bool:
    """Whether a word of two or more letters after a number is certainly a unit, also with a prefix: picovolt."""
    if word in UNIT_ABBREVIATIONS or word in _POWERS:
        return word in UNITS and word not in ENDING_UNITS and word not in _POWERS
    if len(word) < 3:
        return False
    prefix = next((prefix for prefix in _PREFIX_NAMES if word.startswith(prefix)), "")
    return word in UNITS or (bool(prefix) and word[len(prefix) :] in UNITS)


def singular(word: str) -> str:
    """One spelling for a unit or counted noun: `apples` is `apple`, `boxes` is `box`, `kg` is `kilogram`."""
    known = UNITS.get(word) or UNITS.get(word.lower())
    if known is not None:
        return known
    word = word.lower()
    if len(word) > 3 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def powered(unit: str, power: int) -> str:
    """The name of a power of a unit: `square meter`."""
    if power == 1:
        return unit
    return f"square {unit}" if power == 2 else f"cubic {unit}" if power == 3 else f"{unit}^{power}"
