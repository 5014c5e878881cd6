"""Bounds of the graders: no response makes one raise, hang, or take more than its share of time."""

import asyncio
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import Verdict
from crucible_worker.grading import numbers, registry
from crucible_worker.grading.base import (
    MAX_INLINE_CHARS,
    MAX_SMALL_CHARS,
    MAX_TARGETS,
    MAX_TEXT_BYTES,
    TOO_LONG,
    DirectGrader,
    Grade,
    right,
)
from crucible_worker.grading.characters import MAX_COMBINING_MARKS
from crucible_worker.grading.text import tokens_of
from tests.tables import rows

_LENIENT = {"nfkc": True, "fold_case": True}
_SCHEMA = {"form": "json_schema", "json_schema": {"type": "object", "patternProperties": {"^(a+)+$": False}}}
# Graders of math and of programs compute in processes of their own, and a judge is a model: tested by themselves.
_MADE: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in registry.GRADERS if name not in ("math", "code", "rubric")),
    *[("exact_match", _LENIENT), ("contains", _LENIENT)],
    *[("format", {"form": "marks", "marks": ["46", "a"]}), ("format", _SCHEMA)],
]
GRADERS = [registry.create(name, options, name_field="grader", options_field="options") for name, options in _MADE]
IDS = [f"{name} {' '.join(options)}".strip() for name, options in _MADE]
# Each of these is the bad case of some simpler way to read it: backtracking, rescanning, comparing at every place.
HOSTILE = [
    "9" * 900_000,
    "1," * 450_000,
    "1,234" * 180_000,
    "1,234,567,8901" * 60_000,
    "1/" * 450_000,
    "1.1" * 300_000 + "a",
    "-" * 900_000,
    "a" * 900_000,
    "ab " * 300_000,
    "answer " * 120_000,
    "(B" * 400_000,
    "\n   " * 220_000,
    "**" * 450_000,
    "e\u0301\u0323" * 30_000,
    "e" + "\u0301\u0323" * 220_000,
    "1e" + "9" * 900_000,
    "0." + "0" * 900_000 + "1",
    "." * 900_000,
]
text = st.text(st.sampled_from("0123456789.,/%-+eE\u2212()ABab\n*\\{}:$x\u0301\ud800京"), max_size=60) | st.text(
    max_size=60
)


class _Thread(DirectGrader):
    """Says whether it was asked on the event loop's thread."""

    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return right("", "thread")
        return right("", "loop")


@pytest.mark.parametrize("grader", GRADERS, ids=IDS)
@given(response=text, targets=st.lists(text, max_size=3), choices=st.lists(text, max_size=4))
def test_no_text_makes_a_grader_raise(grader, response, targets, choices) -> None:
    """Whatever the texts are, there is a grade, and its score fits its verdict."""
    grade = asyncio.run(grader.grade(response, targets, choices))

    assert grade.verdict in (Verdict.CORRECT, Verdict.INCORRECT, Verdict.PARTIAL, Verdict.UNDECIDED)
    assert (grade.score is None) is (grade.verdict is Verdict.UNDECIDED)
    assert grade.score is None or 0 <= grade.score <= 1
    assert (grade.score == 0) is (grade.verdict is Verdict.INCORRECT)
    assert grade.verdict is Verdict.UNDECIDED or not grader.reads_targets or all(target.strip() for target in targets)


@pytest.mark.long
@pytest.mark.parametrize("grader", GRADERS, ids=IDS)
@rows("index", range(len(HOSTILE)))
async def test_hostile_responses_end(grader, index: int) -> None:
    """A megabyte of the worst for a careless grader is judged: an algorithm beyond linear would never get here."""
    grade = await grader.grade(HOSTILE[index], ["46 a"], ["46 a", "b"])

    assert grade.verdict in (Verdict.INCORRECT, Verdict.PARTIAL, Verdict.UNDECIDED)


async def test_long_targets_end() -> None:
    """A target that nearly occurs at every place of a response does not cost their product."""
    contains = registry.create("contains", {}, name_field="grader", options_field="options")

    grade = await contains.grade("ab " * 300_000, ["ab " * 150_000 + "a"])

    assert grade.verdict is Verdict.INCORRECT


@rows(("size", "read"), [(MAX_TEXT_BYTES - 1, True), (MAX_TEXT_BYTES, True), (MAX_TEXT_BYTES + 1, False)])
@rows("grader", GRADERS, ids=IDS)
async def test_a_response_above_the_limit_is_not_read(grader, size: int, read: bool) -> None:
    """A response of one byte more than the limit is wrong by a small target, without being looked at."""
    grade = await grader.grade("z" * size, ["46 a"], ["46 a", "b"])

    assert (f"longer than {MAX_TEXT_BYTES:,} bytes" in grade.reason) is not read
    if not read:
        reads_targets = getattr(grader, "reads_targets", True)
        assert grade.verdict is (Verdict.INCORRECT if reads_targets else Verdict.UNDECIDED)
        assert grade.method == (TOO_LONG if reads_targets else "")


@pytest.mark.parametrize(("size", "verdict"), [(0, Verdict.INCORRECT), (1, Verdict.UNDECIDED)])
async def test_a_response_above_the_limit_is_undecided_by_a_long_target(size: int, verdict: Verdict) -> None:
    """Of several targets, one that is longer than small ones is enough."""
    contains = registry.create("contains", {}, name_field="grader", options_field="options")

    grade = await contains.grade("z" * (MAX_TEXT_BYTES + 1), ["a", "a" * (MAX_SMALL_CHARS + size)])

    assert grade.verdict is verdict


@rows(("count", "decided"), [(MAX_TARGETS, True), (MAX_TARGETS + 1, False)])
@rows("grader", [grader for grader in GRADERS if getattr(grader, "reads_targets", True)])
async def test_the_number_of_targets_is_bounded(grader, count: int, decided: bool) -> None:
    """A response is not looked through for any number of targets."""
    grade = await grader.grade("5", ["A"] * count)

    assert (f"at most {MAX_TARGETS:,} are read" in grade.reason) is not decided


async def test_expressions_share_one_bound() -> None:
    """Many targets, each within the bound of one, are not run on a long response."""
    regex = registry.create("regex", {}, name_field="grader", options_field="options")
    expressions = [f"{number}(a|b){{300}}$" for number in range(MAX_TARGETS)]

    assert (await regex.grade("z" * 1_000, expressions[:10])).verdict is Verdict.INCORRECT
    grade = await regex.grade("z" * 20_000, expressions)

    assert grade.verdict is Verdict.UNDECIDED
    assert "is not run on" in grade.reason


async def test_the_limit_counts_bytes() -> None:
    """Characters count by their bytes of UTF-8, and targets and choices are bounded like responses."""
    exact = registry.create("exact_match", {}, name_field="grader", options_field="options")

    assert (await exact.grade("é" * (MAX_TEXT_BYTES // 2), ["a"])).verdict is Verdict.INCORRECT
    assert (await exact.grade("é" * (MAX_TEXT_BYTES // 2) + "a", ["a"])).method == TOO_LONG
    assert (await exact.grade("a", ["é" * (MAX_TEXT_BYTES // 2) + "a"])).verdict is Verdict.UNDECIDED
    assert (await exact.grade("a", ["a"], ["é" * (MAX_TEXT_BYTES // 2)])).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(("size", "place"), [(MAX_INLINE_CHARS - 1, "loop"), (MAX_INLINE_CHARS, "thread")])
async def test_long_texts_are_judged_in_a_thread(size: int, place: str) -> None:
    """The event loop does not stand still for a long response."""
    grade = await _Thread().grade("a" * size, ["b"])

    assert grade.method == place


@pytest.mark.parametrize(
    ("count", "verdict"), [(MAX_COMBINING_MARKS, Verdict.CORRECT), (MAX_COMBINING_MARKS + 1, Verdict.UNDECIDED)]
)
async def test_runs_of_combining_marks_are_bounded(count: int, verdict: Verdict) -> None:
    """Sorting marks is quadratic: a run above the limit is not sorted but UNDECIDED."""
    exact = registry.create("exact_match", {"nfkc": True}, name_field="grader", options_field="options")
    word = "e" + "\u0301" * count

    assert (await exact.grade(word, [word])).verdict is verdict


def test_every_character_but_white_space_is_a_token() -> None:
    """A target that is not blank has a token, normalised or not: it is never found in everything."""
    for point in range(0x110000):
        character = chr(point)
        if character.strip():
            assert tokens_of(character), hex(point)
    unified = (unicodedata.normalize("NFKC", chr(point)) for point in range(0x110000) if chr(point).strip())
    assert all(character.strip() for character in unified)


@given(st.text(max_size=30), st.text(max_size=30))
def test_tokens_between_words_are_found(before: str, target: str) -> None:
    """A text stands in another one whole where spaces part it from the rest."""
    target = " ".join(target.split())

    assert tokens_of(target) in tokens_of(f"{before}\n {target} .")


@rows(
    ("text", "flaw"),
    [
        ("9" * numbers.MAX_MAGNITUDE, None),
        ("9" * (numbers.MAX_MAGNITUDE + 1), numbers.Flaw.HUGE),
        (f"1e{numbers.MAX_MAGNITUDE - 1}", None),
        (f"1e{numbers.MAX_MAGNITUDE}", numbers.Flaw.HUGE),
        ("1/0", numbers.Flaw.ZERO_DENOMINATOR),
        (f"1/1e{numbers.MAX_MAGNITUDE}", numbers.Flaw.LONG_FRACTION),
    ],
)
def test_magnitudes_are_bounded(text: str, flaw: numbers.Flaw | None) -> None:
    """Below the bound a number is exact, from it on only that is known."""
    (number,) = numbers.last_numbers(text, 1)

    assert number.flaw is flaw


@pytest.mark.parametrize(("decimals", "exact"), [(numbers.MAX_MAGNITUDE, True), (numbers.MAX_MAGNITUDE + 1, False)])
def test_decimals_beyond_the_bound_leave_an_error(decimals: int, exact: bool) -> None:
    """Digits that are cut off are accounted for."""
    (number,) = numbers.last_numbers("0." + "3" * decimals, 1)

    assert (number.error == 0) is exact
    assert abs(number.value * 10**decimals - int("3" * decimals)) <= number.error * 10**decimals
