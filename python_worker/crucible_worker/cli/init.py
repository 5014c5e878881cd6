"""`crucible-worker init`: a suite, a file of questions and a plan to start from."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from crucible_worker.cli.options import EXIT_USAGE
from crucible_worker.cli.reading import refuse

__all__ = ["FILES", "RUN", "init"]

_Directory = Annotated[Path, typer.Argument(metavar="[DIR]", help="Where the files go; it is made if it is missing.")]

_SUITE = """\
# What is evaluated of one checkpoint, and on which questions. Run it:
#
#   crucible-worker evaluate --model embedded:arithmetic@600 --suite suite.toml --id first
#
# With a checkpoint of your own: --model local:PATH. The folder PATH lies below the current one.

name = "mine"
description = "Answers to my questions"

# The share of right answers. The model writes an answer to each question, and a grader compares it with the target.
[[evaluations]]
name = "answers"
# Another file: csv:FILE or parquet:FILE, with columns such as question and answer.
dataset = "jsonl:questions.jsonl"
# The longest answer in tokens. A model that reasons first needs thousands. Without `temperature` it is 0.
sampling = { max_tokens = 8 }

[[evaluations.evaluators]]
kind = "accuracy"
# numeric compares numbers, math compares mathematics, exact_match compares texts. All: crucible-worker graders
options = { grader = "numeric" }

# How unlikely the right answers are to the model, in nats for each token: lower is better. It needs no generation.
[[evaluations]]
name = "likelihood"
# The text between a question and its answer. Most models want a space, which is the default; this one wants none.
dataset = { source = "jsonl:questions.jsonl", prompt = { target_delimiter = "" } }
# More: crucible-worker evaluators
evaluators = ["nll"]
"""
_QUESTIONS = """\
{"id": "q1", "input": "12+34=", "target": "46", "note": "input is what the model gets, target is what is right"}
{"id": "q2", "input": "27+58=", "target": "85", "note": "every other key, such as this note, becomes metadata"}
{"id": "q3", "input": "40+17=", "target": "57", "note": "the id names a question in results; without it, its row does"}
{"id": "q4", "input": "63+29=", "target": "92", "note": "30 questions or more: with a few, every interval is wide"}
{"id": "q5", "input": "75+80=", "target": "155"}
{"id": "q6", "input": "11+11=", "target": "22"}
{"id": "q7", "input": "98+76=", "target": "174"}
{"id": "q8", "input": "50+49=", "target": "99"}
"""
_PLAN = """\
# When the checkpoints of a training run are evaluated. Run it while the run trains:
#
#   crucible-worker follow runs/mine --plan plan.toml
#
# It evaluates each checkpoint that appears in runs/mine at a step that is due, and continues until Ctrl-C.

# At the steps that this number divides; `evaluations` below.
eval_every = 100
# Likewise, `infrequent_evaluations`.
infrequent_eval_every = 500

# Say which step is the best one, and that no better one has come for three evaluations in a row.
patience = { metric = "answers/accuracy", goal = "higher", patience = 3 }

# Each evaluation is a table as in suite.toml.
[[evaluations]]
name = "likelihood"
dataset = { source = "jsonl:questions.jsonl", prompt = { target_delimiter = "" } }
evaluators = ["nll"]

[[infrequent_evaluations]]
name = "answers"
dataset = "jsonl:questions.jsonl"
sampling = { max_tokens = 8 }
evaluators = [{ kind = "accuracy", options = { grader = "numeric" } }]
"""
FILES = {"suite.toml": _SUITE, "questions.jsonl": _QUESTIONS, "plan.toml": _PLAN}
"""By name, the text of each file."""
_ABOUT = {
    "suite.toml": "what is evaluated of a checkpoint",
    "questions.jsonl": "the questions and what is right",
    "plan.toml": "when the checkpoints of a training run are evaluated",
}
RUN = (
    "crucible-worker evaluate --model embedded:arithmetic@600 --suite suite.toml --id first",
    "crucible-worker samples first-answers",
    "crucible-worker follow runs/mine --plan plan.toml",
)
"""The commands that it prints: the last one follows a training run until Ctrl-C."""


def init(directory: _Directory = Path()) -> None:
    """Write a suite, a file of questions and a plan to start from, and print the commands that run them.

    Each file says in comments what its lines do. A file that exists is never replaced.

    Example: crucible-worker init my-evals
    """
    there = [name for name in FILES if os.path.lexists(directory / name)]
    if there:
        refuse(f"{directory / there[0]} exists, and is not replaced; nothing is written: give another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            with (directory / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        typer.echo(f"crucible-worker: {directory} cannot be written: {error.strerror or error}", err=True)
        raise typer.Exit(EXIT_USAGE) from None
    for name, about in _ABOUT.items():
        typer.echo(f"{directory / name}: {about}")
    typer.echo("\nRun them:")
    for command in [*([f"cd {shlex.quote(str(directory))}"] if directory != Path() else []), *RUN]:
        typer.echo(f"  {command}")
