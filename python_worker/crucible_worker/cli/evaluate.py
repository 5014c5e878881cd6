"""`crucible-worker evaluate`: an evaluation, or those of a suite, in this process, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import importlib
import re
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crucible_worker.cli.options import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    FIRST,
    After,
    RunOptions,
    command,
    settings_or_exit,
)
from crucible_worker.cli.reading import refuse, refuse_journal
from crucible_worker.cli.workspace import state_folder, with_roots
from crucible_worker.util.interrupts import raise_interrupts
from crucible_worker.util.loading import loading

if TYPE_CHECKING:
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.running import RunSummary
    from crucible_worker.config import Settings

__all__ = ["MAX_PART", "EvaluateOptions", "evaluate", "new_id"]


class EvaluateOptions(RunOptions):
    """The options of `crucible-worker evaluate`."""

    model: Annotated[
        Sequence[str],
        typer.Option(
            metavar="MODEL",
            help="embedded:NAME@STEP, local:PATH below a model root, hub:OWNER/NAME, openai:SERVER/MODEL, "
            "managed:SERVER/PATH, tinker://PATH, tinker:BASE, or SCHEME:NAME of an installed backend; repeatable: each "
            "further one is compared with the first.",
        ),
        FIRST,
    ]
    state_dir: Annotated[
        Path | None,
        typer.Option(
            "--state-dir",
            metavar="DIR",
            help="Keep the results in the journal of this folder. [default: $XDG_STATE_HOME/crucible-bridge, below "
            "~/.local/state]",
        ),
    ] = None
    rerun: Annotated[
        bool,
        typer.Option(
            "--rerun", help="Evaluate again what has ended under --id, as ID-2, ID-3 ...; the earlier results stay."
        ),
        After("evaluation_id"),
    ] = False
    no_keep: Annotated[bool, typer.Option("--no-keep", help="Only print the results; keep them in no journal.")] = False
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="Write what --json prints to this file, at the end, all at once."
        ),
    ] = None
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Every metric key in a table, in place of sentences."),
        After("price"),
    ] = False

    @property
    def models(self) -> Sequence[str]:
        """Each is evaluated; the further ones are compared with the first."""
        return self.model

    @property
    def kept(self) -> bool:
        """Unless --no-keep is given."""
        return not self.no_keep


@command(EvaluateOptions)
def evaluate(typed: EvaluateOptions) -> None:
    """Evaluate a model in this process, without a worker: by --data and --evaluator, by --task or by --suite.

    Several models are evaluated one after another, then compared with the first, sample by sample.

    Files are read below the current folder, unless --model-root or --data-root names another.

    The results stay in a journal, where `crucible-worker show`, `report` and `view` find them, unless --no-keep is
    given.

    Exits with 0 if every evaluator finished, 1 if one failed, 2 if the request is refused before anything ran, 4 if all
    completed and one scored none of its samples, 6 if one is paused by its budget. If an evaluation of a suite fails,
    the next ones still run. With --json an evaluation that did not run is an object with the key error.

    Example: crucible-worker evaluate --model embedded:arithmetic@600 --data builtin:arithmetic --evaluator nll
    --evaluator accuracy --option accuracy.grader=numeric --max-tokens 8
    """
    with loading():
        # Before anything else imports structlog: here it is imported without rich, which would cost 34 ms and 5.5 MB.
        importlib.import_module("crucible_worker.telemetry")
        from crucible_worker.cli.requests import allowing, with_evaluators

        running = importlib.import_module("crucible_worker.cli.running")
    # Everything is loaded; from here on there is something to clean up.
    raise_interrupts()
    output = typed.output
    if typed.no_keep and typed.state_dir is not None:
        refuse("--state-dir and --no-keep exclude each other")
    if output is not None and (why := running.unwritable(output)):
        refuse(f"--output {output} cannot be written: {why}")
    if typed.rerun and typed.evaluation_id is None:
        refuse("--rerun needs --id: without an id, each command evaluates anew")
    typed = with_evaluators(typed)
    if typed.evaluation_id is None:
        made_for = typed.suite or typed.data or (typed.task[0] if typed.task else "")
        made_id = new_id(typed.model[0] if len(typed.model) == 1 else "", made_for)
        typed = typed.replace(made_id=made_id)
    try:
        with state_folder(None) if typed.no_keep else contextlib.nullcontext(typed.state_dir) as folder:
            settings = allowing(typed.task, with_roots(typed.settings(folder)))
            if output is not None:
                refuse_journal("--output", output, settings.state_dir)
            outcome = running.RunSummary(
                models=typed.models,
                shown=running.OutputFormat(as_json=typed.as_json, verbose=typed.verbose, output=output),
                place=None if typed.no_keep else _place(typed.state_dir, settings),
            )
            raise typer.Exit(_run(settings, typed, outcome))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _place(state_dir: Path | None, settings: Settings) -> str:
    """What a command needs to read the same journal: the option as it was typed, or nothing for the default one."""
    if settings.journal is not None:
        return ""  # the environment or the file names it for the next command, too
    if state_dir is None and settings.state_dir == settings_or_exit(None, of_another=True).state_dir:
        return ""
    return f" --state-dir {shlex.quote(str(settings.state_dir if state_dir is None else state_dir))}"


def _run(settings: Settings, typed: EvaluateOptions, outcome: RunSummary) -> int:
    """Run the requested evaluations and write their results; returns the exit status."""
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.custom_files import custom_files_of
    from crucible_worker.cli.refusals import Refused, refusing
    from crucible_worker.cli.requests import check_allowed, evaluations_to_run
    from crucible_worker.cli.running import run, write_error

    shown = outcome.shown
    try:
        with refusing(settings, typed.evaluator):
            typed, custom = custom_files_of(typed)
        outcome.parts = custom.evaluator_parts
        with refusing(settings, typed.evaluator):
            outcome.suite, asked = evaluations_to_run(typed, custom.evaluator_parts)
            check_allowed(typed.task, settings)
        outcome.total = len(asked)
        outcome.compared = asyncio.run(
            run(settings, asked, typed.evaluator, outcome.several, custom, quiet=shown.as_json, rerun=typed.rerun)
        )
    except Refused as refused:
        write_error(refused.error, str(refused), shown)
        return EXIT_USAGE
    except BridgeError as error:
        write_error(error, f"{error}{_other_place(error)}", shown)
        return EXIT_FAILED
    except (asyncio.CancelledError, KeyboardInterrupt) as ended:
        if outcome.several:
            outcome.write()
        typer.echo(f"crucible-worker: ended before all was evaluated{_resumed_by(typed)}", err=True)
        return EXIT_INTERRUPTED if isinstance(ended, KeyboardInterrupt) else EXIT_FAILED
    outcome.write()
    return outcome.exit_code()


def _other_place(error: BridgeError) -> str:
    from crucible_bridge.reasons import Reason

    unusable = error.reason == Reason.STATE_DIR_UNUSABLE
    return "; --state-dir DIR names another folder, and --no-keep keeps nothing" if unusable else ""


def _resumed_by(typed: EvaluateOptions) -> str:
    if not typed.kept:
        return ""
    again = "" if typed.evaluation_id else f" with --id {shlex.quote(typed.made_id)}"
    return f"; the same command{again} resumes it"


# Ids of evaluations that people can read: "arithmetic-600-arithmetic-20261124-211530-7k2f". The id names the model,
# what it was evaluated on, and the local time; four random characters make it unique.

MAX_PART = 32
"""Characters of the model's name, and of what it was evaluated on."""
RANDOM_CHARACTERS = 4
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
"""Without characters that look alike."""
_OTHERS = re.compile(r"[^A-Za-z0-9._]+")


def new_id(model: str, made_for: str, now: datetime.datetime | None = None) -> str:
    """A new id, of characters that a shell leaves alone.

    Args:
        model: as it was typed, "embedded:arithmetic@600"; empty if there are several.
        made_for: a data set, task or suite as it was typed, "jsonl:data/sums.jsonl".
        now: the time; the current one if None.
    """
    when = (datetime.datetime.now() if now is None else now).strftime("%Y%m%d-%H%M%S")
    unique = "".join(secrets.choice(_ALPHABET) for _ in range(RANDOM_CHARACTERS))
    return "-".join(filter(None, (_named(model), _named(made_for), when, unique)))


def _named(text: str) -> str:
    """The last part of a path or name, without scheme, columns and the ending of a file."""
    *_, last = text.partition("?")[0].rstrip("/").split("/")
    if "/" not in text:
        last = last.partition(":")[2] or last
    for ending in (".jsonl", ".csv", ".parquet", ".toml"):
        last = last.removesuffix(ending)
    return _OTHERS.sub("-", last).strip("-.")[:MAX_PART].rstrip("-.")
