"""`crucible-worker ray up|status|down`: a worker on every node of a Ray cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer

from crucible_worker.cli.options import EXIT_FAILED, EXIT_USAGE, Json, settings_or_exit
from crucible_worker.cli.parsing import OnceCommand
from crucible_worker.cli.serve import serve

if TYPE_CHECKING:
    from crucible_worker.cli.nodes import NodeState

__all__ = ["app"]

WAIT_SECONDS = 60.0
"""How long `up` waits for the workers of the nodes."""
CONNECT_SECONDS = 20.0
"""How long a cluster may take to answer."""
ASK_SECONDS = 5.0
"""How long `status` waits for the worker of a node to say where it listens."""

_OWN_OPTIONS = ("--ready-file", "--journal")

_Address = Annotated[
    str, typer.Option("--address", metavar="CLUSTER", help="ray://HOST:PORT, HOST:PORT, or auto: this machine's.")
]
_Journal = Annotated[
    str | None,
    typer.Option(
        "--journal",
        metavar="URL",
        help="PostgreSQL database that the workers share: postgresql://USER@HOST/DATABASE. [default: CRUCIBLE_JOURNAL]",
    ),
]
_Cpus = Annotated[float, typer.Option("--num-cpus", metavar="N", min=0.0, help="Processors that each worker takes.")]
_Gpus = Annotated[
    float, typer.Option("--num-gpus", metavar="N", min=0.0, help="GPUs that each worker takes, for local models.")
]
_Wait = Annotated[float, typer.Option("--wait", metavar="SECONDS", min=0.0, help="How long to wait for the workers.")]
_Serve = Annotated[list[str] | None, typer.Argument(metavar="[-- OPTIONS OF SERVE]", help="Options of each worker.")]

app = typer.Typer(
    name="ray",
    help="Keep a worker on every node of a Ray cluster, all on one PostgreSQL journal.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(cls=OnceCommand)
def up(
    options: _Serve = None,
    address: _Address = "auto",
    journal: _Journal = None,
    num_cpus: _Cpus = 1.0,
    num_gpus: _Gpus = 0.0,
    wait: _Wait = WAIT_SECONDS,
) -> None:
    """Start a worker on every node, and on each node that comes later.

    Each worker is the child of an actor, which Ray restarts when it dies. Options after -- are those of `serve`. Exits
    with 0 once every node that has room for a worker has one.
    """
    served = tuple(options or ())
    _check_options(served)
    url = settings_or_exit(None, journal=journal).journal
    if url is None:
        typer.echo("crucible-worker: --journal is needed: the workers share a PostgreSQL database", err=True)
        raise typer.Exit(EXIT_USAGE)
    out = sys.stdout
    fleet = _connected(address)
    if not fleet.begin(fleet.WorkerEndpoint(journal=url, options=served), {"num_cpus": num_cpus, "num_gpus": num_gpus}):
        typer.echo("crucible-worker: workers are up already: crucible-worker ray status, or ray down", err=True)
        raise typer.Exit(EXIT_FAILED)
    until = time.monotonic() + wait
    states: Sequence[NodeState] = ()
    while _waited(states) or not states:
        states = _states(fleet, max(0.0, min(ASK_SECONDS, until - time.monotonic()))) or ()
        if time.monotonic() >= until:
            break
    _show(states, out, as_json=False)
    raise typer.Exit(0 if any(one.address for one in states) and not _waited(states) else EXIT_FAILED)


@app.command(cls=OnceCommand)
def status(address: _Address = "auto", as_json: Json = False) -> None:
    """Show each node and where its worker listens. Exits with 1 if nothing is up, or a worker is not ready."""
    out = sys.stdout
    states = _states(_connected(address), ASK_SECONDS)
    if states is None:
        _nothing_is_up()
    _show(states, out, as_json=as_json)
    raise typer.Exit(EXIT_FAILED if _waited(states) else 0)


@app.command(cls=OnceCommand)
def down(address: _Address = "auto") -> None:
    """Drain every worker and end its actor; evaluations that run are interrupted, and can be resumed."""
    out = sys.stdout
    ended = _connected(address).end()
    if ended is None:
        _nothing_is_up()
    typer.echo(f"workers that have ended: {ended.drained}", file=out)
    if ended.killed:
        typer.echo(f"nodes whose worker was not started, or did not end in time: {ended.killed}", file=out)


def _check_options(options: Sequence[str]) -> None:
    """Refuse what `serve` would refuse on each node; the parser of `serve` says why."""
    for option in options:
        if option.partition("=")[0] in _OWN_OPTIONS:
            where = "before --" if option.startswith("--journal") else "by this command alone"
            typer.echo(f"crucible-worker: {option.partition('=')[0]} is given {where}", err=True)
            raise typer.Exit(EXIT_USAGE)
    alone = typer.Typer()
    alone.command(cls=OnceCommand)(serve)
    typer.main.get_command(alone).make_context("serve", list(options))


def _connected(address: str) -> Any:
    """The module that talks to Ray, connected; it is not typed here, as it imports Ray.

    From here on `sys.stdout` leads nowhere: Ray prints its news of nodes there, into the middle of a table or of JSON.
    """
    from crucible_worker.grading.fanout.address import ray_variables

    os.environ.update(ray_variables(address, os.environ))
    try:
        from crucible_worker.cli import nodes as fleet
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        typer.echo("crucible-worker: Ray is not installed: pip install 'crucible-bridge[ray]'", err=True)
        raise typer.Exit(EXIT_FAILED) from None
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
    failed: list[BaseException] = []

    def connect() -> None:
        try:
            fleet.connect(address)
        except Exception as error:  # of many kinds, with no common base
            failed.append(error)

    # Ray itself looks for a cluster that is gone for ever.
    connecting = threading.Thread(target=connect, daemon=True)
    connecting.start()
    connecting.join(CONNECT_SECONDS)
    if failed or connecting.is_alive():
        why = str(failed[0]) if failed else f"not within {CONNECT_SECONDS:g} s"
        typer.echo(f"crucible-worker: --address {address}: no Ray cluster answers: {why}", err=True)
        sys.stderr.flush()
        os._exit(EXIT_FAILED)  # a thread of Ray may wait for ever
    return fleet


def _states(fleet: Any, seconds: float) -> Sequence[NodeState] | None:
    """As `nodes.states`; the command ends if the cluster does not answer."""
    try:
        return fleet.states(seconds)
    except fleet.GetTimeoutError:
        typer.echo(
            "crucible-worker: the actor that starts the workers does not answer: is its node lost? Try again, or "
            "crucible-worker ray down",
            err=True,
        )
        raise typer.Exit(EXIT_FAILED) from None


def _nothing_is_up() -> NoReturn:
    typer.echo("crucible-worker: nothing is up on this cluster: crucible-worker ray up", err=True)
    raise typer.Exit(EXIT_FAILED)


def _waited(states: Sequence[NodeState]) -> bool:
    return any(one.state.startswith(("starting", "lost")) for one in states)


def _show(states: Sequence[NodeState], out: TextIO, *, as_json: bool) -> None:
    from crucible_worker.cli.tables import write_table

    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(one) for one in states]), file=out)
        return
    rows = [(one.node_id[:12], one.node_address, one.state, one.address) for one in states]
    write_table(out, "crucible-worker ray", ("node", "address", "worker", "listens at"), rows)
