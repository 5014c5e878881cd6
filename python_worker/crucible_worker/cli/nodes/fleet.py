"""The actor that keeps one worker on every node, also on nodes that come later. Ray places, restarts and counts."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from crucible_worker.cli.nodes.worker import NodeWorker, Served

__all__ = ["FLEET", "LOOK_SECONDS", "NAMESPACE", "Fleet", "NodeState", "begin", "connect", "end", "states"]

NAMESPACE, FLEET = "crucible-worker", "fleet"
"""Where the actors have their names, and the name of the one that has the others."""
LOOK_SECONDS = 2.0
"""Between two looks for nodes that have come."""

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


class Fleet:
    """Starts a worker on each node that has room for one.

    Args:
        served: how a worker is served.
        resources: what the actor of a worker takes: `num_cpus`, `num_gpus`.
    """

    def __init__(self, served: Served, resources: Mapping[str, float]) -> None:
        self._served, self._resources = served, resources
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look, name="nodes", daemon=True)
        self._looking.start()

    def resources(self) -> Mapping[str, float]:
        """What the actor of a worker takes."""
        return self._resources

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
        return actor.remote(self._served, node["NodeManagerAddress"])


def connect(address: str) -> None:
    """Connect this process to a cluster; raises what Ray raises."""
    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)


def begin(served: Served, resources: Mapping[str, float]) -> bool:
    """Start the actor that starts workers; False if there is one already."""
    if _found(FLEET) is not None:
        return False
    fleet: Any = ray.remote(Fleet)
    fleet = fleet.options(
        name=FLEET, namespace=NAMESPACE, lifetime="detached", num_cpus=0, max_restarts=-1, max_concurrency=4
    )
    ray.get(fleet.remote(served, resources).resources.remote())
    return True


def states(seconds: float) -> Sequence[NodeState] | None:
    """Every node that lives with its worker, waiting so long for those that start; None if nothing is up."""
    fleet = _found(FLEET)
    if fleet is None:
        return None
    resources: Any = ray.get(fleet.resources.remote())
    nodes = _nodes()
    asked = {node["NodeID"]: actor.address.remote() for node in nodes if (actor := _found(node["NodeID"]))}
    ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=seconds) if asked else ([], [])
    return [_state(node, asked.get(node["NodeID"]), ready, resources) for node in nodes]


def end() -> int | None:
    """Drain every worker, and end the actors; how many workers there were, None if nothing was up."""
    fleet = _found(FLEET)
    if fleet is None:
        return None
    ray.get(fleet.stop.remote())
    actors = [actor for node in _nodes() if (actor := _found(node["NodeID"]))]
    stopping = [actor.stop.remote() for actor in actors]
    for actor, stopped in zip(actors, stopping):
        with contextlib.suppress(RayError):  # of an actor that has died meanwhile
            ray.get(stopped)
        ray.kill(actor)
    ray.kill(fleet)
    return len(actors)


def lacking(node: Mapping[str, Any], resources: Mapping[str, float]) -> str:
    """What a node has too little of, in words; empty if a worker fits."""
    for option, name in _RESOURCES.items():
        wanted, there = resources.get(option, 0.0), node["Resources"].get(name, 0.0)
        if wanted > there:
            return f"has {there:g} {name}, --{option.replace('_', '-')} {wanted:g} is needed"
    return ""


def _state(node: Mapping[str, Any], asked: Any, ready: Sequence[Any], resources: Mapping[str, float]) -> NodeState:
    state, address = lacking(node, resources) or "starting", ""
    if asked in ready:
        try:
            state, address = "ready", str(ray.get(asked))
        except RayError as error:
            state = f"lost: {type(error).__name__}"
    return NodeState(node_id=node["NodeID"], node_address=node["NodeManagerAddress"], state=state, address=address)


def _nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _found(name: str) -> Any:
    try:
        return ray.get_actor(name, NAMESPACE)
    except ValueError:
        return None
