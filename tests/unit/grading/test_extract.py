"""Extraction of answers: bounds, linear work, thinking, and the labelled responses where they are at hand."""

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible_worker.grading import extract as extraction
from crucible_worker.grading import phrase
from crucible_worker.grading.base import MAX_TEXT_BYTES
from crucible_worker.grading.enclosed import MAX_BRACES
from crucible_worker.grading.extract import (
    MAX_STEPS_PER_CHARACTER,
    MAX_TAIL_CHARS,
    MAX_WHOLE_WORDS,
    extract,
    has_box,
    spoken,
)
from tests import needs
from tests.tables import rows

# A folder with extraction_qwen_mathcot.jsonl and extraction_gsm8k_models.jsonl: responses with the answers in them.
DATA = os.environ.get("GRADING_DATA", "")

PIECES = (
    *("\\boxed{", "\\boxed", "\\fbox{", "}", "{", "\\{", "\\}", "\\\\", "\\", "$", "$$", "\\(", "\\)", "\\[", "\\]"),
    *("answer", "Answer:", "the answer is ", "final answer", "A:", "####", "answer to ", "is ", "so ", "that ", "i.e."),
    *(
        "\\text{Answer: ",
        "boxed{",
        "\x08oxed{",
        "<b>",
        "</b>",
        "<|im_end|>",
        "</s>",
        "答えは",
        "ではない",
        "입니다",
        "not ",
    ),
    *(
        '{"answer": ',
        '"',
        '"final_answer": "',
        "```",
        "Option B is correct",
        "I would go with (A)",
        "there is no solution",
    ),
    *("Yes, ", "No. ", " is Alice", "4:30 p.m.", "3 hours and 20 minutes", "does not exist", "if ", "other than "),
    *("<answer>", "</answer>", "</final_answer>", "<final_answer>", "[ANSWER]", "[/ANSWER]", "..."),
    *("9π", "10^", "√", "x = 2", "2x + ", "30°", "log_2 ", " cm", "=> ", "|"),
    *(" is wrong", "That is incorrect. ", "It is attained at ", "\\\\\n", " as well as ", "\\begin{array}{l}", "and "),
    *("<think>", "</think>", "\n", " ", ".", ",", ";", "*", "_", "`", "=", "<", "(", ")", "[", "]", "!", "?", "'s"),
    *(
        "5",
        "1,234.5",
        "-3",
        "1/2",
        "45%",
        "x",
        "ab",
        "\\frac{1}{2}",
        "\\text",
        "é",
        "京",
        "答案",
        "\ud800",
        "\x00",
        "\u202e",
    ),
)
responses = st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=80)

# Each repeats what some simpler scan would read again and again, or backtrack on.
REPEATED = [
    *(
        "$",
        "$ ",
        "$a$",
        "\\(",
        "\\)",
        "\\)\\(",
        "\\[a",
        "\\boxed{",
        "\\boxed{}",
        "\\boxed{ ",
        "\\boxed",
        "\\boxed ",
        "{",
        "}",
    ),
    *(
        "\\",
        "{\\",
        "answer ",
        "Answer:",
        "Answer:\n",
        "the answer is correct. ",
        "answer to ",
        "answer is\n",
        "#",
        "####\n",
    ),
    *(
        "\nA:",
        "<think>",
        "</think>",
        "<think></think>",
        "\\text{Answer: ",
        "\\text{Answer is} $",
        "<b>Answer:</b>",
        "<|x|>",
        "boxed{",
        "not 5 ",
        "no but ",
        '{"answer":1',
        '"answer":1}',
        '{"answer":"',
        "\\\\frac",
        "Option A is correct ",
        "I choose A ",
        "there is no solution ",
        "has no such number ",
        "3 hours and ",
        "is Al ",
        "1:1",
        "```",
        "答え",
        "<answer>",
        "</answer>",
        "<answer></answer>",
        "<answer>...</answer>",
        "<answer>5</answer>",
        "'<answer>5</answer>'",
        "\n",
        " ",
        "is ",
        "so ",
        "that ",
        ", ",
        ". ",
        "=",
        "a=",
        "*",
        "1",
        "1,",
        "-",
    ),
]
ENDS = ["", "5", "}", '"}', "Answer: ", "}" * 50, "$", "\\)", " because it is so."]


@pytest.mark.parametrize("end", ENDS)
@rows("unit", REPEATED)
def test_repetition_costs_work_in_proportion(unit: str, end: str) -> None:
    """A hundred times the same is a hundred times the work, whatever is repeated and however it ends."""
    for start in ("", "Answer: ", "\\boxed{", "$"):
        for count in (50, 500, 2_000):
            text = start + unit * count + end
            assert extract(text).steps <= MAX_STEPS_PER_CHARACTER * len(text) + 16


# Steps count what our loops look at; that the expressions below them do not backtrack shows only at length.
@rows(
    "unit",
    [
        "$",
        "\\(",
        "\\boxed{",
        "{\\",
        "{ ",
        "answer ",
        "####\n",
        "\nA:",
        "<think>",
        "\\text{Answer: ",
        "<|x|>",
        "not 5 ",
        '{"answer":1',
        "Option A is correct ",
        "<answer>",
        "<answer>5</answer>",
        "'<answer>5</answer>'",
        "\n",
        " ",
        "is ",
        "that ",
        ". ",
        "1,",
    ],
)
def test_a_megabyte_of_the_same_ends(unit: str) -> None:
    """At the limit too there is an answer or none: a scan beyond linear would never get here."""
    text = unit * (MAX_TEXT_BYTES // len(unit))

    found = extract(text)

    assert not found.reason or "reasoning" in found.reason
    assert found.steps <= MAX_STEPS_PER_CHARACTER * len(text) + 16


@given(responses)
@settings(max_examples=500)
def test_no_response_makes_it_raise(text: str) -> None:
    """Whatever a response is, there is an extraction, its answer is stripped, and its work is bounded."""
    found = extract(text)

    assert found.how in ("box", "tag", "json", "marker", "sentence", "math", "whole", "number", "")
    assert bool(found.answer) is bool(found.how)
    assert found.answer == found.answer.strip()
    assert found.steps <= MAX_STEPS_PER_CHARACTER * len(text) + 16


@given(responses)
@settings(max_examples=300)
def test_twice_the_response_is_twice_the_work(text: str) -> None:
    """Work is bounded by length alone: of a response and of its double the same bound a character holds."""
    for copies in (1, 2, 4):
        assert extract(text * copies).steps <= MAX_STEPS_PER_CHARACTER * len(text) * copies + 16


LAST_LINES = st.tuples(
    st.sampled_from(
        [
            *("", "The ", "So, the final ", "step ", "$x$, so the ", "- ", "**", "<b>", "{", "\\boxed{1} and "),
            *("\\boxed{1} as well as ", "\\boxed{1} \\\\\n", "\\boxed{1}.\n\n", "\\boxed{1} no, "),
        ]
    ),
    st.sampled_from(
        [
            *("answer is ", "answer is", "Answer: ", "Answer:** ", "answer is: ", "answers are "),
            *("A: ", "A:", "#### ", "##### "),
            *("\\boxed{", "\\boxed{\\text{", "\\boxed{\\sqrt{\\frac{", "\\fbox{", "boxed{", "\x08oxed{"),
        ]
    ),
    st.sampled_from(["5", "-5", "1,000.5", "1/2", "45%", "5.", "5 cm", "a", "2 as well as 3", "1 \\\\ 2", "1 \\} 2"]),
    st.sampled_from(["", "}", "}}.", "}}}$", "\n", " is wrong", '"}', " of a box", " <x", "\\boxed{}"]),
).map("".join)


@given(responses, LAST_LINES)
@settings(max_examples=1_000)
def test_a_box_or_marker_at_the_end_is_what_a_search_finds(before: str, last: str) -> None:
    """What is found at once in a response is what a search of all of it finds."""
    text = f"{before}\n{last}"
    found = extract(text)

    with mock.patch.object(extraction, "_at_once", return_value=None):
        searched = extract(text)

    assert (searched.answer, searched.how, searched.reason) == (found.answer, found.how, found.reason)


@given(st.text(max_size=40), st.text("0123456789+-*/^x ", min_size=1).filter(str.strip))
def test_a_box_at_the_end_is_the_answer(before: str, inside: str) -> None:
    """Whatever precedes, the last complete box counts."""
    before = before.replace("<", "")

    found = extract(f"{before} $\\boxed{{{inside}}}$.")

    assert (found.answer, found.how) == (inside.strip(), "box")


@given(st.text(max_size=60), st.text(max_size=60))
def test_thinking_is_not_read(thinking: str, said: str) -> None:
    """What stands in a block of thinking changes nothing."""
    thinking, said = thinking.replace("<", ""), said.replace("<", "")

    assert spoken(f"<think>{thinking}</think>{said}").strip() == said.strip()
    assert spoken(f"{thinking}</think>{said}") == said
    assert spoken(f"{said}<THINKING>{thinking}") == said


@pytest.mark.parametrize("character", ["a", "é"])
def test_a_response_above_the_limit_is_not_read(character: str) -> None:
    """Of one byte more than the limit nothing is looked at, and the reason says so."""
    tail = " \\boxed{5}"
    size = (MAX_TEXT_BYTES - len(tail)) // len(character.encode())

    assert extract(character * size + tail).answer == "5"
    above = extract(character * (size + 1) + tail)
    assert (above.answer, above.how, above.steps) == ("", "", 0)
    assert f"longer than {MAX_TEXT_BYTES:,} bytes" in above.reason


def test_a_box_of_any_length_is_read_whole() -> None:
    """No fixed tail is looked at: a box that fills the response is its answer."""
    inside = "1+" * 400_000 + "1"

    assert extract(f"\\boxed{{{inside}}}").answer == inside


@pytest.mark.parametrize(("pairs", "how"), [(MAX_BRACES // 2 - 1, "box"), (MAX_BRACES // 2, "")])
def test_a_box_before_too_many_braces_is_not_found(pairs: int, how: str) -> None:
    """What its own braces and those behind it are together is bounded."""
    text = "\\boxed{x}" + "{}" * pairs

    assert extract(text).how == how
    assert has_box(text) is bool(how)


@rows("answer", ["answer: x", "$x$", "5"])
@rows("extra", [0, 1])
def test_what_is_no_box_is_looked_for_at_the_end(answer: str, extra: int) -> None:
    """A marker, math or a number that begins so many characters before the end is found, and none before that."""
    behind = " w" * MAX_TAIL_CHARS
    text = "w w w w w " + answer + "\n" + behind[: MAX_TAIL_CHARS - len(answer) - 2 + extra] + "w"

    assert bool(extract(text).answer) is not bool(extra)
    assert extract(text + " " * 1_000).answer == extract(text).answer


def test_a_number_that_the_end_cuts_is_none() -> None:
    """A part of its digits is another number."""
    assert extract("1" * MAX_TAIL_CHARS).answer == "1" * MAX_TAIL_CHARS
    assert extract("1" * (MAX_TAIL_CHARS + 1)).answer == ""


@pytest.mark.parametrize(
    ("line", "how"),
    [("w" * 2 + " ww" * (MAX_WHOLE_WORDS - 1), "whole"), ("w" * 2 + " ww" * MAX_WHOLE_WORDS, "")],
)
def test_a_sentence_is_no_answer(line: str, how: str) -> None:
    """A response of one line counts as a whole up to so many words."""
    assert extract(line).how == how


@pytest.mark.parametrize(("size", "how"), [(phrase.MAX_WHOLE_CHARS, "math"), (phrase.MAX_WHOLE_CHARS + 1, "number")])
def test_a_long_line_is_no_answer(size: int, how: str) -> None:
    """A line without words counts up to so many characters."""
    assert extract("we get\n" + "1+" * (size // 2 - 1) + "1" * (2 + size % 2)).how == how


@rows(
    ("text", "boxed"),
    [
        ("\\boxed{5}", True),
        ("\\boxed 5", True),
        ("\\boxed{}", False),
        ("\\boxed{5", False),
        ("<think>\\boxed{5}</think>", False),
        ("5", False),
    ],
)
def test_a_form_needs_a_complete_box(text: str, boxed: bool) -> None:
    """A box counts where it is closed, not empty, and outside of the thinking."""
    assert has_box(text) is boxed


def _labelled(name: str) -> list[dict[str, Any]]:
    path = Path(DATA) / name
    if not DATA or not path.is_file():
        pytest.skip(needs.LABELLED)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _bare(answer: str) -> str:
    """An answer without what its labels leave out: blanks, dollar signs, commas between thousands."""
    for dropped in (" ", "\\$", "$", ","):
        answer = answer.replace(dropped, "")
    return answer.rstrip(".")


def test_the_boxed_responses_are_read() -> None:
    """All 728 responses whose answer is labelled right have it in a box, and it is found there."""
    rows = [row for row in _labelled("extraction_qwen_mathcot.jsonl") if row["label"]]

    found = [extract(row["response"]) for row in rows]

    assert len(rows) == 728
    assert [one.how for one in found] == ["box"] * 728
    assert [_bare(one.answer) for one in found] == [_bare(row["extracted"]) for row in rows]


def test_the_responses_of_small_models_are_read() -> None:
    """At least 99 % of a thousand responses without any markup give the labelled answer."""
    rows = _labelled("extraction_gsm8k_models.jsonl")

    right = sum(_bare(extract(row["response"]).answer) == _bare(row["extracted"]) for row in rows)

    assert right >= 0.99 * len(rows) > 0
