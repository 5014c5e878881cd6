"""What the text around an answer does to it: joins it to others, rules it out, takes it back, or adds a condition.

Nothing is understood: expressions with bounded reach are matched directly before and after an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from crucible_worker.grading.math.tokens import spelled
from crucible_worker.grading.numbers import Numeral
from crucible_worker.grading.scope import SCOPE_REACH, is_hedged, mention

__all__ = [
    "MAX_BETWEEN",
    "MAX_CONDITION",
    "MAX_JOINED",
    "MAX_RULED_OUT",
    "NAME",
    "REACH",
    "before_condition",
    "is_condition",
    "is_retracted",
    "is_said_of_extreme",
    "kind_of",
    "link",
    "name_before",
    "named",
    "number_ruled_out",
    "numbers_joined",
    "rejected",
    "retraction_at",
    "ruled_out_in_line",
    "says_where",
    "tied_number",
    "together",
    "with_conjunctions",
    "with_joints",
    "without_condition",
    "written",
]

# Which answers of a text form one answer together, and how it is written.
#
# Answers in one sentence with a comma, "and", "or", white space or nothing else between them are one list: `\boxed{8}
# and \boxed{4}` is `8 and 4`. A unit may follow an answer, and a name may precede it: `$3$ cm and $4$ cm`, `$x =
# \boxed{3}$, $y = \boxed{4}$`. Any other word divides ("..., no, ...", "... so ..."), as does a full stop: then the
# last answer is the answer. Work is bounded: longer texts between two answers divide them without being read.
#
# A conjunction of several words, such as "as well as", joins like "and" and "or": `with_conjunctions` writes these.

# Conjunctions of several words between two answers, which join them like "and" and "or".

_AND = ("as well as", "and also", "together with", "along with", "in addition to")
_OR = ("or else", "or perhaps", "or possibly", "or maybe")
_ALL = (*_AND, *_OR)
# Mathematics follows: a number, a delimiter, a sign, a command, or a letter followed by a relation. What precedes is
# checked after the first character, because an expression that begins with a set of characters is searched faster.
_CONJUNCTION = re.compile(
    r"[, \n](?:(?<=[^\s,;],)[ \n]|(?<=[^\s,;][ \n]))"
    rf"(?:(?P<both>{'|'.join(_AND)})|(?:{'|'.join(_OR)}))[ \n]"
    r"(?=[-+\u2212$\\(\[{0-9\u221a\u03c0*]|[A-Za-z](?:_\w)?\s?[=<>])"
)


def with_conjunctions(text: str) -> str:
    """A text with "and" or "or" for each conjunction of several words before mathematics. Linear."""
    for conjunction in _ALL:
        if conjunction in text:
            return _CONJUNCTION.sub(lambda found: " and " if found["both"] else " or ", text)
    return text


# Chinese conjunctions and commas between two answers.

_CHINESE_JOINTS = {
    "或": " or ",
    "或者": " or ",
    "和": " and ",
    "与": " and ",
    "以及": " and ",
    "、": ", ",
    "\uff0c": ", ",
    "\uff1b": "; ",
}
_CHINESE_JOINT = re.compile("或者|以及|[或和与、\uff0c\uff1b]")


def with_joints(text: str) -> str:
    """A text with Chinese conjunctions and commas in English: the joints between two answers."""
    return text if text.isascii() else _CHINESE_JOINT.sub(lambda found: _CHINESE_JOINTS[found[0]], text)


MAX_JOINED = 32
"""Answers that may form one answer: the last ones of a text."""
MAX_BETWEEN = 80
"""Characters between two of them."""

_MARKUP = re.compile(
    r"\\(?:text(?:bf|it|rm)?|mathrm|mathbf|q?quad)(?![A-Za-z])|\\[()\[\],;:! \\]|\\n(?![A-Za-z])|[${}*&~]"
    r"|</?[A-Za-z][A-Za-z_ -]{0,15}>|<\|[A-Za-z_]{1,20}\|>"
)
# The start of a line of a list: a bullet, or a letter or number.
_BULLET = re.compile(r"\n\s*+(?:[-+\u2022]\s|\(?[A-Za-z0-9][.)]\s)|\([a-h]\)")
NAME = r"[A-Za-z](?:_(?:\w|\{\w{1,3}\}))?'{0,2}(?:\([a-z]\))?"
"""Expression of a name before a sign of equality: `x`, `x_1`, `f'(x)`."""
_NAMED = re.compile(rf"{NAME}\s*(?:[=:]|(?<=\s)is(?!\w))")
_NAME_BEFORE = re.compile(rf"(?<![\w\\])({NAME})\s*&?\s*=\s*(?:\\?\$|\\[(\[]|\s)*\Z")
_STARTS_WITH_NAME = re.compile(rf"({NAME}|\([a-z](?:, ?[a-z])+\))\s*&?\s*=(?!=)")
# Commands that change only the look of an answer, such as the size of a fraction.
_TYPE = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])(?![A-Za-z])|(?<=\\)(?:[dtcs]|nice)(?=frac)|[\s{}$]")
_THOUSANDS = re.compile(r"-?[0-9]{1,3}(?>(?:,[0-9]{3})+)(?:\.[0-9]++)?")
_INEQUALITY = re.compile(r"[<>\u2264\u2265\u2260]|\\(?:[lg](?:eq?|t)|neq?)(?![A-Za-z])")
_COMMAND = re.compile(r"\\(?:text|mathrm)\s?\{[^{}]*+\}|\\[A-Za-z]++")
_VARIABLE = re.compile(r"[A-Za-df-hj-z]|(?<![A-Za-z])e(?![\^A-Za-z])")
_JOINT = re.compile(r"[,;]|(?:and|or)(?!\w)")
_NOUN = re.compile(r"\\?%|\^?\\circ|\u00b0|[^\W\d_]+")
_COUNTED = re.compile(r"\s?(?P<noun>[^\W\d_]{1,20})")
_NUMBER_JOINT = re.compile(
    r"(?:\s?(?P<noun>(?!(?:and|or)\b)[^\W\d_]{1,20}))?\s?(?:,\s?(?P<more>and\b|or\b)?|\s(?P<word>and|or))\s?\\?\$?"
)
_ANNOUNCES = re.compile(r"(?:\b(?:are|were|be)|:)\s+\\?\$?\Z", re.IGNORECASE)
_MAX_NAME = 24
# Text before a number that makes it a part of something else: "2 followed by", "2 if n is odd, otherwise".
_TIED = re.compile(
    r"(?<![\w.])(?:[0-9][0-9.,/]{0,20}\s(?:followed by|plus|minus|times|over|divided by|through)"
    r"|[0-9][0-9.,/]{0,20},?\s(?:if|when|for)\s[^.;\n0-9]{1,60}\s(?:otherwise|else)"
    r"|first\s[0-9][0-9.,/]{0,20},?\ssecond"
    r"|(?:zero|one|two|three|four|five|six|seven|eight|nine)\spoint),?\s\Z",
    re.IGNORECASE,
)
_MAX_TIE = 100
# Operators between two formulas of one line join them into one; on the next line they are bullets.
_OPERATORS_IN_WORDS = ("to", "through", "plus", "minus", "times", "over", "divided by", "followed by")
_OPERATOR = re.compile(rf"[ ]?(?:([-+/*\u2212\u2013])|({'|'.join(_OPERATORS_IN_WORDS)})(?!\w))[ ]?")
OPERATORS = frozenset({"-", "+", "/", "*", *_OPERATORS_IN_WORDS})
"""Links that join answers into one expression, not a list: `\\boxed{2} to \\boxed{3}`."""
# If one of these follows an answer, the next answer corrects it, follows from it, or answers something else.
_DIVIDERS = spelled(
    "no not nor but wait hmm oops sorry actually rather instead wrong incorrect false mistake correction corrected"
    " correct right checking check really maybe perhaps probably initially first firstly so thus hence therefore then"
    " now finally final answer result is are was were be gives give giving equals means implies becomes since because"
    " as when where if at by with from to into than which that this it i we you he she they again recheck"
    " rechecking later earlier before after once simplified simplifies rounded approximately about namely ie"
)


def link(between: str) -> str | None:
    """The link between two answers with a text between them; None if they are not linked.

    It is ",", "and", "or", "" for white space, or one of `OPERATORS`.
    """
    if len(between) > MAX_BETWEEN:
        return None
    if operator := _OPERATOR.fullmatch(between):
        return "-" if operator[1] in ("\u2212", "\u2013") else operator[1] or operator[2]
    rest = _MARKUP.sub(" ", _BULLET.sub(" ", with_joints(between))).strip()
    nouns: list[str] = []
    while rest and not _JOINT.match(rest) and (noun := _NOUN.match(rest)) and not _NAMED.match(rest):
        nouns.append(noun[0])
        rest = rest[noun.end() :].lstrip()
    joints: list[str] = []
    while joint := _JOINT.match(rest):
        joints.append(joint[0])
        rest = rest[joint.end() :].lstrip()
    if rest and not _NAMED.fullmatch(rest):
        return None
    in_words = [joint for joint in joints if joint.isalpha()]
    if nouns and not (joints and _is_unit(nouns, 2 if in_words else 1)):
        return None
    return in_words[-1] if in_words else "," if joints else ""


def _is_unit(nouns: Sequence[str], most: int) -> bool:
    return len(nouns) <= most and not any(noun.lower() in _DIVIDERS or noun.endswith("ly") for noun in nouns)


def name_before(text: str, start: int) -> str:
    r"""The name at the beginning of an answer: `y` of `y = \boxed{4}`; empty without one."""
    match = _NAME_BEFORE.search(text[max(0, start - _MAX_NAME) : start])
    return match[1] if match else ""


def numbers_joined(text: str, numbers: Sequence[Numeral]) -> str:
    """The last of some numbers of a text, with those that it is joined to: "10, 12" of "either 10 or 12".

    There must be "and" or "or" before the last one, or a verb or colon before the first: in "in 2010, 50 people" only
    the last one is the answer. The counted noun may follow each number, if it is the same.
    """
    last = numbers[-1]
    noun = _COUNTED.match(text, last.start + len(last.text))
    first, words = len(numbers) - 1, ""
    while first > 0:
        before = numbers[first - 1]
        between = text[before.start + len(before.text) : numbers[first].start]
        joint = _NUMBER_JOINT.fullmatch(between) if len(between) <= MAX_BETWEEN else None
        if joint is None or (joint["noun"] and not (noun and noun["noun"] == joint["noun"])):
            break
        words = words or joint["word"] or joint["more"] or ","
        first -= 1
    listed = numbers[first:]
    if words in ("", ",") and not _ANNOUNCES.search(text[max(0, listed[0].start - _MAX_NAME) : listed[0].start]):
        return last.text
    return (" or " if words == "or" else ", ").join(number.text for number in listed)


def tied_number(text: str, number: Numeral) -> str:
    """A number with the expression that it is part of, "2 followed by 3"; empty if it is not part of one."""
    tie = _TIED.search(text, max(0, number.start - _MAX_TIE), number.start)
    return text[tie.start() : number.start] + number.text if tie else ""


def together(earlier: str, later: str, how: str) -> bool:
    r"""Whether two formulas that follow each other are two answers, and not steps of one computation.

    Both are values, or both are equations for a name: in `2x = 6`, `x = 3` the second follows from the first, as it
    does in `A = \pi r^2`, `A = 9 \pi`. Words may also join `x = 2` or `3`, and equations of another form.
    On separate lines there are steps as often as answers: there, both must be without letters, or name the same thing.

    Args:
        earlier: a formula.
        later: the one after it.
        how: their link.
    """
    kind, kind_later = kind_of(earlier), kind_of(later)
    if how in OPERATORS:
        return kind == kind_later == "value"
    if how == "or" and "equation" not in (kind, kind_later):
        return True  # x = 3 or x > 5
    if how in ("and", "or"):
        return kind == kind_later or (kind, kind_later) == ("name", "value")
    constant, constant_later = _is_constant(earlier), _is_constant(later)
    if how == "," and (kind, kind_later) == ("name", "value"):
        return constant and constant_later
    if kind != kind_later or kind == "equation":
        return False
    if how == ",":
        return kind != "name" or constant == constant_later or all("(" in _name(one) for one in (earlier, later))
    return constant and constant_later and (kind == "value" or _name(earlier) == _name(later))


def named(answer: str) -> bool:
    """Whether an answer is the value of a name, `x = 3`, without letters in it."""
    return kind_of(answer) == "name" and _is_constant(answer)


def kind_of(answer: str) -> str:
    """The kind of a formula: "name" for an equation for a name, another "equation", "inequality", or "value"."""
    if _STARTS_WITH_NAME.match(answer):
        return "name"
    if "=" in answer:
        return "equation"
    return "inequality" if _INEQUALITY.search(answer) else "value"


def _name(answer: str) -> str:
    match = _STARTS_WITH_NAME.match(answer)
    return "".join(match[1].split()) if match else ""


def _is_constant(answer: str) -> bool:
    """Whether an answer has no variables, except the name whose value it is."""
    match = _STARTS_WITH_NAME.match(answer)
    return _VARIABLE.search(_COMMAND.sub(" ", answer[match.end() :] if match else answer)) is None


def written(answers: Sequence[str], links: Sequence[str]) -> str:
    """Answers in their order, each with the next by its link, as one list; equal ones in a row are one.

    "and" only divides lists: between inequalities it would mean that both hold at once.

    Args:
        answers: one or more.
        links: one less, as `link` gives them; "" is a comma.
    """
    nested = any("," in answer for answer in answers)
    said = [answers[0]]
    for before, how, answer in zip(answers, links, answers[1:], strict=False):
        if how in OPERATORS or not _alike(before, answer):
            in_full = how in OPERATORS or how == "or" or (how == "and" and nested)
            said += [f" {how} " if in_full else ", ", answer]
    return "".join(said)


def _alike(answer: str, other: str) -> bool:
    """Whether two answers have the same text, except typography, blanks, and a name that one of them may have."""
    names = {_name(answer), _name(other)}
    return len(names | {""}) <= 2 and _plain(answer) == _plain(other)


def _plain(answer: str) -> str:
    match = _STARTS_WITH_NAME.match(answer)
    plain = _TYPE.sub("", answer[match.end() :] if match else answer)
    return plain.replace(",", "") if _THOUSANDS.fullmatch(plain) else plain


# Whether a text names a choice only to rule it out: "not A", "anything but A", "A is wrong".
#
# Only a choice's own clause is examined, a few words on either side. Nothing is understood: a word of the lists below
# next to the choice is enough, but not with a verb, a comma or a "but" between them.

REACH = 60
"""Characters on either side of a choice in which it may be ruled out."""
MAX_RULED_OUT = 8
"""Answers at the end of a text that may be ruled out ("it is not 5") before an earlier one is the answer."""

# Words of these lists begin at the start of a word, except those of the second list: this is checked once, first.
_NOT = r"(?:not|cannot|never|neither|nor|nicht|keine?|pas|no es|\u043d\u0435|não é|non è)"
_NOT_IN_WORDS = r"(?:n\s?['\u2019]\s?t|不是|不为|不等于|並非|并非)"
_OTHER_THAN = (
    r"(?:except(?: for)?|excluding|without|other than|rather than|instead of|rules? out|ruled out|eliminated?"
    r"|(?:any|every)(?:thing|one)? but|all but|(?:reject|discard|dismiss)(?:s|ed|ing|es)?)"
)
_VERB = r"(?:is|are|was|were|be|has|have|had|so|but|because|since)"
_GAP = r"(?:\\text(?:bf|it|rm)?\s?\{|[\s\"'\u201c\u2018(*$\\}~]){0,8}"
# Three words may be in between: "not the second choice, A", but "not a mammal is A" rules nothing out.
_WORDS = rf"(?:\s+(?!{_VERB}\b)\w{{1,12}}){{0,3}}"
# "if option A is correct" does not name A.
_IF = r"(?:(?<!only\s)if|whether|unless|suppos(?:e|ing)|assum(?:e|ing))"
_SUPPOSED = rf"{_IF}(?:\s+(?:that|the|an?|option|choice|answer|statement)){{0,3}}"
# The rejected value may be the end of an equation or a ratio: "not x = 5", "not 2 : 3".
_FIRST_PART = r"(?:(?:[A-Za-z]\w{0,2}(?:\([a-z0-9]\))?\s?=|[0-9]{1,9}\s?:)\s?)?"
_BE = r"(?:\s+(?:possibly|ever|really|actually))?(?:\s+(?:(?:to\s+)?be|have\s+been)\b)?"
_BETWEEN = rf"{_WORDS}{_GAP}{_FIRST_PART}"
_BEFORE = re.compile(
    rf"(?:\b(?:(?:{_NOT}{_BE}|{_OTHER_THAN}){_BETWEEN}|{_SUPPOSED}{_GAP})|{_NOT_IN_WORDS}{_BE}{_BETWEEN}"
    rf"|\bno\s?\}}{_GAP})\Z",
    re.IGNORECASE,
)
# Every such word contains one of these: most texts have none.
_MAY_BE_BEFORE = re.compile(
    r"no|n\s?['\u2019]\s?t|never|neither|nicht|kein|pas|\u043d\u0435|n\u00e3o|\u4e0d|[\u5e76\u4e26]\u975e"
    r"|excep|exclud|without|other|rather|instead|rule|elimin|reject|discard|dismiss|but|if|whether|unless|suppos|assum",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"[\s\"'\u201d\u2019)*$\\]{0,8}"
    r"(?:(?:nor\s+\w{1,12}\s+)?(?:(?:is|are|was|were|can|could|would|should|must)\s*(?:not\b|n\s?['\u2019]\s?t\b)"
    r"|cannot\b"
    r"|(?:is|are|was|were|(?:must|would|could|might|may|can|should|will)\s+be|seems|looks)\s+"
    r"(?:(?:also|clearly|definitely|simply|therefore|thus|very|most|rather)\s+)?"
    r"(?:wrong|incorrect|false|out\b|ruled\s+out|eliminated|excluded|impossible|rejected|discarded|inadmissible"
    r"|(?:highly\s+)?(?:unlikely|improbable|implausible|doubtful)|a\s+(?:(?:common|typical)\s+)?mistake"
    r"|(?:an?\s+)?(?:extraneous|spurious|invalid)))|isn\s?['\u2019]\s?t\b"
    r"|(?:does\s+not|doesn\s?['\u2019]\s?t|do\s+not|don\s?['\u2019]\s?t|did\s+not|fails?\s+to)\s+(?:also\s+)?(?:satisfy|work\b|solve|fit\b)|(?:violates|contradicts)\b"
    r"|fails?\s+(?:the|this|that|our|its)\s+(?:check|test|equation|condition|constraint)"
    r"|(?:では|じゃ)(?:ない|ありま|なく)|(?:だ|で)?とは(?:思わ|思いま|考え|言え|限ら)|[가이] ?아[니닙]"
    r"|(?:이?라고|[은는]) ?(?:생각하지|보지|말할 수 없)|不正确|不对|是错)",
    re.IGNORECASE,
)


# Text that takes the preceding answer back: "is wrong", ", which is wrong", ". No, that is not right."
_QUALIFIED = (
    r"(?:(?:also|clearly|definitely|obviously|actually|certainly|simply|still|however|indeed|just|in fact)\s+){0,2}"
)
_RIGHT = r"(?:right|correct|valid|(?:the\s+)?(?:(?:right|correct|final|actual|true)\s+)?(?:answer|solution|result))"
_WRONG = (
    rf"(?:(?:is|was|are|were|seems|looks|['\u2019]s)\s+{_QUALIFIED}(?:wrong|incorrect|mistaken|erroneous|a\s+mistake"
    rf"|an\s+error|not\s+{_RIGHT})|(?:is|was)\s?n\s?['\u2019]\s?t\s+{_RIGHT})"
)
_EXCLAMATION = r"(?:(?:no|wait|hmm|oops|sorry|actually|but|however|well|unfortunately)\b[\s,.!:\u2014-]{0,4}){0,3}"
_POINTED = (
    r"(?:that|this|it|(?:the|my)\s(?:(?:above|previous|first|last|initial)\s)?(?:answer|result|value)(?:\sabove)?)"
)
_RETRACTION = re.compile(
    r"(?:\s{0,2}(?:```|~~~)\s{0,2})?[ \t*_`$\"'\u201d\u2019)\]}\\]{0,12}"
    rf"(?:{_WRONG}|,?\s{{0,2}}(?:which|(?:but|and)\s(?:that|this|it))\s?{_WRONG}"
    rf"|[\s.,;:!\u2014\u2013-]{{0,6}}{_EXCLAMATION}(?:{_POINTED}\s?{_WRONG}|(?:wrong|incorrect)\s?[.!]"
    r"|(?:which|but)\sI\s(?:(?:now|hereby|must)\s)?(?:retract|withdraw|take\sback)"
    r"|I\s(?:made|see|notice|found)\s(?:a|an|my)\s(?:mistake|error))"
    r"|[\s\u3002\uff0c,.]{0,4}(?:[这這]?是?(?:错误?的|錯誤?的|错了|錯了|不对|不對|不正确|不正確)))"
    r"(?![\w-])(?!\s(?:if|unless|when|only|to|about|for|in|of)\b)(?![^.!?\n]{0,80}\?)",
    re.IGNORECASE,
)
# The only text that most responses have after their box.
_AFTER_BOX = " \n.$\\])}"
# Every text that takes an answer back has one of these.
_SAYS_WRONG = (
    *(
        "wrong",
        "Wrong",
        "ncorrect",
        "retract",
        "withdraw",
        "take back",
        "mistake",
        "error",
        "rroneous",
        "\u9519",
        "\u932f",
        "\u4e0d\u5bf9",
        "\u4e0d\u5c0d",
        "\u4e0d\u6b63",
    ),
    *("not right", "not correct", "not valid", "not the", "not answer", "sn't", "sn\u2019t", "n \u2019", "n '"),
)

# "no solution other than 3" names 3.
_NONE_BUT = re.compile(
    r"\b(?:no|none|nothing|never|not|n['\u2019]t)\b[^.;\n]{0,50}\b(?:other than|except(?: for)?|but|besides)\W{0,8}"
    r"(?:\w\W{1,8}=\s?)?\Z",
    re.IGNORECASE,
)


# Values before another one in a list: "$3$, $" and "3, 4 or ".
_LISTED = re.compile(
    r"(?:\$[^$\n]{1,20}\$\s?(?:,\s?(?:(?:and|or|nor)\s)?|(?:and|or|nor)\s)"
    r"|(?:-?[0-9][0-9./]{0,11},\s){0,8}-?[0-9][0-9./]{0,11},?\s(?:and|or|nor)\s){1,8}"
    r"\\?\$?\Z"
)


def number_ruled_out(text: str, start: int, end: int) -> bool:
    """Whether a number is ruled out, or the first value of its list, or the formula that contains it."""
    if ruled_out_in_line(text, start, end):
        return True
    before = text[max(0, start - REACH) : start].rstrip("\\$")
    ends = before.rstrip().endswith((",", "and", "or"))
    match = _LISTED.search(text, max(0, start - REACH), start) if ends else None
    if match and ruled_out_in_line(text, match.start(), end):
        return True
    opening, closing = text.rfind("$", max(0, start - REACH), start), text.find("$", end, end + REACH)
    return opening >= 0 and closing >= 0 and ruled_out_in_line(text, opening, closing + 1)


def rejected(before: str, behind: str) -> bool:
    """Whether the text around a choice rules it out, or only mentions it. Bounded work on each side."""
    if _AFTER.match(behind[:REACH]):
        return True
    near = before[-REACH:]
    if _MAY_BE_BEFORE.search(near) is not None and _BEFORE.search(near) is not None:
        return True
    return mention(before, len(before)) >= 0


def ruled_out_in_line(text: str, start: int, end: int) -> bool:
    """Whether the text around a part of a text, on its line, rules it out."""
    before = text[max(0, start - SCOPE_REACH) : start].rpartition("\n")[2]
    if _NONE_BUT.search(before[-REACH:]):
        return False
    behind = text[end : end + REACH].partition("\n")[0]
    return rejected(before, behind) or retraction_at(text, end) is not None or is_hedged(text, end)


def is_retracted(text: str) -> bool:
    """Whether a text may take an answer back: it has words for it."""
    return bool(text.strip(_AFTER_BOX)) and any(word in text for word in _SAYS_WRONG)


def retraction_at(text: str, end: int) -> re.Match[str] | None:
    """The text that takes back an answer with this end; None if there is none. Bounded work."""
    return _RETRACTION.match(text, end)


# Conditions after an answer, which are not part of it: "5, attained at x = 2", "x^2, where x is real".
#
# A condition begins with a word that introduces one ("at", "when", "for", "given that", "by substituting"). Before it
# there may be the consequence ("equality occurs when"); a separate sentence must refer back ("It is attained at").
# Words that introduce other things as well ("with", "as", "since") need a relation after them.

MAX_CONDITION = 200
"""Characters at the end of a sentence in which a condition is looked for."""

_EXTREME = (
    r"(?:minimum|maximum|min|max|minima|maxima|extremum|extreme|infimum|supremum|least|greatest|largest|smallest)"
)
_ABOUT = (
    rf"(?>(?:(?:and|which|this|it|that|is|are|being|the|{_EXTREME}|value|bound|equality"
    rf"|with(?=\s+(?:equality|(?:the\s+)?{_EXTREME}))|we\s+have(?=\s+equality))\s+){{0,6}})"
)
_ATTAINED = r"attained|achieved|reached|obtained|assumed|taken|occurs|occurring|happens|happening"
_HOLDS = rf"(?:(?:{_ATTAINED}|valid|holds?|holding|true)\s+(?:(?:only|exactly|precisely)\s+)?)?"
_FOR = (
    r"(?:at|when|whenever|for|if|iff|where|provided(?:\s+that)?|as\s+long\s+as|in\s+(?:the\s+)?case(?:\s+(?:of|that))?)"
)
_INSERTING = (
    r"(?:(?:by|on|upon|after|when)\s+)?(?:substituting|inserting|setting|taking|putting|letting|choosing"
    r"|plugging\s+in)"
)
# These introduce a condition only if a relation follows.
_WITH = (
    rf"(?:given(?:\s+that)?|assuming(?:\s+that)?|supposing(?:\s+that)?|since|because|while|unless|using|with"
    rf"|{_INSERTING}"
    r"|under\s+the\s+(?:condition|assumption|constraint|restriction)s?(?:\s+(?:that|of))?"
    r"|subject\s+to(?:\s+the\s+(?:condition|constraint)s?)?)"
)
_OVER = (
    r"(?>(?:\s+(?:all|any|every|each|some|both|the|a|an|points?|real|integers?|positive|nonnegative|negative|natural"
    r"|numbers?|values?|constants?|arbitrary|fixed|given|exactly|two|three|of|only|and|if))*)"
)
_INTRODUCED = (
    rf"(?:(?P<plain>{_FOR})|(?P<weak>{_WITH})|(?P<tends>as)|(?P<within>on|over|in)(?:\s+the\s+(?:interval|domain"
    rf"|range))?)"
    rf"(?!\w){_OVER}"
)
# A sentence about the conditions of what precedes.
_IS_REACHED = rf"(?:(?:is|are|was)\s+)?(?:{_ATTAINED})\s+(?:(?:only|exactly|precisely)\s+)?"
_BACK = (
    rf"(?:(?:it|this|that|(?P<noun>(?:the|this|that)\s+(?:{_EXTREME}\s+)?(?:value|{_EXTREME}|bound))"
    rf"|(?:the\s+)?equality)"
    rf"\s+{_IS_REACHED}"
    r"|(?:and\s+)?(?:we\s+have\s+)?(?:the\s+)?equality\s+(?:(?:holds|occurs)\s+)?(?:(?:only|exactly)\s+)?)"
)
_SENTENCE = rf"[*_)]{{0,4}}[.;:][*_]{{0,3}}\s+{_BACK}{_FOR}(?!\w){_OVER}"
# The text between an answer and a formula that is its condition.
_CONDITION = re.compile(rf"[\s,(;]*+{_ABOUT}{_HOLDS}{_INTRODUCED}:?\s*+", re.IGNORECASE)
_CONDITION_SENTENCE = re.compile(rf"{_SENTENCE}:?\s*+", re.IGNORECASE)
# The divisor of a remainder: "3 when divided by 7".
_BY = (
    r"[\s,(;]*+(?:(?:when|if|on|upon|after)\s+(?:(?:it|this|that|the\s+number)\s+is\s+)?(?:divided|division|dividing)"
    r"\s+by|modulo)\s+"
)
_DIVIDED = re.compile(_BY, re.IGNORECASE)
_DIVIDED_BY_NUMBER = re.compile(rf"(?<=[0-9)}}$]){_BY}[\\$(]{{0,2}}[0-9]{{1,9}}[\\$).]{{0,3}}\Z", re.IGNORECASE)
# A residue and its modulus: 3 modulo 7. "12 modulo 7" is a computation, and has another value.
_RESIDUE = re.compile(r"([0-9]{1,9})[$\s),]{0,4}modulo\s[\\$(]{0,2}([0-9]{1,9})[\\$).]{0,3}\Z", re.IGNORECASE)
_WHERE = re.compile(r"[\s,(;]*+where(?:\s+[^\W\d_]+){0,3}\s*", re.IGNORECASE)
# "The minimum value 5" before "is attained at": a value that names its noun.
_OF_EXTREME = re.compile(rf"\b(?:{_EXTREME}(?:\s+value)?|value|bound)\s+[*_]{{0,3}}\Z", re.IGNORECASE)
_REACHED = re.compile(rf"\s*{_IS_REACHED}", re.IGNORECASE)
# "attains a maximum value of" before the value.
_ATTAINS = re.compile(
    rf"\b(?:attains?|reach(?:es)?|achieves?|takes?|assumes?|has|have|with)\s+(?:its|their|an?|the)\s+"
    rf"{_EXTREME}(?:\s+value)?(?:\s+of)?\s+[*_]{{0,3}}\Z",
    re.IGNORECASE,
)
_MAX_NOUN = 50

_ARROW = re.compile(r"->|\\(?:to|rightarrow|longrightarrow|uparrow|downarrow)(?![A-Za-z])|[\u2190-\u2193]")
_RELATION = re.compile(
    r"[=<>\u2260\u2264\u2265\u2208\u2209]|\\(?:[lg](?:eq?|t)(?:slant)?|neq?|in|notin|equiv|mid|approx)(?![A-Za-z])"
)
_ORDER = re.compile(r"[<>\u2260\u2264\u2265\u2208\u2209]|\\(?:[lg](?:eq?|t)(?:slant)?|neq?|in|notin)(?![A-Za-z])")
_INTERVAL = re.compile(r"(?:\\left\s?)?[\[(][^\])]{1,60}[,;]|\\mathbb|[\u2115\u211a\u211d\u2124]")
_WORD = re.compile(r"(?<![A-Za-z\\])(?!and\b|or\b)[A-Za-z]{2,}")

# A condition in words and plain formulas at the end of a line.
_BEGINS = re.compile(
    rf"(?:{_SENTENCE}\s+|(?<=[\w)}}\]!%])[*_]{{0,3}}[,;]?\s+\(?{_ABOUT}{_HOLDS}{_INTRODUCED}\s+)", re.IGNORECASE
)
_VERBS = ("attained", "achieved", "reached", "occurs", "occurring")
_IN_WORDS = re.compile(
    rf"(?<=[\w)}}\]]),?\s+\(?{_ABOUT}(?:{'|'.join(_VERBS)})\s+(?:only\s+)?(?:at|when|for|if)\b",
    re.IGNORECASE,
)
# "is" with a number, at the end.
_STATED = re.compile(
    rf"(?:(?<!\w)(?:is|are|be|was|equals?|of)|[=:]|\b{_EXTREME}(?:\s+value)?|\bvalue)"
    r"\s{0,3}[^\s\w]{0,3}[0-9][^\s,;]{0,40}(?:\s[^\W\d_]{1,20}){0,2}\Z",
    re.IGNORECASE,
)


def is_condition(answer: str, between: str, formula: str) -> bool:
    """Whether a formula after a text that follows an answer is a condition of that answer."""
    if len(between) > MAX_CONDITION or (kind_of(answer) == "equation" and named(formula)):
        return False  # "2x = 6 holds for x = 3"
    if named(answer) and named(formula) and between.strip(" ,").lower() == "with":
        return False  # "x = 3 with y = 4"
    if _DIVIDED.fullmatch(between):
        return _is_residue(f"{answer}{between}{formula}")
    if sentence := _CONDITION_SENTENCE.fullmatch(between):
        return sentence["noun"] is None or _is_constant(answer)
    found = _CONDITION.fullmatch(between)
    return found is not None and _may_follow(found, formula)


def is_said_of_extreme(text: str, start: int, end: int) -> bool:
    """Whether a formula of a text is a value that is attained: "the minimum value $5$ is attained"."""
    if _ATTAINS.search(text, max(0, start - _MAX_NOUN), start):
        return True
    noun = _OF_EXTREME.search(text, max(0, start - _MAX_NOUN), start)
    return noun is not None and _REACHED.match(text, end, end + _MAX_NOUN) is not None


def says_where(between: str) -> bool:
    """Whether a text between two formulas begins to define the letters of the first one."""
    return len(between) <= MAX_CONDITION and _WHERE.fullmatch(between) is not None


def without_condition(line: str) -> str:
    """An answer in words without the condition at its end; an inequality stays, after "for"."""
    end = max(0, len(line) - MAX_CONDITION)
    said = line[end:].lower()
    if any(verb in said for verb in _VERBS) and (match := _IN_WORDS.search(line, end)):
        return line[: match.start()]
    if ("divi" in said or "modulo" in said) and (match := _DIVIDED_BY_NUMBER.search(line, end)):
        return line[: match.start()] if _is_residue(line) else line
    last = max((sign.end() for signs in (_RELATION, _ARROW) for sign in signs.finditer(said)), default=-1)
    if last < 0 or _WORD.search(said, last):  # a condition ends with its relation and the related terms
        return line
    begins = list(_BEGINS.finditer(line, end))
    if len(begins) != 1:  # with several cases, no condition is left out
        return line
    head, formula = line[: begins[0].start()], line[begins[0].end() :].rstrip(" \t\r\n*_.$)")
    if _WORD.search(formula) or not _may_follow(begins[0], formula):
        return line
    if not (_RELATION.search(formula) or _ARROW.search(formula)):
        return line
    return f"{head} for {formula}" if _ORDER.search(formula) else head


def before_condition(text: str) -> str:
    """A text without the condition at the end of its last sentence, if it belongs to a number before it."""
    cut = max(0, len(text) - MAX_CONDITION)
    line = text[cut:].rstrip(" \t\r\n*_.)")
    said = without_condition(line)
    if said == line:
        return text
    begins = _BEGINS.search(line)
    head = said if line.startswith(said) else line[: begins.start()] if begins else said
    return text[: cut + len(head)] if _STATED.search(head) else text


def _is_residue(said: str) -> bool:
    """Whether a number is not larger than the modulus after it; also if no such modulus ends the text."""
    found = _RESIDUE.search(said, max(0, len(said) - MAX_CONDITION))
    return found is None or int(found[1]) < int(found[2])


def _may_follow(introduced: re.Match[str], formula: str) -> bool:
    """Whether a formula can be a condition, by the word before it that introduces it."""
    if introduced["tends"]:
        return _ARROW.search(formula) is not None
    if introduced["within"]:
        return _INTERVAL.match(formula) is not None
    return not introduced["weak"] or _RELATION.search(formula) is not None
