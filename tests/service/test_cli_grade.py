"""`crucible-worker grade`: records in, verdicts out, nothing lost."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crucible_worker.grading.registry import GRADERS
from tests import commands
from tests.processes import alive, processes_below
from tests.service.grading_kit import HARD

KEYS = {"id", "verdict", "score", "method", "reason", "extracted", "micros"}
GONE_SECONDS = 2.0
"""For every child to be gone once the command is."""


def command(*arguments: str | Path) -> list[str]:
    """As it is typed."""
    return [sys.executable, "-m", "crucible_worker", "grade", "--processes=2", *map(str, arguments)]


def grade(folder: Path, records: list[Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Grade records, or lines as they are, into `graded.jsonl`, unless an argument names another file."""
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    (folder / "pairs.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    named = {argument.partition("=")[0] for argument in arguments}
    defaults = {"--input": folder / "pairs.jsonl", "--output": folder / "graded.jsonl"}
    files = [f"{option}={path}" for option, path in defaults.items() if option not in named]
    return commands.run("grade", "--processes=2", *files, *arguments, seconds=60)


def graded(folder: Path) -> list[dict[str, Any]]:
    """What came out."""
    return [json.loads(line) for line in (folder / "graded.jsonl").read_text().splitlines()]


def test_every_record_gets_its_verdict(tmp_path: Path):
    """In order, ids as they were, scores null where there are none; undecided is no failure."""
    done = grade(
        tmp_path,
        [
            {"id": "a", "gold": "1/2", "pred": "0.5", "label": True},
            {"id": 7, "gold": ["1", "2"], "response": "thus \\boxed{2}"},
            {"id": "é", "gold": "3", "pred": "4"},
            {"gold": "", "pred": "4"},
        ],
        "--json",
    )

    assert (done.returncode, done.stderr) == (0, "")
    rows = graded(tmp_path)
    assert [set(row) for row in rows] == [KEYS] * 4
    assert [(row["id"], row["verdict"], row["score"]) for row in rows] == [
        ("a", "correct", 1.0),
        (7, "correct", 1.0),
        ("é", "incorrect", 0.0),
        (4, "undecided", None),
    ]
    assert rows[1]["extracted"] == "2"
    assert all(row["micros"] >= 0 for row in rows)
    assert rows[3]["reason"]
    told = json.loads(done.stdout)
    counts = {"records": 4, "correct": 2, "incorrect": 1, "undecided": 1, "error": 0, "malformed": 0}
    assert counts.items() <= told.items()
    assert told["accuracy"] == pytest.approx(2 / 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graded.jsonl", "pairs.jsonl"]


def test_people_get_a_table(tmp_path: Path):
    """Without a terminal it holds no control characters."""
    done = grade(tmp_path, [{"gold": "1", "pred": "1"}, {"gold": "1", "pred": "2"}])

    assert done.returncode == 0
    assert "2 records in" in done.stdout
    assert "50.00%" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_a_line_that_is_no_record_is_an_error_with_its_number(tmp_path: Path):
    """It has a line in the output as every other, is named on stderr, and makes the command fail."""
    done = grade(tmp_path, [{"id": "a", "gold": "1", "pred": "1"}, '{"gold": "1"', "", {"id": "b", "gold": "1"}])

    assert done.returncode == 1
    assert [(row["id"], row["verdict"]) for row in graded(tmp_path)] == [
        ("a", "correct"),
        (None, "error"),
        (None, "error"),
    ]
    assert graded(tmp_path)[1]["reason"].startswith("line 2 is not JSON")
    assert graded(tmp_path)[2]["reason"] == 'line 4 has neither "pred" nor "response"'
    assert done.stderr.splitlines()[-1] == 'crucible-worker: line 4 has neither "pred" nor "response"'


def test_many_records_come_out_in_their_order(tmp_path: Path):
    """Chunks are graded side by side, and written one after the other."""
    records = [{"id": n, "gold": f"{n}", "pred": f"{n + n % 3}"} for n in range(2_000)]

    assert grade(tmp_path, records, "--json").returncode == 0

    assert [(row["id"], row["verdict"]) for row in graded(tmp_path)] == [
        (n, "incorrect" if n % 3 else "correct") for n in range(2_000)
    ]


def test_no_records_are_all_graded(tmp_path: Path):
    """An empty file has an empty answer."""
    done = grade(tmp_path, [], "--json")

    assert (done.returncode, graded(tmp_path), json.loads(done.stdout)["accuracy"]) == (0, [], None)


def test_the_policy_is_that_of_the_command(tmp_path: Path):
    """Each rule has its option."""
    records = [{"gold": "1/3", "pred": "0.333"}, {"gold": "45^\\circ", "pred": "45"}]

    assert grade(tmp_path, records, "--policy=rounding_digits=3", "--policy=degrees=false").returncode == 0
    assert graded(tmp_path)[0]["verdict"] == "correct"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--policy=degrees"], "--policy is 'degrees', not NAME=VALUE"),
        (["--policy=degrees=maybe"], "--policy degrees is 'maybe'"),
        (["--policy=radians=true"], "--policy radians is unknown"),
        (["--policy=rounding_digits=true"], "--policy rounding_digits is true, must be a whole number"),
        (["--policy=rounding_digits=16"], "at most 15"),
        (["--processes=1"], "--processes"),
        (["--input=missing.jsonl"], "--input missing.jsonl cannot be read"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(arguments: list[str], complaint: str, tmp_path: Path):
    """It exits with 2, and an output that was there stays."""
    (tmp_path / "graded.jsonl").write_text("before")

    done = grade(tmp_path, [{"gold": "1", "pred": "1"}], *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert (tmp_path / "graded.jsonl").read_text() == "before"


def test_the_input_is_never_replaced(tmp_path: Path):
    """Be it by another of its names."""
    (tmp_path / "pairs.jsonl").write_text('{"gold": "1", "pred": "1"}\n')
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "pairs.jsonl")

    done = subprocess.run(
        command("--input", tmp_path / "pairs.jsonl", "--output", tmp_path / "link.jsonl"),
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 2
    assert "--output is the input, which would be lost" in done.stderr
    assert (tmp_path / "pairs.jsonl").read_text() == '{"gold": "1", "pred": "1"}\n'


def test_an_output_that_cannot_be_written_is_a_failure(tmp_path: Path):
    """The operator reads why, not a traceback."""
    done = grade(tmp_path, [{"gold": "1", "pred": "1"}], f"--output={tmp_path / 'no' / 'graded.jsonl'}")

    assert done.returncode == 1
    assert done.stderr == "crucible-worker: cannot write the output: No such file or directory\n"


def test_a_pipe_is_read_as_a_file_is(tmp_path: Path):
    """Nobody can tell where in it the command is, and nobody needs to."""
    output = tmp_path / "graded.jsonl"
    records = '{"id": "a", "gold": "1/2", "pred": "0.5"}\n{"id": "b", "gold": "1", "pred": "2"}\n'

    done = subprocess.run(
        command("--input=/dev/stdin", f"--output={output}"), input=records, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert [(row["id"], row["verdict"]) for row in graded(tmp_path)] == [("a", "correct"), ("b", "incorrect")]


def test_an_input_that_cannot_be_read_is_named(tmp_path: Path):
    """It opens, and reading fails, as on a bad disk; the output is not blamed."""
    done = subprocess.run(
        command("--input=/proc/self/mem", f"--output={tmp_path / 'graded.jsonl'}"),
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "--input: cannot be read: Input/output error" in done.stderr


def test_the_same_id_twice_is_two_records(tmp_path: Path):
    """Ids are the caller's: each record has its line, whatever it is called, and the summary counts all."""
    records = [{"id": "a", "gold": "1", "pred": "1"}, {"id": "a", "gold": "1", "pred": "2"}, {"gold": "", "pred": ""}]

    done = grade(tmp_path, records, "--json")

    assert done.returncode == 0
    assert [(row["id"], row["verdict"]) for row in graded(tmp_path)] == [
        ("a", "correct"),
        ("a", "incorrect"),
        (3, "undecided"),
    ]
    counts = {"records": 3, "correct": 1, "incorrect": 1, "undecided": 1, "error": 0, "malformed": 0}
    assert counts.items() <= json.loads(done.stdout).items()


def test_a_killed_command_leaves_the_output_as_it_was(tmp_path: Path):
    """It had no time to remove its draft, but nobody takes that for the output."""
    records = [{"gold": f"{HARD}+{n}", "pred": f"{HARD}+{n}+z"} for n in range(5_000)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "graded.jsonl").write_text("before")
    files = (f"--input={tmp_path / 'pairs.jsonl'}", f"--output={tmp_path / 'graded.jsonl'}")
    with subprocess.Popen(command(*files), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not any(path.name.startswith(".graded") for path in tmp_path.iterdir()) or not processes_below(
            process.pid
        ):
            assert process.poll() is None
        children = processes_below(process.pid)
        process.kill()

    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "graded.jsonl").read_text() == "before"
    deadline = time.monotonic() + GONE_SECONDS
    while alive(children):
        assert time.monotonic() < deadline


def test_an_output_that_is_full_is_a_failure(tmp_path: Path):
    """Only flushing tells."""
    done = grade(tmp_path, [{"gold": "1", "pred": "1"}], "--output=/dev/full")

    assert done.returncode == 1
    assert done.stderr == "crucible-worker: cannot write the output: No space left on device\n"


def test_what_is_not_utf_8_is_graded_and_told(tmp_path: Path):
    """As over gRPC: U+FFFD stands for it, and the reason says so."""
    done = grade(tmp_path, ['{"gold": "5", "pred": "\\ud8005"}', '{"gold": "5", "pred": "5"}'])

    assert done.returncode == 0, done.stderr
    replaced, plain = graded(tmp_path)
    assert (replaced["verdict"] != "error", "U+FFFD: 1" in replaced["reason"]) == (True, True)
    assert (plain["verdict"], plain["reason"]) == ("correct", "")


def test_a_pipe_is_written_as_it_is(tmp_path: Path):
    """What is no file cannot be replaced by one."""
    (tmp_path / "pairs.jsonl").write_text('{"id": "a", "gold": "1", "pred": "1"}\n')
    files = (f"--input={tmp_path / 'pairs.jsonl'}", "--output=/dev/stdout")
    done = subprocess.run(command(*files, "--json"), capture_output=True, text=True, timeout=60)

    first, second = done.stdout.splitlines()
    assert (json.loads(first)["id"], json.loads(second)["records"]) == ("a", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.jsonl"]


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 1), (signal.SIGINT, 130)])
def test_a_command_that_is_ended_leaves_what_was_there(number: signal.Signals, expected: int, tmp_path: Path):
    """The output of before stays, no draft is left, and no child lives on."""
    records = [{"gold": f"{HARD}+{n}", "pred": f"{HARD}+{n}+z"} for n in range(5_000)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "graded.jsonl").write_text("before")
    files = (f"--input={tmp_path / 'pairs.jsonl'}", f"--output={tmp_path / 'graded.jsonl'}")
    with subprocess.Popen(
        command(*files),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts tests in the background has them ignore Ctrl-C, and what they start with them.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    ) as process:
        while not any(path.name.startswith(".graded") for path in tmp_path.iterdir()) or not processes_below(
            process.pid
        ):
            assert process.poll() is None
        children = processes_below(process.pid)
        process.send_signal(number)
        _, said = process.communicate(timeout=20)

    assert process.returncode == expected
    assert said.splitlines()[-1] == "crucible-worker: ended before all was graded; a file at --output is unchanged"
    assert (tmp_path / "graded.jsonl").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graded.jsonl", "pairs.jsonl"]
    assert children
    deadline = time.monotonic() + GONE_SECONDS
    while alive(children):
        assert time.monotonic() < deadline


def test_a_compressed_file_is_graded(tmp_path: Path):
    """As data sets may be; a number that is NaN in a key that nothing reads does not matter."""
    records = '{"id": "a", "gold": "1/2", "pred": "0.5", "seconds": NaN}\n\n{"id": "b", "gold": "1", "pred": "2"}\n'
    (tmp_path / "pairs.jsonl.gz").write_bytes(gzip.compress(records.encode("utf-16")))

    done = grade(tmp_path, [], f"--input={tmp_path / 'pairs.jsonl.gz'}")

    assert done.returncode == 0, done.stderr
    assert [(row["id"], row["verdict"]) for row in graded(tmp_path)] == [("a", "correct"), ("b", "incorrect")]


def test_a_damaged_file_is_refused(tmp_path: Path):
    """The output stays as it was."""
    (tmp_path / "pairs.jsonl.gz").write_bytes(gzip.compress(b'{"gold": "1", "pred": "1"}\n' * 99)[:60])

    done = grade(tmp_path, [], f"--input={tmp_path / 'pairs.jsonl.gz'}")

    assert done.returncode == 2
    assert done.stderr.startswith("crucible-worker: --input is damaged: gzip cannot expand it")
    assert not (tmp_path / "graded.jsonl").exists()


QUESTION = {"choices": ["Paris", "London", "Rome", "Oslo"]}


def test_choices_of_the_file_are_read(tmp_path: Path):
    """By the graders that read choices: by letter, text, label or index, in responses and in bare answers."""
    labelled = {"choices": {"text": QUESTION["choices"], "label": ["1", "2", "3", "4"]}}
    records = [
        {"gold": "C", "response": "The capital is Rome.", **QUESTION},
        {"gold": 2, "pred": "Rome", **QUESTION},
        {"gold": "3", "response": "Answer: 3", **labelled},
        {"gold": "C", "response": "The answer is D.", **QUESTION},
        {"gold": "C", "response": "Paris or Rome", **QUESTION},
    ]
    wanted = ["correct"] * 3 + ["incorrect"] * 2

    by_math = grade(tmp_path, records, "--json")
    found = graded(tmp_path)
    files = f"--input={tmp_path / 'pairs.jsonl'}", f"--output={tmp_path / 'second.jsonl'}"
    by_letter = commands.run("grade", *files, "--grader=multiple_choice", "--json", seconds=60)
    by_choice = [json.loads(line) for line in (tmp_path / "second.jsonl").read_text().splitlines()]

    assert [row["verdict"] for row in found] == wanted
    assert [row["verdict"] for row in by_choice] == wanted
    assert by_choice[4]["method"] == "several_choices"
    told = json.loads(by_math.stdout), json.loads(by_letter.stdout)
    assert [(each["grader"], each["grader_version"]) for each in told] == [
        (name, GRADERS[name].version) for name in ("math", "multiple_choice")
    ]


@pytest.mark.parametrize("arguments", [["--grader=numeric"], ["--grader=exact_match"], ["--code"]])
def test_choices_that_a_grader_does_not_read_are_refused(tmp_path: Path, arguments: list[str]):
    """The line, the column and the graders that read it are named, and nothing is written."""
    pairs, output = tmp_path / "pairs.jsonl", tmp_path / "graded.jsonl"
    records = [{"gold": "1", "response": "1"}, {"gold": "1", "response": "1", **QUESTION}]
    pairs.write_text("".join(json.dumps(record) + "\n" for record in records))

    done = commands.run("grade", f"--input={pairs}", f"--output={output}", *arguments, seconds=60)

    name = "code" if arguments == ["--code"] else arguments[0].partition("=")[2]
    assert done.returncode == 2
    assert f'--input line 2 has "choices", which {name} does not read' in done.stderr
    assert not output.exists()
