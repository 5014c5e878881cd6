"""The grader of multiple choice: by the letter or the text of a choice."""

from __future__ import annotations

import collections
import dataclasses
import re
import string
from collections.abc import Iterable, Mapping, Sequence, Set

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Problem
from crucible_bridge.types.row_choices import two_readings
from crucible_worker.grading.base import DirectGrader, Grade, Grader, right, undecided, wrong
from crucible_worker.grading.choice_prose import (
    MAX_MENTIONS,
    REACH_OF_CLAUSE,
    concludes,
    decisive,
    in_prose,
    is_ruled_out,
    leading,
    letters_of,
    options_in,
)
from crucible_worker.grading.extract import extract
from crucible_worker.grading.text import DIVIDER, tokens_of

__all__ = [
    "MAX_CHOICES",
    "ChoiceGrader",
    "check_choices",
    "choices_that_are",
    "names_of",
    "names_several",
    "options_of",
]

MAX_CHOICES = 26
"""One choice for each letter."""

CHOICE, SEVERAL, DENIED = "choice", "several_choices", "choice_denied"
"""Methods of verdicts: by the choice that is named; several are; the response says only which one it is not."""
_ALL_LETTERS = frozenset(string.ascii_uppercase)
# If `extract` finds an explicit answer, it is examined first.
_EXPLICIT = frozenset({"json", "tag", "box", "sentence"})
_IN_PROSE = frozenset({"sentence", "marker"})
_AROUND = string.whitespace + string.punctuation
_LOOK = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf)|mbox|boldsymbol|bm)\s?\{([^{}]*+)\}")
# "the answer is", "Answer:", "choice is", "choose", "\\boxed{": what follows on the line is meant as the answer.
_MARKER = re.compile(
    r"(?:(?<!other )(?<!remaining )\b(?:answer|option|choice)(?:s(?=\s{1,3}are\b|:))?(?:\s{1,3}(?:is|are)\b)?\b"
    r"|\bchoose\b)[^\S\n]{0,3}:?(?=[^\n])|\\boxed\s?\{",
    re.IGNORECASE,
)
# "(B)", "**B**", "B)" or "B." or "B:" at the start of a line, and a letter alone on its line; in "P(B)" it is a name.
_LETTER = re.compile(
    r"(?<![\w)])\(([A-Z])\)|\*\*([A-Z])[.):]?\*\*|^[ \t]{0,8}([A-Z])[).:](?=\s|$)|^[ \t]{0,8}([A-Z])[ \t]{0,8}$",
    re.MULTILINE,
)
# A label directly before the text of a choice, in tokens: "D: Rome" names D, whatever D is.
_LABEL_BEFORE = re.compile(
    r"(?:\A|\x1f)([^\x1f]{1,40})(?:\x1f[\])}*_$\"']){0,4}\x1f[).:\u2013\u2014-](?:\x1f[\[({*_$\"']){0,4}\x1f?\Z"
)
_BEFORE_LABEL = re.compile(
    r"(?:\A|\x1f)(?:[^\w\x1f]|option|choice|answer|is|be|are|choose|pick|select|text|mathrm|textbf|boxed)\x1f?\Z"
)
_REACH_OF_LABEL = 80
_LABEL_AT_START = re.compile(r"\W{0,8}([A-Z])(?:[)*_}]{0,4}[).:](?:[*_]{0,3})|\s-)\s")
_JOINED = re.compile(r"(?:\x1f(?:(?P<word>or|and)|[,/&;]))+\x1f")
_MAX_LIST = 200
# "A, B", "(A) and (C)", '["A", "B"]': a target of several choices, and an answer to it.
_BETWEEN_NAMES = re.compile(r"\s*(?:[,;/&+\u3001\uff0c]|\band\b|[和与]|\s)\s*(?:and\s)?\s*")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceGrader(DirectGrader):
    r"""The response names the choice that a target names, by letter or text.

    Answer tags, a box, a JSON object, or a statement of the last sentence ("Option D is correct") are
    examined first; see `crucible_worker.grading.extract`. Next is what follows the last "answer (is)", "option",
    "choice", "choose" or "\boxed{" on its line, then the whole response. A letter counts in brackets, alone on
    a line, before `)`, `.` or `:` at its start, and in prose if its clause gives it as the answer ("I choose C", not
    "vitamin C"). The text of a choice counts as whole words, case folded, but not within a longer choice that is named,
    and not after another label: "D: Rome" names D. A choice that is ruled out, supposed or doubted ("not A", "A is
    wrong", "if A"; see `crucible_worker.grading.qualification`) is not named there. A response that names several
    choices, or only rules some out, is wrong, as one that names none. Without choices, targets are letters. A target of
    several letters ("A,B", "AB") wants exactly these. A target that names no choice, or has two readings, is UNDECIDED.
    Labels, as a sample may have them, name choices in place of the letters that they are, and in addition to other
    letters; a target that is a label names only that choice.
    """

    ordered: bool = False
    """The letters of a target of several must be named in its order."""
    choices: Sequence[str] = ()
    """The choices of samples that have none of their own."""

    def __post_init__(self) -> None:
        check_choices(self.choices, '["choices"]')

    def labelled(self, labels: Sequence[str]) -> Grader:
        """See `base.ReadsLabels`."""
        return _Labelled(labels=labels, ordered=self.ordered)

    def grade_now(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """See `DirectGrader`."""
        return DirectGrader.grade_now(self, response, targets, choices or self.choices)

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Find the named choice, and compare it with those of the targets."""
        return _judged(response, targets, choices, (), ordered=self.ordered)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Labelled(DirectGrader):
    """The same for a sample whose choices have labels, which are no option: every sample has its own."""

    labels: Sequence[str]
    """The labels of the choices."""
    ordered: bool
    """As the grader has it."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Find the named choice, and compare it with those of the targets."""
        return _judged(response, targets, choices, self.labels, ordered=self.ordered)


def _judged(
    response: str, targets: Sequence[str], choices: Sequence[str], labels: Sequence[str], *, ordered: bool
) -> Grade:
    if len(choices) > MAX_CHOICES:
        return undecided(f"there are {len(choices)} choices, at most {MAX_CHOICES} have letters", method=CHOICE)
    texts = _tokens(choices)
    if not all(texts):
        return undecided(f"choice {texts.index('')} is empty", method=CHOICE)
    response = _unwrapped(response)
    names = _Names.of(len(choices) or MAX_CHOICES, labels)
    expected: list[Sequence[int]] = []
    for target in targets:
        named = _meant(target, texts, names)
        wanted = tuple(named) if named else _listed(target, names)
        if len(named) > 1 or not wanted:
            return undecided(_flaw(target, names, named), method=CHOICE)
        expected.append(wanted)
    if len(readings := _named_as_a_whole(response, texts, names)) > 1:
        shown = ", ".join(string.ascii_uppercase[index] for index in sorted(readings))
        return undecided(f"the response {clipped(response.strip())} is each of the choices {shown}", method=CHOICE)
    several = any(len(wanted) > 1 for wanted in expected)
    found = _named(response, texts, names, several=several)
    letters = ", ".join(string.ascii_uppercase[index] for index in (found if ordered else sorted(found)))
    if any(found == wanted if ordered else set(found) == set(wanted) for wanted in map(list, expected)):
        return right(letters, CHOICE)
    if len(found) > 1 and not several:
        return names_several(letters)
    if not found and _named(response, texts, names, several=several, ruled_out=True):
        reason = "the response says only which choice it is not"
        return _wrong("", DENIED, reason, Reason.CHOICE_DENIED)
    return wrong(letters, CHOICE, "" if found else "the response names no choice")


def names_several(letters: str) -> Grade:
    """The grade of a response that names several choices, of which one is wanted."""
    return _wrong(letters, SEVERAL, f"the response names several choices: {letters}", Reason.SEVERAL_CHOICES)


def _tokens(choices: Sequence[str]) -> Sequence[str]:
    return [tokens_of(_unwrapped(choice).casefold()) for choice in choices]


def _unwrapped(text: str) -> str:
    r"""A text without the commands that change only its look: "D: Rome" for "\textbf{D: \text{Rome}}"."""
    return _LOOK.sub(r"\1", _LOOK.sub(r"\1", text)) if "\\" in text else text


def _wrong(letters: str, method: str, reason: str, code: Reason) -> Grade:
    return dataclasses.replace(wrong(letters, method, reason), problem=Problem(reason=code, message=reason))


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
    texts = _tokens(choices)
    return frozenset(_meant(_unwrapped(text), texts, _Names.of(len(choices), labels)))


def names_of(count: int, labels: Sequence[str] = ()) -> Mapping[str, int]:
    """What names each of so many choices besides its text: its letter, or the labels, which count before letters."""
    names = _Names.of(count, labels)
    return {**names.letters, **names.labels}


def options_of(response: str, answer: str, choices: Sequence[str], labels: Sequence[str] = ()) -> Sequence[int]:
    """The choices that a response names as options where it states its answer: "so we get 4, thus option D"."""
    names = names_of(len(choices), labels)
    return [names[letter] for letter in options_in(response, answer) if letter in names]


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


def _listed(text: str, names: _Names, *, together: bool = True) -> Sequence[int]:
    """The choices that a text lists by name, and nothing else: "A,B", "(A) and (C)", "AB"; empty if it does not."""
    bare = text.strip(_AROUND)
    if len(bare) > _MAX_LIST:
        return ()
    parts = [part.strip(_AROUND) for part in _BETWEEN_NAMES.split(bare)]
    if together and len(parts) == 1 and bare.isascii() and bare.isalpha() and bare.isupper():
        parts = list(bare)
    places = [_place(part, names) for part in parts if part]
    alike = None in places or len(places) < 2 or len(set(places)) < len(places)
    return () if alike else tuple(place for place in places if place is not None)


def _place(name: str, names: _Names) -> int | None:
    found = names.labels.get(name)
    return names.letters.get(name) if found is None else found


def _named(
    response: str, texts: Sequence[str], names: _Names, *, several: bool = False, ruled_out: bool = False
) -> list[int]:
    """The choices that a response names, in order, by its strongest evidence; optionally also those it rules out.

    Args:
        response: what the model said.
        texts: of the choices, in tokens.
        names: of the choices.
        several: whether letters that are written together, "AB", are several.
        ruled_out: whether choices that are ruled out count.
    """
    if whole := _named_as_a_whole(response, texts, names) or _listed(response, names, together=several):
        return list(whole)
    found = extract(response)
    at = response.rfind(found.answer) if found.how in _IN_PROSE and not ruled_out else -1
    stands = at < 0 or not is_ruled_out(response, at, at + len(found.answer), by_what_follows=False)
    answers = [found.answer] if found.how in _EXPLICIT and stands else []
    answers += [
        response[marker.end() :].split("\n", 1)[0]
        for marker in collections.deque(_MARKER.finditer(response), maxlen=1)
        if ruled_out or not is_ruled_out(response, *marker.span(), by_what_follows=False)
    ]
    if found.how == "marker" and stands:
        answers.append(found.answer)
    for answer in answers:
        named = _named_as_a_whole(answer, texts, names) or _listed(answer, names, together=several)
        if named := named or _named_within(answer, texts, names, marked=True, ruled_out=ruled_out):
            return list(named)
    named = _named_within(response, texts, names, marked=False, ruled_out=ruled_out)
    if len(named) > 1 and not several and not ruled_out:
        for part in decisive(response):
            if len(found_there := _named_within(part, texts, names, marked=False, ruled_out=False)) == 1:
                return found_there
        first, _, rest = response.strip().partition("\n\n")
        if not concludes(rest) and not any(_named_as_a_whole(line, texts, names) for line in rest.split("\n")):
            return list(_named_as_a_whole(first, texts, names)) or named
    return named


def _named_as_a_whole(text: str, texts: Sequence[str], names: _Names) -> set[int]:
    """The choices that a text equals without its decoration: by letter, by text, or both."""
    tokens = tokens_of(text.casefold())
    named = {index for index, choice in enumerate(texts) if choice == tokens}
    bare = text.strip(_AROUND)
    if not named and bare:
        tokens = tokens_of(bare.casefold())
        named = {index for index, choice in enumerate(texts) if choice == tokens}
    if len(bare) == 1 and bare.isascii() and bare.isalpha():
        named |= {*_indices((bare.upper(),), names)}
    elif bare in names.labels:
        named |= {names.labels[bare]}
    return named


def _named_within(text: str, texts: Sequence[str], names: _Names, *, marked: bool, ruled_out: bool) -> list[int]:
    """The choices that occur in a text by letter or text; those that it rules out only if these count too."""
    found = letters_of(_LETTER.finditer(text), text, ruled_out=ruled_out)
    if marked and not found:
        found = leading(text, ruled_out=ruled_out)
    if len(found) == 1 and (own := _labelled_text(text, found[0], texts, names)):
        return own
    if marked and not found and (own := _leading_text(text, texts)):
        return own
    named = _indices(found, names)
    if names.pattern is not None:
        found = letters_of(names.pattern.finditer(text), text, ruled_out=ruled_out)
        named += [names.labels[label] for label in found]
    held = everything = tokens_of(text.casefold())
    places: list[tuple[int, int]] = []
    # Longer ones first, and their text is removed: "New York" does not name "York".
    for choice in sorted(set(texts), key=len, reverse=True):
        if choice in held:
            place = everything.find(choice)
            places += [(place, index) for index in _named_by(choice, held, texts, names, ruled_out=ruled_out)]
            held = held.replace(choice, DIVIDER * 2)
    named += [index for _, index in sorted(places)]
    return list(dict.fromkeys(named or _indices(in_prose(text, ruled_out=ruled_out), names)))


def _leading_text(text: str, texts: Sequence[str]) -> list[int]:
    """The choice whose text follows a marker, if no other one is joined to it: "Oslo, since Rome is in Italy"."""
    held = tokens_of(text.casefold().lstrip(_AROUND))
    begun = [choice for choice in texts if held.startswith(choice)]
    if not begun:
        return []
    longest = max(begun, key=len)
    rest = held[len(longest) - 1 :]
    if (joint := _JOINED.match(rest)) is not None:
        others = rest[joint.end() - 1 :]
        if any(others.startswith(choice) or (joint["word"] and choice in others) for choice in texts):
            return []
    behind = rest[:REACH_OF_CLAUSE].replace(DIVIDER, " ")
    return [] if is_ruled_out(behind, 0, 0) else [index for index, other in enumerate(texts) if other == longest]


def _labelled_text(text: str, letter: str, texts: Sequence[str], names: _Names) -> list[int]:
    """The choice that a text begins with, by letter and text, if it says more about it than other choices."""
    index = names.letters.get(letter)
    begun = _LABEL_AT_START.match(text)
    if index is None or index >= len(texts) or begun is None or begun[1] != letter:
        return []
    rest = tokens_of(text[begun.end() :].casefold())
    if not rest.startswith(texts[index]) or _JOINED.match(rest, len(texts[index]) - 1):
        return []
    return [index] if not in_prose(text[begun.end() :], ruled_out=False) else []


def _named_by(choice: str, held: str, texts: Sequence[str], names: _Names, *, ruled_out: bool) -> Set[int]:
    """What the tokens of a choice name where they occur: the choice, or that of the label before them."""
    labels = {name.casefold(): index for name, index in (*names.letters.items(), *names.labels.items())}
    found: set[int] = set()
    end = 1
    for _ in range(MAX_MENTIONS):
        place = held.find(choice, end - 1)
        if place < 0:
            break
        end = place + len(choice)
        label = _LABEL_BEFORE.search(held, max(0, place + 1 - _REACH_OF_LABEL), place + 1)
        labelled = labels.get(label[1]) if label and _begins(held, label.start(1)) else None
        start = place if label is None or labelled is None else label.start()
        before = held[max(0, start - REACH_OF_CLAUSE) : start].replace(DIVIDER, " ") + " "
        behind = " " + held[end : end + REACH_OF_CLAUSE].replace(DIVIDER, " ")
        if not ruled_out and is_ruled_out(before + behind, len(before), len(before)):
            continue
        if labelled is None:
            return found | {index for index, other in enumerate(texts) if other == choice}
        found.add(labelled)
    return found


def _begins(held: str, start: int) -> bool:
    """Whether a label in tokens begins something: before it is nothing, a sign, or a word such as "option"."""
    return start <= 1 or _BEFORE_LABEL.search(held, max(0, start - _REACH_OF_LABEL), start) is not None


def _indices(letters: Iterable[str], names: _Names) -> list[int]:
    return [names.letters[letter] for letter in letters if letter in names.letters]
