"""Each command in a `console` block of README and docs prints what the page shows.

A block has commands behind `$ ` and what they print. The blocks of a page build on each other: they are run in order,
in one empty folder with a state directory of its own. What is shown matches by these rules:

- `…` stands for any text within a line, and a line with `…` alone for any lines;
- blanks and line ends match any others, as widths vary and long lines are wrapped on a page;
- a command without shown output may print anything. It has to exit with 0.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from crucible_worker.embedded import registry
from tests import needs
from tests.tables import rows

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
COMMAND_SECONDS = 240.0
NOT_RUN = {
    "pip install": "it changes the environment, and needs a network",
    "python3 -m venv": "it installs packages",
    "make": "it needs a checkout, and changes it",
    "crucible-worker --install-completion": "it writes into the settings of the shell",
    "crucible-worker view": "it serves until it is interrupted; tests/pages run it",
}
"""Beginnings of commands that cannot be run here, each with the reason."""

GIVEN = {
    "README.md": {
        "my-checkpoint": "arithmetic@600",
        "runs/mine/checkpoint-100": "arithmetic@180",
        "runs/mine/checkpoint-200": "arithmetic@600",
    }
}
"""By page, the folders that its reader has: checkpoints, for which embedded models stand here."""


class Command(NamedTuple):
    """A command of a page."""

    line: int
    text: str
    shown: str
    """What the page shows that it prints."""


def commands_of(page: str) -> Iterator[Command]:
    """The commands of a page's console blocks, in order.

    Raises:
        ValueError: a block has text before its first command.
    """
    for block in re.finditer(r"^( *)```console\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL):
        lines = [line.removeprefix(block[1]) for line in block[2].splitlines()]
        number = page.count("\n", 0, block.start()) + 2
        begins = [index for index, line in enumerate(lines) if line.startswith("$ ")]
        if begins[:1] != [0]:
            raise ValueError(f"line {number}: a console block begins with a command behind `$ `")
        for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
            last = next(index for index in range(begin, end) if not lines[index].endswith("\\"))
            command, shown = lines[begin : last + 1], lines[last + 1 : end]
            yield Command(number + begin, "\n".join(command).removeprefix("$ "), "\n".join(shown).strip())


def files_of(page: str) -> dict[str, str]:
    """The files that a page shows whole: each in a block behind a sentence that begins with `The file NAME`."""
    return dict(
        re.findall(r"^The file `([^`]+)`[^\n]*(?:\n[^\n]+)*?:\n\n```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    )


def pattern_of(shown: str) -> str:
    """The regular expression of what a page shows, without blanks around it."""
    marked = re.sub(r"\s*^…$\s*", "\0", shown, flags=re.MULTILINE)
    words = [re.escape(word).replace("\0", "(?s:.*)").replace("…", ".*") for word in marked.split()]
    return r"\s+".join(words)


def why_not_run(command: str) -> str:
    """The reason of a command that cannot be run here; empty if it can."""
    return next((why for beginning, why in NOT_RUN.items() if f"{command} ".startswith(f"{beginning} ")), "")


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        if any(
            each.text.startswith("crucible-worker ") and not why_not_run(each.text)
            for each in commands_of(page.read_text())
        )
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_commands_print_what_their_page_shows(page: Path, tmp_path: Path):
    """With the worker's command on the PATH, and nothing in the environment that is not the page's."""
    pytest.importorskip("aiohttp", reason=needs.MISSING["aiohttp"])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CRUCIBLE_", "XDG_", "COLUMNS"))}
    environment = {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LC_ALL": "C.UTF-8",
    }
    for name, content in files_of(page.read_text()).items():
        (tmp_path / name).write_text(content)
    given = GIVEN.get(str(page.relative_to(ROOT)), {})
    if given:
        needs.modules("torch", "transformers")
    for folder, model in given.items():
        shutil.copytree(registry.path(model), tmp_path / folder)
    for command in commands_of(page.read_text()):
        if why_not_run(command.text):
            continue
        done = subprocess.run(
            ["bash", "-c", command.text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            encoding="utf-8",
            timeout=COMMAND_SECONDS,
            check=False,
        )
        where = f"{page.relative_to(ROOT)}:{command.line}: {command.text}"
        assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
        printed = done.stdout.strip()
        assert not command.shown or re.fullmatch(pattern_of(command.shown), printed), f"{where}\nprinted:\n{printed}"


def test_what_is_not_run_is_on_a_page():
    """A row of the table that fits no command any more is removed."""
    commands = [each.text for page in PAGES for each in commands_of(page.read_text())]

    assert [beginning for beginning in NOT_RUN if not any(each.startswith(beginning) for each in commands)] == []


@rows(
    ("shown", "printed", "matches"),
    [
        ("a  b", "a b", True),
        ("a\n  b", "a b", True),
        ("a b", "ab", False),
        ("took … s.", "took 1.5 s.", True),
        ("took … s.", "took 1.5 m.", False),
        ("took … s.", "took 1.5\nor 2 s.", False),
        ("a\n…\nb", "a\n1\n2\nb", True),
        ("a\n…", "a\n1\n2", True),
        ("a\n…\nb", "a\n1\nc", False),
        ("a.b", "axb", False),
        ("a", "a b", False),
    ],
)
def test_what_is_shown_matches_by_its_rules(shown: str, printed: str, matches: bool):
    """A marked place stands for any text, blanks for others, and everything else for itself."""
    assert bool(re.fullmatch(pattern_of(shown), printed)) is matches


def test_pages_that_are_given_folders_are_there():
    """A page that was renamed is renamed in the table."""
    assert [page for page in GIVEN if not (ROOT / page).is_file()] == []


def test_files_are_read():
    """The sentence names the file, and the block behind it is its content."""
    page = "The file `a.csv` has\ntwo rows:\n\n```text\nx\n1\n```\n\nA file `b`:\n\n```text\n2\n```\n"

    assert files_of(page) == {"a.csv": "x\n1\n"}


def test_commands_are_read_with_their_output():
    """A backslash continues a command, what follows is its output, and a block without a command is refused."""
    page = "Run\n\n```console\n$ a \\\n    b\nout\n\nmore\n$ c\n```\n\n- item\n\n  ```console\n  $ d\n  x\n  ```\n"

    assert list(commands_of(page)) == [
        Command(4, "a \\\n    b", "out\n\nmore"),
        Command(9, "c", ""),
        Command(15, "d", "x"),
    ]
    with pytest.raises(ValueError, match="line 2: a console block begins"):
        list(commands_of("```console\nout\n```\n"))
