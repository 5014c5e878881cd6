"""`crucible-worker pause`, `resume` and `concurrency`: what can be changed of an evaluation while it runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from crucible_worker.cli.options import Config, Json, StateDir
from crucible_worker.cli.reading import Address, EvaluationIdArgument, read_or_exit
from crucible_worker.cli.remote import AddressTokenFile, AddressTrust, AddressTrustedName, Trust

if TYPE_CHECKING:
    from crucible_bridge.types import Evaluation

__all__ = ["concurrency", "pause", "resume"]

_Concurrency = Annotated[
    int, typer.Argument(metavar="N", help="At most so many samples at work at once.", show_default=False)
]


def pause(
    evaluation_id: EvaluationIdArgument,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    as_json: Json = False,
) -> None:
    """Pause an evaluation, whichever worker runs it: samples under way finish, and no other begins.

    It stays paused, over restarts of workers as well, until resume. Its deadline does not count meanwhile.

    Example: crucible-worker pause nightly-320 --state-dir ./journal
    """
    _say(
        read_or_exit(
            lambda bridge: bridge.evaluation.pause_evaluation(evaluation_id),
            config,
            state_dir,
            address,
            token_file,
            Trust(tls_ca, tls_name),
        ),
        as_json,
    )


def resume(
    evaluation_id: EvaluationIdArgument,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    as_json: Json = False,
) -> None:
    """Let a paused evaluation continue, at once if a worker runs it.

    Example: crucible-worker resume nightly-320 --state-dir ./journal
    """
    _say(
        read_or_exit(
            lambda bridge: bridge.evaluation.resume_evaluation(evaluation_id),
            config,
            state_dir,
            address,
            token_file,
            Trust(tls_ca, tls_name),
        ),
        as_json,
    )


def concurrency(
    evaluation_id: EvaluationIdArgument,
    number: _Concurrency,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    as_json: Json = False,
) -> None:
    """Change how many samples of an evaluation may be at work at once, whichever worker runs it.

    Example: crucible-worker concurrency nightly-320 64 --state-dir ./journal
    """
    _say(
        read_or_exit(
            lambda bridge: bridge.evaluation.set_evaluation_concurrency(evaluation_id, number),
            config,
            state_dir,
            address,
            token_file,
            Trust(tls_ca, tls_name),
        ),
        as_json,
    )


def _say(evaluation: Evaluation, as_json: bool) -> None:
    from crucible_worker.reports.facts import state_text

    if as_json:
        data = {
            "evaluation_id": evaluation.evaluation_id,
            "state": evaluation.state.value,
            "paused": evaluation.paused,
            "concurrency": evaluation.concurrency,
        }
        typer.echo(json.dumps(data))
        return
    limit = "" if evaluation.concurrency is None else f", concurrency {evaluation.concurrency:,}"
    typer.echo(f"{evaluation.evaluation_id}: {state_text(evaluation)}{limit}")
