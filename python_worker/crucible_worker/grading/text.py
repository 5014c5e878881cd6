"""Graders that compare texts: exact match, whether one contains the other, and how much of it (F1, BLEU, ROUGE-L).

Exact match compares as text, number, list or JSON. `Normalization` says which differences between texts do not count.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import functools
import importlib
import importlib.util
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ExactComparison
from crucible_worker.grading.base import DirectGrader, Grade, measured, right, undecided, wrong
from crucible_worker.grading.characters import MAX_COMBINING_MARKS, has_many_marks, plain
from crucible_worker.grading.extract import spoken
from crucible_worker.grading.json_values import BadJson, difference, json_of, read_json
from crucible_worker.grading.numbers import canonical_decimal
from crucible_worker.util.options import Flat, values_of

__all__ = [
    "DIVIDER",
    "F1",
    "MAX_BLEU_CHARS",
    "MAX_DEPTH",
    "MAX_ROUGE_CELLS",
    "MAX_TOKENS",
    "Bleu",
    "Contains",
    "Element",
    "ExactMatch",
    "Normalization",
    "Rouge",
    "Unnormalizable",
    "exact_match_of",
    "read_list",
    "require",
    "tokens_of",
    "without_punctuation",
]


# Which differences between two texts do not count.

_WHITESPACE = re.compile(r"\s+")
# The underscore is punctuation too, although regular expressions treat it as a letter.
_PUNCTUATION = re.compile(r"[^\w\s]|_")
_SIGNS = "-\u2013\uff0d"  # signs that Unicode classes as punctuation; U+2212 is not


class Unnormalizable(ValueError):
    """A text has more combining marks in a row than are sorted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Normalization:
    """Steps for both response and target before they are compared: nfkc, case, punctuation, white space."""

    strip: bool = True
    """Ignore white space at both ends."""
    collapse_whitespace: bool = False
    """Treat a run of white space as one space."""
    fold_case: bool = False
    """Ignore case, by Unicode case folding: "STRASSE" equals "straße"."""
    strip_punctuation: bool = False
    """Drop punctuation (Unicode's classes P), except between two digits ("1,460.5", "3/4"), a point or a sign that
    starts a number or a name (".5", "-5", "-x", "-$5"), the sign of an exponent ("1e-5", "x^-1"), and a percent sign
    after a digit. A text of only punctuation keeps it."""
    nfkc: bool = False
    """Compare by Unicode NFKC: full-width digits, ligatures and composed letters equal their plain forms."""

    def __call__(self, text: str) -> str:
        """Normalise a text, in linear time.

        Raises:
            Unnormalizable: more than `MAX_COMBINING_MARKS` combining marks follow each other and `nfkc` is on.
        """
        if self.nfkc and not text.isascii():
            if has_many_marks(text):
                raise Unnormalizable(f"more than {MAX_COMBINING_MARKS} combining marks follow each other")
            text = unicodedata.normalize("NFKC", text)
        if self.fold_case:
            text = text.casefold()
        if self.strip_punctuation:
            text = without_punctuation(text)
        if self.collapse_whitespace:
            text = _WHITESPACE.sub(" ", text)
        return text.strip() if self.strip else text


def without_punctuation(text: str) -> str:
    """Drop punctuation as `Normalization.strip_punctuation` describes. Linear."""
    stripped = _PUNCTUATION.sub(lambda mark: mark[0] if _counts(text, mark.start()) else "", text)
    return stripped if stripped.strip() else text


def _counts(text: str, index: int) -> bool:
    """Whether the character at an index, outside of words, is kept: no punctuation, or punctuation with a meaning."""
    character = text[index]
    if not unicodedata.category(character).startswith("P"):
        return True
    before, behind = text[max(0, index - 1) : index], text[index + 1 : index + 2]
    if before.isdigit() and (behind.isdigit() or character == "%"):
        return True
    starts = not before or before.isspace() or before in "([{=<>+*/,^"
    if character in _SIGNS:
        return (starts and _signed(behind)) or (_in_exponent(text, index) and behind.isdigit())
    return starts and character == "." and behind.isdigit()


def _signed(character: str) -> bool:
    """Whether a text that starts with this character can have a sign."""
    return character.isalnum() or character == "." or (character != "" and unicodedata.category(character) == "Sc")


def _in_exponent(text: str, index: int) -> bool:
    """Whether the "e" of a number is before an index."""
    return index >= 2 and text[index - 1] in "eE" and text[index - 2].isdigit()


# Words and numbers of a text, so that a search for one text in another never splits a word or a number.
#
# A token is
# - a number: a minus that follows no word or bracket, digits, and digits after `.`, `,` or `/` ("-1,460.5", "3/4");
# - a word: letters, digits, underscores and diacritics ("46km", "don" in "don't");
# - any other character except white space; in scripts that are written without spaces (Chinese, Japanese, Thai ...)
#   every letter is one.
# White space only separates.

DIVIDER = "\x1f"
"""Between tokens; white space itself, so never in one."""

_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u31ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = rf"(?:(?![{_SPACELESS}])\w|[\u0300-\u036f])"
# Every alternative consumes what it has read, or gives back one separator with its digits: linear.
_TOKEN = re.compile(rf"(?:(?<![\w)\]}}])[-\u2212](?=\d))?\d++(?:[.,/]\d++)*(?!{_LETTER})|{_LETTER}++|\S")


def tokens_of(text: str) -> str:
    """Write a text's tokens, each between dividers; empty if there are none.

    Text b contains text a, in whole words and numbers, if `tokens_of(a) in tokens_of(b)`.
    """
    found = _TOKEN.findall(text)
    if not found:
        return ""
    return DIVIDER + DIVIDER.join(found).replace("\u2212", "-") + DIVIDER


# Lists in texts: elements between square brackets and commas, in JSON's or Python's spelling, or bare.
#
#     [1, 2]    ["a", "b, c"]    ['a', "it's"]    [red, dark blue]    [[1, 2], [3]]    [(1, 2), f(x, y)]    []
#
# A comma divides the elements of the brackets around it, of any kind: "[(1, 4), (3, 2)]" has two elements, and
# "[1,000]" has two as well. Quotes are not part of an element, nor is white space around it or around brackets.

MAX_DEPTH = 40
"""Levels of brackets. A text with more of them is not a list."""

MAX_TOKENS = 200_000
"""Brackets, commas and texts together. A text with more is not a list; a list of 100,000 numbers has as many."""

Element: TypeAlias = "str | tuple[Element, ...]"
"""A text; or the content of brackets, after the opening one: ("(", "1", "2"); or, after "", texts and brackets that are
adjacent: ("", "f", ("(", "x"))."""

_CLOSING_BRACKETS = {"[": "]", "(": ")", "{": "}"}
# A quote that does not close before a comma or a bracket is a character of a bare element ("'tis"). Each alternative is
# possessive, and a quoted one is tried again after its first comma or bracket at most: linear.
_LIST_TOKEN = re.compile(
    r"\s*+(?:(?P<mark>[\[\](){},])"
    r"|(?P<quoted>\"(?>(?:[^\"\\]|\\.)*)\"|'(?>(?:[^'\\]|\\.)*)')(?=\s*+[\]),}])"
    r"|(?P<bare>[^\[\](){},]++))",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(['\"\\])")


class _OpenBrackets:
    """Open brackets."""

    def __init__(self, opening: str) -> None:
        self.opening = opening
        self.elements: list[Element] = []
        self.pieces: list[Element] = []
        """Parts of the current element."""

    def end_element(self) -> bool:
        """Add the current element; returns whether there is one."""
        if not self.pieces:
            return False
        self.elements.append(self.pieces[0] if len(self.pieces) == 1 else ("", *self.pieces))
        self.pieces = []
        return True

    def end(self, closing: str) -> bool:
        """Add the last element; returns whether the brackets may be closed now: "[]", "[1]" and "(1,)", not "[1,]"."""
        ended = self.end_element()
        begun = len(self.elements) == 1 and self.opening == "("
        return _CLOSING_BRACKETS[self.opening] == closing and (ended or not self.elements or begun)


def read_list(text: str) -> tuple[Element, ...] | None:
    """The elements of a text that is a list; None if it is not a list, or beyond the bounds. Linear in its length."""
    text = text.strip()
    if not text.startswith("["):
        return None
    groups: list[_OpenBrackets] = []
    for count, token in enumerate(_LIST_TOKEN.finditer(text), start=1):
        if count > MAX_TOKENS:
            return None
        mark = token["mark"]
        if mark is None:
            groups[-1].pieces.append(_unquoted(token["quoted"]) if token["quoted"] else token["bare"].strip())
        elif mark in _CLOSING_BRACKETS:
            if len(groups) == MAX_DEPTH:
                return None
            groups.append(_OpenBrackets(mark))
        elif mark == ",":
            if not groups[-1].end_element():
                return None
        else:
            group = groups.pop()
            if not group.end(mark):
                return None
            if not groups:
                return tuple(group.elements) if token.end() == len(text) else None
            groups[-1].pieces.append((group.opening, *group.elements))
    return None


def _unquoted(token: str) -> str:
    """The value of a quoted text: JSON's escapes in double quotes, otherwise only those of quotes and backslashes."""
    if "\\" in token and token[0] == '"':
        try:
            return json.loads(token, strict=False)
        except ValueError:
            pass
    return _ESCAPE.sub(r"\1", token[1:-1])


# Graders of exact match, as text, number, list or JSON, and of whether a response contains a target.

_EXACT = "exact"
_SHOWN = 60  # characters of a target in a reason


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExactMatch(DirectGrader):
    """The whole response equals a target, as a text, a number, a list or JSON.

    As numbers, in the spelling of `crucible_worker.grading.text`, their values are compared, without a tolerance.
    As lists, in that of `crucible_worker.grading.text`, elements are compared: two numbers by value, anything else as
    normalised text. As JSON, in that of `crucible_worker.grading.json_values`, the value in the response is compared:
    key order and blanks do not count, numbers are compared by value, and the reason names the first difference.
    A target that is not a number, a list or JSON is UNDECIDED; such a response is wrong.
    """

    normalization: Annotated[Normalization, Flat()] = Normalization()
    """Differences that do not count; by default white space at the ends. In lists and JSON it applies to each text."""
    compare: ExactComparison = ExactComparison.TEXT
    """What response and target are compared as: 5 equals 5.0 as a number, [1, 2] equals [1,2] as a list, and
    {"a": 1, "b": 2} equals {"b":2,"a":1.0} as JSON."""
    ordered_lists: bool = False
    """For lists: the order of elements counts, and how often each occurs; within an inner list both always do."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Compare the whole texts. Choices are ignored."""
        judges = {ExactComparison.TEXT: self._as_text, ExactComparison.JSON: self._as_json}
        judge = judges.get(self.compare, self._as_value)
        try:
            return judge(response, targets)
        except Unnormalizable as error:
            return undecided(str(error), method=_EXACT)

    def _as_text(self, response: str, targets: Sequence[str]) -> Grade:
        answer = self.normalization(plain(response))
        equal = any(self.normalization(plain(target)) == answer for target in targets)
        return right(answer, _EXACT) if equal else wrong(answer, _EXACT)

    def _as_value(self, response: str, targets: Sequence[str]) -> Grade:
        wanted = [self._value(target) for target in targets]
        if None in wanted:
            short = _short(targets[wanted.index(None)])
            return undecided(f"the target {short} is not a {self.compare}", method=_EXACT)
        shown, answer = response.strip(), self._value(response)
        if answer is None:
            return wrong(shown, _EXACT, f"the response is not a {self.compare}")
        return right(shown, _EXACT) if answer in wanted else wrong(shown, _EXACT)

    def _as_json(self, response: str, targets: Sequence[str]) -> Grade:
        wanted: list[Any] = []
        for target in targets:
            try:
                wanted.append(read_json(plain(target)))
            except BadJson as error:
                return undecided(f"the target {_short(target)} {error}", method=_EXACT)
        said = spoken(plain(response)).strip()
        try:
            answer = json_of(said, objects_only=all(isinstance(value, dict) for value in wanted))
        except BadJson as error:
            return wrong(said, _EXACT, f"the response {error}")
        found = [difference(value, answer, lambda text: self.normalization(plain(text))) for value in wanted]
        return wrong(said, _EXACT, found[0]) if all(found) else right(said, _EXACT)

    def _value(self, text: str) -> object:
        """A text as a number or list; None if it is not one."""
        if self.compare is ExactComparison.NUMBER:
            return canonical_decimal(self.normalization(plain(text)))
        if (elements := read_list(plain(text))) is None:
            return None
        values = tuple(map(self._element, elements))
        return values if self.ordered_lists else frozenset(values)

    def _element(self, element: Element) -> object:
        if isinstance(element, tuple):
            bracket, *parts = element
            return (bracket, *map(self._element, parts))
        text = self.normalization(element)
        number = canonical_decimal(text)
        return ("text", text) if number is None else ("number", number)


def _short(target: str) -> str:
    return repr(target if len(target) <= _SHOWN else target[:_SHOWN] + "...")


def exact_match_of(options: Mapping[str, Any]) -> ExactMatch:
    """Make one from options that passed its schema.

    Raises:
        InvalidField: `ordered_lists` is given, but no lists are compared.
    """
    if options["ordered_lists"] and options["compare"] != ExactComparison.LIST.value:
        raise InvalidField('["ordered_lists"]', 'is for compare: "list"')
    return ExactMatch(**values_of(ExactMatch, options))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Contains(DirectGrader):
    """The response contains a target as whole words and numbers.

    "46" is in "it is 46.", not in "146". `crucible_worker.grading.text` defines words and numbers.
    White space between them does not count. A response that names several answers contains each of them: this grader
    suits targets that do not occur by chance.
    """

    # White space never counts between tokens.
    normalization: Annotated[Normalization, Flat(("fold_case", "nfkc", "strip_punctuation"))] = Normalization()
    """Further differences that do not count."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Search for each target. Choices are ignored."""
        try:
            held = tokens_of(self.normalization(plain(response)))
            for target in targets:
                if tokens_of(self.normalization(plain(target))) in held:
                    return right(target, "contains")
        except Unnormalizable as error:
            return undecided(str(error), method="contains")
        return wrong("", "contains")


# Graders that measure how much of a target a response contains: token F1, sentence BLEU, ROUGE-L.
#
# With several targets, F1 and ROUGE-L are those of the best target; BLEU uses all targets as references.

MAX_BLEU_CHARS = 100_000
"""Characters of the response and all targets; with more, BLEU is UNDECIDED."""
MAX_ROUGE_CELLS = 1_000_000
"""Words of the response times words of all targets, the size of ROUGE-L's table; with more, it is UNDECIDED."""

_EXTRA = "text"  # the extra of this distribution that holds sacrebleu and rouge-score

_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)
_ROUGE_WORD = re.compile(r"[a-z0-9]+", re.IGNORECASE | re.ASCII)


def require(module: str) -> None:
    """Check that a library of the extra `text` is installed, without importing it.

    Raises:
        FailedPrecondition: it is not (reason EXTRA_NOT_INSTALLED).
    """
    if importlib.util.find_spec(module) is None:
        name = module.replace("_", "-")
        message = f"{name} is not installed: pip install 'crucible-bridge[{_EXTRA}]'"
        raise FailedPrecondition(message, reason=Reason.EXTRA_NOT_INSTALLED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Overlap(DirectGrader, abc.ABC):
    """Options that each of these graders has."""

    threshold: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """A score of at least this is correct, one between 0 and this is partial."""
    case_sensitive: bool = False
    """Case counts."""
    normalization: Annotated[Normalization, Flat(("collapse_whitespace", "strip_punctuation"))] = Normalization()
    """Further differences that do not count."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class F1(_Overlap):
    """The F1 of the words that response and target have in common.

    Each counts as often as it occurs, as in SQuAD's evaluation.

    Punctuation and the articles a, an, the never count; case counts on request. Unlike in SQuAD's script,
    numbers keep their points and signs: 1.5 is not 15, and -5 not 5.
    """

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """The best F1 over the targets. Choices are ignored."""
        try:
            said = self._words(response)
            wanted = [self._words(target) for target in targets]
        except Unnormalizable as error:
            return undecided(str(error), method="f1")
        if not all(wanted):
            return undecided("a target has no words except articles", method="f1")
        return measured(max(_f1(said, words) for words in wanted), self.threshold, response.strip(), "f1")

    def _words(self, text: str) -> collections.Counter[str]:
        text = plain(text)
        normal = self.normalization(text if self.case_sensitive else text.casefold())
        return collections.Counter(_ARTICLES.sub(" ", without_punctuation(normal)).split())


def _f1(said: collections.Counter[str], wanted: collections.Counter[str]) -> float:
    shared = (said & wanted).total()
    return 2 * shared / (said.total() + wanted.total())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bleu(_Overlap):
    """The sentence BLEU of the response with the targets as references.

    sacrebleu's value, divided by 100: 13a tokens, exponential smoothing, effective order.
    """

    def __post_init__(self) -> None:
        require("sacrebleu")

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """BLEU with the targets as references. Choices are ignored."""
        size = len(response) + sum(map(len, targets))
        if size > MAX_BLEU_CHARS:
            return undecided(f"BLEU of {size:,} characters is not computed, at most {MAX_BLEU_CHARS:,}", method="bleu")
        try:
            said, *wanted = [self._normal(text) for text in (response, *targets)]
        except Unnormalizable as error:
            return undecided(str(error), method="bleu")
        metric, forget = _bleu()
        score = metric.sentence_score(said, wanted).score / 100
        forget()
        # Rounding can exceed 1 by an ulp.
        score = min(1.0, score)
        return measured(score, self.threshold, response.strip(), "bleu")

    def _normal(self, text: str) -> str:
        return self.normalization(text if self.case_sensitive else text.casefold())


@functools.cache
def _bleu() -> tuple[Any, Callable[[], None]]:
    """The metric, and a function that clears its tokenizers' caches of texts: up to 65,536 of any length."""
    metric = importlib.import_module("sacrebleu.metrics.bleu").BLEU(effective_order=True)
    tokenizers = [type(metric.tokenizer), importlib.import_module("sacrebleu.tokenizers.tokenizer_re").TokenizerRegexp]

    def forget() -> None:
        for tokenizer in tokenizers:
            tokenizer.__call__.cache_clear()

    return metric, forget


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rouge(_Overlap):
    """The F score of ROUGE-L of response and target.

    rouge-score's value, without stemming: words are runs of the letters a to z and digits. A target without
    such words, as in most other scripts, is UNDECIDED.
    """

    def __post_init__(self) -> None:
        require("rouge_score")

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """The best F over the targets. Choices are ignored."""
        try:
            said, *wanted = [self._words(text) for text in (response, *targets)]
        except Unnormalizable as error:
            return undecided(str(error), method="rouge")
        if not all(wanted):
            return undecided("a target has no words of the letters a to z or digits", method="rouge")
        cells = len(said) * sum(map(len, wanted))
        if cells > MAX_ROUGE_CELLS:
            reason = f"ROUGE-L of {cells:,} pairs of words is not computed, at most {MAX_ROUGE_CELLS:,}"
            return undecided(reason, method="rouge")
        scorer = _rouge()
        score = max(scorer.score(words, said)["rougeL"].fmeasure for words in wanted)
        return measured(min(1.0, score), self.threshold, response.strip(), "rouge")

    def _words(self, text: str) -> list[str]:
        normal = self.normalization(text)
        return _ROUGE_WORD.findall(normal if self.case_sensitive else normal.lower())


class _Split:
    """A tokenizer for texts that are already lists of words."""

    def tokenize(self, text: list[str]) -> list[str]:
        return text


@functools.cache
def _rouge() -> Any:
    return importlib.import_module("rouge_score.rouge_scorer").RougeScorer(["rougeL"], tokenizer=_Split())
