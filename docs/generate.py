"""Writes tables into pages, between their markers: evaluators, loggers, commands, frames, the journal, the log, others.

    python docs/generate.py            write them
    python docs/generate.py --check    exit with 1 if a page is not current

A marker says what stands behind it, as `<!-- table: options of accuracy -->`, up to `<!-- end of table -->`.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sqlite3
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer.main
from log_events import Found, events_of

import crucible_worker
from crucible_bridge import frames
from crucible_bridge.types import SampleResult
from crucible_worker.cli import app as cli_app
from crucible_worker.cli.listing import NEEDED, option_rows
from crucible_worker.evaluators.registry import EVALUATORS
from crucible_worker.exports.rows import EVALUATION_COLUMNS, columns
from crucible_worker.grading.registry import GRADERS
from crucible_worker.journal.schema import SCHEMA
from crucible_worker.loggers.registry import BUILT_IN, find
from crucible_worker.util.options import first_line, schema_of

ROOT = Path(__file__).parent.parent
PAGES = (
    ROOT / "docs" / "overview.md",
    ROOT / "docs" / "evaluators.md",
    ROOT / "docs" / "exports.md",
    ROOT / "docs" / "frames.md",
    ROOT / "docs" / "how_it_works.md",
    ROOT / "docs" / "logging.md",
    ROOT / "docs" / "reference" / "commands.md",
    ROOT / "docs" / "reference" / "journal.md",
    ROOT / "docs" / "reference" / "log_events.md",
)
SHOWN_KEYS = 6
"""Of an evaluator, on the overview."""
SHORT = ("renderer", "judge_renderer")
"""Options of which a page has the first sentence: they have a page of their own."""

_CREATED = re.compile(
    r"((?:^-- [^\n]*\n)+)CREATE TABLE (?:IF NOT EXISTS )?(\w+) \((.*?)\)(?: WITHOUT ROWID)?;$", re.DOTALL | re.MULTILINE
)
_COLUMN = re.compile(r"^   (\w+): (.*)$", re.MULTILINE)
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
    if what == "tables of the journal":
        return _journal()
    if what == "log events":
        return _log_events()
    if what == "commands":
        return _commands()
    for beginning, make in _TABLES.items():
        if what == beginning or what.startswith(f"{beginning} "):
            return _written(*make(what.removeprefix(beginning).strip()))
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
        rows.append((f"`{name}`", str(grader.version), _cell(grader.description), ", ".join(options) or "-"))
    return ("grader", "version", "what is right", "its options, with defaults other than false"), rows


def _options(kind: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows = [
        (f"`{option}`", _cell(value), _default(default), _cell(_first(about) if option in SHORT else about))
        for option, value, default, about in option_rows(EVALUATORS[kind].info.options_schema)
    ]
    return ("option", "value", "default", "about"), rows


def _loggers(_: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows: list[Sequence[str]] = []
    for kind in BUILT_IN:
        declared = find(kind)
        written = f"`{kind}`, `{kind}:{declared.target.upper()}`" if declared.target else f"`{kind}`"
        extra = f"`{declared.extra}`" if declared.extra else "-"
        rows.append((written, _cell(first_line(declared)), extra, declared.delivery.value))
    return ("logger", "what it writes", "extra", "after a kill, an entry is there"), rows


def _logger_options(kind: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    declared = find(kind)
    rows = [
        (f"`{option}`" + " (*)" * (option in declared.operator_options), _cell(value), _default(default), _cell(about))
        for option, value, default, about in option_rows(schema_of(declared))
    ]
    return ("option", "value", "default", "about"), rows


def _rows(_: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    about = {name: text for name, (_, text) in EVALUATION_COLUMNS.items()} | _documented(SampleResult)
    types = {name: kind for name, (kind, _) in EVALUATION_COLUMNS.items()}
    types |= {field.name: str(field.type) for field in dataclasses.fields(SampleResult)}
    parquet = columns()
    rows: list[Sequence[str]] = []
    for name, kind in types.items():
        found = [column for column in parquet if column.path[0] == name]
        shown = ", ".join(f"`{column.name}`" for column in found) if len(found) > 1 else found[0].type
        rows.append((f"`{name}`", f"`{_cell(kind)}`", _cell(about[name]), shown))
    return ("key", "type", "about", "Parquet"), rows


def _frame(name: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    rows = [(f"`{column}`", kind, _cell(about)) for column, (kind, about) in frames.COLUMNS[name].items()]
    return ("column", "type", "about"), rows


def _packages(_: str) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """The contract that `make lint` checks: a row imports what stands below it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["id"] == "layers")
    folder, rows = Path(crucible_worker.__file__).parent, list[Sequence[str]]()
    for row, layer in enumerate(layers, 1):
        for name in re.findall(r"\w+", layer):
            path = next(path for path in (folder / name / "__init__.py", folder / f"{name}.py") if path.exists())
            about = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
            others = "the others of its row too" if ":" in layer else ""
            rows.append((str(row), f"`{name}`", _cell(about), others))
    return ("row", "package", "what it holds", "imports, besides the rows below"), rows


def _documented(record: type) -> dict[str, str]:
    """By field, the docstring below it."""
    (declared,) = ast.parse(inspect.getsource(record)).body
    assert isinstance(declared, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(declared.body, declared.body[1:]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def _journal() -> str:
    """A section for each table of the journal: its comment, and its columns with theirs."""
    with sqlite3.connect(":memory:") as journal:
        journal.executescript(SCHEMA)
        sections = []
        for comment, table, body in _CREATED.findall(SCHEMA):
            lines = [line.removeprefix("--") for line in comment.splitlines()]
            told = _COLUMN.findall("\n".join(lines))
            about = _comments(body) | {column: f"{text[:1].upper()}{text[1:]}." for column, text in told}
            rows = [
                (f"`{name}`", f"{kind}{', key' if key else ''}", _cell(about.get(name, "")))
                for _, name, kind, _, _, key in journal.execute(f"PRAGMA table_info({table})")
            ]
            text = " ".join(line.strip() for line in lines if not _COLUMN.fullmatch(line))
            sections.append(f"## {table}\n\n{text}\n\n{_written(('column', 'type', 'about'), rows)}")
    journal.close()
    return "\n" + "\n".join(sections) + "\n"


def _comments(body: str) -> dict[str, str]:
    """By column, the comment above it."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in map(str.strip, body.splitlines()):
        if line.startswith("-- "):
            above.append(line.removeprefix("-- "))
        elif above:
            found[line.split()[0]] = " ".join(above)
            above = []
    return found


def _commands() -> str:
    """A section for each command of the command line, with what its `--help` says."""
    return "\n" + "\n".join(_sections(typer.main.get_command(cli_app), "crucible-worker")) + "\n"


def _sections(command: Any, name: str) -> Iterator[str]:
    members = getattr(command, "commands", None)
    if members is not None:
        for member, each in members.items():
            yield from _sections(each, f"{name} {member}")
        return
    context = typer.Context(command, info_name=name)
    paragraphs = [" ".join(each.split()) for each in re.split(r"\n\s*\n", command.help or "")]
    about = "\n\n".join(
        f"Example: `{each.removeprefix('Example: ')}`" if each.startswith("Example: ") else each.replace("<", "&lt;")
        for each in paragraphs
    )
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    rows = [
        ("`" + typed.replace("|", "\\|") + "`", _cell(" ".join(text.split())))
        for parameter in command.get_params(context)
        if (record := parameter.get_help_record(context)) is not None and record[0] != "--help"
        for typed, text in [record]
    ]
    given = _written(("given", "about"), rows) if rows else ""
    yield f"## {name.partition(' ')[2]}\n\n    {usage}\n\n{about}\n\n{given}"


def _log_events() -> str:
    """A section for each part of docs/log_events.toml, which has a sentence for each event of the source."""
    sections = tomllib.loads((ROOT / "docs" / "log_events.toml").read_text())
    about = {event: text for part in sections.values() for event, text in part.items()}
    package = Path(crucible_worker.__file__).parent
    texts = ((path, path.read_text()) for path in sorted(package.rglob("*.py")))
    events = events_of((str(path.relative_to(package)), text) for path, text in texts if "structlog" in text)
    if about.keys() != events.keys():
        raise ValueError(
            f"docs/log_events.toml lacks {sorted(events.keys() - about.keys())}, and has without an event "
            f"{sorted(about.keys() - events.keys())}"
        )
    written: list[str] = []
    for heading, part in sections.items():
        rows = [_event_row(event, events[event], text) for event, text in part.items()]
        written.append(f"## {heading}\n\n{_written(('event', 'level', 'when', 'keys'), rows)}")
    return "\n" + "\n".join(written) + "\n"


def _event_row(event: str, found: Found, when: str) -> Sequence[str]:
    keys = ", ".join(f"`{key}`" for key in found.keys)
    return f"`{event}`", ", ".join(found.levels), when, keys or "-"


def _written(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (columns, ["---"] * len(columns), *rows))


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
    "columns of": _frame,
    "graders": _graders,
    "loggers": _loggers,
    "options of logger": _logger_options,
    "options of": _options,
    "packages": _packages,
    "rows": _rows,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
