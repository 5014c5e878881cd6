"""`crucible-worker follow` on checkpoints of an embedded model: lines, JSON, exit codes, going on."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import typer.core
import typer.main

from crucible_worker.cli import app
from crucible_worker.embedded import registry
from tests import commands
from tests.distributions import EVALUATOR_PACKAGE
from tests.service.processes_kit import wait_until
from tests.tables import rows

SECONDS = 240
"""For a command to end, on a machine that has other things to do."""
WHAT = ("--data=builtin:arithmetic", "--evaluator=nll", "--samples=4", "--device=cpu")


def _save(folder: Path, step: int) -> Path:
    """Save a checkpoint under a name of Hugging Face's trainer."""
    path = folder / f"checkpoint-{step}"
    shutil.copytree(registry.path("arithmetic@320"), path)
    return path


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "crucible_worker", "follow", *arguments]


def _environment(cwd: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CRUCIBLE_")}
    return {**kept, "XDG_STATE_HOME": str(cwd / "state-home")}


def _follow(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return commands.run("follow", *arguments, cwd=cwd, env=_environment(cwd), seconds=SECONDS)


def test_a_run_is_followed_until_it_is_idle(tmp_path: Path):
    """What was evaluated is on stdout, what happens on stderr; a half-written checkpoint is named, and delays nothing.

    The same command again evaluates nothing twice, and finds what came meanwhile.
    """
    run = tmp_path / "mine"
    for step in (10, 20):
        _save(run, step)
    half = _save(run, 30)
    weights = half / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])

    first = _follow("mine", *WHAT, "--exit-when-idle=0.5", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert sorted(line for line in first.stdout.splitlines() if not line.startswith(" ")) == [
        f"mine-step-{step}-0: completed" for step in (10, 20)
    ]
    assert "checkpoint-10: found, step 10, held by links, " in first.stderr
    assert "checkpoint-20: released\n" in first.stderr
    assert first.stderr.splitlines()[-1].startswith("checkpoint-30: not evaluated, it ")
    assert not (run / ".crucible").exists()

    _save(run, 40)
    again = _follow("mine", *WHAT, "--exit-when-idle=0.5", "--json", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    (ended,) = map(json.loads, again.stdout.splitlines())
    assert (ended["evaluation_id"], ended["run_id"], ended["step"]) == ("mine-step-40-0", "mine", 40)


def test_names_of_checkpoints_stay_within_their_lines(tmp_path: Path):
    """A line end in a name could make a command of GitHub Actions of what follows it."""
    folder = _save(tmp_path / "mine", 10)
    (folder / "trainer_state.json").write_text('{"global_step": 10}')
    folder.rename(tmp_path / "mine" / "a\n::error::b\x1b[31m")

    done = _follow("mine", *WHAT, "--exit-when-idle=0.5", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "a\ufffd::error::b\ufffd[31m: found, step 10, held by links, " in done.stderr
    assert not [line for line in done.stderr.splitlines() if line.startswith("::")]


def test_what_is_no_directory_is_refused_and_a_missing_one_is_named(tmp_path: Path):
    """A name of other bytes than UTF-8 cannot be in the journal."""
    (tmp_path / "file").touch()
    others = os.fsdecode(b"mine\xff")
    (tmp_path / others).mkdir()

    file = _follow("file", *WHAT, cwd=tmp_path)
    assert (file.returncode, file.stdout) == (2, "")
    assert file.stderr == f"crucible-worker: DIR is {str(tmp_path / 'file')!r}, which is no directory\n"
    named = _follow(others, *WHAT, "--run-id=mine", cwd=tmp_path)
    assert (named.returncode, named.stdout) == (2, "")
    assert named.stderr == f"crucible-worker: DIR is {tmp_path}/mine\\xff, a path that is not UTF-8: rename it\n"
    missing = _follow("later", *WHAT, "--exit-when-idle=0.1", cwd=tmp_path)
    assert missing.returncode == 0, missing.stderr
    assert missing.stderr.splitlines()[0] == f"{tmp_path}/later: waits for this directory, which does not exist yet"


def test_ctrl_c_ends_it_and_the_same_command_resumes(tmp_path: Path):
    """The exit code is 130; an evaluation that was interrupted is resumed under its id."""
    run = tmp_path / "mine"
    _save(run, 10)
    options = ["mine", "--data=builtin:arithmetic", "--evaluator=nll", "--concurrency=1", "--device=cpu"]
    with subprocess.Popen(
        _command(*options),
        cwd=tmp_path,
        env=_environment(tmp_path),
        text=True,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "to do" in line:
                break
        process.send_signal(signal.SIGINT)
        written = process.stderr.read()
        assert process.wait(timeout=SECONDS) == 130
    assert written.splitlines()[-1] == "crucible-worker: ended while it followed; the same command resumes"

    again = _follow(*options, "--exit-when-idle=0.5", cwd=tmp_path)
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "mine-step-10-0: completed"), again.stderr
    assert "checkpoint-10: found" not in again.stderr
    assert "checkpoint-10: released" in again.stderr


def test_a_second_process_waits_and_takes_over(tmp_path: Path):
    """It says so; when the first one is killed, it evaluates what comes next."""
    run = tmp_path / "mine"
    _save(run, 10)
    with subprocess.Popen(
        _command("mine", *WHAT), cwd=tmp_path, env=_environment(tmp_path), text=True, stderr=subprocess.PIPE
    ) as first:
        assert first.stderr is not None
        for line in first.stderr:
            if "released" in line:
                break
        with subprocess.Popen(
            _command("mine", *WHAT, "--exit-when-idle=1"),
            cwd=tmp_path,
            env=_environment(tmp_path),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as second:
            assert second.stderr is not None
            assert second.stdout is not None
            waits = second.stderr.readline()
            _save(run, 20)
            first.kill()
            output = second.stdout.read()
            assert second.wait(timeout=SECONDS) == 0, second.stderr.read()
    assert waits == "mine: another process follows it; this one takes over when that ends\n"
    assert "mine-step-20-0: completed" in output


def test_it_ends_once_no_better_checkpoint_comes(tmp_path: Path):
    """With an exit code of its own, and the reason: a script can stop its trainer. The same command ends so at once.

    The metric's evaluator says that less is better. What is tied is no better one.
    """
    for step, name in ((10, "arithmetic@180"), (20, "arithmetic@600"), (30, "arithmetic@600"), (40, "arithmetic@320")):
        shutil.copytree(registry.path(name), tmp_path / "mine" / f"checkpoint-{step}")
    what = ("mine", "--data=builtin:arithmetic", "--evaluator=nll", "--samples=40", "--device=cpu", "--stop-on=nll")
    options = (*what, "--patience=2", "--exit-when-idle=60")
    done = _follow(*options, cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    assert "\nbest so far: step 20: nll 0.0" in done.stderr
    assert re.search(r"\nplateau: nll: 2 evaluations since step 20 \(0\.0\d+\), none better\n", done.stderr)
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(r"stopped: nll of step 20 \(0\.0\d+\) was not improved in 2 evaluations, up to step 40", last)
    assert not (tmp_path / "mine" / ".crucible").exists()

    again = _follow(*options, "--json", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (5, "")
    (line,) = map(json.loads, again.stdout.splitlines())
    assert {
        key: line["plateau"][key] for key in ("metric", "goal", "best_step", "best_evaluation_id", "last_step")
    } == {
        "metric": "nll",
        "goal": "lower",
        "best_step": 20,
        "best_evaluation_id": "mine-step-20-0",
        "last_step": 40,
    }


def test_a_budget_is_that_of_all_checkpoints(tmp_path: Path):
    """The command ends with exit code 6; once one is resumed with more, the same command evaluates the rest."""
    for step in (10, 20, 30):
        _save(tmp_path / "mine", step)
    what = ("mine", "--data=builtin:arithmetic", "--evaluator=accuracy", "--samples=4", "--max-tokens=4")
    follow = (*what, "--concurrency=1", "--max-output-tokens=20", "--exit-when-idle=0.5")

    spent = _follow(*follow, cwd=tmp_path)
    last = spent.stderr.splitlines()[-1]
    told = re.match(r"crucible-worker: paused: (\S+) and those after it wait for a larger budget; ", last)
    assert (spent.returncode, told is not None) == (6, True), spent.stderr
    assert told is not None
    assert _follow(*follow, cwd=tmp_path).returncode == 6
    resumed = commands.run(
        *("resume", told[1], "--max-run-output-tokens=1000", f"--model-root={tmp_path / 'mine'}"),
        cwd=tmp_path,
        env=_environment(tmp_path),
        seconds=SECONDS,
    )
    assert resumed.returncode == 0, resumed.stderr
    rest = _follow(*follow, cwd=tmp_path)
    assert rest.returncode == 0, rest.stderr
    listed = commands.run("list", "--json", cwd=tmp_path, env=_environment(tmp_path), seconds=SECONDS)
    assert [each["state"] for each in json.loads(listed.stdout)] == ["completed"] * 3


def test_the_best_checkpoints_outlive_their_trainers_own(tmp_path: Path):
    """Also those of checkpoints that had been evaluated before anything was to be kept.

    A pattern that fits everything finds no copy. `best --write` names the copy of a checkpoint that is gone, and says
    that it was deleted if there is none.
    """
    run = tmp_path / "mine"
    for step, name in ((10, "arithmetic@180"), (20, "arithmetic@600"), (30, "arithmetic@320")):
        shutil.copytree(registry.path(name), run / f"checkpoint-{step}")
    what = ("mine", "--data=builtin:arithmetic", "--evaluator=nll", "--samples=40", "--device=cpu")
    first = _follow(*what, "--exit-when-idle=0.5", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    kept = _follow(*what, "--exit-when-idle=0.5", "--keep-best=2", cwd=tmp_path)
    assert kept.returncode == 0, kept.stderr
    assert sorted(path.name for path in (run / "best").iterdir()) == ["checkpoint-20", "checkpoint-30"]

    for step in (10, 20, 30):
        shutil.rmtree(run / f"checkpoint-{step}")
    shutil.copytree(registry.path("arithmetic@600"), run / "checkpoint-40")
    more = _follow(*what, "--exit-when-idle=0.5", "--keep-best=2", "--json", cwd=tmp_path)
    assert [json.loads(line)["step"] for line in more.stdout.splitlines()] == [40], more.stderr
    assert sorted(path.name for path in (run / "best").iterdir()) == ["checkpoint-20", "checkpoint-40"]
    found = _follow(
        "mine", *what[1:], "--id=all", "--name-pattern=*/checkpoint-{step}", "--exit-when-idle=0", cwd=tmp_path
    )
    assert "no checkpoint was found" in found.stderr

    best = ("best", "--run", "mine", "--metric", "nll", "--write", "--json")
    written = commands.run(*best, cwd=tmp_path, env=_environment(tmp_path), seconds=SECONDS)
    assert json.loads(written.stdout)["written"] == str(run / "BEST"), written.stderr
    assert json.loads((run / "BEST").read_text())["checkpoint"] == "best/checkpoint-20"
    shutil.rmtree(run / "best")
    gone = commands.run(*best, cwd=tmp_path, env=_environment(tmp_path), seconds=SECONDS)
    assert gone.returncode == 1
    assert gone.stderr.startswith(
        f"crucible-worker: --write: the checkpoint checkpoint-20 was deleted since it was evaluated: {run} is there"
    )


def test_an_evaluator_of_a_file_decides_when_to_stop(tmp_path: Path):
    """Its metric is known as that of any other one, and so is which values are better."""
    _save(tmp_path / "mine", 10)
    what = ("--data=builtin:arithmetic", f"--evaluator={EVALUATOR_PACKAGE / 'brevity.py'}:Brevity", "--samples=4")
    options = ("--max-tokens=2", "--stop-on=brevity", "--keep-best=1", "--exit-when-idle=0.5", "--device=cpu")
    done = _follow("mine", *what, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "best so far: step 10: brevity 1" in done.stderr
    assert (tmp_path / "mine" / "best" / "checkpoint-10").is_dir()


def test_a_plan_of_a_file_says_when(tmp_path: Path):
    """Its intervals count steps; the run has another name if it is given, and the evaluations too."""
    (tmp_path / "plan.toml").write_text(
        """
        eval_every = 20
        [[evaluations]]
        name = "likelihood"
        dataset = { source = "builtin:arithmetic", limit = 3 }
        evaluators = ["nll"]
        """
    )
    for step in (10, 20):
        _save(tmp_path / "mine", step)
    done = _follow(
        *("mine", "--plan=plan.toml", "--run-id=seven", "--id=plan-7", "--exit-when-idle=0.5", "--device=cpu"),
        "--state-dir=journal",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("plan-7-step-20-0: completed\n  likelihood/nll")
    assert "checkpoint-10: skipped: nothing of the plan plan-7 is due at step 10" in done.stderr
    assert [path.name for path in (tmp_path / "journal" / "released" / "seven").iterdir()] == ["checkpoint-20.released"]


@rows(
    ("arguments", "says"),
    [
        (["mine"], "--data is needed"),
        (["mine", *WHAT, "--policy=some"], "--policy is 'some', must be one of all, latest, every"),
        (["mine", *WHAT, "--every=2"], "--every is only allowed with the policy EVERY"),
        (["mine", *WHAT, "--policy=every"], "--every is needed with the policy EVERY"),
        (["mine", *WHAT, "--name-pattern=/"], "--name-pattern "),
        (["mine", *WHAT, "--base-model=models/base"], "--base-model is 'models/base': a folder below a model root is "),
        (["mine", *WHAT, "--marker=a/b"], "--marker "),
        (["mine", *WHAT, "--base-model=embedded:arithmetic@320"], "--base-model is no local:, hub: or managed: model"),
        (["mine", *WHAT, "--plan=plan.toml"], "--data and --plan exclude each other"),
        (["mine", *WHAT, "--stop-on=acc"], "--stop-on is 'acc', which no evaluation yields; there are nll"),
        (["mine", *WHAT, "--patience=2"], "--patience is only allowed with --stop-on METRIC"),
        (["mine", *WHAT, "--stop-on=nll", "--goal=up"], "--goal is 'up', must be higher or lower"),
        (["mine", *WHAT, "--goal=lower"], "--goal is only allowed with --stop-on or --keep-best"),
        (["mine", *WHAT, "--keep-gib=1"], "--keep-gib is only allowed with --keep-best N"),
        (
            ["mine", *WHAT, "--keep-best=1", "--keep-by=acc"],
            "--keep-by is 'acc', which no evaluation yields; there are nll",
        ),
        (
            ["mine", *WHAT, "--evaluator=accuracy", "--keep-best=1"],
            "--keep-by is needed with --keep-best: there are nll, accuracy",
        ),
        (["mine", "--plan=plan.toml"], "--plan is 'plan.toml': No such file or directory"),
        (["mine", "--plan=empty.toml"], "--plan empty.toml: evaluations is empty"),
        (["mine", "--data=jsonl:absent.jsonl", "--evaluator=nll"], "--data "),
        (["mine", "--data=builtin:arithmetic", "--evaluator=made_up"], "--evaluator "),
        (["m" * 201, *WHAT], "--run-id "),
        (["/", *WHAT], "--run-id is needed: the directory has no name"),
    ],
)
def test_what_is_wrong_is_refused_by_its_option(arguments: list[str], says: str, tmp_path: Path):
    """With exit code 2, before anything is followed."""
    (tmp_path / "empty.toml").write_text("")
    done = _follow(*arguments, "--exit-when-idle=0", "--state-dir=journal", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith(f"crucible-worker: {says}")


def test_models_that_have_not_the_name_of_a_checkpoint_are_told(tmp_path: Path):
    """Nothing is evaluated, and a line has the pattern that takes them."""
    shutil.copytree(registry.path("arithmetic@320"), tmp_path / "mine" / "mine-10-hf")
    ended = _follow("mine", *WHAT, "--exit-when-idle=0.5", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "mine-10-hf: with a model, but not with the name of a checkpoint" in ended.stderr
    assert f"no checkpoint was found in {tmp_path / 'mine'}" in ended.stderr
    ended = _follow("mine", *WHAT, "--exit-when-idle=0.5", "--id=2", "--name-pattern=mine-{step}-hf", cwd=tmp_path)
    assert "2-step-10-0: completed" in ended.stdout, ended.stderr


def test_a_checkpoint_that_was_refused_is_told_again(tmp_path: Path):
    """An adapter whose model is not there is skipped, with what helps and exit code 1, each time."""
    path = tmp_path / "mine" / "checkpoint-10"
    shutil.copytree(registry.path("arithmetic@320"), tmp_path / "base")
    path.mkdir(parents=True)
    (path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "acme/base"}')
    (path / "adapter_model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    for written in (*path.iterdir(), path):
        os.utime(written, (0, 0))  # long ago
    ended = _follow("mine", *WHAT, "--exit-when-idle=0.5", cwd=tmp_path)
    assert "checkpoint-10: skipped: " in ended.stderr
    assert "--base-model local:PATH" in ended.stderr
    assert ended.returncode == 1
    ended = _follow("mine", *WHAT, "--exit-when-idle=0.5", cwd=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr == "checkpoint-10: skipped before, and not tried again; another --id tries it\n"


def test_a_failed_evaluation_fails_the_command(tmp_path: Path):
    """With exit code 1: here no answer can be graded against the target, and none may stay unscored."""
    _save(tmp_path / "mine", 10)
    what = ("--data=jsonl:data.jsonl", "--evaluator=accuracy", "--grader=math", "--max-unscored=0")
    (tmp_path / "data.jsonl").write_text('{"input": "1+1=", "target": "1/0"}\n')
    ended = _follow("mine", *what, "--max-tokens=2", "--exit-when-idle=0.5", cwd=tmp_path)
    assert "mine-step-10-0: failed" in ended.stdout, ended.stderr
    assert ended.returncode == 1


def test_other_options_need_another_name(tmp_path: Path):
    """Evaluations of one plan are comparable: the error names the cure."""
    (tmp_path / "mine").mkdir()
    assert _follow("mine", *WHAT, "--exit-when-idle=0", cwd=tmp_path).returncode == 0
    other = _follow("mine", *WHAT, "--seed=3", "--exit-when-idle=0", cwd=tmp_path)
    assert other.returncode == 2
    assert other.stderr.endswith("; take another --id or --run-id for other options\n")
    # What only says how to follow may change.
    assert _follow("mine", *WHAT, "--policy=latest", "--exit-when-idle=0", cwd=tmp_path).returncode == 0


def test_follow_takes_the_options_of_evaluate():
    """But for the model, its step, and places of results."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    of_evaluate, of_follow = (
        {flag for option in group.commands[name].params for flag in option.opts if flag.startswith("-")}
        for name in ("evaluate", "follow")
    )
    assert of_evaluate - of_follow == {"--model", "--step", "--rerun", "--no-keep", "--output", "--verbose", "-v"}


def test_the_state_is_waited_for(tmp_path: Path):
    """A directory that does not exist yet is followed; SIGTERM ends the command, with exit code 1."""
    with subprocess.Popen(
        _command("mine", *WHAT), cwd=tmp_path, env=_environment(tmp_path), text=True, stderr=subprocess.PIPE
    ) as process:
        journal = tmp_path / "state-home" / "crucible-bridge" / "follows.lock"
        wait_until(journal.exists, "the journal is open")
        _save(tmp_path / "mine", 10)
        assert process.stderr is not None
        for line in process.stderr:
            if "released" in line:
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=SECONDS) == 1


def test_a_checkpoint_that_is_wanted_and_skipped_fails_the_command(tmp_path: Path):
    """The line says why, and the exit code says that a number is missing; a policy that leaves it out does not."""
    run = tmp_path / "mine"
    first = _save(run, 10)
    assert _follow("mine", *WHAT, "--exit-when-idle=0.5", cwd=tmp_path).returncode == 0
    (first / "trainer_state.json").write_text('{"global_step": 10}')
    first.rename(run / "final")

    done = _follow("mine", *WHAT, "--exit-when-idle=0.5", cwd=tmp_path)

    assert done.returncode == 1, done.stderr
    assert "final: skipped: another checkpoint of step 10 is or was evaluated, checkpoint-10" in done.stderr
