"""Options of commands that say what is evaluated, on what, and how models are asked."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "Data",
    "Evaluators",
    "FewShot",
    "FewShotSeed",
    "Grader",
    "Only",
    "Options",
    "Renderer",
    "SuiteFile",
    "System",
    "Tasks",
    "Template",
]

Data = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="builtin:NAME; jsonl:PATH, csv:PATH or parquet:PATH below a data root, where needed with "
        "?input=COLUMN&target=COLUMN; or hub:OWNER/NAME?split=SPLIT&input=COLUMN&target=COLUMN.",
    ),
]
Evaluators = Annotated[
    list[str] | None,
    typer.Option(
        "--evaluator",
        metavar="[NAME=]KIND",
        # Words, not the registry: help is there before anything is imported. A test holds them to it.
        help="accuracy, bits_per_byte, classification, comparison, inspect, multiple_choice, next_token_accuracy, nll, "
        "pass_at_k, perplexity, rl_test_set, rollout or rubric, see `crucible-worker evaluators`; or FILE.py:CLASS, a "
        "class of your own. NAME prefixes keys; repeatable.",
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--task",
        metavar="TASK",
        help="In place of --data: a task of Inspect, PACKAGE/TASK or FILE.py@TASK, which the evaluator inspect runs; "
        "repeatable. Without --inspect-root or --inspect-package, what is named is allowed.",
    ),
]
Grader = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Who judges answers, of every evaluator that has a grader and whose --option says nothing else: one of "
        "`crucible-worker graders`, or FILE.py:FUNCTION, a function of your own. [default: exact_match]",
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="EVALUATOR.KEY=VALUE",
        help="An evaluator's option; VALUE is JSON or text; KEY.KEY sets an option within an option; repeatable.",
    ),
]
SuiteFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|NAME",
        help="A suite's file (.toml), or one that ships: chat, code, math or tool_use; see `crucible-worker suites`.",
    ),
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Of the suite, run this evaluation alone; repeatable.")
]
Renderer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How models are asked: auto, chat_template, role_colon, raw or tinker:NAME; of every evaluator whose "
        "--option says nothing else. [default: auto, a chat where the model has a template, or a server]",
    ),
]
System = Annotated[str | None, typer.Option(metavar="TEXT|@FILE", help="System message before every row.")]
Template = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT|@FILE",
        help="What the user says of a row, with its columns: '{input}', or Jinja2, '{{ input }}'. [default: its input]",
    ),
]
FewShot = Annotated[
    str | None,
    typer.Option(
        metavar="COUNT:SOURCE",
        help="Rows with their answers before each row, of another file or split: 5:jsonl:train.jsonl.",
    ),
]
FewShotSeed = Annotated[
    int | None, typer.Option(metavar="N", help="Seed that draws the rows of --few-shot. [default: 0]")
]
