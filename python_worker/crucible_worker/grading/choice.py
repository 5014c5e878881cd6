"""The grader of multiple choice: by the letter or the text of a choice."""

from __future__ import annotations

import collections
import dataclasses
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types.row_choices import two_readings
from crucible_worker.grading.base import DirectGrader, Grade, Grader, right, undecided, wrong
from crucible_worker.grading.extract import extract
from crucible_worker.grading.qualification import REACH, rejected
from crucible_worker.grading.text import DIVIDER, tokens_of

__all__ = [
    "MAX_CHOICES",
    "MAX_MENTIONS",
    "ChoiceGrader",
    "check_choices",
    "choices_that_are",
    "names_of",
]

MAX_CHOICES = 26
"""One choice for each letter."""
MAX_MENTIONS = 2_000
"""Letters, and occurrences of a choice's text, that rule it out and are skipped; after so many the rest is not read."""

_METHOD = "choice"
_ALL_LETTERS = frozenset(string.ascii_uppercase)
# If `extract` finds an explicit answer, it is examined first.
_EXPLICIT = frozenset({"json", "tag", "box", "sentence"})
_AROUND = string.whitespace + string.punctuation
# "the answer is", "Answer:", "choice is", "choose", "\\boxed{": what follows on the line is meant as the answer.
_MARKER = re.compile(
    r"(?:\b(?:answer|option|choice)(?:\s{1,3}is\b)?|\bchoose\b)[^\S\n]{0,3}:?(?=[^\n])|\\boxed\s?\{", re.IGNORECASE
)
# "(B)", "**B**", "B)" or "B." or "B:" at the start of a line, and a letter alone on its line.
_LETTER = re.compile(
    r"\(([A-Z])\)|\*\*([A-Z])[.):]?\*\*|^[ \t]{0,8}([A-Z])[).:](?=\s|$)|^[ \t]{0,8}([A-Z])[ \t]{0,8}$", re.MULTILINE
)
# A capital letter as a word, except "A" and "I" before another word, which are English words.
_WORDS_AFTER = r"(?:or|and|because|since|as|but|is)\b"
_BARE = rf"(?<![\w'])(?:[B-HJ-Z](?![\w'])|[AI](?![\w']|\s+(?!{_WORDS_AFTER})[a-z]))"
_BARE_LETTER = re.compile(_BARE)
# After a marker the first letter decides, or the first ones: "the answer is B, because A ...", "answer: A or B".
_LEADING_LETTERS = re.compile(rf"[^\w\n]{{0,8}}({_BARE}(?>(?:\s{{0,2}}(?:[,/&]|\bor\b|\band\b)\s{{0,2}}{_BARE})*))")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceGrader(DirectGrader):
    r"""The response names the choice that a target names, by letter or text.

    Answer tags, a box, a JSON object, or a statement of the last sentence ("Option D is correct") are
    examined first; see `crucible_worker.grading.extract`. Next is what follows the last "answer (is)", "option",
    "choice", "choose" or "\boxed{" on its line, then the whole response. A letter counts in brackets, alone on
    a line, or before `)`, `.` or `:` at its start. The text of a choice counts as whole words, case folded, but not
    within a longer choice that is named. If there is none of these, any capital letter that is a word counts.
    A choice that is ruled out or supposed ("not A", "A is wrong", "if A"; see `crucible_worker.grading.qualification`)
    is not named there. A response that names several choices is UNDECIDED, and so is one that only rules some out; one
    that names none is wrong. Without choices, targets are letters. A target that names no choice, or two, is UNDECIDED.
    Labels, as a sample may have them, name choices in place of the letters that they are, and in addition to other
    letters; a target that is a label names only that choice.
    """

    choices: Sequence[str] = ()
    """The choices of samples that have none of their own."""

    def __post_init__(self) -> None:
        check_choices(self.choices, '["choices"]')

    def labelled(self, labels: Sequence[str]) -> Grader:
        """See `base.ReadsLabels`."""
        return _Labelled(labels=labels)

    def grade_now(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """See `DirectGrader`."""
        return DirectGrader.grade_now(self, response, targets, choices or self.choices)

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Find the named choice, and compare it with those of the targets."""
        return _judged(response, targets, choices, ())


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Labelled(DirectGrader):
    """The same for a sample whose choices have labels, which are no option: every sample has its own."""

    labels: Sequence[str]
    """The labels of the choices."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Find the named choice, and compare it with those of the targets."""
        return _judged(response, targets, choices, self.labels)


def _judged(response: str, targets: Sequence[str], choices: Sequence[str], labels: Sequence[str]) -> Grade:
    if len(choices) > MAX_CHOICES:
        return undecided(f"there are {len(choices)} choices, at most {MAX_CHOICES} have letters", method=_METHOD)
    texts = [tokens_of(choice.casefold()) for choice in choices]
    if not all(texts):
        return undecided(f"choice {texts.index('')} is empty", method=_METHOD)
    names = _Names.of(len(choices) or MAX_CHOICES, labels)
    expected: set[int] = set()
    for target in targets:
        named = _meant(target, texts, names)
        if len(named) != 1:
            return undecided(_flaw(target, names, named), method=_METHOD)
        expected |= named
    named = _named(response, texts, names)
    letters = "".join(string.ascii_uppercase[index] for index in sorted(named))
    if len(named) > 1:
        reason = f"the response names several choices: {', '.join(letters)}"
        return undecided(reason, method=_METHOD, code=Reason.SEVERAL_CHOICES)
    if not named and _named(response, texts, names, ruled_out=True):
        reason = "the response says only which choice it is not"
        return undecided(reason, method=_METHOD, code=Reason.CHOICE_DENIED)
    if not named:
        return wrong("", _METHOD, "the response names no choice")
    return right(letters, _METHOD) if named <= expected else wrong(letters, _METHOD)


def check_choices(choices: Sequence[str], field: str) -> None:
    """Check that a request's choices can be distinguished.

    Raises:
        InvalidField: there are more than `MAX_CHOICES`, one is blank, or two are the same.
    """
    if len(choices) > MAX_CHOICES:
        raise InvalidField(field, f"has {len(choices)} choices, at most {MAX_CHOICES} have letters")
    places: dict[str, int] = {}
    for index, choice in enumerate(choices):
        tokens = tokens_of(choice)
        if not tokens:
            raise InvalidField(f"{field}[{index}]", "is blank")
        if (same := places.setdefault(tokens, index)) != index:
            raise InvalidField(f"{field}[{index}]", f"is the same as choice {same}")


def choices_that_are(text: str, choices: Sequence[str], labels: Sequence[str] = ()) -> frozenset[int]:
    """The choices that the whole text equals: by label, or by letter, by text, or both; none of over `MAX_CHOICES`."""
    if len(choices) > MAX_CHOICES:
        return frozenset()
    texts = [tokens_of(choice.casefold()) for choice in choices]
    return frozenset(_meant(text, texts, _Names.of(len(choices), labels)))


def names_of(count: int, labels: Sequence[str] = ()) -> Mapping[str, int]:
    """What names each of so many choices besides its text: its letter, or the labels, which count before letters."""
    names = _Names.of(count, labels)
    return {**names.letters, **names.labels}


@dataclasses.dataclass(frozen=True, slots=True)
class _Names:
    """What names a choice besides its text."""

    letters: Mapping[str, int]
    """Choices by letter: the label of one, or else its place."""
    labels: Mapping[str, int]
    """Choices by label."""
    pattern: re.Pattern[str] | None
    """A label that is no letter, in brackets, alone on a line, or before `)`, `.` or `:` at its start."""

    @classmethod
    def of(cls, count: int, labels: Sequence[str]) -> _Names:
        places = {label: index for index, label in enumerate(labels)}
        letters = dict(zip(string.ascii_uppercase, range(count))) | {
            label: index for label, index in places.items() if label in _ALL_LETTERS
        }
        further = sorted(places.keys() - _ALL_LETTERS, key=len, reverse=True)
        if not further:
            return cls(letters, places, None)
        label = f"({'|'.join(map(re.escape, further))})"
        pattern = (
            rf"\({label}\)|\*\*{label}[.):]?\*\*|^[ \t]{{0,8}}{label}[).:](?=\s|$)|^[ \t]{{0,8}}{label}[ \t]{{0,8}}$"
        )
        return cls(letters, places, re.compile(pattern, re.MULTILINE))


def _meant(target: str, texts: Sequence[str], names: _Names) -> set[int]:
    """The choices that a target names; a label is a label, even if it is also the text of another choice."""
    if target in names.labels:
        return {names.labels[target]}
    return _named_as_a_whole(target, texts, names)


def _flaw(target: str, names: _Names, named: Set[int]) -> str:
    """Why a target does not name one choice."""
    bare = target.strip(_AROUND).upper()
    by_text = sorted(named - {names.letters.get(bare, -1)})
    if len(named) == 2 and len(by_text) == 1 and len(bare) == 1:
        return f"target {two_readings(target, names.letters[bare], by_text[0])}"
    return f"target {clipped(target)} {'names several choices' if named else 'names no choice'}"


def _named(response: str, texts: Sequence[str], names: _Names, *, ruled_out: bool = False) -> set[int]:
    """The choices that a response names, by its strongest evidence; optionally also those that it rules out."""
    if whole := _named_as_a_whole(response, texts, names):
        return whole
    found = extract(response)
    if found.how in _EXPLICIT:
        answer = found.answer
        named = _named_as_a_whole(answer, texts, names)
        if named := named or _named_within(answer, texts, names, leading=True, ruled_out=ruled_out):
            return named
    markers = collections.deque(_MARKER.finditer(response), maxlen=1)
    if markers and (ruled_out or not rejected(response[max(0, markers[0].start() - REACH) : markers[0].start()], "")):
        answer = response[markers[0].end() :].split("\n", 1)[0]
        named = _named_as_a_whole(answer, texts, names)
        if named := named or _named_within(answer, texts, names, leading=True, ruled_out=ruled_out):
            return named
    return _named_within(response, texts, names, leading=False, ruled_out=ruled_out)


def _named_as_a_whole(text: str, texts: Sequence[str], names: _Names) -> set[int]:
    """The choices that a text equals without its decoration: by letter, by text, or both."""
    tokens = tokens_of(text.casefold())
    named = {index for index, choice in enumerate(texts) if choice == tokens}
    bare = text.strip(_AROUND)
    if not named and bare:
        tokens = tokens_of(bare.casefold())
        named = {index for index, choice in enumerate(texts) if choice == tokens}
    if len(bare) == 1 and bare.isascii() and bare.isalpha():
        named |= _indices((bare.upper(),), names)
    elif bare in names.labels:
        named |= {names.labels[bare]}
    return named


def _named_within(text: str, texts: Sequence[str], names: _Names, *, leading: bool, ruled_out: bool) -> set[int]:
    """The choices that occur in a text by letter or text; those that it rules out only if these count too."""
    letters = _letters(_LETTER.finditer(text), text, ruled_out=ruled_out)
    if leading and not letters and (match := _LEADING_LETTERS.match(text)):
        letters = _letters(_BARE_LETTER.finditer(text, match.start(1), match.end(1)), text, ruled_out=ruled_out)
    held = tokens_of(text.casefold())
    named = _indices(letters, names)
    if names.pattern is not None:
        found = _letters(names.pattern.finditer(text), text, ruled_out=ruled_out)
        named |= {names.labels[label] for label in found}
    # Longer ones first, and their text is removed: "New York" does not name "York".
    for choice in sorted(set(texts), key=len, reverse=True):
        if choice in held:
            if ruled_out or _stands(choice, held):
                named |= {index for index, other in enumerate(texts) if other == choice}
            held = held.replace(choice, DIVIDER * 2)
    return named or _indices(_letters(_BARE_LETTER.finditer(text), text, ruled_out=ruled_out), names)


def _letters(matches: Iterator[re.Match[str]], text: str, *, ruled_out: bool) -> set[str]:
    letters: set[str] = set()
    passed = 0
    for match in matches:
        letter = match[match.lastindex or 0]
        if letter in letters:
            continue
        before, behind = text[max(0, match.start() - REACH) : match.start()], text[match.end() : match.end() + REACH]
        if ruled_out or not rejected(before, behind):
            letters.add(letter)
            continue
        passed += 1
        if passed == MAX_MENTIONS:
            break
    return letters


def _stands(choice: str, held: str) -> bool:
    """Whether the tokens of a choice occur somewhere without being ruled out."""
    end = 1
    for _ in range(MAX_MENTIONS):
        place = held.find(choice, end - 1)
        if place < 0:
            return False
        end = place + len(choice)
        before, behind = held[max(0, place - REACH) : place], held[end : end + REACH]
        if not rejected(before.replace(DIVIDER, " "), behind.replace(DIVIDER, " ")):
            return True
    return False


def _indices(letters: Iterable[str], names: _Names) -> set[int]:
    return {names.letters[letter] for letter in letters if letter in names.letters}
