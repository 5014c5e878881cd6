r"""The tokens of answers and the units, with one spelling each: what commands, characters and words mean.

A token has a kind, which the parser uses, and a value. Kinds of one character are that character; the others have
names. `\dfrac` and `\tfrac` are one kind, as are `\leq`, `\le` and the sign itself: the parser knows one spelling.
"""

# ruff: noqa: RUF001 - these tables are about signs that look like others.

from __future__ import annotations

from collections.abc import Iterable, Mapping

from crucible_worker.grading.characters import DASHES

__all__ = [
    "BOXES",
    "CHARACTERS",
    "CUSTOMARY_RATES",
    "ENDING_UNITS",
    "FIXED",
    "FUNCTIONS",
    "GRAPHIC_TAGS",
    "LETTER_UNITS",
    "MAX_UNIT_WORDS",
    "NO_COUNTED_WORDS",
    "NO_NOUNS",
    "NO_UNIT_WORDS",
    "NUMBER_SETS",
    "PREFIXED_UNITS",
    "SHORT_WORDS",
    "SI_PREFIXES",
    "SI_UNITS",
    "UNITS",
    "UNIT_ABBREVIATIONS",
    "UPRIGHT_ABBREVIATIONS",
    "UPRIGHT_COMMANDS",
    "WIDE_SPACE",
    "WORD_TOKENS",
    "is_unit",
    "powered",
    "singular",
    "spelled",
]


def spelled(words: str) -> frozenset[str]:
    """The words of a line; tables here are written as such lines."""
    return frozenset(words.split())


def _named(rows: Iterable[tuple[str, str, str]]) -> dict[str, tuple[str, str]]:
    """Kind and value by name, of rows (kind, value, names); without a value, the name."""
    return {name: (kind, value or name.lstrip("\\")) for kind, value, names in rows for name in names.split()}


_FUNCTION_ROWS = (
    ("function", "", "sin cos tan cot sec csc sinh cosh tanh coth sech csch arcsin arccos arctan arccot arcsec arccsc"),
    ("function", "", "exp ln log gcd lcm min max det abs floor ceil sign re im arg lg inf sup deg"),
    *(("function", "arc" + name, f"a{name}") for name in ("sin", "cos", "tan", "cot")),
    ("function", "tan", "tg"),
    ("function", "cot", "ctg cotg"),
    ("function", "csc", "cosec"),
    ("function", "arctan", "arctg"),
    ("function", "arccot", "arcctg"),
    ("function", "sign", "sgn signum"),
    ("function", "ceil", "ceiling"),
    ("function", "re", "Re"),
    ("function", "im", "Im"),
    ("function", "arg", "Arg"),
)

FUNCTIONS: Mapping[str, str] = {name: value for name, (_, value) in _named(_FUNCTION_ROWS).items()}
"""Function by its spelling in letters."""

_NEVER_BARE = spelled("re im arg sign inf sup deg det tg lg floor ceil ceiling Re Im Arg sgn")

NUMBER_SETS: Mapping[str, str] = {"R": "ℝ", "Z": "ℤ", "N": "ℕ", "Q": "ℚ", "C": "ℂ"}
"""Names of the sets of numbers, as symbols, by the letter in blackboard bold."""

_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron rho sigma tau upsilon phi chi"
    " psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
_GREEK_CHARACTERS = "αβγδεζηθικλμνξορστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"

UPRIGHT_COMMANDS = spelled(
    r"\text \textbf \textit \textrm \textnormal \textsf \texttt \textsc \textup \mbox \hbox \emph \mathrm \mathsf"
    r" \mathtt \operatorname \operatorname* \mathop \mathit \rm \mathbf \boldsymbol \bold"
)
"""Commands whose letters are words: two or more of them are never a product."""

BOXES = spelled(r"\boxed \fbox \framebox")
"""Commands around an answer, or around each of several."""

GRAPHIC_TAGS: tuple[tuple[str, str], ...] = (("<sup>", "^{"), ("</sup>", "}"), ("<sub>", "_{"), ("</sub>", "}"))
"""LaTeX for tags of web pages."""

_NOTHING = (
    r"\left \right \middle \big \Big \bigg \Bigg \bigl \bigr \Bigl \Bigr \biggl \biggr \Biggl \Biggr \bigm \Bigm",
    r"\displaystyle \textstyle \scriptstyle \scriptscriptstyle \limits \nolimits \quad \qquad \enspace \thinspace",
    r"\, \; \: \! \> \( \) \[ \] \hfill \hline \bf \it \cal \sf \tt \normalsize \small \large \Large \LARGE \huge",
    r"\noindent \nonumber \underline \mathcal \mathfrak \mathscr \bm \ensuremath \par \cancel \sout \n",
    r"\null \relax \centering \nobreak \allowbreak \strut \mathstrut \leavevmode \underbrace \overbrace",
    '~ ` " \\',
)
_OPERATOR_ROWS = (
    *(("", "", names) for names in _NOTHING),
    ("*", "*", r"* \cdot \ast \bullet"),
    ("*", "times", r"\times"),
    ("/", "/", r"/ \div"),
    ("^", "^", "^ **"),
    ("'", "'", r"' \prime"),
    ("'", "''", "''"),
    ("%", "%", r"% \%"),
    (":", ":", r": \colon"),
    (",", ",", ","),
    (",", ";", ";"),
    (".", ".", ". ?"),
    ("_", "_", r"_ \_"),
    ("|", "|", r"| \vert \lvert \rvert \Vert \lVert \rVert \|"),
    ("+", "+", "+"),
    ("-", "-", "-"),
    ("!", "!", "!"),
    ("&", "&", "&"),
    ("#", "#", r"# \#"),
    ("plusminus", "+", r"\pm +/-"),
    ("plusminus", "-", r"\mp"),
    ("relation", "=", r"= == := \equiv"),
    ("relation", "!=", r"!= \ne \neq \not="),
    ("relation", "<", r"< \lt"),
    ("relation", ">", r"> \gt"),
    ("relation", "<=", r"<= \le \leq \leqslant \leqq"),
    ("relation", ">=", r">= \ge \geq \geqslant \geqq"),
    ("relation", "approx", r"\approx \simeq \approxeq \thickapprox \doteq"),
    ("relation", "in", r"\in"),
    ("relation", "notin", r"\notin \nin \not\in"),
    ("setop", "union", r"\cup \bigcup \cupdot \sqcup \uplus \dotcup"),
    ("setop", "intersection", r"\cap \bigcap"),
    ("setop", "difference", r"\setminus \smallsetminus \backslash"),
    ("and", "and", r"\&"),
    ("and", "conjunction", r"\land \wedge"),
    ("and", "disjunction", r"\lor \vee"),
    ("such", "|", r"\mid"),
    ("arrow", "->", r"-> \to \rightarrow \longrightarrow \mapsto"),
    ("implies", "=>", r"=> \Rightarrow \implies \Longrightarrow \iff \Leftrightarrow \therefore"),
    ("forall", "forall", r"\forall"),
    ("mod", "mod", r"\bmod \mod"),
    ("pmod", "pmod", r"\pmod"),
    ("row", "row", "\\\\"),
    ("line", "line", r"\newline \linebreak \tabularnewline \break \cr \par"),
    # Signs that are not supported; an unknown command is a symbol.
    ("junk", "", r"\subset \subseteq \subsetneq \supset \supseteq \ni \perp \parallel \sim \cong \nmid \not"),
    ("junk", "", r"\propto \prec \succ \preceq \succeq \oplus \otimes \odot \star \stackrel \overset \underset \oint"),
)
_OPERAND_ROWS = (
    ("function", "", r"\sin \cos \tan \cot \sec \csc \sinh \cosh \tanh \coth \sech \csch \arcsin \arccos \arctan"),
    ("function", "", r"\arccot \arcsec \arccsc \exp \ln \log \lg \gcd \lcm \min \max \det \arg \sup \inf \deg"),
    *(("function", FUNCTIONS[name], "\\" + name) for name in ("Re", "Im", "tg", "ctg", "arctg", "arcctg", "sgn")),
    ("mark", "", r"\vec \hat \widehat \tilde \widetilde \dot \ddot \overrightarrow \overleftrightarrow \wideparen"),
    ("letter", "", " ".join("\\" + name for name in _GREEK.split()) + r" \ell \partial"),
    *(("letter", name, "\\var" + name) for name in ("epsilon", "theta", "rho", "sigma", "phi", "kappa")),
    *(("letter", NUMBER_SETS[name], "\\" + name) for name in "RZNQ"),
    ("letter", "i", r"\imath"),
    ("constant", "", r"\pi"),
    ("constant", "infinity", r"\infty"),
    ("circ", "degree", r"\circ"),
    ("degree", "degree", r"\degree \textdegree \textcirc"),
    ("upright", "Å", r"\AA \angstrom"),
    ("dots", "...", r"... \ldots \cdots \dots \dotsc \dotsb \dotsm \vdots \ddots"),
    ("frac", "frac", r"\frac \dfrac \tfrac \cfrac \nicefrac \sfrac"),
    ("binom", "binom", r"\binom \dbinom \tbinom"),
    ("sqrt", "sqrt", r"\sqrt"),
    ("choose", "choose", r"\choose"),
    ("over", "over", r"\over"),
    ("series", "sum", r"\sum"),
    ("series", "product", r"\prod"),
    ("integral", "integral", r"\int"),
    ("limit", "limit", r"\lim"),
    ("overline", "overline", r"\overline \bar"),
    ("angle", "angle", r"\angle \measuredangle"),
    ("angle", "triangle", r"\triangle"),
    ("mathbb", "mathbb", r"\mathbb \Bbb"),
    ("emptyset", "emptyset", r"\emptyset \varnothing"),
    ("currency", "dollar", r"\$ \textdollar US$ US\$"),
    ("currency", "pound", r"\pounds"),
    ("currency", "euro", r"\euro"),
    ("currency", "yen", r"\yen"),
    ("currency", "rupee", "Rs."),
    ("(", "(", r"\lparen"),
    (")", ")", r"\rparen"),
    ("[", "[", r"\lbrack"),
    ("]", "]", r"\rbrack"),
    ("set{", "{", r"\lbrace"),
    ("set}", "}", r"\rbrace"),
    ("angle(", "<", r"\langle"),
    ("angle)", ">", r"\rangle"),
    ("floor(", "floor", r"\lfloor"),
    ("floor)", "floor", r"\rfloor"),
    ("ceil(", "ceil", r"\lceil"),
    ("ceil)", "ceil", r"\rceil"),
)

FIXED: Mapping[str, tuple[str, str]] = _named((*_OPERATOR_ROWS, *_OPERAND_ROWS))
"""Kind and value of every token that is always the same; no kind if it has no meaning."""

_CHARACTER_ROWS = (
    ("", "\u200b\u200c\u200d\u200e\u200f\u061c\u2060\u2061\u2062\u2063\ufeff\ufe0f"),
    (" ", "\u00a0\u2002\u2003\u2004\u2005\u2007\u2008\u200a\u3000\u201c\u201d\u00ab\u00bb"),
    ("\\,", "\u2009\u202f"),
    ("-", DASHES),
    ("'", "\u2018\u2019\u2032"),
    ("''", "\u2033"),
    ("/", "÷∕⁄"),
    (",", "，、\u060c"),
    (".", "。\u0964\u0965\u06d4"),
    ("|", "∣"),
    ("...", "…⋯"),
    ("\\pi ", "π𝜋"),
    ("\\cdot ", "·∙⋅•"),
    ("\\times ", "×✕"),
    ("\\pm ", "±"),
    ("\\mp ", "∓"),
    ("\\le ", "≤⩽≦"),
    ("\\ge ", "≥⩾≧"),
    ("\\ne ", "≠"),
    ("\\approx ", "≈"),
    ("\\equiv ", "≡"),
    ("\\in ", "∈"),
    ("\\notin ", "∉"),
    ("\\cup ", "∪"),
    ("\\cap ", "∩"),
    ("\\setminus ", "∖"),
    ("\\emptyset ", "∅"),
    ("\\infty ", "∞"),
    ("^\\circ ", "°˚º"),
    ("^\\circ\\mathrm{C}", "℃"),
    ("^\\circ\\mathrm{F}", "℉"),
    ("\\sqrt ", "√"),
    ("\\sqrt[3]", "∛"),
    ("\\sqrt[4]", "∜"),
    ("\\sum ", "∑"),
    ("\\prod ", "∏"),
    ("\\int ", "∫"),
    ("\\to ", "→"),
    ("\\implies ", "⇒"),
    ("\\forall ", "∀"),
    ("\\land ", "∧"),
    ("\\lor ", "∨"),
    ("\\angle ", "∠"),
    ("\\triangle ", "△"),
    ("\\lfloor ", "⌊"),
    ("\\rfloor ", "⌋"),
    ("\\lceil ", "⌈"),
    ("\\rceil ", "⌉"),
    ("\\langle ", "⟨"),
    ("\\rangle ", "⟩"),
    ("\\euro ", "€"),
    ("\\pounds ", "£"),
    ("\\yen ", "¥￥"),
    ("Rs.", "₹"),
    ("\\text{ cent}", "¢"),
    ("\\phi ", "ϕ"),
    ("\\epsilon ", "ϵ"),
    *((f"\\{name} ", sign) for name, sign in zip("RZNQ", "ℝℤℕℚ", strict=True)),
    *((f"\\{name} ", sign) for name, sign in zip(_GREEK.split(), _GREEK_CHARACTERS, strict=True)),
    *(
        (f"\\frac{{{above}}}{{{below}}}", sign)
        for above, below, sign in zip("112131234151357", "233445555668888", "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞", strict=True)
    ),
)

CHARACTERS: Mapping[int, str] = {
    **{0xFF01 + offset: chr(0x21 + offset) for offset in range(94)},  # full width
    **{ord(sign): written for written, signs in _CHARACTER_ROWS for sign in signs},
}
"""LaTeX for characters outside ASCII."""

WORD_TOKENS: Mapping[str, tuple[str, str]] = {
    **{name: ("function", value) for name, value in FUNCTIONS.items() if name not in _NEVER_BARE},
    **{name: ("letter", name) for name in _GREEK.split() if len(name) > 3 or name in ("phi", "rho", "tau", "psi")},
    **_named(
        (
            ("constant", "", "pi infinity"),
            ("constant", "infinity", "inf"),
            ("sqrt", "sqrt", "sqrt"),
            ("cbrt", "cbrt", "cbrt"),
            ("and", "", "and or"),
            ("mod", "mod", "mod modulo"),
            ("+", "+", "plus"),
            ("-", "-", "minus"),
            ("*", "*", "times"),
            ("%", "%", "percent percents percentage pct"),
            ("degree", "degree", "degree degrees"),
            ("currency", "rupee", "Rs"),
            ("setop", "union", "union"),
            ("emptyset", "emptyset", "emptyset"),
        )
    ),
}
"""Words with a mathematical meaning, by their spelling."""

SHORT_WORDS = spelled(
    "are the of to for yes not all any odd one two six ten has was can its who how why per day days way ways let you"
    " she his her they from with into out off but nan no"
    " red men man boy cat dog pen egg car cup bag box hat toy pie bus key cow pig hen old new big"
)
"""English words of two and three letters; not `at`, `by`, `it`, which are products in `at^2`, `ax + by`, `e^{it}`."""


WIDE_SPACE = (
    r"\\hspace\*?\{ ?(?:[1-9][0-9]?(?:\.[0-9]{1,2})? ?(?:cm|em|in)|0?\.[3-9][0-9]? ?(?:cm|in)"
    r"|[1-9][0-9](?:\.[0-9]{1,2})? ?(?:pt|mm|ex|mu)|[5-9] ?mm) ?\}"
)
"""The expression of a space that divides like `\\quad`; a smaller one is a blank."""


# Units, in the singular and in full: `square centimeter`, `mile per hour`, `meter per square second`.
#
# Nothing is converted here.

MAX_UNIT_WORDS = 4
"""Words of a unit that is in no table: `17 red apples`."""

LETTER_UNITS: Mapping[str, str] = {
    "m": "meter", "s": "second", "g": "gram", "h": "hour", "L": "liter", "l": "liter", "N": "newton", "J": "joule",
    "W": "watt", "V": "volt", "A": "ampere", "K": "kelvin", "C": "coulomb", "F": "farad", "T": "tesla",
    "Omega": "ohm", "Å": "angstrom",
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
    " yuan peso rouble franc nickel dime quarter coin percent point erg dyne angstrom parsec torr arcsecond arcminute"
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
    ("angstrom", "Å ångström ångströms"),
    ("gauss", "gauss"),
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
    ("erg", "erg ergs"),
    ("dyne", "dyn"),
    ("arcsecond", "arcsec"),
    ("arcminute", "arcmin"),
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
    ("astronomical unit", "AU"),
    ("parsec", "pc"),
    ("kiloparsec", "kpc"),
    ("megaparsec", "Mpc"),
    ("gigaparsec", "Gpc"),
)
UPRIGHT_ABBREVIATIONS = frozenset(name for _, names in _UPRIGHT_ABBREVIATIONS for name in names.split()) - {"cu"}
"""Abbreviations that are a unit also after a blank, if nothing else can be meant: `5 mi`."""

ENDING_UNITS = frozenset({"in", "min", "sec", "arcsec"})
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
    " divergent diverges unbounded doubled tripled quadrupled halved par"
    " binary octal hexadecimal mille thou zillion zillions gazillion"
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
