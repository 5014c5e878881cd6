"""docs/reference/journal.md: the journal's tables, from the comments of its schema."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from crucible_worker.journal.schema import SCHEMA

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "journal.md"


def test_the_page_has_every_table_and_column():
    """Each table has a section with its comment and all its columns; the page is generated, `make lint` sees to it."""
    page = PAGE.read_text().partition("<!-- table")[2]
    with sqlite3.connect(":memory:") as journal:
        journal.executescript(SCHEMA)
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        tables = {
            name: [column for _, column, *_ in journal.execute(f"PRAGMA table_info({name})")]
            for (name,) in journal.execute(query)
        }
    journal.close()

    sections = dict(re.findall(r"^## (\w+)\n\n(.*?)(?=^## |\Z|^<!--)", page, re.MULTILINE | re.DOTALL))

    assert sections.keys() == tables.keys()
    for name, columns in tables.items():
        assert re.findall(r"^\| `(\w+)` \|", sections[name], re.MULTILINE) == columns
        assert not sections[name].startswith("|"), f"{name} has no comment"


def test_the_examples_of_the_page_run(tmp_path: Path):
    """Each query in the page is one that the journal answers."""
    queries = re.findall(r'"(SELECT [^"]*)"', PAGE.read_text())
    with sqlite3.connect(tmp_path / "journal.sqlite3") as journal:
        journal.executescript(SCHEMA)
        found = [journal.execute(query).fetchall() for query in queries]
    journal.close()

    assert found == [[], [], []]
