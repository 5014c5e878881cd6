"""`crucible-worker samples`: what became of samples, with their records, from a journal or from a worker."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from typing import NamedTuple

import pytest

from crucible_bridge.types import Record, Sample, SamplingParams
from crucible_worker.cli.samples import CSV_COLUMNS
from crucible_worker.testing import ScriptedModel, run_worker
from tests import commands

SAMPLES = (
    Sample(id="right", input="ab", targets=("AB",), metadata={"of": "a test"}),
    Sample(id="wrong", input="cód", targets=("no", "nor this")),
)


class Result(NamedTuple):
    """What a command has said."""

    exit_code: int
    stdout: str
    stderr: str


async def shown(*arguments: str) -> Result:
    """The command, run in a process of its own."""
    done = await asyncio.to_thread(commands.run, "samples", *arguments)
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
async def state_dir(tmp_path):
    """A state directory with two evaluations, one of them recorded without samples."""
    (tmp_path / "data.jsonl").write_text(
        "".join(
            json.dumps({"id": each.id, "input": each.input, "targets": list(each.targets), "metadata": each.metadata})
            + "\n"
            for each in SAMPLES
        )
    )
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path / "state", data_roots=(tmp_path,)) as worker:
        for record in (Record.FULL, Record.OUTPUTS):
            await worker.bridge.evaluation.evaluate(
                evaluation_id=record.value,
                model="embedded:m",
                evaluators=["accuracy"],
                dataset="jsonl:data.jsonl",
                sampling=SamplingParams(max_tokens=8),
                record=record,
            )
    return tmp_path / "state"


def lines_of(result: Result) -> list[dict]:
    """The objects of its lines."""
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


async def test_each_line_has_what_was_asked_and_what_was_said(state_dir):
    """One object a line: ids, verdict, score, input, prompt, targets and output."""
    right, wrong = lines_of(await shown("full", "--state-dir", str(state_dir), "--jsonl"))
    expected = {
        "sample_id": "right",
        "evaluator": "accuracy",
        "repeat": 0,
        "verdict": "correct",
        "score": 1.0,
        "input": "ab",
        "prompt": [{"role": "user", "content": "ab"}],
        "targets": ["AB"],
        "metadata": {"of": "a test"},
        "output": "AB",
        "extracted": "AB",
        "method": "exact",
        "truncated": [],
    }
    assert {key: right[key] for key in expected} == expected
    assert (wrong["verdict"], wrong["targets"]) == ("incorrect", ["no", "nor this"])
    assert wrong["input"] == "cód"


async def test_what_is_shown_can_be_chosen(state_dir):
    """By verdict and evaluator; as one list; and nothing but results of what was recorded without samples."""
    only = lines_of(await shown("full", "--state-dir", str(state_dir), "--jsonl", "--verdict", "incorrect"))
    assert [each["sample_id"] for each in only] == ["wrong"]
    assert lines_of(await shown("full", "--state-dir", str(state_dir), "--jsonl", "--evaluator", "nll")) == []
    (listed,) = lines_of(await shown("outputs", "--state-dir", str(state_dir), "--json"))
    assert [(each["input"], each["prompt"], each["output"][:1]) for each in listed] == [
        (None, None, "A"),
        (None, None, "C"),
    ]
    table = (await shown("full", "--state-dir", str(state_dir))).stdout
    assert "correct 1" in table
    assert "no, nor this" in table


async def ids(state_dir, *arguments: str) -> list[str]:
    """The ids of the shown samples."""
    return [each["sample_id"] for each in lines_of(await shown(*arguments, "--state-dir", str(state_dir), "--jsonl"))]


async def test_filters_add_up(state_dir):
    """By metadata, text and reason; the text is looked for in every part, whatever its case; offset and limit."""
    assert await ids(state_dir, "full", "--where", "of=a test") == ["right"]
    assert await ids(state_dir, "full", "--where", "of=a test", "--search", "nor this") == []
    assert await ids(state_dir, "full", "--search", "NOR this") == ["wrong"]
    assert await ids(state_dir, "full", "--search", "CÓD") == ["wrong"]
    assert await ids(state_dir, "full", "--reason", "NO_TARGET") == []
    assert await ids(state_dir, "full", "--limit", "1") == ["right"]
    assert await ids(state_dir, "full", "--offset", "1") == ["wrong"]
    assert await ids(state_dir, "outputs", "--where", "of=a test") == []


async def test_csv_has_one_row_for_each_sample(state_dir):
    """Under the same columns, whatever was recorded; spreadsheets read it."""
    for evaluation, asked in (("full", ["ab", "cód"]), ("outputs", ["", ""])):
        text = (await shown(evaluation, "--state-dir", str(state_dir), "--csv")).stdout
        rows_found = list(csv.DictReader(io.StringIO(text)))
        assert text.splitlines()[0] == ",".join(CSV_COLUMNS)
        assert [(each["sample_id"], each["verdict"], each["input"]) for each in rows_found] == [
            ("right", "correct", asked[0]),
            ("wrong", "incorrect", asked[1]),
        ]
    assert (await shown("full", "--state-dir", str(state_dir), "--csv", "--search", "zzz")).stdout == (
        ",".join(CSV_COLUMNS) + "\n"
    )


async def test_json_is_one_list(state_dir):
    """Also without a sample."""
    found = await shown("full", "--state-dir", str(state_dir), "--json", "--verdict", "error")
    assert json.loads(found.stdout) == []


async def test_verbose_has_whole_texts(state_dir):
    """Every recorded fact of each sample, under its name."""
    found = (await shown("full", "--state-dir", str(state_dir), "--verbose")).stdout
    assert found.startswith("right: accuracy, repeat 0\n")
    assert '  metadata: {"of": "a test"}\n' in found
    assert '  targets: ["no", "nor this"]\n' in found


async def test_a_worker_shows_the_same(state_dir):
    """With --address the worker there is asked."""
    async with run_worker({}, state_dir=state_dir) as worker:
        found = lines_of(await shown("full", "--address", worker.address, "--jsonl"))
    assert found == lines_of(await shown("full", "--state-dir", str(state_dir), "--jsonl"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none", "--state-dir", "STATE"], "ID is 'none'"),
        (["full", "--state-dir", "STATE/other"], "has no journal"),
        (["full", "--state-dir", "STATE", "--verdict", "good"], "--verdict is 'good', must be one of correct,"),
        (["full", "--state-dir", "STATE", "--where", "level"], "--where is 'level', not KEY=VALUE"),
        (["full", "--state-dir", "STATE", "--where", "a=1", "--where", "a=2"], "--where has two values for 'a'"),
        (["full", "--state-dir", "STATE", "--csv", "--json"], "--json and --csv exclude each other"),
    ],
    ids=["an evaluation", "a journal", "a verdict", "metadata", "two values", "two forms"],
)
async def test_what_is_not_there_is_named(state_dir, arguments, said):
    """The message names what was written, and the exit code is 2; no journal is made."""
    result = await shown(*(argument.replace("STATE", str(state_dir)) for argument in arguments))
    assert result.exit_code == 2
    assert said.replace("STATE", str(state_dir)) in result.stderr
    assert not (state_dir / "other").exists()
