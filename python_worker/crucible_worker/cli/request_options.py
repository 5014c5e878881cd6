"""Options of commands that choose evaluators, data and sampling."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible_worker.cli.completion import EVALUATORS, one_of, suite_names

__all__ = [
    "Concurrency",
    "Data",
    "EvaluationId",
    "Evaluators",
    "FewShot",
    "FewShotSeed",
    "Grader",
    "Labels",
    "MaxTokens",
    "MaxUnscored",
    "Only",
    "Options",
    "Prefix",
    "Record",
    "Renderer",
    "Roles",
    "RunId",
    "Samples",
    "Seed",
    "ShuffleSeed",
    "SpecialTokens",
    "Step",
    "Stop",
    "SuiteFile",
    "System",
    "TargetDelimiter",
    "Tasks",
    "Temperature",
    "Template",
    "Timeout",
    "Where",
]

Data = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="builtin:NAME; jsonl:PATH, csv:PATH or parquet:PATH below a data root, with "
        "?input=COLUMN&target=COLUMN if its columns have other names; or "
        "hub:OWNER/NAME?split=SPLIT&input=COLUMN&target=COLUMN.",
    ),
]
Evaluators = Annotated[
    list[str] | None,
    typer.Option(
        "--evaluator",
        metavar="[NAME=]KIND",
        help=f"{', '.join(EVALUATORS[:-1])} or {EVALUATORS[-1]}, see `crucible-worker evaluators`; or FILE.py:CLASS, "
        "a class of your own. NAME prefixes keys; repeatable.",
        autocompletion=one_of(*EVALUATORS),
    ),
]
Tasks = Annotated[
    list[str] | None,
    typer.Option(
        "--task",
        metavar="TASK",
        help="Instead of --data: an Inspect task, PACKAGE/TASK or FILE.py@TASK, which the evaluator inspect runs; "
        "repeatable. The named tasks are allowed, unless --inspect-root or --inspect-package is given.",
    ),
]
Grader = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Grader of answers for every evaluator that has one, unless its --option sets another: one of "
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
        autocompletion=suite_names,
    ),
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Take only this evaluation of the suite; repeatable.")
]
Renderer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How samples become prompts: auto, chat_template, role_colon, raw or tinker:NAME. An evaluator's --option "
        "renderer overrides it. [default: auto, which is a chat if the model has a chat template or a server]",
    ),
]
System = Annotated[str | None, typer.Option(metavar="TEXT|@FILE", help="System message before every row.")]
Template = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT|@FILE",
        help="User message of a row, from its columns: '{input}', or Jinja2, '{{ input }}'. [default: the row's input]",
    ),
]
TargetDelimiter = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Text between a prompt and its answer for a model without a chat template; '' for none. [default: one "
        "space, unless the prompt ends or the answer begins with white space]",
    ),
]
SpecialTokens = Annotated[
    bool | None,
    typer.Option(
        "--special-tokens",
        help="Read the special tokens that the data name, such as <|im_end|>. [default: their names are text]",
    ),
]
FewShot = Annotated[
    str | None,
    typer.Option(
        metavar="COUNT:SOURCE",
        help="Examples before each row: rows with answers from another file or split, as in 5:jsonl:train.jsonl.",
    ),
]
FewShotSeed = Annotated[
    int | None, typer.Option(metavar="N", help="Seed by which --few-shot draws its rows. [default: 0]")
]
Samples = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Take the first N samples of each data set; with --task, of each task."),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Take only samples whose metadata has this value, before shuffling and --samples; repeatable.",
    ),
]
ShuffleSeed = Annotated[
    int | None, typer.Option(metavar="N", help="Take the samples in an order shuffled by this seed.")
]
Concurrency = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Samples in flight at once. [default: the worker's default_concurrency]"),
]
MaxTokens = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Generate at most N tokens for each answer. [default: 256]")
]
Temperature = Annotated[float | None, typer.Option(metavar="T", min=0.0, help="0 is greedy. [default: 0]")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed of sampling.")]
Stop = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="Stop string; repeatable.")]
MaxUnscored = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Fail if an evaluator leaves more samples without a score. [default: if more than 5 % end with an error]",
    ),
]
Record = Annotated[
    str | None,
    typer.Option(
        "--record",
        metavar="WHAT",
        help="What is recorded for each sample: full, outputs or none. [default: the suite's, or full]",
        autocompletion=one_of("full", "outputs", "none"),
    ),
]
RunId = Annotated[
    str | None,
    typer.Option("--run-id", metavar="RUN", help="The training run that the model is of; recorded with the results."),
]
Step = Annotated[
    int | None, typer.Option("--step", metavar="N", help="The training step of the model; recorded with the results.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="A note that is recorded with the evaluation; repeatable."),
]
Roles = Annotated[
    list[str] | None,
    typer.Option(
        "--role",
        metavar="NAME=MODEL",
        help="A further model of tasks, by its role or by the name that they have for it, as in "
        "grader=openai:SERVER/MODEL; repeatable.",
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option("--prefix", metavar="TEXT", help="Put before every metric key, as in test/ for test/accuracy."),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Cancel the evaluation when it has run for so long, all attempts together. [default: no limit]",
    ),
]
EvaluationId = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="Id of the evaluation. The same id again resumes the evaluation, or shows its result. It is ID-NAME in a "
        "suite, and ID-MODEL with several models. [default: made of model, data and time]",
    ),
]
