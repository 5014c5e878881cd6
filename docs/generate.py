"""Writes the tables of evaluators and graders into docs/overview.md and docs/evaluators.md, between their markers.

    python docs/generate.py            write them
    python docs/generate.py --check    exit with 1 if a page is not current

A marker says what stands behind it, as `<!-- table: options of accuracy -->`, up to `<!-- end of table -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from crucible_worker.cli.described import NEEDED, option_rows
from crucible_worker.evaluators.registry import EVALUATORS
from crucible_worker.grading.registry import GRADERS

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "docs" / "overview.md", ROOT / "docs" / "evaluators.md")
SHOWN_KEYS = 6
"""Of an evaluator, on the overview."""
SHORT = ("renderer", "judge_renderer")
"""Options of which a page has the first sentence: they have a page of their own."""

_TABLE = re.compile(r"(<!-- table: (?P<what>[^>]+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main(arguments: Sequence[str]) -> int:
    """Write or check the pages; the exit status."""
    stale = [page for page in PAGES if (text := page.read_text()) != generated(text)]
    for page in stale:
        if "--check" in arguments:
            sys.stderr.write(f"{page.relative_to(ROOT)} is not current: python docs/generate.py\n")
        else:
            page.write_text(generated(page.read_text()))
    return int(bool(stale) and "--check" in arguments)


def generated(page: str) -> str:
    """A page with its tables as they have to be."""
    return _TABLE.sub(lambda found: f"{found[1]}{_table(found['what'])}{found[3]}", page)


def _table(what: str) -> str:
    for beginning, make in _TABLES.items():
        if what == beginning or what.startswith(f"{beginning} "):
            columns, rows = make(what.removeprefix(beginning).strip())
            return "".join(f"| {' | '.join(row)} |\n" for row in (columns, ["---"] * len(columns), *rows))
    raise ValueError(f"there is no table {what!r}, only: {', '.join(_TABLES)}")


def _evaluators(_: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows: list[Sequence[str]] = []
    for kind, declared in EVALUATORS.items():
        named = declared.info.keys.items()
        keys = [f"`{key}`" if len(named) > 1 else f"`{key}` ({unit})" for key, unit in named]
        rows.append(
            (f"`{kind}`", _cell(declared.info.description), ", ".join([*keys[:SHOWN_KEYS], "..."][: len(keys)]))
        )
    return ("evaluator", "what it does", "keys"), rows


def _graders(_: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows: list[Sequence[str]] = []
    for name, grader in GRADERS.items():
        options = [
            f"`{option}`" if default in ("", "false", '""', "none") else f"`{option}` ({_shown(default)})"
            for option, _, default, _ in option_rows(grader.options_schema)
        ]
        rows.append((f"`{name}`", _cell(grader.description), ", ".join(options) or "-"))
    return ("grader", "what is right", "its options, with defaults other than false"), rows


def _options(kind: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows = [
        (f"`{option}`", _cell(value), _default(default), _cell(_first(about) if option in SHORT else about))
        for option, value, default, about in option_rows(EVALUATORS[kind].info.options_schema)
    ]
    return ("option", "value", "default", "about"), rows


def _default(text: str) -> str:
    return text if text in ("", "none", NEEDED) or len(text) > 40 else f"`{text}`"


def _first(text: str) -> str:
    return text.partition(". ")[0].removesuffix(".") + "."


def _shown(default: str) -> str:
    return default if len(default) <= 20 else "a list" if default.startswith("[") else "an object"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


_TABLES: dict[str, Callable[[str], tuple[Sequence[str], Sequence[Sequence[str]]]]] = {
    "evaluators": _evaluators,
    "graders": _graders,
    "options of": _options,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
