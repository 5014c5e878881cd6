"""Regular expressions match alike in every Python that runs the worker."""

import re
from pathlib import Path

import crucible_bridge
import crucible_worker
from tests.tables import rows

POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+")
SOURCES = [
    path for package in (crucible_bridge, crucible_worker) for path in sorted(Path(package.__path__[0]).rglob("*.py"))
]


@rows("text", [r"(?:a|b)++", r"(,[0-9]{3})*+", r"(x)?+", r"(x){1,2}+"])
def test_possessive_groups_are_found(text: str) -> None:
    """In each of their forms."""
    assert POSSESSIVE_GROUP.search(text)


def test_no_group_is_possessive() -> None:
    """Matching goes on in the wrong place up to Python 3.11.4, which Debian 12 has; an atomic group says the same."""
    assert [path.name for path in SOURCES if POSSESSIVE_GROUP.search(path.read_text())] == []
