"""Regular expressions: bounds on patterns and texts, and that nothing backtracks."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.grading.patterns import (
    MAX_PATTERN_CHARS,
    MAX_PATTERN_WORK,
    BadPattern,
    TooMuchText,
    compiled,
)
from tests.tables import rows

pieces = st.lists(st.sampled_from(["a", "b", "é", ".", "[ab]", "(a|b)", "a*", "b+", "a?", "^", "$", "\\d"]), max_size=5)


@given(pieces.map("".join), st.text(st.sampled_from("abé1"), max_size=8))
def test_it_agrees_with_pythons_expressions(pattern: str, text: str) -> None:
    """What both know, both find; where it is found first may differ, as theirs is not the leftmost longest either."""
    found = compiled(pattern).find(text)

    match = re.search(pattern, text)
    assert found == (match[0] if match else None)
    assert (compiled(pattern).find(text, full=True) is None) is (re.fullmatch(pattern, text) is None)


@given(st.text(max_size=20))
def test_any_text_compiles_or_is_refused(pattern: str) -> None:
    """What is no pattern is refused with a reason, and nothing else happens."""
    try:
        found = compiled(pattern).find("some text")
    except BadPattern as error:
        found = str(error)

    assert found is None or found in "some text" or found.startswith(("is none of RE2: ", "holds a lone surrogate"))


@rows("pattern", ["(", "(?=a)", "(a)\\1", "a{1001}", "((a{100}){100}){100}", "\ud800"])
def test_what_re2_does_not_have_is_refused(pattern: str) -> None:
    """References, looks around and repetition without end are not there."""
    with pytest.raises(BadPattern):
        compiled(pattern)


@pytest.mark.parametrize(("size", "fits"), [(MAX_PATTERN_CHARS, True), (MAX_PATTERN_CHARS + 1, False)])
def test_the_length_of_a_pattern_is_bounded(size: int, fits: bool) -> None:
    """A longer pattern is refused."""
    pattern = "(?:)" * (size // 4) + "a" * (size % 4)

    if fits:
        compiled(pattern)
    else:
        with pytest.raises(BadPattern, match="longer than"):
            compiled(pattern)


def test_a_pattern_is_not_run_on_more_than_it_can() -> None:
    """The size of a pattern times that of the text is bounded, in bytes."""
    pattern = compiled("(a|b)*a(a|b){900}")
    size = MAX_PATTERN_WORK // pattern.size

    assert pattern.find("é" * (size // 2)) is None
    with pytest.raises(TooMuchText, match="is not run on"):
        pattern.find("é" * (size // 2 + 1))


@rows("pattern", ["^(a+)+$", "^(a|a)*$", "(x+x+)+y", "(.*a){5}$"])
def test_nothing_backtracks(pattern: str) -> None:
    """What takes Python's expressions longer than anybody waits is done at once, on a megabyte."""
    assert compiled(pattern).find("a" * 900_000 + "!" if "x" not in pattern else "x" * 900_000) is None
