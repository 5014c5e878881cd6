"""Pages in a browser: how soon a report file of 10,000 samples and the live table of 200,000 can be used; and sizes.

Chromium opens the table of samples, then searches it for the last sample. The baseline of the file is a bare page with
the same JSON, which parses it and shows nothing. Without Chromium nothing is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _report import Claim, arguments, report

from crucible_bridge.types import EvaluatorSpec, Limits, SamplingParams
from crucible_worker.testing import ScriptedModel, run_worker

FILE_SAMPLES, LIVE_SAMPLES = 10_000, 200_000
FILE_GOAL_SECONDS, LIVE_GOAL_SECONDS = 2.0, 5.0
SEARCH_GOAL_SECONDS = 3.0
MOST_BYTES = 3_000_000
"""Bound of a report's size without its data, in bytes."""
PATIENCE_MS = 120_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
COMMAND = (sys.executable, "-m", "crucible_worker")
NOT_PROMISED = "printed, not promised"


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        print("not measured: there is no Chromium here (apt install chromium)")
        return
    with tempfile.TemporaryDirectory(prefix="crucible-") as name:
        folder = Path(name)
        asyncio.run(evaluate(folder))
        began = time.perf_counter()
        full = write_report(folder, "full.html", FILE_SAMPLES)
        written = time.perf_counter() - began
        empty = write_report(folder, "empty.html", 0)
        whole_mb, empty_mb = size(full), size(empty)
        bare = folder / "bare.html"
        bare.write_text(bare_page(full.read_text("utf-8")), "utf-8")
        with browser(program) as chromium:
            runs = [
                (parsed(chromium, bare), opened_file(chromium, full), opened_live(chromium, folder))
                for _ in range(options.runs)
            ]
    baseline = [one for one, _, _ in runs]
    shown = [one for _, (one, _), _ in runs]
    claims = [
        Claim(
            name=f"a report file of {FILE_SAMPLES:,} samples: seconds until its table is there",
            ours=shown,
            baseline=baseline,
            unit="s",
            ratio=statistics.median(shown) / statistics.median(baseline),
            claim=f"goal {FILE_GOAL_SECONDS:g} s; {NOT_PROMISED}",
        ),
        Claim(
            name="the same: seconds of a search",
            ours=[one for _, (_, one), _ in runs],
            unit="s",
            claim=NOT_PROMISED,
        ),
        Claim(
            name=f"the live table of {LIVE_SAMPLES:,} samples: seconds until its first page is there",
            ours=[one for _, _, (one, _) in runs],
            unit="s",
            claim=f"goal {LIVE_GOAL_SECONDS:g} s; {NOT_PROMISED}",
        ),
        Claim(
            name="the same: seconds until a search has seen all of them",
            ours=[one for _, _, (_, one) in runs],
            unit="s",
            claim=f"goal {SEARCH_GOAL_SECONDS:g} s; {NOT_PROMISED}",
        ),
        Claim(name="seconds to write the report file", ours=[written], unit="s", claim=NOT_PROMISED),
        Claim(
            name=f"a report file without samples; {FILE_SAMPLES:,} of them add {whole_mb - empty_mb:.1f} MB",
            ours=[empty_mb],
            baseline=[MOST_BYTES / 1e6],
            unit="MB",
            ratio=empty_mb * 1e6 / MOST_BYTES,
            at_most=1.0,
            claim="at most 3 MB besides its data",
        ),
    ]
    report(claims, as_json=options.json)


async def evaluate(folder: Path) -> None:
    """Evaluate data sets of both sizes, into the folder's journal."""
    model = ScriptedModel(answer=lambda prompt: "<think>I add the two numbers.</think>The answer is 7.")
    async with run_worker({"m": model}, state_dir=folder, data_roots=(folder,)) as worker:
        for name, count in (("small", FILE_SAMPLES), ("large", LIVE_SAMPLES)):
            lines = (f"What is {n} + {n + 3}?,{2 * n + 3},{n % 5}\n" for n in range(count))
            (folder / f"{name}.csv").write_text("question,answer,level\n" + "".join(lines))
            await worker.bridge.evaluation.evaluate(
                evaluation_id=name,
                model="embedded:m",
                evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "numeric"})],
                dataset=f"csv:{name}.csv",
                sampling=SamplingParams(max_tokens=64),
                limits=Limits(concurrency=64),
            )


def write_report(folder: Path, name: str, samples: int) -> Path:
    """Write the small evaluation's report with so many samples."""
    words = (
        "report",
        "small",
        "--state-dir",
        str(folder),
        "--max-samples",
        str(samples),
        "--output",
        f"{folder}/{name}",
    )
    subprocess.run([*COMMAND, *words], check=True, stdout=subprocess.DEVNULL)
    return folder / name


def size(file: Path) -> float:
    """In MB."""
    return file.stat().st_size / 1e6


def bare_page(html: str) -> str:
    """The same blocks of data, and a script that parses them."""
    blocks = re.findall(r'<script type="application/json" id="[^"]*">.*?</script>', html, re.DOTALL)
    parse = "for (const one of document.querySelectorAll('script[type]')) JSON.parse(one.textContent);"
    return f"<!doctype html><body>{''.join(blocks)}<script>{parse}document.title = 'parsed';</script>"


@contextlib.contextmanager
def browser(program: str) -> Iterator[Any]:
    """Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"] if os.getuid() == 0 else []
        )
        yield chromium
        chromium.close()


@contextlib.contextmanager
def page_of(chromium: Any) -> Iterator[Any]:
    """A page of a browser that has loaded nothing yet."""
    context = chromium.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    yield page
    context.close()


def parsed(chromium: Any, bare: Path) -> float:
    """Seconds until the bare page has parsed the data."""
    with page_of(chromium) as page:
        began = time.perf_counter()
        page.goto(bare.as_uri())
        assert page.title() == "parsed"
        return time.perf_counter() - began


def opened_file(chromium: Any, file: Path) -> tuple[float, float]:
    """Seconds until the report's table is there, and seconds of a search in it."""
    with page_of(chromium) as page:
        began = time.perf_counter()
        page.goto(f"{file.as_uri()}#/evaluation/small/samples")
        page.wait_for_selector("table.samples tbody tr")
        shown = time.perf_counter()
        return shown - began, search(page, f"{FILE_SAMPLES - 1} + ")


def opened_live(chromium: Any, folder: Path) -> tuple[float, float]:
    """Seconds until the live table is there, for a server that has read nothing yet, and seconds of a search in it."""
    command = [*COMMAND, "view", "--state-dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, page_of(chromium) as page:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        page.goto(address)
        page.wait_for_selector("main h1")
        began = time.perf_counter()
        page.goto(f"{address.partition('?')[0]}#/evaluation/large/samples")
        page.wait_for_selector("table.samples tbody tr")
        shown = time.perf_counter()
        searched = search(page, f"{LIVE_SAMPLES - 1} + ")
        process.send_signal(signal.SIGINT)
        return shown - began, searched


def search(page: Any, text: str) -> float:
    """Seconds until the one sample with this text is the only row."""
    began = time.perf_counter()
    page.fill("#search", text)
    page.keyboard.press("Enter")
    while page.locator("table.samples tbody tr").count() != 1:
        page.wait_for_timeout(5)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
