"""`crucible-worker report`: a file of what a journal or a worker has."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from crucible_bridge.types import Sample, SamplingParams
from crucible_worker.cli import app
from crucible_worker.cli.report import written
from crucible_worker.testing import ScriptedModel, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.tables import rows

SAMPLES = tuple(Sample(id=f"s{n}", input=text, targets=("AB",)) for n, text in enumerate(("ab", "cód", "no")))


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with two steps of a run."""
    folder = tmp_path_factory.mktemp("state")

    async def evaluate() -> None:
        async with run_worker({"m": ScriptedModel()}, state_dir=folder) as worker:
            for step in (1, 2):
                await worker.bridge.evaluation.evaluate(
                    evaluation_id=f"night-{step}",
                    run_id="run",
                    step=step,
                    model="embedded:m",
                    evaluators=["accuracy"],
                    dataset=SAMPLES,
                    sampling=SamplingParams(max_tokens=8),
                )

    asyncio.run(evaluate())
    return folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not list(tmp_path.glob("*.part"))


def run(*arguments: str) -> Result:
    """The command, run in this process."""
    return CliRunner().invoke(app, ["report", *arguments])


def data_of(page: str, block: str = "data") -> Any:
    """A block of a page."""
    found = re.search(f'id="{block}">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_a_run_becomes_a_page_in_the_current_folder(state_dir: Path, here: Path) -> None:
    """Its path alone is printed; the page has every step, its samples and what is tied."""
    result = run("--run", "run", "--state-dir", str(state_dir))
    data = data_of((here / "report.html").read_text("utf-8"))

    assert (result.exit_code, result.stdout, result.stderr) == (0, "report.html\n", "")
    assert (data["home"], list(data["evaluations"])) == ("#/run/run", ["night-1", "night-2"])
    assert {series["key"]: series["tied"] for series in data["runs"]["run"]["series"]}["accuracy"] == ["night-2"]
    assert data["samples"]["night-2"]["shown"] == 3


@rows(
    ("report_format", "name", "start"),
    [
        ("html", "report.html", "<!doctype html>"),
        ("markdown", "report.md", "# Mine"),
        ("json", "report.json", '{\n  "title": "Mine"'),
    ],
)
def test_each_format_has_its_file(state_dir: Path, here: Path, report_format: str, name: str, start: str) -> None:
    """Of evaluations in the order given, under the report's title."""
    result = run("night-2", "night-1", "--format", report_format, "--title", "Mine", "--state-dir", str(state_dir))
    text = (here / name).read_text("utf-8")

    assert (result.exit_code, result.stdout) == (0, f"{name}\n")
    assert text.startswith(start)
    assert text.index("night-2") < text.index("night-1")


def test_a_file_that_was_there_is_replaced_and_that_is_said(state_dir: Path, here: Path) -> None:
    """On stderr: the standard output stays the path."""
    (here / "mine.html").write_text("old")
    result = run("night-1", "--output", "mine.html", "--state-dir", str(state_dir))

    assert (result.exit_code, result.stdout) == (0, "mine.html\n")
    assert result.stderr == "crucible-worker: mine.html existed, and is replaced\n"
    assert (here / "mine.html").read_text("utf-8").startswith("<!doctype html>")


def test_a_report_can_go_to_the_standard_output(state_dir: Path, here: Path) -> None:
    """And nothing else does."""
    result = run("night-1", "--format", "json", "-o", "-", "--state-dir", str(state_dir))

    assert [one["evaluation_id"] for one in json.loads(result.stdout)["evaluations"]] == ["night-1"]
    assert list(here.iterdir()) == []


def test_samples_of_a_page_can_be_bounded(state_dir: Path, here: Path) -> None:
    """The wrong ones stay first, and the page says what it leaves out."""
    result = run("night-1", "--max-samples", "1", "--state-dir", str(state_dir))
    page = (here / "report.html").read_text("utf-8")

    assert result.exit_code == 0
    assert [sample["sample_id"] for sample in data_of(page, "samples-0")] == ["s1"]
    assert "at most 1 samples" in data_of(page)["samples"]["night-1"]["left_out"]


async def test_a_worker_is_reported_as_its_journal_is(state_dir: Path, here: Path) -> None:
    """By its address: the same page, but for the time; also where messages have no room for it."""
    limits = WorkerLimits(max_message_bytes=128 * 1024)
    async with run_worker({}, state_dir=state_dir, limits=limits) as worker:
        remote = await asyncio.to_thread(run, "--run", "run", "--address", worker.address)
        of_worker = (here / "report.html").read_text("utf-8")
    local = await asyncio.to_thread(run, "--run", "run", "--state-dir", str(state_dir))
    of_journal = (here / "report.html").read_text("utf-8")

    assert (remote.exit_code, local.exit_code) == (0, 0)
    without_time = [{**data_of(page), "created": 0} for page in (of_worker, of_journal)]
    assert without_time[0] == without_time[1]
    assert data_of(of_worker, "samples-1") == data_of(of_journal, "samples-1")


@rows(
    ("arguments", "said"),
    [
        ((), "give IDs of evaluations, or --run"),
        (("night-1", "--run", "run"), "give either IDs of evaluations or --run, not both"),
        (("--run", ""), "--run is empty"),
        (("night-1", "--format", "pdf"), "--format is 'pdf', must be one of html, markdown, json"),
        (("night-1", "--token-file", "t"), "--token-file goes with --address"),
        (("night-1", "--tls-ca", "t"), "--tls-ca goes with --address"),
        (("night-1", "--tls-name", "n"), "--tls-name goes with --address"),
        (("night-1", "--address", "h:1", "--tls-name", "n"), "--tls-name goes with --tls-ca"),
        (("night-1", "--address", "127.0.0.1:1", "--state-dir", "."), "--state-dir and --address exclude each other"),
        (("night-1", "--address", "127.0.0.1:1", "--token-file", "nosuch"), "--token-file cannot be read"),
        (("night-1", "--state-dir", "nosuch"), "nosuch has no journal"),
    ],
)
def test_what_makes_no_sense_is_said(here: Path, arguments: tuple[str, ...], said: str) -> None:
    """By the options as they are typed, before anything is written."""
    result = run(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert list(here.iterdir()) == []


@rows(
    ("arguments", "said"),
    [
        (("nosuch",), "crucible-worker: ID is 'nosuch'"),
        (("--run", "nosuch"), "crucible-worker: --run is 'nosuch', which has no evaluation"),
        (
            ("night-1", "--output", "nosuch/x.html"),
            "--output nosuch/x.html cannot be written: No such file or directory",
        ),
        (("night-1", "--output", "."), "--output . cannot be written: Is a directory"),
    ],
)
def test_what_is_not_there_is_named(state_dir: Path, arguments: tuple[str, ...], said: str) -> None:
    """The id or the run that was asked for, or the file that cannot be written."""
    result = run(*arguments, "--state-dir", str(state_dir))

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_no_worker_at_the_address_is_a_failure() -> None:
    """Nothing is wrong with what was typed."""
    result = run("night-1", "--address", "unix:/nosuch/socket")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("crucible-worker: ")


def test_a_file_is_written_whole_or_not_at_all(here: Path) -> None:
    """What fails in the middle leaves the file that was there."""
    file = here / "report.html"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        written(file, "new \ud800")

    assert file.read_text() == "old"
    assert [path.name for path in here.iterdir()] == ["report.html"]


def test_a_file_has_the_rights_of_any_other(here: Path) -> None:
    """A new one those that the user's mask leaves; one that is replaced keeps its own; a link stays a link."""
    mask = os.umask(0o027)
    try:
        assert written(here / "new", "x") is False
    finally:
        os.umask(mask)
    (here / "link").symlink_to("new")
    (here / "new").chmod(0o600)

    assert written(here / "link", "y") is True
    assert stat.S_IMODE((here / "new").stat().st_mode) == 0o600
    assert (here / "link").is_symlink()
    assert (here / "new").read_text() == "y"
