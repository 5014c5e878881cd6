"""`crucible-worker rm`: deletes evaluations of a journal or of a worker."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from crucible_worker.cli.completion import evaluation_ids as completed_ids
from crucible_worker.cli.options import EXIT_FAILED, Config, Json, StateDir
from crucible_worker.cli.reading import Address, read_or_exit, refuse
from crucible_worker.cli.remote import AddressTokenFile, AddressTrust, AddressTrustedName, Trust

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from crucible_bridge import Bridge
    from crucible_bridge.types import Evaluation

__all__ = ["remove"]

NAMED = 5
"""Evaluations that the question names."""

_Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID...", help="The evaluations.", show_default=False, autocompletion=completed_ids),
]
_Run = Annotated[str | None, typer.Option("--run", metavar="RUN", help="In their place: every evaluation of this run.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where there is no terminal.")]


def remove(
    evaluation_ids: _Ids = None,
    run: _Run = None,
    yes: _Yes = False,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    as_json: Json = False,
) -> None:
    """Delete evaluations that have ended, with their samples; if one of them still runs, none is deleted.

    Example: crucible-worker rm nightly-320 nightly-600 --state-dir ./journal
    """
    ids = tuple(dict.fromkeys(evaluation_ids or ()))
    if not ids and run is None:
        refuse("give IDs of evaluations, or --run")
    if ids and run is not None:
        refuse("give either IDs of evaluations or --run, not both")
    if not yes and not sys.stdin.isatty():
        refuse("there is no terminal for the question whether to delete: --yes deletes without it")

    async def find(bridge: Bridge) -> Sequence[Evaluation]:
        found = await (_of_run(bridge, run) if run is not None else _named(bridge, ids))
        _refuse_running(found, _typed_place(config, state_dir, address))
        if yes:
            await _delete(bridge, found, as_json=as_json)
        return found

    async def delete(bridge: Bridge) -> None:
        await _delete(bridge, found, as_json=as_json)

    found = read_or_exit(find, config, state_dir, address, token_file, Trust(tls_ca, tls_name))
    if yes:
        return
    if not typer.confirm(_question(found), err=True):
        typer.echo("nothing was deleted", err=True)
        raise typer.Exit(EXIT_FAILED)
    read_or_exit(delete, config, state_dir, address, token_file, Trust(tls_ca, tls_name))


async def _named(bridge: Bridge, ids: Sequence[str]) -> Sequence[Evaluation]:
    return [await bridge.evaluation.get_evaluation(evaluation_id) for evaluation_id in ids]


async def _of_run(bridge: Bridge, run: str) -> Sequence[Evaluation]:
    from crucible_bridge.errors import NotFound
    from crucible_bridge.reasons import Reason

    found = [evaluation async for evaluation in bridge.evaluation.all_evaluations(run_id=run)]
    if not found:
        raise NotFound(f"is {run!r}: no evaluation is of this run", reason=Reason.UNKNOWN_RUN, field="run_id")
    return found


def _typed_place(config: Path | None, state_dir: Path | None, address: str | None) -> str:
    """The options that named the journal, as the next command needs them; empty for the default one."""
    named = {"--config": config, "--state-dir": state_dir, "--address": address}
    return "".join(f" {option} {shlex.quote(str(value))}" for option, value in named.items() if value is not None)


def _refuse_running(found: Sequence[Evaluation], place: str) -> None:
    from crucible_bridge.errors import FailedPrecondition
    from crucible_bridge.reasons import Reason
    from crucible_bridge.types import EvaluationState

    for evaluation in found:
        if evaluation.state in (EvaluationState.QUEUED, EvaluationState.RUNNING):
            name = evaluation.evaluation_id
            cure = f"cancel it first (crucible-worker cancel {shlex.quote(name)}{place})"
            raise FailedPrecondition(f"{name!r} is {evaluation.state.value}: {cure}", reason=Reason.NOT_ENDED)


async def _delete(bridge: Bridge, found: Sequence[Evaluation], *, as_json: bool) -> None:
    deleted: list[dict[str, str | int]] = []
    try:
        for evaluation in found:
            last = await bridge.evaluation.delete_evaluation(evaluation.evaluation_id)
            deleted.append({"evaluation_id": last.evaluation_id, "state": last.state.value, "samples": last.done})
            if not as_json:
                typer.echo(f"{last.evaluation_id}: deleted, with {_samples(last.done)}")
    finally:
        # Also before an error: what is deleted stays deleted.
        if as_json:
            typer.echo(json.dumps(deleted))


def _question(found: Sequence[Evaluation]) -> str:
    names = ", ".join(evaluation.evaluation_id for evaluation in found[:NAMED])
    more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
    count = f"{len(found):,} evaluation{'' if len(found) == 1 else 's'}"
    return f"Delete {count} with {_samples(sum(one.done for one in found))}: {names}{more}?"


def _samples(count: int) -> str:
    return f"{count:,} sample{'' if count == 1 else 's'}"
