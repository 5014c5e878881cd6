r"""Other spellings of an answer, each by an option: for two texts that are not equal as written.

Both sides are respelled in the same way, so that `\mathbf{v}` and `\overrightarrow{v}` become one name. Each expression
is linear: its repetitions are bounded, or end at what they cannot contain.
"""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Callable

from crucible_bridge.types import MathPolicy
from crucible_worker.grading.math.lexer import MAX_CHARS
from crucible_worker.grading.math.prefixes import written_out_units
from crucible_worker.grading.math.regional import with_points

__all__ = ["respelled"]

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
    _Rule("regional_numerals", re.compile(r" [0-9]{3}|~[0-9]{3}|\.[0-9]{3}|'[0-9]{3}|,[0-9]{3}"), with_points),
    _Rule("unit_names", re.compile(r"\\(?:text|math|mbox|rm|mu|Omega)|tre"), written_out_units),
    _Rule("log_is_natural", re.compile("log"), _with_natural_log),
    _Rule("vector_notations", re.compile(r"\\(?:bold|bm|hat|mathbf|over|vec|wide)"), _with_arrows),
    _Rule("fold_base_letters", re.compile(r"_\{ ?[123][0-9]"), _with_capitals),
)
_NEEDS = re.compile("|".join(rule.needs.pattern for rule in _RULES))
