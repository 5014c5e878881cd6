"""The picture of a terminal in the README: `python -m tests.pages.terminal docs/pictures/terminal.png`.

The commands run for this picture, on the embedded models; Chromium draws what they print.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COLUMNS = 140
EVALUATED = (
    "--data builtin:arithmetic --samples 100 --evaluator nll --evaluator accuracy --max-tokens 8 --concurrency 32"
)
PREPARED = [
    f"evaluate --model embedded:arithmetic@{step} {EVALUATED} --id nightly-{step} --state-dir journal"
    for step in (320, 600)
]
SHOWN = [
    "show nightly-600 --state-dir journal",
    "compare nightly-320 nightly-600 --state-dir journal --evaluator accuracy",
]
"""What is typed in the picture, without the name of the program."""
THEME = TerminalTheme(
    (24, 27, 33),
    (214, 219, 228),
    [
        *((24, 27, 33), (224, 108, 117), (152, 195, 121), (229, 192, 123)),
        *((97, 175, 239), (198, 120, 221), (86, 182, 194), (214, 219, 228)),
    ],
)
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: {background}; color: {foreground}; padding: 18px 22px; width: max-content }}
pre {{ margin: 0; font: 15px/1.45 "DejaVu Sans Mono", "Liberation Mono", monospace }}
{stylesheet}
</style><body><pre>{code}</pre>"""


def printed(line: str, folder: Path) -> str:
    """What a command of the program prints on a terminal of `COLUMNS`, typed in a folder; lines may be continued."""
    command = [sys.executable, "-m", "crucible_worker", *shlex.split(line.replace("\\\n", ""))]
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.rstrip("\n")


def recorded(shown: Iterable[str], folder: Path) -> str:
    """A page with commands and what they print, as a terminal shows it."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    for line in shown:
        console.print(Text(f"$ crucible-worker {line}", style="bold"))
        console.print(Text.from_ansi(printed(line, folder)))
        console.print()
    return console.export_html(theme=THEME, code_format=PAGE)


def photograph(page: str, browser: Browser, picture: Path) -> None:
    """Write the picture of a page that `recorded` made."""
    shown = browser.new_page(viewport={"width": 1400, "height": 300}, device_scale_factor=1.5)
    shown.set_content(page)
    shown.locator("body").screenshot(path=picture)


def main(picture: Path) -> None:
    """Run the commands, and write the picture."""
    from playwright.sync_api import sync_playwright

    from tests.pages.pictures import chromium

    with tempfile.TemporaryDirectory() as folder:
        for line in PREPARED:
            printed(line, Path(folder))
        page = recorded(SHOWN, Path(folder))
    with sync_playwright() as playwright, chromium(playwright) as browser:
        photograph(page, browser, picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
