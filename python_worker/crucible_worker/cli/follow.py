"""`crucible-worker follow`: the checkpoints of a training run, each evaluated as it is saved, in this process."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
from typing import TYPE_CHECKING

import typer

from crucible_worker.cli.options import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, FollowOptions, command
from crucible_worker.cli.workspace import with_roots
from crucible_worker.util.interrupts import raise_interrupts

if TYPE_CHECKING:
    from crucible_worker.config import Settings

__all__ = ["follow"]


@command(FollowOptions)
def follow(typed: FollowOptions) -> None:
    """Evaluate the checkpoints of a training run as they are saved: by --data and --evaluator, --suite or --plan.

    A checkpoint is evaluated once it is whole, and is held by hard links meanwhile: the trainer may delete it, and
    needs no change. The results stay in the journal, where `crucible-worker list`, `report` and `view` find them.

    The same command again resumes, after Ctrl-C or a crash. With --json each evaluation that has ended is one line.

    Exits with 0 by --exit-when-idle, or 1 if an evaluation failed or was refused; 5 by --stop-on, 6 by a budget, 2 if
    the options are refused, 130 by Ctrl-C.

    Example: crucible-worker follow runs/mine --data builtin:arithmetic --evaluator nll --exit-when-idle 60
    """
    importlib.import_module("crucible_worker.cli.following")
    from crucible_worker.cli.requests import allowing, with_evaluators

    raise_interrupts()
    directory = typed.directory.absolute()
    typed = with_evaluators(typed).replace(
        directory=directory,
        run_id=directory.resolve().name if typed.run_id is None else typed.run_id,
        hold_folder=None if typed.hold_folder is None else typed.hold_folder.absolute(),
        keep_folder=None if typed.keep_folder is None else typed.keep_folder.absolute(),
    )
    settings = allowing(typed.task, with_roots(typed.settings(typed.state_dir)))
    own_roots = (directory, *(each for each in (typed.hold_folder, typed.keep_folder) if each is not None))
    settings = dataclasses.replace(settings, model_roots=(*own_roots, *settings.model_roots))
    try:
        raise typer.Exit(_run(settings, typed))
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _run(settings: Settings, typed: FollowOptions) -> int:
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.custom_files import custom_files_of
    from crucible_worker.cli.following import keep_rule, refusing_follow, request_of, run
    from crucible_worker.cli.refusals import Refused, refusing
    from crucible_worker.cli.requests import check_allowed

    try:
        with refusing(settings, typed.evaluator):
            typed, custom = custom_files_of(typed)
        with refusing_follow(settings, typed):
            request = request_of(typed, custom.evaluator_parts)
            keep = keep_rule(typed, request, custom.evaluator_parts)
            check_allowed(typed.task, settings)
        return asyncio.run(
            run(
                settings,
                request,
                custom,
                lambda: refusing_follow(settings, typed),
                typed.exit_when_idle,
                keep,
                stops=typed.stop_on is not None,
                as_json=typed.as_json,
            )
        )
    except Refused as refused:
        typer.echo(f"crucible-worker: {refused}", err=True)
        return EXIT_USAGE
    except BridgeError as error:
        typer.echo(f"crucible-worker: {error}", err=True)
        return EXIT_FAILED
    except (asyncio.CancelledError, KeyboardInterrupt) as ended:
        typer.echo("crucible-worker: ended while it followed; the same command resumes", err=True)
        return EXIT_INTERRUPTED if isinstance(ended, KeyboardInterrupt) else EXIT_FAILED
