"""Steps that say what of an answer is graded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_worker.evaluators.cleaning import NO_CLEANING, Cleaning, Uncleanable
from crucible_worker.grading.base import MAX_INLINE_CHARS, MAX_TEXT_BYTES
from tests.tables import rows


@rows(
    ("steps", "text", "left"),
    [
        ([{"until": "Q:"}], "5 Q: 6 Q: 7", "5 "),
        ([{"until": "Q:"}], "5", "5"),
        ([{"after": "####"}], "1 #### 2 #### 3", " 3"),
        ([{"after": "####"}], "5", "5"),
        ([{"regex": r"is (\d+)"}], "it is 12 or is 13", "12"),
        ([{"regex": r"\d+"}], "it is 12 or is 13", "12"),
        ([{"regex": r"(x)|12"}], "12", ""),
        ([{"regex": r"\d+"}], "none", ""),
        ([{"extract": "box"}], r"4, so \boxed{5}, or 6", "5"),
        ([{"extract": "box"}], "The answer is 5.", ""),
        ([{"extract": "answer"}], "The answer is 5.", "5"),
        ([{"extract": "number"}], "between 3 and -1,200.5 then", "-1,200.5"),
        ([{"extract": "number"}], "none", ""),
        ([{"strip": ""}], " \n a b\t", "a b"),
        ([{"strip": '"'}], '"a "', "a "),
        ([{"until": "\n"}, {"after": ":"}, {"strip": ""}], "Answer: 5 \n: 6", "5"),
        ([{"after": ":"}, {"until": "\n"}, {"strip": ""}], "Answer: 5 \n: 6", "6"),
        (["strip"], " \n a b\t", "a b"),
        (["collapse_whitespace"], " a \n b", " a b"),
        (["fold_case"], "Straße", "strasse"),
        (["strip_punctuation"], "It is 1,460.5!", "It is 1,460.5"),
        (["nfkc"], "\uff11\uff12", "12"),
        ([{"after": ":"}, "strip", "fold_case"], "Answer: Yes ", "yes"),
        (["fold_case", {"after": "answer:"}], "ANSWER: Yes", " yes"),
        ([], " as it is ", " as it is "),
    ],
)
async def test_steps_follow_each_other(steps, text, left):
    """Each works on what the one before left; a mark that is not there cuts nothing, an expression leaves nothing."""
    assert await Cleaning.of(steps, "clean").answer(text) == left


async def test_a_long_text_is_cleaned_alike():
    """Beyond what the event loop is held up for, a thread does the same."""
    text = "x" * MAX_INLINE_CHARS + " #### 5"

    assert await Cleaning.of([{"after": "####"}, {"strip": ""}], "clean").answer(text) == "5"


async def test_a_text_that_is_too_long_is_not_said_to_be_empty():
    """At the limit of an answer it is cleaned, beyond it refused; without steps it is nobody's concern here.

    Texts of data sets, which no model made, have no such limit.
    """
    cleaning = Cleaning.of([{"strip": ""}], "clean")

    assert await cleaning.answer("x" * MAX_TEXT_BYTES) == "x" * MAX_TEXT_BYTES
    with pytest.raises(Uncleanable, match="longer than 1,000,000 bytes"):
        await cleaning.answer("x" * (MAX_TEXT_BYTES + 1))
    assert len(await NO_CLEANING.answer("x" * (MAX_TEXT_BYTES + 1))) == MAX_TEXT_BYTES + 1
    assert len(await cleaning.text("x" * (MAX_TEXT_BYTES + 1) + " ")) == MAX_TEXT_BYTES + 1


async def test_marks_that_are_not_sorted_are_refused():
    """What NFKC is not asked to compose is not compared as it is."""
    with pytest.raises(Uncleanable, match="combining marks"):
        await Cleaning.of(["nfkc"], "clean").answer("\u0300" * 40)


async def test_an_expression_that_takes_too_long_is_refused():
    """A large expression is not run on a long text."""
    cleaning = Cleaning.of([{"regex": "(a|b|c){1,100}" * 2}], "clean")

    with pytest.raises(Uncleanable, match="instructions"):
        await cleaning.answer("abc" * 100_000)


def test_an_expression_that_is_none_is_refused_at_its_path():
    """Before the first sample."""
    with pytest.raises(InvalidField) as caught:
        Cleaning.of([{"strip": ""}, {"regex": "(?=x)"}], 'options["clean"]')

    assert caught.value.field == 'options["clean"][1]["regex"]'


@given(st.text(max_size=30), st.sampled_from(["until", "after", "strip"]), st.text(min_size=1, max_size=3))
def test_cutting_leaves_a_part_of_the_text(text, what, mark):
    """These steps take away and never add; twice is as once."""
    once = Cleaning.of([{what: mark}], "clean")._cleaned(text)

    assert once in text
    assert Cleaning.of([{what: mark}, {what: mark}], "clean")._cleaned(text) == once
