"""The pictures of the tutorial about following a run: `python -m tests.pages.follow_pictures docs/pictures`.

The tutorial's own files are used: its training runs while its `follow` evaluates. Chromium draws what is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.pages.pictures import chromium, photograph_run
from tests.pages.terminal import photograph, printed, recorded
from tests.service.test_console_blocks import ROOT, files_of

TUTORIAL = ROOT / "docs" / "tutorials" / "follow.md"
SHOWN = [
    "follow runs/sums --data builtin:arithmetic --samples 200 \\\n"
    "    --evaluator nll --evaluator accuracy --max-tokens 4 --exit-when-idle 15",
    "gate --baseline sums-step-80-0 --candidate sums-step-200-0 --policy gate.toml",
]
"""What is typed in the picture, without the name of the program."""


def main(pictures: Path) -> None:
    """Train, follow, and write `follow_terminal.png` and `follow_run.png`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The tutorial reads the default journal; here it is one of this run.
        os.environ["XDG_STATE_HOME"] = name
        for file, content in files_of(TUTORIAL.read_text()).items():
            (folder / file).write_text(content)
        with subprocess.Popen([sys.executable, "train.py"], cwd=folder) as training:
            # On a busy machine the training may begin so late that `follow` ends as idle before.
            while training.poll() is None and not (folder / "runs").exists():
                time.sleep(0.1)
            page = recorded(SHOWN, folder)
        if training.returncode:
            raise SystemExit(f"the training ended with {training.returncode}")
        printed("report --run sums", folder)
        with sync_playwright() as playwright, chromium(playwright) as browser:
            photograph(page, browser, pictures / "follow_terminal.png")
            photograph_run(folder / "report.html", browser, pictures / "follow_run.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
