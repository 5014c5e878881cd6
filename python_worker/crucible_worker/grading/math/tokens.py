r"""The tokens of answers: the meaning of commands, characters and words, and of runs of letters.

A token has a kind, which the parser uses, and a value. Kinds of one character are that character; the others have
names. `\dfrac` and `\tfrac` are one kind, as are `\leq`, `\le` and the sign itself: the parser knows one spelling.

Runs of letters are words, names, functions, or products of symbols:

- A run of letters with a mathematical meaning (`sin`, `pi`, `and`) has that meaning; so have `sinx`, `xlnx`.
- After an operand, a run that abbreviates a unit (`cm`) is that unit; alone it is not.
- Two or more capitals are a name: `AB` is one symbol, different from `BA`.
- In upright type (`\text`, `\mathrm`, ...) two or more letters are a word.
- Elsewhere a run is a word if it has four letters or more, one of them a vowel, and is not a stretch of the alphabet
  (`abcd`); if it is a capital and two or more small letters; or if it is one of a few short English words. Every
  other run is a product of symbols: `xy`, `abc`, `Cx`.
"""

# ruff: noqa: RUF001 - these tables are about signs that look like others.

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping

__all__ = [
    "BOXES",
    "CHARACTERS",
    "FIXED",
    "FUNCTIONS",
    "GRAPHIC_TAGS",
    "MAX_LETTERS",
    "NUMBER_SETS",
    "SHORT_WORDS",
    "UPRIGHT_COMMANDS",
    "WIDE_SPACE",
    "WORD_TOKENS",
    "italic_letters",
    "spelled",
    "upright_letters",
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
    ("", "\u200b\u200c\u200d\u2060\u2061\u2062\u2063\ufeff\ufe0f"),
    (" ", "\u00a0\u2002\u2003\u2004\u2005\u2007\u2008\u200a\u3000\u201c\u201d\u00ab\u00bb"),
    ("\\,", "\u2009\u202f"),
    ("-", "\u2010\u2011\u2012\u2013\u2014\u2212\ufe63"),
    ("'", "\u2018\u2019\u2032"),
    ("''", "\u2033"),
    ("/", "÷∕⁄"),
    (",", "，、"),
    (".", "。"),
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


# Runs of letters.


MAX_LETTERS = 24
"""A longer run is always a word."""

_VOWELS = frozenset("aeiouAEIOU")
_ARGUMENTS = frozenset("xyz")


@functools.lru_cache(maxsize=4096)
def upright_letters(run: str) -> tuple[tuple[str, str], ...]:
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
def italic_letters(run: str) -> tuple[tuple[str, str], ...]:
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
