"""`crucible-worker evaluate` on an embedded model: table, JSON, exit codes."""

import contextlib
import json
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import commands
from tests.service.processes_kit import serving

MODEL = "embedded:arithmetic@600"


def _run(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return commands.run(*arguments, cwd=cwd)


def _evaluate(*arguments: str, cwd: Path, models: Sequence[str] = (MODEL,)) -> "subprocess.CompletedProcess[str]":
    named = [f"--model={model}" for model in models]
    return _run("evaluate", *named, "--max-tokens=8", *arguments, cwd=cwd)


def test_json_tells_metrics_and_counts(tmp_path: Path):
    """Several evaluators, options and a limit: one object on stdout, nothing else anywhere."""
    done = _evaluate(
        *("--data=builtin:arithmetic", "--samples=20", "--evaluator=nll", "--evaluator=accuracy"),
        *("--evaluator=loose=accuracy", "--option=loose.grader=contains", "--json"),
        cwd=tmp_path,
    )

    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert result["state"] == "completed"
    assert {"nll", "accuracy", "loose/accuracy"} <= set(result["metrics"])
    assert [(each["evaluator"], each["n"]) for each in result["evaluators"]] == [
        ("nll", 20),
        ("accuracy", 20),
        ("loose", 20),
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_spent_budget_ends_the_command_and_resume_continues(tmp_path: Path):
    """Exit code 6 and the command that continues; with the same budget that is refused, with a larger one it ends."""
    place = f"--state-dir={tmp_path / 'state'}"
    free = "--price=embedded:*=prompt:0,output:1000000"
    what = ("--data=builtin:arithmetic", "--samples=20", "--evaluator=accuracy", "--id=e", place)

    paused = _evaluate(*what, "--concurrency=2", "--max-cost=10", free, cwd=tmp_path)
    again = _evaluate(*what, "--concurrency=2", "--max-cost=10", free, cwd=tmp_path)
    listed = json.loads(_run("list", "--json", place, cwd=tmp_path).stdout)
    refused = _run("resume", "e", place, free, cwd=tmp_path)
    resumed = _run("resume", "e", "--max-cost=1000", place, free, cwd=tmp_path)
    unpriced = _evaluate(*what[:-2], "--id=f", place, "--max-cost=10", cwd=tmp_path)

    assert (paused.returncode, again.returncode) == (6, 6), paused.stderr
    for each in (paused, again):
        last = each.stderr.splitlines()[-1]
        assert re.match(r"crucible-worker: paused: e waits for a larger max_cost: 1\d of 10 are spent; ", last), last
        assert re.search(r"crucible-worker resume e .*--max-cost MORE continues$", last), last
    assert (listed[0]["state"], listed[0]["paused"]) == ("interrupted", True)
    assert (refused.returncode, "max_cost must be larger: 'e' has spent 1" in refused.stderr) == (2, True)
    assert (resumed.returncode, "20 of 20 scored" in resumed.stdout) == (0, True), resumed.stderr
    assert (unpriced.returncode, "--max-cost is given, and embedded:" in unpriced.stderr) == (2, True)


def test_people_get_sentences(tmp_path: Path):
    """Plain lines without a terminal; the last one names commands that show more, and they find the results."""
    done = _evaluate(
        *("--data=builtin:arithmetic", "--samples=5", "--evaluator=nll", f"--state-dir={tmp_path / 'state'}"),
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    title, joint, sentence, *_, more = done.stdout.splitlines()
    assert joint == 'prompt ends "23+74=", target "97"'
    assert title.startswith("embedded:arithmetic@600: completed in ")
    assert re.fullmatch(r"nll 0\.\d+, 5 of 5 scored", sentence)
    assert "\x1b" not in done.stdout + done.stderr
    place = f"--state-dir {tmp_path / 'state'}"
    told = re.fullmatch(
        rf"More: crucible-worker (show (\S+) {re.escape(place)}); crucible-worker (report \2 {re.escape(place)})", more
    )
    assert told is not None, more
    shown = _run(*shlex.split(told[1]), cwd=tmp_path)
    report = _run(*shlex.split(told[3]), "--format=markdown", "--output=-", cwd=tmp_path)
    assert shown.stdout.splitlines()[1] == sentence
    assert told[2] in report.stdout


def test_verbose_has_every_key(tmp_path: Path):
    """In a table, with keys that sentences leave out."""
    asked = ("--data=builtin:arithmetic", "--samples=2", "--evaluator=accuracy", "--no-keep")

    verbose, plain = _evaluate(*asked, "--verbose", cwd=tmp_path), _evaluate(*asked, cwd=tmp_path)

    assert "accuracy_stderr" in verbose.stdout
    assert "accuracy_stderr" not in plain.stdout


def test_results_stay_in_the_default_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without --state-dir, under a readable id, where `list` and `show` find it; --no-keep keeps nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    asked = ("--data=builtin:arithmetic", "--samples=2", "--evaluator=nll")

    dropped = _evaluate(*asked, "--no-keep", cwd=tmp_path)
    before = (tmp_path / "home").exists()
    kept = _evaluate(*asked, cwd=tmp_path)
    (listed,) = json.loads(_run("list", "--json", cwd=tmp_path).stdout)

    assert (dropped.returncode, before, "crucible-worker" in dropped.stdout) == (0, False, False)
    evaluation_id = listed["evaluation_id"]
    assert re.fullmatch(r"arithmetic-600-arithmetic-\d{8}-\d{6}-\w{4}", evaluation_id)
    assert kept.stdout.splitlines()[-1] == (
        f"More: crucible-worker show {evaluation_id}; crucible-worker report {evaluation_id}"
    )
    assert _run("show", evaluation_id, cwd=tmp_path).stdout.startswith(f"{evaluation_id}: completed\n")


def test_what_is_recorded_with_an_evaluation_can_be_typed(tmp_path: Path):
    """Run, step, labels, prefix and time limit are those of the request; --output has what --json prints."""
    done = _evaluate(
        *("--data=builtin:arithmetic", "--samples=2", "--evaluator=nll", "--id=x", "--run-id=run-7", "--step=320"),
        *("--label=branch=main", "--label=note=a=b", "--prefix=test/", "--timeout=90", "--output=told.json"),
        cwd=tmp_path,
    )
    shown = json.loads(_run("show", "x", "--json", cwd=tmp_path).stdout)
    again = _evaluate(
        *("--data=builtin:arithmetic", "--samples=2", "--evaluator=nll", "--id=x", "--run-id=run-7", "--step=320"),
        *("--prefix=test/", "--json"),
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    assert (shown["run_id"], shown["step"], shown["labels"]) == ("run-7", 320, {"branch": "main", "note": "a=b"})
    assert (shown["metric_prefix"], shown["limits"]["deadline_ms"]) == ("test/", 90_000)
    assert list(shown["metrics"]) == ["test/nll"]
    assert (tmp_path / "told.json").read_text() == again.stdout
    assert done.stdout.startswith("embedded:arithmetic@600: completed")


def test_the_same_id_with_another_request_is_refused(tmp_path: Path):
    """With the option that differs; the same request shows the result without running again."""
    asked = ("--data=builtin:arithmetic", "--samples=2", "--evaluator=nll", "--id=twice", "--state-dir=state")
    first = _evaluate(*asked, "--json", cwd=tmp_path)

    other = _evaluate(*asked, "--step=2", "--output=told.json", cwd=tmp_path)

    assert _evaluate(*asked, "--json", cwd=tmp_path).stdout == first.stdout
    assert other.returncode == 2
    assert "--step" in other.stderr
    assert json.loads((tmp_path / "told.json").read_text())["error"]["code"] == "ALREADY_EXISTS"


def test_an_earlier_result_says_so_and_rerun_evaluates_again(tmp_path: Path):
    """The first line has the date of the result; --rerun gives the next free id, and the earlier results stay."""
    asked = ("--data=builtin:arithmetic", "--samples=2", "--evaluator=nll", "--id=x", "--state-dir=state")
    first = _evaluate(*asked, cwd=tmp_path)
    shown = _evaluate(*asked, cwd=tmp_path)
    as_json = _evaluate(*asked, "--json", cwd=tmp_path)
    again = [_evaluate(*asked, "--rerun", cwd=tmp_path) for _ in range(2)]

    said = re.compile(r"x: result of \d{4}-\d\d-\d\d \d\d:\d\d, nothing was evaluated now; --rerun or another --id")
    assert said.match(shown.stdout)
    assert said.search(as_json.stderr)
    for ran in (first, *again):
        assert "nothing was evaluated" not in ran.stdout
    listed = json.loads(_run("list", "--json", "--state-dir=state", cwd=tmp_path).stdout)
    assert sorted(each["evaluation_id"] for each in listed) == ["x", "x-2", "x-3"]


def test_rerun_needs_an_id(tmp_path: Path):
    """Without one every command evaluates anew."""
    refused = _evaluate("--data=builtin:arithmetic", "--evaluator=nll", "--rerun", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--rerun needs --id" in refused.stderr


def test_two_commands_share_a_state_directory(tmp_path: Path):
    """Both at once keep their results in one journal."""
    command = [
        *(sys.executable, "-m", "crucible_worker", "evaluate", f"--model={MODEL}", "--data=builtin:arithmetic"),
        *("--samples=20", "--evaluator=nll", "--state-dir=state", "--json"),
    ]
    several = [subprocess.Popen([*command, f"--id=e{n}"], cwd=tmp_path, stdout=subprocess.PIPE) for n in range(2)]

    ids = [json.loads(each.communicate(timeout=120)[0])["evaluation_id"] for each in several]

    listed = json.loads(_run("list", "--json", "--state-dir=state", cwd=tmp_path).stdout)
    assert sorted(each["evaluation_id"] for each in listed) == ids == ["e0", "e1"]


def test_a_worker_may_serve_the_state_directory(tmp_path: Path):
    """An evaluation of the command is among those of a worker that serves meanwhile."""
    with serving(tmp_path) as (_, address):
        done = _evaluate(
            *("--data=builtin:arithmetic", "--samples=2", "--evaluator=nll", "--state-dir=state", "--id=mine"),
            cwd=tmp_path,
        )
        shown = _run("show", "mine", "--json", f"--address={address}", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert json.loads(shown.stdout)["state"] == "completed"


FILE = """
state_dir = "state"

[limits]
default_concurrency = 4

[evaluate]
model = "embedded:arithmetic@600"
data = "builtin:arithmetic"
evaluator = ["nll", "accuracy"]
option = ["accuracy.grader=numeric"]
samples = 4
max-tokens = 8
run-id = "run-7"
label = ["branch=main"]
id = "from-file"
json = true
"""


def test_a_file_says_what_a_command_says(tmp_path: Path):
    """Settings at the top, options in [evaluate]; what is typed wins, and a typed list replaces the file's."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "nightly.toml").write_text(FILE)

    plain = _run("evaluate", "--config=there/nightly.toml", cwd=tmp_path)
    typed = _run(
        *("evaluate", "--config=there/nightly.toml", "--samples=2", "--evaluator=loose=accuracy"),
        *("--option=loose.grader=contains", "--id=other"),
        cwd=tmp_path,
    )

    assert plain.returncode == 0, plain.stderr
    told = json.loads(plain.stdout)
    assert (told["evaluation_id"], told["run_id"], [each["n"] for each in told["evaluators"]]) == (
        "from-file",
        "run-7",
        [4, 4],
    )
    assert (tmp_path / "there" / "state" / "journal.sqlite3").exists()
    assert typed.returncode == 0, typed.stderr
    told = json.loads(typed.stdout)
    assert (told["evaluation_id"], [(each["evaluator"], each["n"]) for each in told["evaluators"]]) == (
        "other",
        [("loose", 2)],
    )


def test_several_models_are_compared(tmp_path: Path):
    """Each is evaluated, in the order typed, and the second beside the first, sample by sample."""
    models = [MODEL, "embedded:arithmetic@240"]
    asked = ("--data=builtin:arithmetic", "--samples=30", "--evaluator=accuracy", "--option=accuracy.grader=numeric")

    data = _evaluate(*asked, "--json", cwd=tmp_path, models=models)
    table = _evaluate(*asked, cwd=tmp_path, models=models)

    assert (data.returncode, data.stderr, table.returncode) == (0, "", 0), table.stderr
    told = json.loads(data.stdout)
    assert told["models"] == [each["model"] for each in told["evaluations"]] == models
    first, second = (each["metrics"]["accuracy"] for each in told["evaluations"])
    assert first > second
    (pair,) = told["comparisons"]
    assert (pair["baseline"], pair["model"], pair["evaluator"]) == (*models, "accuracy")
    assert (pair["n_matched"], pair["n_regressed"] - pair["n_improved"]) == (30, round((first - second) * 30))
    assert pair["metrics"]["difference"] == pytest.approx(second - first)
    assert f"{models[1]}, compared with {models[0]}" in table.stdout
    *_, finished, more = table.stdout.splitlines()
    assert finished == "evaluations: 2 of 2 finished"
    assert re.fullmatch(r"More: crucible-worker show \S+; crucible-worker report \S+ \S+", more)


def test_a_model_that_is_not_there_leaves_the_others(tmp_path: Path):
    """It has its error in its place, and nothing to compare; the exit status says that something failed."""
    done = _evaluate(
        *("--data=builtin:arithmetic", "--samples=2", "--evaluator=nll", "--json"),
        cwd=tmp_path,
        models=[MODEL, "local:gone"],
    )

    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert [each["model"] for each in told["evaluations"]] == ["embedded:arithmetic@600", "local:gone"]
    assert told["evaluations"][0]["state"] == "completed"
    assert told["evaluations"][1]["error"]["reason"] == "MODEL_NOT_FOUND"
    assert told["comparisons"] == []


def test_a_command_removes_nothing_from_the_journal(tmp_path: Path):
    """Evaluations that ended long ago, and more events than a worker retains, are there after the next command."""
    (tmp_path / "crucible.toml").write_text("[limits]\nretention_grace_seconds = 0\nmax_events_retained = 1\n")
    asked = (
        "--data=builtin:arithmetic",
        "--samples=3",
        "--evaluator=nll",
        "--state-dir=state",
        "--config=crucible.toml",
    )
    assert _evaluate(*asked, "--id=old", cwd=tmp_path).returncode == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "state" / "journal.sqlite3")) as journal:
        journal.execute("UPDATE evaluations SET ended_ns = 1")
        journal.commit()
        events = journal.execute("SELECT COUNT(*) FROM events").fetchone()

        assert _evaluate(*asked, "--id=new", cwd=tmp_path).returncode == 0

        kept = journal.execute("SELECT evaluation_id FROM evaluations ORDER BY number").fetchall()
        assert kept == [("old",), ("new",)]
        assert journal.execute("SELECT COUNT(*) FROM events").fetchone() > events


def test_an_evaluator_that_fails_is_a_failure(tmp_path: Path):
    """Data of the current folder can be named; more unscored samples than are allowed exit with 1, results shown."""
    (tmp_path / "data.jsonl").write_text('{"input": "12+34=", "target": "46"}\n{"input": "12+34="}\n')

    done = _evaluate("--data=jsonl:data.jsonl", "--evaluator=accuracy", "--max-unscored=0", "--json", cwd=tmp_path)

    assert done.returncode == 1
    (evaluator,) = json.loads(done.stdout)["evaluators"]
    assert (evaluator["n"], evaluator["n_scored"], evaluator["n_unscored"]) == (2, 1, 1)
    assert evaluator["problem"] is not None
    assert evaluator["metrics"]["accuracy"] in (0.0, 1.0)  # of the sample that was scored


def test_an_unscored_sample_is_told_with_its_reason(tmp_path: Path):
    """What the command ends with says why there is no number."""
    (tmp_path / "data.jsonl").write_text('{"id": "a", "input": "12+34=", "target": "46", "choices": ["46", "45"]}\n')
    asked = ("--data=jsonl:data.jsonl", "--evaluator=classification", '--option=classification.labels=["46", "45"]')

    table = _evaluate(*asked, cwd=tmp_path)
    data = _evaluate(*asked, "--json", cwd=tmp_path)

    assert "the first error: choices are given, but the labels are in the evaluator's options" in table.stdout
    assert "unscored: 1, the first 'a': choices (see above)" in table.stdout
    (evaluator,) = json.loads(data.stdout)["evaluators"]
    first = evaluator["first_unscored"]
    assert (first["sample_id"], first["verdict"], first["problem"]["field"]) == ("a", "error", "choices")


def test_an_evaluator_that_scored_nothing_is_a_failure(tmp_path: Path):
    """Who asks for the exit status alone must not take it for a result; the results are shown all the same."""
    (tmp_path / "data.jsonl").write_text('{"input": "12+34="}\n{"input": "21+34="}\n')

    done = _evaluate("--data=jsonl:data.jsonl", "--evaluator=accuracy", "--json", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (
        4,
        "crucible-worker: accuracy scored none of 2 samples; the first: there is no target\n",
    )
    told = json.loads(done.stdout)
    assert (told["state"], told["n_unscored"]) == ("completed", 2)


def test_an_evaluation_without_a_score_is_shown_as_such(tmp_path: Path):
    """Wherever its state is shown to people: in the result, in the list, alone, and among the checkpoints of a run."""
    (tmp_path / "data.jsonl").write_text('{"input": "12+34="}\n')
    asked = ("--data=jsonl:data.jsonl", "--evaluator=accuracy", "--id=x", "--run-id=r", "--step=3")

    told = _evaluate(*asked, "--state-dir=state", cwd=tmp_path)

    shown = [
        _run(*words, "--state-dir=state", cwd=tmp_path).stdout for words in (["list"], ["show", "x"], ["runs", "r"])
    ]
    for text in (told.stdout, *shown):  # a table may wrap the words
        assert re.search(r"completed,[\s│\w]*?nothing", text), text


def test_a_line_that_is_wrong_is_named(tmp_path: Path):
    """A malformed line is a usage error with its number."""
    (tmp_path / "data.jsonl").write_text('{"input": "12+34=", "target": "46"}\nnot json\n')

    done = _evaluate("--data=jsonl:data.jsonl", "--evaluator=accuracy", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert "line 2" in done.stderr


@pytest.mark.parametrize(
    ("model", "arguments", "said", "reason"),
    [
        (
            "embedded:arithmetic@1",
            ("--data=builtin:arithmetic", "--evaluator=nll"),
            "--model embedded:arithmetic@1: there is no embedded model 'arithmetic@1'",
            "UNKNOWN_EMBEDDED_MODEL",
        ),
        (
            "local:gone",
            ("--data=builtin:arithmetic", "--evaluator=nll"),
            "--model local:gone: there is no directory 'gone' below a model root; model roots: {cwd}",
            "MODEL_NOT_FOUND",
        ),
        (MODEL, ("--data=builtin:history", "--evaluator=nll"), "--data is 'history'", "UNKNOWN_DATASET"),
        (MODEL, ("--data=builtin:arithmetic", "--evaluator=charm"), "--evaluator is 'charm'", "UNKNOWN_EVALUATOR"),
        (
            MODEL,
            ("--data=builtin:arithmetic", "--evaluator=mine=accuracy", "--option=mine.colour=red"),
            "--option mine.colour is unknown",
            "UNKNOWN_OPTION",
        ),
        (
            MODEL,
            ("--data=jsonl:absent.jsonl", "--evaluator=nll"),
            "--data names 'absent.jsonl', and no data root has such a file; data roots: {cwd}",
            "NO_SUCH_FILE",
        ),
        (
            MODEL,
            ("--data=jsonl:../data.jsonl", "--evaluator=nll"),
            "--data is outside of the data roots; data roots: {cwd}; --data-root DIR names another",
            "OUTSIDE_ROOT",
        ),
    ],
    ids=["embedded", "local", "data set", "evaluator", "option", "file", "path out of the root"],
)
def test_what_is_not_there_is_refused(model: str, arguments: tuple[str, ...], said: str, reason: str, tmp_path: Path):
    """It exits with 2; one line names the flag and the roots searched, one object the reason; no traceback."""
    done = _evaluate(*arguments, "--json", cwd=tmp_path, models=[model])

    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["message"].startswith(said.format(cwd=tmp_path))
    assert error["reason"] == reason
    assert done.stderr == f"crucible-worker: {error['message']}\n"


def test_a_state_directory_that_cannot_be_used_is_a_failure(tmp_path: Path):
    """Nothing is wrong with the request: it exits with 1, and tells a machine too."""
    (tmp_path / "state").write_text("")

    done = _evaluate("--data=builtin:arithmetic", "--evaluator=nll", "--state-dir=state", "--json", cwd=tmp_path)

    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["reason"] == "STATE_DIR_UNUSABLE"


def test_the_file_of_the_page_runs(tmp_path: Path):
    """The example in docs/results.md: settings and options of one file."""
    page = (Path(__file__).parents[2] / "docs" / "results.md").read_text()
    text = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert text is not None
    (tmp_path / "nightly.toml").write_text(text[1].replace("samples = 100", "samples = 4"))

    done = _run("evaluate", "--config=nightly.toml", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "nightly-320.json").read_text())
    assert (told["run_id"], told["step"], [each["n"] for each in told["evaluators"]]) == ("nightly", 320, [4, 4])
    assert done.stdout.splitlines()[-1].endswith(f"--state-dir {tmp_path / 'journal'}")
