"""Options of commands: each described once, what a shell completes for them, and their conversion to settings.

Annotations are not postponed here: descriptions of options are values, and every start would compile them again.
"""

import abc
import dataclasses
import functools
import inspect
import os
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar

import typer
from typer.models import ArgumentInfo, OptionInfo

from crucible_worker import suites
from crucible_worker.config import Settings, SettingsError, load_settings, read_settings
from crucible_worker.util.interrupts import INTERRUPTED

__all__ = [
    "EVALUATORS",
    "EXIT_BUDGET",
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_PLATEAU",
    "EXIT_USAGE",
    "FIRST",
    "After",
    "CommandOptions",
    "Config",
    "DataRoot",
    "FollowOptions",
    "Host",
    "JournalUrl",
    "Json",
    "ModelRoot",
    "OpenAIServer",
    "Port",
    "Price",
    "RequestField",
    "RequestOptions",
    "RunOptions",
    "SettingsOptions",
    "StateDir",
    "UnixSocket",
    "command",
    "field_flags",
    "flags",
    "one_of",
    "settings_or_exit",
    "suite_names",
]

# What a shell completes: kinds of evaluators, suites, and values of options that have few.

EVALUATORS = (
    *("accuracy", "bits_per_byte", "classification", "comparison", "inspect", "multiple_choice", "next_token_accuracy"),
    *("nll", "pass_at_k", "perplexity", "preference", "rl_test_set", "rollout", "rubric"),
)
"""Kinds that come with the worker; a test compares them with the registry, which takes time to import."""


def one_of(*values: str) -> Callable[[str], list[str]]:
    """Completes one of a few values."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


def suite_names(incomplete: str) -> list[str]:
    """Completes a suite that ships with the worker."""
    return [name for name in suites.names() if name.startswith(incomplete)]


# Exit statuses, options of several commands, and their conversion to settings.

EXIT_FAILED = 1
"""Exit status: the command failed."""

EXIT_USAGE = 2
"""Exit status: the options are wrong, or the request is refused."""

EXIT_NOTHING_SCORED = 4
"""Exit status of `evaluate`: all completed, and an evaluator scored none of its samples."""

EXIT_PLATEAU = 5
"""Exit status of `follow --stop-on`: no better checkpoint has come for as long as `--patience` says."""

EXIT_BUDGET = 6
"""Exit status: an evaluation is paused, as a bound of its cost or tokens is reached."""

EXIT_INTERRUPTED = INTERRUPTED
"""Exit status of a command that Ctrl-C ended, as in shells."""

Price = Annotated[
    list[str] | None,
    typer.Option(
        "--price",
        metavar="PATTERN=PRICE",
        help="Price of a million tokens of models: openai:lab/*=prompt:2.5,cached:1.25,output:10. Repeatable.",
    ),
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML file with settings; flags and environment win.")
]
Host = Annotated[str | None, typer.Option(metavar="HOST", help="Name or address to listen on. [default: 127.0.0.1]")]
Port = Annotated[int | None, typer.Option(metavar="PORT", help="Port to listen on; 0 picks one. [default: 50051]")]
UnixSocket = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Unix socket to listen on, in place of host and port; mode 0600.")
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder of the journal. [default: $XDG_STATE_HOME/crucible-bridge, below ~/.local/state]"
    ),
]
JournalUrl = Annotated[
    str | None,
    typer.Option(
        "--journal",
        metavar="URL",
        help="PostgreSQL database with the journal, for workers of several machines: postgresql://USER@HOST/DATABASE. "
        "[default: the state directory]",
    ),
]
ModelRoot = Annotated[list[Path] | None, typer.Option(metavar="DIR", help="Folder with local models; repeatable.")]
DataRoot = Annotated[list[Path] | None, typer.Option(metavar="DIR", help="Folder with data sets; repeatable.")]
OpenAIServer = Annotated[
    list[str] | None,
    typer.Option(
        "--openai-server",
        metavar="NAME=URL",
        help="OpenAI-compatible server, as in lab=http://127.0.0.1:8000/v1; replicas as NAME=URL,URL. Repeatable.",
    ),
]
OpenAIKey = Annotated[
    list[str] | None,
    typer.Option(
        "--openai-key-env",
        metavar="VARIABLE",
        help="Variable with the key of the server of --openai-server; NAME=VARIABLE for one of several. Repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")]


def settings_or_exit(
    config: Path | None,
    *,
    of_another: bool = False,
    of_worker: bool = False,
    client_variables: bool = False,
    **flags: Any,
) -> Settings:
    """Settings from flags, environment and file; wrong ones are reported and end the command.

    With `of_another` they are those of another worker on this machine; its files may not be readable here. A command
    that is given --state-dir means the journal in it, even if environment or file name a database. Only a worker
    (`of_worker`) needs both. With `client_variables`, OPENAI_BASE_URL and OPENAI_API_KEY count as for OpenAI's clients.
    """
    given = {name: value for name, value in flags.items() if value not in (None, [])}
    try:
        if of_another:
            settings = read_settings(given, os.environ, config)
        else:
            settings = load_settings(given, os.environ, config, client_variables=client_variables)
        in_folder = "state_dir" in given and "journal" not in given and not of_worker
        return dataclasses.replace(settings, journal=None) if in_folder else settings
    except SettingsError as error:
        typer.echo(f"crucible-worker: {error}", err=True)
        raise typer.Exit(EXIT_USAGE) from None


# Commands whose options are the fields of a class: `evaluate`, `prompt`, `follow` and `serve`. A field is an option
# if its annotation has an `Option` or `Argument` of typer. A subclass can annotate a field of its base anew: with
# another description, or with none, and then its command has no such option.


@dataclasses.dataclass(frozen=True)
class After:
    """In an annotation: where an option stands in `--help`.

    Without it a field of a base keeps its place; another one follows the field before it in its class, or, as the first
    of its class, those of the bases.
    """

    field: str
    """The field that it follows; "" for the first place."""


FIRST = After("")
"""The first place in `--help`."""


@dataclasses.dataclass(frozen=True)
class RequestField:
    """In an annotation: the field of a request that an option gives. Errors of the field name the option."""

    path: str


class _Described(NamedTuple):
    """An option, as its annotation describes it."""

    annotation: Any
    """The type, and what typer reads."""
    flag: str
    """As it is typed, "--max-tokens"; the placeholder of an argument."""
    path: str
    """The field of a request that it gives; empty if none."""


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
class CommandOptions:
    """The values of options, by field. Annotated fields of a subclass are the options of its command.

    It is not a dataclass: generating the methods of those that are here would take 12 ms of every start.
    """

    def __init__(self, **given: Any) -> None:
        if unknown := given.keys() - _annotations(type(self)).keys():
            raise TypeError(f"{type(self).__name__} has no field {min(unknown)!r}")
        vars(self).update(given)

    def replace(self, **changes: Any) -> Self:
        """The same with other values of some fields."""
        return type(self)(**{**vars(self), **changes})


@functools.cache
def _annotations(options: type[CommandOptions]) -> Mapping[str, Any]:
    """The annotations of a class and its bases, by field."""
    return typing.get_type_hints(options, include_extras=True)


@functools.cache
def _described(options: type[CommandOptions]) -> Mapping[str, _Described]:
    """The options of a class by field, in the order of `--help`."""
    annotations = _annotations(options)
    order: list[str] = []
    for base in reversed(options.__mro__):
        place = len(order)
        for name in vars(base).get("__annotations__", ()):
            if name not in order:
                for after in _metadata(annotations[name], After):
                    place = order.index(after.field) + 1 if after.field else 0
                order.insert(place, name)
            place = order.index(name) + 1
    found = {name: _option(name, annotations[name]) for name in order}
    return {name: described for name, described in found.items() if described is not None}


def _metadata(annotation: Any, *kinds: type) -> Sequence[Any]:
    return [each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, kinds)]


def _option(name: str, annotation: Any) -> _Described | None:
    infos = _metadata(annotation, OptionInfo, ArgumentInfo)
    if not infos:
        return None
    (info,) = infos
    kind = annotation.__origin__
    if typing.get_origin(kind) is Sequence:
        kind = list[typing.get_args(kind)[0]] | None
    typed = [each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str)]
    flag = next((each for each in typed if each.startswith("--")), f"--{name.replace('_', '-')}").partition("/")[0]
    return _Described(
        annotation=Annotated[kind, info],
        flag=flag if isinstance(info, OptionInfo) else str(info.metavar),
        path="".join(each.path for each in _metadata(annotation, RequestField)),
    )


def flags(options: type[CommandOptions]) -> Mapping[str, str]:
    """How the options of a class are typed, by field: "--max-tokens"."""
    return {name: described.flag for name, described in _described(options).items()}


def field_flags(options: type[CommandOptions]) -> Mapping[str, str]:
    """How the options of a class are typed, by the field of a request that they give; the longest fields first."""
    found = {each.path: each.flag for each in _described(options).values() if each.path}
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


_Options = TypeVar("_Options", bound=CommandOptions)


def command(options: type[_Options]) -> Callable[[Callable[[_Options], None]], Callable[..., None]]:
    """Make a command of a function that takes options; the parameters of the command are those of the class."""
    parameters = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=each.annotation, default=_default(options, name)
        )
        for name, each in _described(options).items()
    ]

    def decorate(function: Callable[[_Options], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**given: Any) -> None:
            function(options(**{name: value for name, value in given.items() if value is not None}))

        vars(run)["__signature__"] = inspect.Signature(parameters)
        return run

    return decorate


def _default(options: type[CommandOptions], name: str) -> Any:
    """As typer takes it: None for a list that is empty if the option is not given."""
    default = getattr(options, name, inspect.Parameter.empty)
    return None if default == () else default


class RequestOptions(CommandOptions, abc.ABC):
    """Options of `evaluate`, `prompt` and `follow` that make requests; None or empty if not given."""

    data: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="builtin:NAME; jsonl:PATH, csv:PATH or parquet:PATH below a data root, with "
            "?input=COLUMN&target=COLUMN if its columns have other names; or "
            "hub:OWNER/NAME?split=SPLIT&input=COLUMN&target=COLUMN.",
        ),
        RequestField("dataset"),
    ] = None
    task: Annotated[
        Sequence[str],
        typer.Option(
            "--task",
            metavar="TASK",
            help="Instead of --data: an Inspect task, PACKAGE/TASK or FILE.py@TASK, which the evaluator inspect runs; "
            "repeatable. The named tasks are allowed, unless --inspect-root or --inspect-package is given.",
        ),
    ] = ()
    evaluator: Annotated[
        Sequence[str],
        typer.Option(
            "--evaluator",
            metavar="[NAME=]KIND",
            help=f"{', '.join(EVALUATORS[:-1])} or {EVALUATORS[-1]}, see `crucible-worker evaluators`; or "
            "FILE.py:CLASS, a class of your own. NAME prefixes keys; repeatable.",
            autocompletion=one_of(*EVALUATORS),
        ),
        RequestField("evaluators"),
    ] = ()
    option: Annotated[
        Sequence[str],
        typer.Option(
            "--option",
            metavar="EVALUATOR.KEY=VALUE",
            help="An evaluator's option; VALUE is JSON or text; KEY.KEY sets an option within an option; repeatable.",
        ),
        RequestField("option"),
    ] = ()
    grader: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Grader of answers for every evaluator that has one, unless its --option sets another: one of "
            "`crucible-worker graders`, or FILE.py:FUNCTION, a function of your own. [default: exact_match]",
        ),
    ] = None
    renderer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How samples become prompts: auto, chat_template, role_colon, raw or tinker:NAME. An evaluator's "
            "--option renderer overrides it. [default: auto, which is a chat if the model has a chat "
            "template or a server]",
        ),
    ] = None
    system: Annotated[
        str | None,
        typer.Option(metavar="TEXT|@FILE", help="System message before every row."),
        RequestField("dataset.prompt.system"),
    ] = None
    template: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE",
            help="User message of a row, from its columns: '{input}', or Jinja2, '{{ input }}'. [default: the "
            "row's input]",
        ),
        RequestField("dataset.prompt.template"),
    ] = None
    target_delimiter: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Text between a prompt and its answer for a model without a chat template; '' for none. [default: one "
            "space, unless the prompt ends or the answer begins with white space]",
        ),
        RequestField("dataset.prompt.target_delimiter"),
    ] = None
    special_tokens: Annotated[
        bool | None,
        typer.Option(
            "--special-tokens",
            help="Read the special tokens that the data name, such as <|im_end|>. [default: their names are text]",
        ),
        RequestField("dataset.special_tokens"),
    ] = None
    few_shot: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT:SOURCE",
            help="Examples before each row: rows with answers from another file or split, as in 5:jsonl:train.jsonl.",
        ),
        RequestField("dataset.prompt.few_shot"),
    ] = None
    few_shot_seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Seed by which --few-shot draws its rows. [default: 0]"),
        RequestField("dataset.prompt.few_shot.seed"),
    ] = None
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="A suite's file (.toml), or one that ships: chat, code, math or tool_use; see "
            "`crucible-worker suites`.",
            autocompletion=suite_names,
        ),
        RequestField("suite"),
    ] = None
    only: Annotated[
        Sequence[str], typer.Option(metavar="NAME", help="Take only this evaluation of the suite; repeatable.")
    ] = ()
    samples: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Take the first N samples of each data set; with --task, of each task."),
        RequestField("dataset.limit"),
    ] = None
    where: Annotated[
        Sequence[str],
        typer.Option(
            metavar="KEY=VALUE",
            help="Take only samples whose metadata has this value, before shuffling and --samples; repeatable.",
        ),
        RequestField("dataset.where"),
    ] = ()
    shuffle_seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Take the samples in an order shuffled by this seed."),
        RequestField("dataset.shuffle_seed"),
    ] = None
    concurrency: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Samples in flight at once. [default: the worker's default_concurrency]"),
        RequestField("limits.concurrency"),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Generate at most N tokens for each answer. [default: 256]"),
        RequestField("sampling.max_tokens"),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(metavar="T", min=0.0, help="0 is greedy. [default: 0]"),
        RequestField("sampling.temperature"),
    ] = None
    seed: Annotated[int | None, typer.Option(metavar="N", help="Seed of sampling."), RequestField("sampling.seed")] = (
        None
    )
    stop: Annotated[
        Sequence[str], typer.Option(metavar="TEXT", help="Stop string; repeatable."), RequestField("sampling.stop")
    ] = ()
    max_unscored: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Fail if an evaluator leaves more samples without a score. [default: if more than 5 % end with an "
            "error]",
        ),
        RequestField("limits.max_unscored"),
    ] = None
    max_cost: Annotated[
        float | None,
        typer.Option(
            metavar="COST",
            min=0.0,
            help="Pause once the calls of all models cost so much, by --price; `resume` with more continues. With "
            "`follow`, all checkpoints together. [default: no limit]",
        ),
        RequestField("limits.max_cost"),
    ] = None
    max_output_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Likewise, once all models have generated so many tokens. [default: no limit]"
        ),
        RequestField("limits.max_output_tokens"),
    ] = None
    record: Annotated[
        str | None,
        typer.Option(
            "--record",
            metavar="WHAT",
            help="What is recorded for each sample: full, outputs or none. [default: the suite's, or full]",
            autocompletion=one_of("full", "outputs", "none"),
        ),
        RequestField("record"),
    ] = None
    run_id: Annotated[
        str | None,
        typer.Option(
            "--run-id", metavar="RUN", help="The training run that the model is of; recorded with the results."
        ),
        RequestField("run_id"),
    ] = None
    step: Annotated[
        int | None,
        typer.Option("--step", metavar="N", help="The training step of the model; recorded with the results."),
        RequestField("step"),
    ] = None
    label: Annotated[
        Sequence[str],
        typer.Option("--label", metavar="KEY=VALUE", help="A note that is recorded with the evaluation; repeatable."),
        RequestField("labels"),
    ] = ()
    role: Annotated[
        Sequence[str],
        typer.Option(
            "--role",
            metavar="NAME=MODEL",
            help="A further model of tasks, by its role or by the name that they have for it, as in "
            "grader=openai:SERVER/MODEL; repeatable.",
        ),
        RequestField("models"),
    ] = ()
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", metavar="TEXT", help="Put before every metric key, as in test/ for test/accuracy."),
        RequestField("metric_prefix"),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="Cancel the evaluation when it has run for so long, all attempts together. [default: no limit]",
        ),
        RequestField("limits.deadline_ms"),
    ] = None
    evaluation_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Id of the evaluation. The same id again resumes the evaluation, or shows its result. It is ID-NAME "
            "in a suite, and ID-MODEL with several models. [default: made of model, data and time]",
        ),
        RequestField("evaluation_id"),
    ] = None
    made_id: str = ""
    """Stands in for an id that is not typed; the worker makes ids if it is empty."""

    @property
    @abc.abstractmethod
    def models(self) -> Sequence[str]:
        """At least one, as typed; the other options apply to each."""

    @property
    def kept(self) -> bool:
        """Whether the evaluation stays in a journal: otherwise an id is of no use."""
        return True

    def given(self, *names: str) -> Iterator[tuple[str, Any]]:
        """The options of these names that are given, as they are typed, with each value; all but models without names.

        So are options named that exclude each other: the first one is that of the error.
        """
        typed_as = flags(RequestOptions)
        for name in names or typed_as:
            value = getattr(self, name)
            for each in value if isinstance(value, list | tuple) else () if value is None else (value,):
                yield typed_as[name], each


class SettingsOptions(CommandOptions):
    """Options of commands that evaluate in their process, and of `serve`: settings of a worker by their names."""

    log_dir: Annotated[
        Path | None,
        typer.Option(
            "--log-dir", metavar="DIR", help="Write an Inspect log (.eval) of each evaluation there when it ends."
        ),
    ] = None
    log_to: Annotated[
        list[str] | None,
        typer.Option(
            "--log-to",
            metavar="LOGGER",
            help="Log metrics there: trackio:PROJECT, jsonl, jsonl:DIR, wandb:PROJECT, mlflow, tensorboardx; "
            "repeatable.",
        ),
    ] = None
    model_root: ModelRoot = None
    data_root: DataRoot = None
    hub_network: Annotated[
        bool | None,
        typer.Option(
            "--hub-network",
            help="Fetch data sets and models from the Hugging Face hub. Without it only the hub's cache is read.",
        ),
    ] = None
    inspect_root: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Folder with files of Inspect tasks that may be run; repeatable."),
    ] = None
    inspect_package: Annotated[
        list[str] | None,
        typer.Option(metavar="PACKAGE", help="Installed package whose tasks of Inspect may be run; repeatable."),
    ] = None
    environment_variable: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Variable of the worker that custom environments get; repeatable."),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="Device of models: auto, cpu, cuda or cuda:N. [default: auto]"),
    ] = None
    openai_server: OpenAIServer = None
    openai_key_env: OpenAIKey = None
    tinker_service: Annotated[
        list[str] | None,
        typer.Option(
            "--tinker-service",
            metavar="NAME=URL",
            help="Tinker service, with the key in TINKER_API_KEY; another key needs --config. Repeatable.",
        ),
    ] = None
    price: Price = None


class RunOptions(SettingsOptions, RequestOptions):
    """The options that `evaluate`, `prompt` and `follow` have in common."""

    as_json: Json = False
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="TOML file with settings, and options of `evaluate` in its table [evaluate]; flags and environment "
            "win.",
        ),
        After("evaluation_id"),
    ] = None
    state_dir: StateDir = None

    def settings(self, state_dir: Path | None) -> Settings:
        """The settings of the worker in this process; wrong ones end the command, as in `settings_or_exit`.

        Args:
            state_dir: folder of the journal.
        """
        given = {name: getattr(self, name) for name in flags(SettingsOptions)}
        return settings_or_exit(self.config, state_dir=state_dir, client_variables=True, **given)


class FollowOptions(RunOptions):
    """The options of `follow`."""

    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Directory in which the run saves its checkpoints; it need not exist yet."),
        RequestField("directory"),
        FIRST,
    ]
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan", metavar="FILE", help="In place of --data and --suite: a plan's file (.toml), with its intervals."
        ),
        After("only"),
    ] = None
    policy: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="Which checkpoints are evaluated: all, latest or every; see --every.",
            autocompletion=one_of("all", "latest", "every"),
        ),
        RequestField("policy"),
    ] = "all"
    every: Annotated[
        int | None,
        typer.Option(
            metavar="K", min=1, help="With --policy every: take the first checkpoint, and each K-th after it."
        ),
        RequestField("every"),
    ] = None
    name_pattern: Annotated[
        str,
        typer.Option(
            metavar="PATTERN",
            help="How checkpoints are named, as in ckpt-{step}. [default: the names of known trainers]",
        ),
        RequestField("name_pattern"),
    ] = ""
    marker: Annotated[
        str,
        typer.Option(metavar="NAME", help="Take a checkpoint once it has a file of this name. [default: no marker]"),
        RequestField("marker"),
    ] = ""
    base_model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Model of adapters, local: or hub:, or managed:SERVER for all. [default: the one that they name]",
        ),
        RequestField("base_model"),
    ] = None
    exit_when_idle: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            help="End once nothing runs and no checkpoint became whole for so long, from the start on. "
            "[default: only by Ctrl-C]",
        ),
    ] = None
    stop_on: Annotated[
        str | None,
        typer.Option(
            "--stop-on",
            metavar="METRIC",
            help="End with exit status 5 once this metric has brought no better checkpoint for so long as --patience "
            "says. Its full key, or without prefix if one evaluation alone has it.",
        ),
        RequestField("patience.metric"),
    ] = None
    patience: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="With --stop-on: so many evaluations in a row without a better one. [default: 3]"
        ),
        RequestField("patience.patience"),
    ] = None
    min_delta: Annotated[
        float | None,
        typer.Option(
            metavar="D",
            min=0.0,
            help="With --stop-on: a difference that may be as small as this is no improvement. [default: 0]",
        ),
        RequestField("patience.min_delta"),
    ] = None
    goal: Annotated[
        str | None,
        typer.Option(
            metavar="GOAL",
            help="With --stop-on and --keep-best: higher or lower. [default: what the evaluator declares]",
            autocompletion=one_of("higher", "lower"),
        ),
        RequestField("patience.goal"),
    ] = None
    keep_best: Annotated[
        int | None,
        typer.Option(
            "--keep-best",
            metavar="N",
            min=1,
            help="Copy the N best checkpoints, and remove copies that are no longer among them; see --keep-by.",
        ),
    ] = None
    keep_by: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="Metric of --keep-best. [default: that of --stop-on, or of the only evaluator]",
        ),
    ] = None
    keep_folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the copies. [default: best in the directory]")
    ] = None
    keep_gib: Annotated[
        float | None,
        typer.Option(metavar="GIB", min=0.0, help="Bound of all copies together. [default: 100]"),
    ] = None
    mark: Annotated[
        bool, typer.Option("--mark", help="Put a file .released into a checkpoint that is no longer read.")
    ] = False
    hold_folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Hold checkpoints here while they are read. [default: .crucible in the directory]"
        ),
        RequestField("hold_folder"),
    ] = None
    run_id: Annotated[
        str | None,
        typer.Option("--run-id", metavar="RUN", help="The training run. [default: the directory's name]"),
        RequestField("run_id"),
    ] = None
    plan_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Evaluations are named ID-step-STEP-N. [default: the run]"),
        RequestField("plan_id"),
        After("timeout"),
    ] = None

    # Of each checkpoint; `plan_id` has the place of the id.
    step: None = None
    evaluation_id: None = None

    @property
    def models(self) -> Sequence[str]:
        """Stands for each checkpoint where options are read as those of an evaluation."""
        return ("embedded:checkpoint",)
