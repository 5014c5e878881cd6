"""The page about the way of an answer shows what the code does."""

import doctest
from pathlib import Path

_PAGE = Path(__file__).parents[4] / "docs" / "math_grading.md"


def test_every_output_on_the_page_is_what_the_code_prints() -> None:
    """Each step of the example runs, and prints what the page says."""
    failed, tried = doctest.testfile(
        str(_PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.REPORT_NDIFF
    )

    assert tried > 20
    assert failed == 0
