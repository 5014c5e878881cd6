"""`crucible-worker pause`, `resume` and `concurrency`: what can be changed of an evaluation while it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from crucible_worker.cli.options import Config, DataRoot, Json, ModelRoot, OpenAIServer, StateDir, evaluation_ids
from crucible_worker.cli.reading import (
    Address,
    AddressTokenFile,
    AddressTrust,
    AddressTrustedName,
    EvaluationIdArgument,
    Trust,
    read_or_exit,
    refuse,
    say_state,
)

__all__ = ["concurrency", "pause", "resume"]

_Concurrency = Annotated[
    int, typer.Argument(metavar="N", help="At most so many samples at work at once.", show_default=False)
]


_OneOf = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="The evaluation.", autocompletion=evaluation_ids, show_default=False),
]
_AllInterrupted = Annotated[
    bool, typer.Option("--all-interrupted", help="In place of ID: every interrupted one, the oldest first.")
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
    say_state(
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
    evaluation_id: _OneOf = None,
    all_interrupted: _AllInterrupted = False,
    config: Config = None,
    state_dir: StateDir = None,
    model_root: ModelRoot = None,
    data_root: DataRoot = None,
    openai_server: OpenAIServer = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    as_json: Json = False,
) -> None:
    """Let an evaluation continue: end its pause, or run the rest if it is interrupted, or failed with what may pass.

    At --address that worker runs the rest. Otherwise this command does, as the same `evaluate` would.

    Example: crucible-worker resume nightly-320 --state-dir ./journal
    """
    if (evaluation_id is None) is not all_interrupted:
        refuse("give either ID or --all-interrupted")
    from crucible_worker.cli.running import resume_at_worker, resume_here

    places = (config, state_dir, address, token_file, Trust(tls_ca, tls_name))
    if address is not None:
        code = resume_at_worker(evaluation_id, *places, as_json=as_json)
    else:
        code = resume_here(
            evaluation_id,
            *places,
            as_json=as_json,
            model_roots=model_root,
            data_roots=data_root,
            openai_servers=openai_server,
        )
    raise typer.Exit(code)


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
    say_state(
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
