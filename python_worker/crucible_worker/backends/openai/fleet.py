"""Replicas of one server: each request goes to one of them, and to another one if the first fails it.

A replica that does not answer is ejected. With the next request after its wait, `GET /models` probes it, and it returns
if it answers and still serves the same models. While nothing is requested, nothing is sent.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import json
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import structlog

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Replica, ReplicaState
from crucible_worker.backends.balancer import Balancer, NoReplicaLeft
from crucible_worker.backends.openai.answers import only_choice
from crucible_worker.backends.openai.bodies import Dialects
from crucible_worker.backends.openai.connection import DECISIVE, ServerConnection, closed, listed_of
from crucible_worker.backends.openai.documents import InvalidAnswer, parse
from crucible_worker.backends.openai.failures import FailedRequest, Silence, of_connection
from crucible_worker.backends.openai.servers import OpenAIServer

__all__ = [
    "FRESH_SECONDS",
    "MAX_MODELS",
    "PROBE_SECONDS",
    "RESOLVE_SECONDS",
    "REST_SECONDS",
    "Fleet",
    "ListedModel",
    "Resolve",
    "addresses_of",
    "difference",
    "listed_model",
    "refuse_difference",
    "resolve",
]

# The addresses of a server's name: each one is a replica, as those of a headless Service of Kubernetes are.

RESOLVE_SECONDS = 10.0
"""How long the resolution of a name may take."""

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""Returns the addresses of a name, for a port. OSError: there is none."""

_PORTS = {"http": 80, "https": 443}


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """The addresses that the system knows of a name, in the same order each time.

    Raises:
        OSError: it knows none in time.
    """
    async with asyncio.timeout(RESOLVE_SECONDS):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(sorted({str(address[0]) for *_, address in found}))


async def addresses_of(url: str, resolver: Resolve) -> tuple[str, ...]:
    """The addresses of a base URL's name.

    Raises:
        OSError: there is none.
    """
    parts = urlsplit(url)
    return await resolver(parts.hostname or "", parts.port or _PORTS[parts.scheme])


# Whether replicas of a server serve the same model, as far as their lists of models show it.
#
#     {"data": [{"id": "m", "owned_by": "vllm", "root": "/models/m", "max_model_len": 4096}]}
#
# No server shows its weights. What it shows tells a wrong checkpoint, another program, or a shorter context.

_FIELDS = ("owned_by", "root", "parent", "max_model_len", "meta")
"""Fields of a model that are the same at each replica; `created` and `permission` differ with every start."""

_MAX_CHARS = 80
"""Most characters of a value in an error."""

ListedModel = Mapping[str, Any]
"""What a list of models shows of one model, by field; empty if it has no such model."""


def listed_model(content: bytes, model: str) -> ListedModel | None:
    """What a list of models shows of a model; None if it is no list, or an empty one.

    Args:
        content: of the answer.
        model: its name.
    """
    try:
        listed = parse(content, 0).get("data")
    except InvalidAnswer:
        return None
    if not isinstance(listed, list) or not listed:
        return None
    for entry in listed:
        if isinstance(entry, dict) and entry.get("id") == model:
            return {"id": model, **{field: entry[field] for field in _FIELDS if field in entry}}
    return {}


def difference(one: ListedModel | None, other: ListedModel | None) -> str:
    """The first field that two replicas show differently; empty if there is none, or one of them shows nothing."""
    if one is None or other is None:
        return ""
    return next((field for field in ("id", *_FIELDS) if one.get(field) != other.get(field)), "")


def refuse_difference(shown: Mapping[str, ListedModel | None], server: str, model: str) -> ListedModel | None:
    """Refuse replicas that do not show the same.

    Args:
        shown: by the number of the replica.
        server: name of the server.
        model: name of the model.

    Returns:
        What they show; None if none of them shows anything.

    Raises:
        FailedPrecondition: two of them differ (REPLICAS_DIFFER).
    """
    telling = [(name, told) for name, told in shown.items() if told is not None]
    if not telling:
        return None
    (first, one), *others = telling
    for name, other in others:
        if field := difference(one, other):
            raise FailedPrecondition(
                f"the replicas of server {server!r} do not serve the same model {model!r}: "
                f"{_told(first, one, field)}, {_told(name, other, field)}; "
                "start all of them with the same model and options",
                reason=Reason.REPLICAS_DIFFER,
            )
    return one


def _told(name: str, shown: ListedModel, field: str) -> str:
    if field == "id":
        return f"replica {name} {'has it' if shown else 'does not list it'}"
    value = json.dumps(shown.get(field), ensure_ascii=False)
    return f"{field} is {value if len(value) <= _MAX_CHARS else value[: _MAX_CHARS - 1] + '…'} at replica {name}"


PROBE_SECONDS = 10.0
"""How long a replica may take to list its models, when an evaluation starts and when it is probed."""
REST_SECONDS = 1.0
"""How long a replica that limits the rate of requests gets none, if it does not name a time."""
FRESH_SECONDS = 30.0
"""Age of a name's addresses at which the next request has them looked up again."""
MAX_MODELS = 1_024
"""Models whose description is remembered."""
_CHARS_A_TOKEN = 4
"""For an estimate of a prompt's work."""

_FAILED = frozenset(
    {Reason.BACKEND_CONNECTION_LOST, Reason.BACKEND_TIMEOUT, Reason.BACKEND_FAILED, Reason.BACKEND_ANSWER}
)
"""Errors of a replica after it had the request. Such a request is sent to one other replica only: if it is the request
that ends them, it must not end them all."""
_REFUSED = frozenset(
    {
        Reason.BACKEND_UNAUTHENTICATED,
        Reason.BACKEND_FORBIDDEN,
        Reason.BACKEND_QUOTA,
        Reason.BACKEND_REDIRECT,
        Reason.UNKNOWN_MODEL,
    }
)
"""Refusals that are about the replica as often as about the request: it was started with another model or key, or a
proxy answers in its place. Such a request is sent to one other replica; if that one answers, the refusal is a failure.
A replica that refuses is quick, so it would otherwise get, and lose, more requests than those that work."""
_ABSENT = frozenset({Reason.BACKEND_UNREACHABLE, Reason.BACKEND_CONNECTION_LOST, Reason.BACKEND_TIMEOUT})
"""Errors of a replica that is not there."""

_log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _WaitingRequest:
    """A request while each replica has as many as it may have."""

    work: float
    key: Hashable
    avoid: frozenset[str]
    turn: asyncio.Future[str]


class Fleet:
    """The replicas of a server; takes the place of its `ServerConnection`. Making one sends nothing.

    Args:
        server: with several base URLs.
        environment: that its key is read from.
        clock: seconds that never decrease.
        resolver: of names, if each of their addresses is a replica.
        admits: whether a replica that answers may serve, given its name.
    """

    def __init__(
        self,
        server: OpenAIServer,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
        resolver: Resolve = resolve,
        admits: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.server = server
        self.dialects = Dialects()
        """What they refuse, by model: the replicas of a server are alike."""
        self.owner = ""
        """As of `ServerConnection`; replicas with different ones are refused."""
        self._environment = environment
        self._clock = clock
        self._resolver = resolver
        self._admits = admits
        self._replicas: dict[str, ServerConnection] = {}
        self._balancer = Balancer((), most_requests=server.max_connections, clock=clock)
        self._resolved_at: float | None = None
        self._resolving = asyncio.Lock()
        self._shown: collections.OrderedDict[str, ListedModel | None] = collections.OrderedDict()
        # Those that could not list their models, and how many requests they had answered then.
        self._unlisted: dict[str, int] = {}
        # In the order of their turns; those that a replica has failed come first.
        self._waiting: collections.OrderedDict[_WaitingRequest, None] = collections.OrderedDict()
        self._alarm: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def states(self) -> tuple[Replica, ...]:
        """The state of each replica; its name is its base URL, with its address if the name has several."""
        return self._balancer.states()

    async def connections(self, *, serving: bool = True) -> Mapping[str, ServerConnection]:
        """The connection to each replica, by its name.

        Args:
            serving: leave out those that get no requests now.

        Raises:
            BackendError: no name has an address (BACKEND_UNREACHABLE).
        """
        await self._find_first()
        return {
            state.address: self._replicas[state.address]
            for state in self.states()
            if not serving or state.state is ReplicaState.SERVING
        }

    def eject(self, url: str) -> None:
        """Send a replica no further request until `admit`, or until a probe finds it."""
        self._balancer.eject(url)
        self._grant()

    def admit(self, url: str) -> None:
        """Let a replica serve now."""
        self._returned(url)
        self._grant()

    async def reach(self, model: str) -> None:
        """Check that a replica is reachable, that all accept the key, and that they show the same model.

        Replicas that cannot be reached are ejected; those that were ejected and can be reached return.

        Args:
            model: that is wanted.

        Raises:
            FailedPrecondition: the extra is not installed, the key cannot be read, or two replicas show different
                models (REPLICAS_DIFFER).
            BackendError: no replica can be reached, or one refuses the key.
        """
        await self._find()
        replicas = dict(self._replicas)
        answers = dict(zip(replicas, await asyncio.gather(*map(self._listed, replicas.values()))))
        absent = {url: error for url, error in answers.items() if isinstance(error, BridgeError)}
        for error in absent.values():
            if error.reason not in _ABSENT:
                raise error
        if len(absent) == len(answers):
            raise _all_absent(list(absent.values()))
        told = {
            str(number): listed_model(content, model)
            for number, content in enumerate(answers.values(), start=1)
            if isinstance(content, bytes)
        }
        contents = [content for content in answers.values() if isinstance(content, bytes)]
        self.owner = next(filter(None, (listed_of(content, model).owner for content in contents)), "")
        self._remember(model, refuse_difference(told, self.server.name, model))
        done = {replica.address: replica.done for replica in self.states()}
        self._unlisted = {url: done.get(url, 0) for url, content in answers.items() if content == b""}
        for url in answers:
            if (error := absent.get(url)) is None:
                self._returned(url)
            elif self._balancer.eject(url, error.reason):
                self._tell_ejected(url, error)
        self._grant()

    async def each(self, call: Callable[[ServerConnection], Awaitable[T]]) -> tuple[T, ...]:
        """What a call returns for each replica that serves; all at once.

        Raises:
            BackendError: no name has an address (BACKEND_UNREACHABLE).
        """
        return tuple(await asyncio.gather(*map(call, (await self.connections()).values())))

    async def look(self, path: str) -> tuple[bytes, str]:
        """What a replica that serves returns at a path; see `ServerConnection.look`.

        Raises:
            BridgeError: there is no answer.
        """
        await self._find_first()
        states = self.states()
        chosen = next((state for state in states if state.state is ReplicaState.SERVING), states[0])
        return await self._replicas[chosen.address].look(path)

    async def ask(self, path: str, body: dict[str, object], model: str, *, tokens: int) -> dict[str, Any]:
        """Send a request to a replica, or to another one if the first fails it; see `ServerConnection.ask`.

        Raises:
            BridgeError: there is no answer: the error of the last replica that had the request.
        """
        work, key = _work_and_key(body, tokens)
        failed: dict[str, BridgeError] = {}
        await self._find_first()
        while True:
            self._tend()
            try:
                url = await self._turn(work, key, failed)
            except NoReplicaLeft:
                raise failed.popitem()[1] from None
            if (replica := self._replicas.get(url)) is None:  # it is gone since this one got its turn
                continue
            try:
                answer = await replica.ask(path, body, model, tokens=tokens)
                only_choice(answer, self.server.name)
            except BridgeError as error:
                if not self._ended(url, work, error) or any(_alike(error, other) for other in failed.values()):
                    if _misfit(error) and any(map(_misfit, failed.values())):
                        error.retryable = False  # it was repeated here
                    raise
                failed[url] = error
            except BaseException:
                self._balancer.withdrawn(url, work)
                raise
            else:
                self._balancer.answered(url, work)
                self._blame(failed)
                return answer
            finally:
                self._grant()

    async def aclose(self) -> None:
        """Close all connections; requests under way fail, and those that wait. Idempotent."""
        self._closed = True
        self._silence()
        for waiting in self._waiting:
            if not waiting.turn.done():
                waiting.turn.set_exception(closed())
        self._waiting.clear()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(replica.aclose() for replica in self._replicas.values()))

    async def _turn(self, work: float, key: Hashable, failed: Mapping[str, BridgeError]) -> str:
        """The replica of a request; waits while each has as many requests as it may have.

        Raises:
            NoReplicaLeft: those that serve have failed it.
            Unavailable: the backend is closed.
        """
        if self._closed:
            raise closed()
        # A request that has failed does not wait behind others: its turn was before them.
        if (not self._waiting or failed) and (url := self._balancer.choose(work, key, failed)) is not None:
            return url
        # A replica that was busy or absent may have this one once it serves again.
        avoid = frozenset(url for url, error in failed.items() if error.reason in _FAILED | _REFUSED)
        waiting = _WaitingRequest(work, key, avoid, asyncio.get_running_loop().create_future())
        self._waiting[waiting] = None
        if failed:
            self._waiting.move_to_end(waiting, last=False)
            self._watch()
        else:
            self._grant()
        try:
            return await waiting.turn
        except asyncio.CancelledError:
            if waiting.turn.done() and not waiting.turn.cancelled() and waiting.turn.exception() is None:
                self._balancer.withdrawn(waiting.turn.result(), work)
            else:
                self._waiting.pop(waiting, None)
            self._grant()
            raise

    def _grant(self) -> None:
        """Give free places to requests that wait, in their order."""
        ready: list[_WaitingRequest] = []
        full: set[frozenset[str]] = set()
        for waiting in self._waiting:
            if waiting.avoid in full:
                continue
            if waiting.turn.done() or self._placed(waiting):
                ready.append(waiting)
            elif waiting.avoid:  # others may go where this one may not
                full.add(waiting.avoid)
            else:
                break
        for waiting in ready:
            del self._waiting[waiting]
        self._watch()

    def _placed(self, waiting: _WaitingRequest) -> bool:
        """Whether a request that waits now has its replica, or its error."""
        try:
            url = self._balancer.choose(waiting.work, waiting.key, waiting.avoid)
        except NoReplicaLeft as error:
            waiting.turn.set_exception(error)
            return True
        if url is not None:
            waiting.turn.set_result(url)
        return url is not None

    def _watch(self) -> None:
        """While requests wait, look again once another replica may be probed or used: no new request may come."""
        self._silence()
        seconds = self._balancer.next_wait() if self._waiting else None
        if seconds is not None and not self._closed:
            self._alarm = asyncio.get_running_loop().call_later(seconds, self._look_again)

    def _silence(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _look_again(self) -> None:
        self._tend()
        self._grant()

    def _ended(self, url: str, work: float, error: BridgeError) -> bool:
        """Report the end of a request that has no answer. Returns whether another replica may answer it."""
        if error.reason == Reason.BACKEND_RATE_LIMITED:
            seconds = REST_SECONDS if error.retry_after is None else error.retry_after
            self._balancer.rest(url, work, error.reason, seconds)
            return True
        if error.reason == Reason.BACKEND_CLOSED:
            self._balancer.withdrawn(url, work)
            return False
        if error.reason in _REFUSED:
            self._balancer.withdrawn(url, work)  # until another one answers, it is not known whose fault this is
            return True
        absent = error.reason == Reason.BACKEND_UNREACHABLE
        if not absent and error.reason not in _FAILED:
            self._balancer.answered(url, work)
            return False
        if self._balancer.failed(url, work, error.reason, at_once=absent):
            self._tell_ejected(url, error)
        return True

    def _blame(self, failed: Mapping[str, BridgeError]) -> None:
        """Count the refusals of a request that another replica has answered as failures of those that refused."""
        for url, error in failed.items():
            if error.reason in _REFUSED and self._balancer.blamed(url, error.reason):
                self._tell_ejected(url, error)

    async def _find_first(self) -> None:
        """Find the replicas, if that was not done."""
        if not self._replicas:
            await self._find()

    async def _find(self) -> None:
        """Find the replicas: the base URLs, or the addresses of their names.

        Raises:
            BackendError: no name has an address (BACKEND_UNREACHABLE).
        """
        if not self.server.all_addresses:
            self._replace({url: (url, None) for url in self.server.urls})
            return
        async with self._resolving:
            found: dict[str, tuple[str, str | None]] = {}
            for url in self.server.urls:
                with contextlib.suppress(OSError):  # another name may have one
                    for address in await addresses_of(url, self._resolver):
                        found[f"{url} at {address}"] = (url, address)
            self._resolved_at = self._clock()
        if not found and not self._replicas:
            asked = FailedRequest(server=self.server.name, model="", path="")
            raise of_connection(asked, Silence.UNREACHABLE, "its name has no address", stall_seconds=0)
        if found:  # else names cannot be resolved now: the replicas may be there all the same
            self._replace(found)

    def _replace(self, found: Mapping[str, tuple[str, str | None]]) -> None:
        if self._closed:
            raise closed()
        for name in [name for name in self._replicas if name not in found]:
            self._start(self._replicas.pop(name).finish(), "end of a replica")
        for name in self._balancer.replace(found):
            url, address = found[name]
            single = dataclasses.replace(self.server, base_url=url, base_urls=(), all_addresses=False)
            self._replicas[name] = ServerConnection(single, self._environment, address)
            if self._shown:
                # It must show first that it serves the same models as the others.
                self._balancer.eject(name)
        self._grant()

    def _tend(self) -> None:
        """Probe replicas, and look for new ones, where it is time for that."""
        for url in self._balancer.due():
            self._start(self._probe(url), "probe of a replica")
        if self._resolved_at is not None and self._clock() - self._resolved_at > FRESH_SECONDS:
            self._resolved_at = self._clock()
            self._start(self._find(), "addresses of replicas")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _probe(self, url: str) -> None:
        works, reason = False, ""
        try:
            replica = self._replicas.get(url)
            content = None if replica is None else await self._listed(replica, strictly=not self._serves_unlisted(url))
            if isinstance(content, BridgeError):
                reason = content.reason
            elif content is not None:
                works = self._admits(url) and self._shows_the_same(url, content)
                reason = "" if works else Reason.REPLICAS_DIFFER
        finally:
            if works:
                self._returned(url)
            else:
                self._balancer.probed(url, works=False, reason=reason)
            self._grant()

    def _serves_unlisted(self, url: str) -> bool:
        """Whether a replica has answered requests although it cannot list its models."""
        done = self._unlisted.get(url)
        return done is not None and any(state.address == url and state.done > done for state in self.states())

    def _shows_the_same(self, url: str, content: bytes) -> bool:
        for model, shown in self._shown.items():
            if field := difference(shown, listed_model(content, model)):
                _log.warning("replica_differs", server=self.server.name, replica=url, model=model, field=field)
                return False
        return True

    async def _listed(self, replica: ServerConnection, *, strictly: bool = False) -> bytes | BridgeError:
        """The list of a replica's models; empty if it has none, and the error if it cannot serve.

        Args:
            replica: which.
            strictly: a failure of the server counts, as it does after it has failed requests.
        """
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                return await replica.models()
        except TimeoutError:
            asked = FailedRequest(server=self.server.name, model="", path="/models")
            return of_connection(asked, Silence.TIMEOUT, "TimeoutError", stall_seconds=PROBE_SECONDS)
        except BackendError as error:
            ill = error.reason in DECISIVE or (strictly and error.reason in _FAILED)
            return error if ill else b""
        except BridgeError as error:
            return b"" if error.reason == Reason.UNKNOWN_MODEL else error

    def _returned(self, url: str) -> None:
        if self._balancer.probed(url, works=True):
            _log.info("replica_returned", server=self.server.name, replica=url)

    def _tell_ejected(self, url: str, error: BridgeError) -> None:
        _log.warning(
            "replica_ejected",
            server=self.server.name,
            replica=url,
            reason=str(error.reason),
            probe_after_seconds=round(self._balancer.wait_of(url), 3),
        )

    def _remember(self, model: str, shown: ListedModel | None) -> None:
        self._shown[model] = shown
        self._shown.move_to_end(model)
        if len(self._shown) > MAX_MODELS:
            self._shown.popitem(last=False)


def _alike(error: BridgeError, other: BridgeError) -> bool:
    """Whether two replicas have failed a request in the same way, so that a third one would, too."""
    return any(error.reason in kind and other.reason in kind for kind in (_FAILED, _REFUSED))


def _misfit(error: BridgeError) -> bool:
    """Whether a replica has answered, and its answer cannot be used."""
    return error.reason == Reason.BACKEND_ANSWER


def _all_absent(errors: Sequence[BridgeError]) -> BridgeError:
    """The error when no replica is there: that of the first, and that the others have none to offer either."""
    first = errors[0]
    if len(errors) == 1:
        return first
    message = f"{first.message}; none of its {len(errors)} replicas answers"
    return BackendError(message, reason=first.reason, retryable=first.retryable)


def _work_and_key(body: Mapping[str, Any], tokens: int) -> tuple[float, Hashable]:
    """About how many tokens a request takes, and a key of its prompt: repeats of a sample have the same."""
    prompt = body.get("prompt", body.get("messages"))
    if isinstance(prompt, str):
        return 1 + tokens + len(prompt) / _CHARS_A_TOKEN, hash(prompt)
    if isinstance(prompt, Sequence) and all(isinstance(token, int) for token in prompt):
        return 1 + tokens + len(prompt), hash(tuple(prompt))
    text = json.dumps(prompt)
    return 1 + tokens + len(text) / _CHARS_A_TOKEN, hash(text)
