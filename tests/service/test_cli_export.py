"""`crucible-worker export`: what the command writes, from a journal and from a worker, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from crucible_worker.testing import run_worker
from tests import needs
from tests.service.exports_kit import evaluate_into, exported

VERDICTS = [
    ("right", "exact", "correct", 1.0),
    ("right", "number", "undecided", None),
    ("wrong/two ünï", "exact", "incorrect", 0.0),
    ("wrong/two ünï", "number", "undecided", None),
    ("undecided", "exact", "undecided", None),
    ("undecided", "number", "undecided", None),
]


@pytest.fixture
async def state_dir(tmp_path: Path) -> Path:
    """A journal with two evaluations."""
    return await evaluate_into(tmp_path, ("e", "f"))


async def test_json_lines_have_every_result_of_every_evaluation(state_dir: Path, tmp_path: Path):
    """One line for each result, evaluation after evaluation; an unscored one has no number."""
    output = tmp_path / "out.jsonl"

    result = await exported("e", "f", "--format", "jsonl", "--output", output, "--state-dir", state_dir)

    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{output}\n", "")
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    for evaluation_id in ("e", "f"):
        found = [line for line in lines if line["evaluation_id"] == evaluation_id]
        assert [(one["sample_id"], one["evaluator"], one["verdict"], one["score"]) for one in found] == VERDICTS
    assert {(one["run_id"], one["step"], one["model"]) for one in lines} == {("run-7", 320, "embedded:m")}
    assert lines[0]["sample"]["metadata"] == {"level": "easy", "naïve": "\U0001f600"}


async def test_parquet_is_one_table_of_all(state_dir: Path, tmp_path: Path):
    """The same results as rows; an unscored one is null."""
    parquet = pytest.importorskip("pyarrow.parquet", reason=needs.MISSING["pyarrow"])
    output = tmp_path / "out.parquet"

    result = await exported("e", "f", "--format", "parquet", "--output", output, "--state-dir", state_dir)

    assert result.exit_code == 0, result.stderr
    rows = parquet.read_table(output).to_pylist()
    shown = [(row["sample_id"], row["evaluator"], row["verdict"], row["score"]) for row in rows]
    assert shown == VERDICTS * 2
    assert rows[2]["sample.targets"] == ["no", "nor this"]


async def test_a_worker_exports_the_same_bytes(state_dir: Path, tmp_path: Path):
    """With --address the worker there is queried: each format has the same bytes as from the journal."""
    outputs: dict[str, list[bytes]] = {}
    async with run_worker({}, state_dir=state_dir) as worker:
        for number, place in enumerate((("--state-dir", state_dir), ("--address", worker.address))):
            for kind, name in (("inspect", "out.eval"), ("jsonl", "out.jsonl"), ("every-eval-ever", "folder")):
                output = tmp_path / f"{number}-{name}"
                result = await exported("e", "--format", kind, "--output", output, *place)
                assert result.exit_code == 0, result.stderr
                written = [Path(line) for line in result.stdout.splitlines()]
                outputs.setdefault(kind, []).append(b"".join(path.read_bytes() for path in written))

    for first, second in outputs.values():
        assert first == second


async def test_several_evaluations_are_files_of_a_folder(state_dir: Path, tmp_path: Path):
    """Each has a file of its own name, and the names are the same when they are written again."""
    output = tmp_path / "logs"

    first = await exported("e", "f", "--format", "inspect", "--output", output, "--state-dir", state_dir)
    second = await exported("e", "f", "--format", "inspect", "--output", output, "--state-dir", state_dir)

    assert first.exit_code == 0, first.stderr
    assert second.stdout == first.stdout
    files = sorted(output.iterdir())
    assert sorted(map(str, files)) == sorted(first.stdout.splitlines())
    ids = []
    for file in files:
        with zipfile.ZipFile(file) as archive:
            ids.append(json.loads(archive.read("header.json"))["eval"]["eval_id"])
    assert sorted(ids) == ["e", "f"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none", "--format", "jsonl", "--output", "out"), "ID is 'none'"),
        (("e", "none", "--format", "inspect", "--output", "out"), "ID is 'none'"),
        (("e", "--format", "csv", "--output", "out"), "--format is 'csv', must be one of inspect, every-eval-ever,"),
        (("e", "--format", "inspect", "--output", "out.zip"), "does not have the suffix .eval"),
        (("e", "--format", "jsonl", "--output", "no/such/out"), "no/such/out cannot be written: No such file"),
        (("e", "--format", "jsonl", "--output", "."), "--output . cannot be written: Is a directory"),
        (("e", "--format", "jsonl", "--output", "out", "--organization", "us"), "--organization goes with --format"),
    ],
    ids=["an evaluation", "one of two", "a format", "a suffix", "a folder", "a folder as file", "an organization"],
)
async def test_what_is_wrong_is_named_as_it_was_typed(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
):
    """The message names the option, the exit code is 2, and nothing is written."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)

    result = await exported(*arguments, "--state-dir", state_dir)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert [path for path in place.rglob("*") if path.is_file()] == []


async def test_without_pyarrow_the_extra_is_named(state_dir: Path, tmp_path: Path):
    """The message says what to install, before anything is read."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'pyarrow' else find(name, *rest)\n"
    )
    command = [sys.executable, "-m", "crucible_worker", "export", "e", "--format=parquet"]
    result = await asyncio.to_thread(
        subprocess.run,
        [*command, f"--output={tmp_path / 'out'}", f"--state-dir={state_dir}"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "hidden")},
        capture_output=True,
        text=True,
    )

    assert result.returncode == 2
    assert "--format parquet needs pyarrow: pip install 'crucible-bridge[datasets]'" in result.stderr


async def test_the_journal_is_not_written_over(state_dir: Path, tmp_path: Path):
    """An output that is a file of the journal, or a link to one, is refused, and the journal stays as it is."""
    journal = state_dir / "journal.sqlite3"
    link = tmp_path / "link.jsonl"
    link.symlink_to(journal)
    before = journal.stat().st_ino

    for output in (journal, link):
        result = await exported("e", "--format", "jsonl", "--output", output, "--state-dir", state_dir)

        assert (result.exit_code, result.stdout) == (2, "")
        assert f"--output {output} is a file of the journal" in result.stderr
    assert journal.stat().st_ino == before


async def test_an_output_with_too_long_a_name_is_refused(state_dir: Path, tmp_path: Path):
    """The error names the option and the reason."""
    output = tmp_path / ("x" * 5_000)

    result = await exported("e", "--format", "jsonl", "--output", output, "--state-dir", state_dir)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot be written: File name too long" in result.stderr.replace("\n", " ")
