"""What holds for every test."""

import os

import pytest
from hypothesis import settings

# Time says nothing about correctness on a loaded machine.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

# Workers in processes of their own grade no math unless a test is about that: each would load it anew, for seconds.
os.environ["CRUCIBLE_GRADING_PROCESSES"] = "0"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--row`, for the tests over a table (see tests/tables.py)."""
    parser.addoption("--row", metavar="TEXT", help="of tests over a table, run only the rows with TEXT in their names")
