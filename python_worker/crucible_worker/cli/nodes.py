"""Workers on the nodes of a Ray cluster: one actor keeps a worker on every node, also on nodes that come later.

Each worker is a child of the actor of its node. Ray places, restarts and counts the actors.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import ray
from ray.exceptions import ActorAlreadyExistsError, ActorUnavailableError, GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from crucible_worker.grading.fanout.address import endpoint_of

__all__ = [
    "FLEET",
    "LOOK_SECONDS",
    "NAMESPACE",
    "EndedNodes",
    "NodeFleet",
    "NodeState",
    "NodeWorker",
    "WorkerEndpoint",
    "begin",
    "connect",
    "end",
    "states",
]

# The actor of a node: it has one `crucible-worker serve` as a child.
#
# Ray restarts the actor when it dies, with its child. When the child ends by itself, the actor dies, so that there is
# one way to restart: Ray's.

POLL_SECONDS = 0.1
"""Between two looks for the ready file."""
STOP_SECONDS = 30.0
"""Time for a worker to drain, which `drain_seconds` bounds; then it is killed."""
PAUSE_SECONDS = 1.0
"""Before an actor whose worker ended dies: a worker that cannot start is not started again and again at once."""
MAX_LINE_CHARS = 300
"""Of what a worker printed last."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEndpoint:
    """How the worker of a node is served."""

    journal: str = dataclasses.field(repr=False)
    """URL of the journal of all workers. It may have a password, so it travels as a variable."""
    options: Sequence[str]
    """Further options of `serve`."""


class NodeWorker:
    """A worker on the node of this actor.

    Args:
        served: how.
        node_address: the node's address, by which others reach a worker that listens at all of them.
        report: called with how the worker ended, before this actor dies.
    """

    def __init__(self, served: WorkerEndpoint, node_address: str, report: Callable[[str], object]) -> None:
        self._node_address = node_address
        self._report = report
        self._folder = tempfile.TemporaryDirectory(prefix="crucible-node-")
        self._ready = Path(self._folder.name) / "ready"
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._started = threading.Event()
        # The kernel ends the worker with the thread that started it: this one ends with the actor alone.
        threading.Thread(target=self._watch, args=(served,), name="worker", daemon=True).start()

    def address(self, seconds: float) -> str:
        """Where the worker listens; empty if it is not ready within so many seconds.

        The wait is bounded: an actor has few threads, and `stop` needs one.
        """
        until = time.monotonic() + seconds
        while not self._ready.exists():
            if time.monotonic() >= until:
                return ""
            time.sleep(POLL_SECONDS)
        host, colon, port = self._ready.read_text().rpartition(":")
        return f"{self._node_address if host in ('0.0.0.0', '[::]') else host}{colon}{port}"

    def pid(self) -> int:
        """Process id of the worker."""
        self._started.wait()
        assert self._process is not None
        return self._process.pid

    def stop(self) -> int:
        """Drain the worker and wait for its end; its exit status."""
        self._stopping = True
        self._started.wait()
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _watch(self, served: WorkerEndpoint) -> None:
        self._process = subprocess.Popen(
            _command(served, self._ready),
            env=_environment(served),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._started.set()
        assert self._process.stderr is not None
        told = _passed_on(self._process.stderr)
        code = self._process.wait()
        if not self._stopping:
            why = f"ended with {code}: {told}" if told else f"ended with {code}"
            print(f"crucible-worker {why}", file=sys.stderr, flush=True)
            self._report(why)
            time.sleep(PAUSE_SECONDS)
            os._exit(1)


def _passed_on(stream: IO[bytes]) -> str:
    """Write what a worker prints into the log of its actor, until it has ended; its last line."""
    lines: collections.deque[str] = collections.deque(maxlen=1)
    for line in stream:
        text = line.decode(errors="replace")
        sys.stderr.write(text)
        sys.stderr.flush()
        if text.strip():
            lines.append(text)
    return _in_words(lines[0])[:MAX_LINE_CHARS] if lines else ""


def _in_words(line: str) -> str:
    """What a line of a log says: the message in a record, or its event."""
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if isinstance(record, dict):
        line = str(record.get("message") or record.get("event") or line)
    return " ".join(line.split())


def _command(served: WorkerEndpoint, ready: Path) -> Sequence[str]:
    bound = (sys.executable, "-P", "-m", "crucible_worker.children.lifetime", str(os.getpid()))
    return (*bound, sys.executable, "-P", "-m", "crucible_worker", "serve", f"--ready-file={ready}", *served.options)


def _environment(served: WorkerEndpoint) -> Mapping[str, str]:
    return {**os.environ, "CRUCIBLE_JOURNAL": served.journal, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


NAMESPACE, FLEET = "crucible-worker", "fleet"
"""Where the actors have their names, and the name of the one that has the others."""
LOOK_SECONDS = 2.0
"""Between two looks for nodes that have come."""
CONNECT_SECONDS = 5.0
"""Time for a server of Ray clients to accept a connection."""
ANSWER_SECONDS = 10.0
"""How long an actor may take for an answer that it has at hand: one that Ray has not started never answers."""

_RESOURCES = {"num_cpus": "CPU", "num_gpus": "GPU"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node, and its worker."""

    node_id: str
    """Ray's name of the node."""
    node_address: str
    """Its address."""
    state: str
    """"ready", "starting", or why it has no worker."""
    address: str = ""
    """Where its worker listens, once it is ready."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EndedNodes:
    """What `end` has ended."""

    drained: int
    """Workers that have drained."""
    killed: int
    """Those of nodes that did not answer: their workers were not started, or are killed with their actors."""


class NodeFleet:
    """Starts a worker on each node that has room for one.

    Args:
        served: how a worker is served.
        resources: what the actor of a worker takes: `num_cpus`, `num_gpus`.
    """

    def __init__(self, served: WorkerEndpoint, resources: Mapping[str, float]) -> None:
        self._served, self._resources = served, resources
        self._endings: dict[str, str] = {}
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look, name="nodes", daemon=True)
        self._looking.start()

    def resources(self) -> Mapping[str, float]:
        """What the actor of a worker takes."""
        return self._resources

    def worker_ended(self, node_id: str, why: str) -> None:
        """Remember how the worker of a node ended by itself."""
        self._endings[node_id] = why

    def endings(self) -> Mapping[str, str]:
        """How the worker of each node ended last, by the node's id."""
        return dict(self._endings)

    def stop(self) -> None:
        """Start no more workers."""
        self._over.set()
        self._looking.join()

    def _look(self) -> None:
        workers: dict[str, Any] = {}
        while not self._over.is_set():
            for node in _nodes():
                if node["NodeID"] not in workers and not lacking(node, self._resources):
                    workers[node["NodeID"]] = self._started(node)
            self._over.wait(LOOK_SECONDS)

    def _started(self, node: Mapping[str, Any]) -> Any:
        actor = ray.remote(NodeWorker).options(
            name=node["NodeID"],
            namespace=NAMESPACE,
            get_if_exists=True,  # this actor was restarted
            lifetime="detached",
            # One call waits for the worker while another one stops it.
            max_concurrency=8,
            max_restarts=-1,
            max_task_retries=-1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            **self._resources,
        )
        return actor.remote(self._served, node["NodeManagerAddress"], functools.partial(_report, node["NodeID"]))


def connect(address: str) -> None:
    """Connect this process to a cluster; raises what Ray raises, or OSError if nothing listens there."""
    if (endpoint := endpoint_of(address)) is not None:
        # Ray itself tries a port without a listener for half a minute.
        socket.create_connection(endpoint, CONNECT_SECONDS).close()
    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)


def begin(served: WorkerEndpoint, resources: Mapping[str, float]) -> bool:
    """Start the actor that starts workers; False if there is one already."""
    if _found(FLEET) is not None:
        return False
    fleet: Any = ray.remote(NodeFleet)
    fleet = fleet.options(
        name=FLEET, namespace=NAMESPACE, lifetime="detached", num_cpus=0, max_restarts=-1, max_concurrency=4
    )
    try:
        started = fleet.remote(served, resources)
    except ActorAlreadyExistsError:  # another command was first
        return False
    ray.get(started.resources.remote())
    return True


def states(seconds: float) -> Sequence[NodeState] | None:
    """Every node that lives with its worker, waiting so long for those that start; None if nothing is up.

    Raises:
        GetTimeoutError: the actor of `begin` does not answer.
    """
    fleet = _found(FLEET)
    if fleet is None:
        return None
    resources: Any = ray.get(fleet.resources.remote(), timeout=ANSWER_SECONDS)
    nodes = _nodes()
    asked = {node["NodeID"]: _asked(actor, seconds) for node in nodes if (actor := _found(node["NodeID"]))}
    _wait(asked.values(), seconds + LOOK_SECONDS)
    endings: Any = ray.get(fleet.endings.remote(), timeout=ANSWER_SECONDS)
    return [_state(node, asked.get(node["NodeID"]), resources, endings.get(node["NodeID"], "")) for node in nodes]


def end() -> EndedNodes | None:
    """Drain every worker, and end the actors; None if nothing was up.

    No wait is without a bound: an actor may wait for a processor that another program has, or its node be gone.
    """
    fleet = _found(FLEET)
    if fleet is None:
        return None
    with contextlib.suppress(RayError, GetTimeoutError):  # it is killed all the same
        ray.get(fleet.stop.remote(), timeout=ANSWER_SECONDS)
    ray.kill(fleet)
    actors = [actor for node in _nodes() if (actor := _found(node["NodeID"]))]
    here = {actor: _asked(actor, 0.0) for actor in actors}
    answered = _wait(here.values(), ANSWER_SECONDS)
    stopping = {actor: actor.stop.remote() for actor, asked in here.items() if asked in answered}
    stopped = _wait(stopping.values(), STOP_SECONDS + ANSWER_SECONDS)
    for actor in actors:
        ray.kill(actor)
    drained = sum(asked in stopped for asked in stopping.values())
    return EndedNodes(drained=drained, killed=len(actors) - drained)


def lacking(node: Mapping[str, Any], resources: Mapping[str, float]) -> str:
    """What a node has too little of, in words; empty if a worker fits."""
    for option, name in _RESOURCES.items():
        wanted, there = resources.get(option, 0.0), node["Resources"].get(name, 0.0)
        if wanted > there:
            return f"has {there:g} {name}, --{option.replace('_', '-')} {wanted:g} is needed"
    return ""


def _state(node: Mapping[str, Any], asked: Any, resources: Mapping[str, float], ended: str) -> NodeState:
    state, address = lacking(node, resources), ""
    if not state:
        state, address = _of_actor(asked, ended)
    return NodeState(node_id=node["NodeID"], node_address=node["NodeManagerAddress"], state=state, address=address)


def _of_actor(asked: Any, ended: str) -> tuple[str, str]:
    """The state of a node with an actor, and where its worker listens."""
    starting = f"starting again: it {ended}" if ended else "starting"
    if asked is None or not _wait((asked,), 0.0):
        return starting if ended else "starting: Ray has not started its actor; its processors may be in use", ""
    try:
        address = str(ray.get(asked))
    except ActorUnavailableError:  # it is being restarted
        return starting, ""
    except RayError as error:
        return starting if ended else f"lost: {type(error).__name__}", ""
    return ("ready" if address else starting), address


def _asked(actor: Any, seconds: float) -> Any:
    """The address of a worker, as a value to come; without repeats, of which Ray would tell the user."""
    return actor.address.options(max_task_retries=0).remote(seconds)


def _wait(asked: Iterable[Any], seconds: float) -> Sequence[Any]:
    """Those values that are there within so many seconds, be they errors."""
    waited = list(asked)
    ready, _ = ray.wait(waited, num_returns=len(waited), timeout=seconds) if waited else ([], [])
    return ready


def _report(node_id: str, why: str) -> None:
    """Tell the actor of `begin` how a worker ended."""
    with contextlib.suppress(RayError, GetTimeoutError, ValueError):  # it is being restarted, or gone
        fleet: Any = ray.get_actor(FLEET, NAMESPACE)
        ray.get(fleet.worker_ended.remote(node_id, why), timeout=ANSWER_SECONDS)


def _nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _found(name: str) -> Any:
    try:
        return ray.get_actor(name, NAMESPACE)
    except ValueError:
        return None
