"""Replicas of an OpenAI-compatible server: where requests go, what another replica answers, what is refused."""

import asyncio
import collections
import contextlib
import socket

import pytest

from crucible_bridge.errors import BridgeError
from crucible_bridge.types import ChatMessage, Conversation, ModelInput, OpenAIModel, ReplicaState, SamplingParams
from crucible_worker.backends.balancer import BUSIER_REQUESTS, FAILURES_IN_A_ROW, FIRST_WAIT_SECONDS
from crucible_worker.backends.openai.backend import OpenAIBackend, RemoteModel
from crucible_worker.backends.openai.connection import ServerConnection
from crucible_worker.backends.openai.fleet import FRESH_SECONDS, REST_SECONDS, Fleet, resolve
from crucible_worker.backends.openai.servers import OpenAIServer
from tests import needs
from tests.robustness.harness import until
from tests.service.openai_kit import Fault, Reply, Request, ScriptedServer, answer, key_file, refusal, shout
from tests.tables import rows

needs.modules("aiohttp")

PARAMS = SamplingParams(max_tokens=4)

FAILURES = [
    refusal(500),
    refusal(503),
    Reply(b"<html>busy</html>"),
    Reply({"error": {"message": "the model is not loaded"}}),
    Reply({"choices": []}),
    Fault.DROP,
    Fault.CUT,
]
"""What a replica that does not work answers."""


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Rig:
    """A fleet of scripted servers, its clock, and the model `m` of it."""

    def __init__(self, servers: list[ScriptedServer], **settings) -> None:
        self.servers = servers
        self.clock = Clock()
        urls = tuple(server.url for server in servers)
        self.fleet = Fleet(OpenAIServer(name="s", base_urls=urls, **settings), {}, self.clock)
        self.model = RemoteModel(self.fleet, "m")

    @property
    def asked(self) -> list[int]:
        """Requests of the model at each server."""
        return [len(server.asked) for server in self.servers]

    @property
    def serving(self) -> list[bool]:
        """Whether each replica gets requests."""
        return [state.state is ReplicaState.SERVING for state in self.fleet.states()]

    async def texts(self, *prompts: str) -> list[str]:
        """Answers to prompts, one after another."""
        return [(await self.model.sample_text(prompt, PARAMS))[0].text for prompt in prompts]


@contextlib.asynccontextmanager
async def fleet_of(*scripts, **settings):
    """A rig of servers that do as these scripts say."""
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(ScriptedServer(script).serving()) for script in scripts]
        rig = Rig(servers, **settings)
        stack.push_async_callback(rig.fleet.aclose)
        yield rig


def listing(**model):
    """A script that lists the model `m` with these fields, and says everything back in upper case."""
    listed = Reply({"object": "list", "data": [{"id": "m", "object": "model", **model}]})
    return lambda request: listed if request.method == "GET" else shout(request)


def failing(reply):
    """A script that lists no models, and answers requests with this."""
    return lambda request: shout(request) if request.method == "GET" else reply


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


async def error_of(call) -> BridgeError:
    """The error that a call ends with."""
    with pytest.raises(BridgeError) as caught:
        await call
    return caught.value


async def test_requests_are_shared_and_replicas_are_one_model():
    """Each replica has as many; the fingerprint is that of a single server of the same name."""
    async with fleet_of(shout, shout, shout) as rig:
        await rig.model.load()
        assert await rig.texts(*(f"p{index}" for index in range(9))) == [f"P{index}" for index in range(9)]
        assert rig.asked == [3, 3, 3]
        alone = RemoteModel(ServerConnection(OpenAIServer(name="s", base_url=rig.servers[0].url), {}), "m")
        assert (rig.model.fingerprint, rig.model.evaluated_fingerprint) == (
            alone.fingerprint,
            alone.evaluated_fingerprint,
        )


async def test_one_base_url_in_a_list_is_a_single_server():
    """It has no balancer, and behaves as `base_url` does."""
    async with ScriptedServer().serving() as server:
        backend = OpenAIBackend([OpenAIServer(name="s", base_urls=(server.url,))])
        model = await backend.open(OpenAIModel("s", "m"))
        assert isinstance(model._connection, ServerConnection)
        assert (await model.sample_text("hi", PARAMS))[0].text == "HI"
        await backend.aclose()


async def test_the_backend_makes_one_fleet_of_a_server():
    """All models of a server share its replicas' state."""
    backend = OpenAIBackend([OpenAIServer(name="s", base_urls=("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"))])
    one, other = [await backend.open(OpenAIModel("s", name)) for name in ("m", "n")]
    assert isinstance(one._connection, Fleet)
    assert one._connection is other._connection
    (shown,) = backend.fleets()
    assert (shown.backend, shown.name) == ("openai", "s")
    await backend.aclose()


@rows("reply", FAILURES)
async def test_another_replica_answers_what_one_has_failed(reply):
    """The caller notices nothing; after several failures in a row the replica gets no more."""
    async with fleet_of(failing(reply), shout) as rig:
        await rig.model.load()
        prompts = [f"p{index}" for index in range(20)]
        assert await rig.texts(*prompts) == [prompt.upper() for prompt in prompts]
        assert rig.asked == [FAILURES_IN_A_ROW, 20]
        assert rig.serving == [False, True]


async def test_a_replica_that_stalls_is_left(tmp_path):
    """A request without an answer for `stall_seconds` is answered by another replica."""
    async with fleet_of(failing(Fault.STALL), shout, stall_seconds=0.2) as rig:
        assert await rig.texts("hi") == ["HI"]
        assert rig.asked == [1, 1]


async def test_a_replica_that_is_not_there_fails_nothing():
    """It is ejected when the model is loaded; without that, by the first request that it gets."""
    async with fleet_of(shout, shout) as rig:
        absent = f"http://127.0.0.1:{free_port()}/v1"
        server = OpenAIServer(name="s", base_urls=(absent, *(each.url for each in rig.servers)))
        for loaded in (True, False):
            fleet = Fleet(server, {}, rig.clock)
            model = RemoteModel(fleet, "m")
            if loaded:
                await model.load()
                assert [state.state is ReplicaState.SERVING for state in fleet.states()] == [False, True, True]
            assert [(await model.sample_text(f"{index}a", PARAMS))[0].text for index in range(4)] == [
                f"{index}A" for index in range(4)
            ]
            assert [state.state is ReplicaState.SERVING for state in fleet.states()] == [False, True, True]
            await fleet.aclose()


async def test_without_any_replica_a_model_is_not_loaded():
    """The error is that of a single server, and says how many replicas there are."""
    urls = tuple(f"http://127.0.0.1:{free_port()}/v1" for _ in range(2))
    fleet = Fleet(OpenAIServer(name="s", base_urls=urls), {})
    error = await error_of(RemoteModel(fleet, "m").load())
    assert (error.reason, error.retryable) == ("BACKEND_UNREACHABLE", True)
    assert "none of its 2 replicas answers" in error.message
    error = await error_of(RemoteModel(fleet, "m").sample_text("hi", PARAMS))
    assert (error.reason, error.retryable) == ("BACKEND_UNREACHABLE", True)
    await fleet.aclose()


async def test_a_request_that_fails_replicas_is_sent_to_two_of_them():
    """If a request ends a server, it must not end all of them; the evaluation may try it again."""
    async with fleet_of(*[failing(Fault.DROP)] * 4) as rig:
        error = await error_of(rig.model.sample_text("hi", PARAMS))
        assert (error.reason, error.retryable) == ("BACKEND_CONNECTION_LOST", True)
        assert sum(rig.asked) == 2


@rows(
    ("status", "reason", "replicas"),
    [
        (400, "BACKEND_REFUSED", 1),
        (404, "UNKNOWN_MODEL", 2),
        (401, "BACKEND_UNAUTHENTICATED", 2),
        (307, "BACKEND_REDIRECT", 2),
    ],
)
async def test_a_refusal_of_all_replicas_is_an_answer(status, reason, replicas):
    """It is sent to no more than two replicas, and nothing is ejected."""
    async with fleet_of(*[failing(refusal(status))] * 3) as rig:
        for sent in range(1, 2 * FAILURES_IN_A_ROW + 1):
            assert (await error_of(rig.model.sample_text("hi", PARAMS))).reason == reason
            assert sum(rig.asked) == replicas * sent
        assert rig.serving == [True, True, True]


@rows("status", [401, 402, 403, 404, 307])
async def test_what_one_replica_alone_refuses_another_answers(status):
    """It has another key or model, or a proxy answers in its place: no sample is lost, and it is ejected."""
    async with fleet_of(failing(refusal(status)), shout, shout) as rig:
        prompts = [f"p{index}" for index in range(20)]
        assert await rig.texts(*prompts) == [prompt.upper() for prompt in prompts]
        assert rig.asked[0] == FAILURES_IN_A_ROW
        assert rig.serving == [False, True, True]


async def test_a_replica_that_refuses_at_once_does_not_draw_the_requests_of_those_that_work():
    """It has always the least work; every request is answered all the same, and it gets few of them."""
    async with fleet_of(failing(refusal(404)), shout) as rig:
        prompts = [f"p{index}" for index in range(100)]
        assert await asyncio.gather(*(rig.texts(prompt) for prompt in prompts)) == [[p.upper()] for p in prompts]
        assert rig.serving == [False, True]


async def test_a_replica_that_limits_the_rate_rests():
    """Others answer meanwhile; if all of them rest, the caller has the error with its time."""
    async with fleet_of(failing(refusal(429)), shout) as rig:
        assert await rig.texts("a", "b", "c") == ["A", "B", "C"]
        assert rig.asked == [1, 3]
        rig.clock.now += REST_SECONDS
        assert await rig.texts("d", "e") == ["D", "E"]
        assert rig.asked[0] == 2
    async with fleet_of(*[failing(refusal(429, **{"Retry-After": "7"}))] * 2) as rig:
        error = await error_of(rig.model.sample_text("hi", PARAMS))
        assert (error.reason, error.retry_after, rig.asked) == ("BACKEND_RATE_LIMITED", 7.0, [1, 1])


async def test_a_replica_returns_after_a_probe():
    """The first request after the wait has it probed; while nothing is asked, nothing is sent."""
    replies = {"now": refusal(500)}
    async with fleet_of(lambda _: replies["now"], shout) as rig:
        await rig.model.load()
        await rig.texts(*(f"p{index}" for index in range(10)))
        assert rig.serving == [False, True]
        rig.clock.now += FIRST_WAIT_SECONDS
        before = len(rig.servers[0].requests)
        await rig.texts("probed")
        await until(lambda: not rig.fleet._tasks)
        assert (len(rig.servers[0].requests), rig.serving) == (before + 1, [False, True])
        rig.servers[0].script = shout
        rig.clock.now += 2 * FIRST_WAIT_SECONDS
        await rig.texts("again")
        await until(lambda: all(rig.serving))
        asked = rig.asked[0]
        await rig.texts("one", "two")
        assert rig.asked[0] == asked + 1


@rows(
    ("reply", "state", "reason"),
    [
        (refusal(500), ReplicaState.EJECTED, "BACKEND_FAILED"),
        (Fault.DROP, ReplicaState.EJECTED, "BACKEND_CONNECTION_LOST"),
        (refusal(429), ReplicaState.RESTING, "BACKEND_RATE_LIMITED"),
    ],
)
async def test_what_each_replica_did_is_shown(reply, state, reason):
    """Its address, whether it gets requests, what it answered and failed, and why it failed last."""
    async with fleet_of(failing(reply), shout) as rig:
        await rig.texts(*(f"p{index}" for index in range(10)))
        ill, well = rig.fleet.states()
        assert (ill.address, well.address) == tuple(server.url for server in rig.servers)
        assert (ill.state, ill.done, ill.failures, ill.last_error) == (state, 0, rig.asked[0], reason)
        assert (well.state, well.done, well.failures, well.last_error) == (ReplicaState.SERVING, 10, 0, "")


async def test_a_probe_that_fails_is_shown():
    """Its reason takes the place of the one before, and stays when the replica serves again."""
    replies = {"now": refusal(500)}
    async with fleet_of(lambda _: replies["now"], shout) as rig:
        await rig.texts(*(f"p{index}" for index in range(2 * FAILURES_IN_A_ROW)))
        assert rig.fleet.states()[0].failures == FAILURES_IN_A_ROW
        replies["now"] = refusal(401)
        rig.clock.now += FIRST_WAIT_SECONDS
        await rig.texts("probed")
        await until(lambda: not rig.fleet._tasks)
        shown = rig.fleet.states()[0]
        assert (shown.failures, shown.last_error) == (FAILURES_IN_A_ROW + 1, "BACKEND_UNAUTHENTICATED")
        rig.servers[0].script = shout
        rig.clock.now += 2 * FIRST_WAIT_SECONDS
        await rig.texts("again")
        await until(lambda: all(rig.serving))
        assert rig.fleet.states()[0].last_error == "BACKEND_UNAUTHENTICATED"


async def test_a_replica_whose_list_of_models_always_fails_returns():
    """As of `transformers serve` without a cache of the hub: a probe that is answered as before the failures counts."""
    well = {"now": True}

    def script(request: Request) -> Reply:
        return refusal(500) if request.method == "GET" or not well["now"] else shout(request)

    async with fleet_of(script, script) as rig:
        await rig.model.load()
        assert await rig.texts("1", "2") == ["1", "2"]
        well["now"] = False
        await error_of(rig.model.sample_text("a", PARAMS))
        await error_of(rig.model.sample_text("b", PARAMS))
        await error_of(rig.model.sample_text("c", PARAMS))
        assert rig.serving == [False, False]
        well["now"] = True
        rig.clock.now += FIRST_WAIT_SECONDS
        assert await rig.texts("d", "e") == ["D", "E"]
        await until(lambda: all(rig.serving))


async def test_a_model_that_is_loaded_again_brings_replicas_back():
    """An evaluation that starts does not wait for a probe."""
    async with fleet_of(failing(refusal(500)), shout) as rig:
        await rig.texts(*(f"p{index}" for index in range(10)))
        assert rig.serving == [False, True]
        await rig.model.load()
        assert rig.serving == [True, True]


@rows(
    ("kind", "prompts"),
    [
        ("text", ["the first", "the second"]),
        ("tokens", [ModelInput.of([1, 2, 3]), ModelInput.of([1, 2, 4])]),
        ("chat", [Conversation((ChatMessage("user", text),)) for text in ("hi", "ho")]),
    ],
)
async def test_repeats_of_a_prompt_go_to_one_replica(kind, prompts):
    """It may have the prompt in its cache; another prompt goes to the replica that has less."""

    def script(request: Request) -> Reply:
        return shout(request) if request.method == "GET" else answer(request, "yes")

    async with fleet_of(script, script, script) as rig:
        count = int(BUSIER_REQUESTS)
        ask = rig.model.sample if kind == "tokens" else rig.model.sample_text
        for prompt in prompts:
            await ask(prompt, PARAMS, count)
        assert sorted(rig.asked) == [0, count, count]
        at = [
            collections.Counter(str(request.body.get("prompt", request.body.get("messages"))) for request in it.asked)
            for it in rig.servers
        ]
        assert all(len(counts) <= 1 for counts in at)


async def test_each_replica_has_its_own_bound_and_the_others_wait():
    """`max_connections` counts for each replica; waiting requests are sent as answers come."""
    async with fleet_of(shout, shout, max_connections=2) as rig:
        texts = await asyncio.gather(*(rig.texts(f"p{index}") for index in range(40)))
        assert texts == [[f"P{index}"] for index in range(40)]
        assert [server.peak for server in rig.servers] == [2, 2]
        assert sum(rig.asked) == 40


async def test_a_request_that_is_cancelled_while_it_waits_takes_no_place():
    """Neither before nor after it got its turn."""
    async with fleet_of(failing(Fault.STALL), failing(Fault.STALL), max_connections=1) as rig:
        running = [asyncio.create_task(rig.texts(f"p{index}")) for index in range(4)]
        for server in rig.servers:
            await server.stalled.wait()
        for task in (running[2], running[0]):
            task.cancel()
        await asyncio.gather(running[0], running[2], return_exceptions=True)
        await until(lambda: sum(rig.asked) == 3)
        assert [state.outstanding for state in rig.fleet.states()] == [1, 1]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert [state.outstanding for state in rig.fleet.states()] == [0, 0]
        for server in rig.servers:
            server.script = shout
        assert await rig.texts("a", "b") == ["A", "B"]


async def test_a_turn_that_is_given_to_a_cancelled_request_is_given_back():
    """The request was cancelled after its turn was given, before it knew."""
    async with fleet_of(failing(Fault.STALL), failing(Fault.STALL), max_connections=1) as rig:
        running = [asyncio.create_task(rig.texts(f"p{index}")) for index in range(3)]
        for server in rig.servers:
            await server.stalled.wait()
        running[0].cancel()
        running[2].add_done_callback(lambda _: None)
        await asyncio.wait([running[0]])  # its turn was given to the third one in the same step
        running[2].cancel()
        await asyncio.wait([running[2]])
        assert sum(state.outstanding for state in rig.fleet.states()) == 1
        running[1].cancel()
        await asyncio.wait([running[1]])
        assert sum(state.outstanding for state in rig.fleet.states()) == 0


async def test_a_closed_backend_fails_requests_that_wait():
    """Those under way and those without a turn, at once."""
    async with fleet_of(failing(Fault.STALL), failing(Fault.STALL), max_connections=1) as rig:
        running = [asyncio.create_task(rig.texts(f"p{index}")) for index in range(4)]
        for server in rig.servers:
            await server.stalled.wait()
        await rig.fleet.aclose()
        ended = await asyncio.wait_for(asyncio.gather(*running, return_exceptions=True), 30)
        assert all(isinstance(error, BridgeError) for error in ended)
        assert "BACKEND_CLOSED" in {error.reason for error in ended if isinstance(error, BridgeError)}
        assert (await error_of(rig.model.sample_text("hi", PARAMS))).reason == "BACKEND_CLOSED"


@rows(
    ("one", "other", "told"),
    [
        ({"max_model_len": 4096}, {"max_model_len": 2048}, "max_model_len is 2048 at replica 2"),
        ({"root": "/models/step-1"}, {"root": "/models/step-2"}, 'root is "/models/step-2" at replica 2'),
        ({"owned_by": "vllm"}, {"owned_by": "sglang"}, 'owned_by is "sglang" at replica 2'),
        ({"meta": {"n_params": 7}}, {"meta": {"n_params": 8}}, 'meta is {"n_params": 8} at replica 2'),
        ({}, {"id": "other"}, "replica 2 does not list it"),
    ],
)
async def test_replicas_of_different_models_are_refused(one, other, told):
    """The model is not loaded, and the error says what differs, and where."""
    async with fleet_of(listing(**one), listing(**other), listing(**one)) as rig:
        error = await error_of(rig.model.load())
        assert (error.reason, error.retryable) == ("REPLICAS_DIFFER", False)
        assert told in error.message
        assert "of server 's' do not serve the same model 'm'" in error.message
        assert sum(rig.asked) == 0


async def test_what_differs_by_chance_and_what_shows_nothing_is_no_difference():
    """The time of a start is not compared; a server without a list of models may be of the same model."""
    without = failing(Reply({}))
    async with fleet_of(
        listing(created=1, max_model_len=8),
        listing(created=2, max_model_len=8),
        lambda request: refusal(404) if request.method == "GET" else shout(request),
        shout,
        without,
    ) as rig:
        await rig.model.load()
        assert rig.serving == [True] * 5


async def test_a_replica_that_returns_with_another_model_stays_out():
    """It was started again with other weights, in the middle of an evaluation."""
    async with fleet_of(listing(root="/step-1"), listing(root="/step-1")) as rig:
        await rig.model.load()
        rig.servers[0].script = failing(Fault.DROP)
        await rig.texts(*(f"p{index}" for index in range(10)))
        assert rig.serving == [False, True]
        rig.servers[0].script = listing(root="/step-2")
        rig.clock.now += FIRST_WAIT_SECONDS
        seen = len(rig.servers[0].requests)
        await rig.texts("hi")
        await until(lambda: len(rig.servers[0].requests) > seen and not rig.fleet._tasks)
        assert rig.serving == [False, True]
        assert (await error_of(rig.model.load())).reason == "REPLICAS_DIFFER"
        # All of them were: the next evaluation is one of the new model.
        rig.servers[1].script = listing(root="/step-2")
        await rig.model.load()
        assert rig.serving == [True, True]


async def test_a_key_that_one_replica_refuses_is_an_error(tmp_path):
    """The settings are wrong: that is told before the first sample."""
    refusing = ScriptedServer(lambda _: refusal(401))
    async with fleet_of(shout) as rig, refusing.serving():
        urls = (rig.servers[0].url, refusing.url)
        fleet = Fleet(OpenAIServer(name="s", base_urls=urls, key_file=key_file(tmp_path)), {})
        error = await error_of(RemoteModel(fleet, "m").load())
        assert error.reason == "BACKEND_UNAUTHENTICATED"
        await fleet.aclose()


async def test_a_replica_tells_which_program_serves():
    """One that serves is asked, once for an evaluation."""
    async with fleet_of(listing(owned_by="vllm"), listing(owned_by="vllm")) as rig:
        await rig.model.load()
        await rig.model.find_engine()
        assert rig.model.engine is not None
        assert rig.model.engine.name == "vllm"


class Names:
    """A resolver whose addresses a test sets."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked = 0

    async def __call__(self, host: str, port: int) -> tuple[str, ...]:
        self.asked += 1
        if not self.addresses:
            raise OSError("there is no such name")
        return self.addresses


@contextlib.asynccontextmanager
async def addressed(names: Names, *scripts):
    """Servers at 127.0.0.1, 127.0.0.2 ... and one port, a fleet of the name of them all, and its clock."""
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(ScriptedServer(script).serving(f"127.0.0.{number}", port))
            for number, script in enumerate(scripts, start=1)
        ]
        clock = Clock()
        server = OpenAIServer(name="s", base_url=f"http://models.invalid:{port}/v1", all_addresses=True)
        fleet = Fleet(server, {}, clock, names)
        stack.push_async_callback(fleet.aclose)
        yield servers, fleet, clock


async def test_each_address_of_a_name_is_a_replica():
    """Requests have the name, as a proxy in front and a certificate need it, and go to the address."""
    names = Names("127.0.0.1", "127.0.0.2")
    async with addressed(names, shout, shout) as (servers, fleet, _):
        model = RemoteModel(fleet, "m")
        await model.load()
        for index in range(6):
            assert (await model.sample_text(f"p{index}", PARAMS))[0].text == f"P{index}"
        assert [len(server.asked) for server in servers] == [3, 3]
        assert {request.headers["host"].partition(":")[0] for server in servers for request in server.requests} == {
            "models.invalid"
        }
        assert names.asked == 1


async def test_a_fleet_follows_the_addresses_of_its_name():
    """A new address gets requests after a probe, one that is gone gets none; without an answer nothing changes."""
    names = Names("127.0.0.1", "127.0.0.2")
    async with addressed(names, shout, shout, shout) as (servers, fleet, clock):
        model = RemoteModel(fleet, "m")
        await model.load()
        names.addresses = ("127.0.0.2", "127.0.0.3")
        clock.now += FRESH_SECONDS + 1
        await model.sample_text("first", PARAMS)
        await until(lambda: [state.state is ReplicaState.SERVING for state in fleet.states()] == [True, False])
        clock.now += FIRST_WAIT_SECONDS
        await model.sample_text("second", PARAMS)
        await until(lambda: [state.state is ReplicaState.SERVING for state in fleet.states()] == [True, True])
        before = [len(server.asked) for server in servers]
        for index in range(4):
            await model.sample_text(f"p{index}", PARAMS)
        assert [len(server.asked) - had for server, had in zip(servers, before)] == [0, 2, 2]
        names.addresses = ()
        clock.now += FRESH_SECONDS + 1
        await model.sample_text("third", PARAMS)
        await until(lambda: not fleet._tasks)
        assert [state.state is ReplicaState.SERVING for state in fleet.states()] == [True, True]


async def test_a_request_at_a_replica_that_is_gone_from_the_name_is_answered():
    """The replica may end in its own time: only new requests do not go there."""
    names = Names("127.0.0.1")
    async with addressed(names, failing(Fault.STALL), shout) as (servers, fleet, clock):
        model = RemoteModel(fleet, "m")
        held = asyncio.create_task(model.sample_text("held", PARAMS))
        await servers[0].stalled.wait()
        names.addresses = ("127.0.0.2",)
        clock.now += FRESH_SECONDS + 1
        await model.load()
        assert (await model.sample_text("hi", PARAMS))[0].text == "HI"
        assert not held.done()
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)
        await servers[0].hung_up.wait()
        await until(lambda: not fleet._tasks)


async def test_a_name_without_an_address_is_unreachable():
    """As a server that cannot be reached; once the name has one, it is found."""
    names = Names()
    async with addressed(names, shout) as (_, fleet, _):
        model = RemoteModel(fleet, "m")
        assert (await error_of(model.load())).reason == "BACKEND_UNREACHABLE"
        names.addresses = ("127.0.0.1",)
        await model.load()
        assert (await model.sample_text("hi", PARAMS))[0].text == "HI"


async def test_the_system_resolves_names():
    """The addresses of this machine's own name, each once."""
    assert "127.0.0.1" in await resolve("127.0.0.1", 80)
    found = await resolve("localhost", 80)
    assert len(set(found)) == len(found) > 0


async def test_a_request_that_waits_goes_to_a_replica_that_has_rested():
    """It does not wait for the end of a request elsewhere, nor for a new one; later requests do not wait behind it."""
    limited = Reply({"error": {"message": "slower"}}, status=429)
    async with fleet_of(failing(Fault.STALL), failing(limited), max_connections=1) as rig:
        stuck = asyncio.create_task(rig.texts("a"))
        await rig.servers[0].stalled.wait()
        waits = asyncio.create_task(rig.texts("b"))
        await until(lambda: rig.asked == [1, 1] and rig.serving == [True, False])
        rig.servers[1].script = shout
        rig.clock.now += 60
        assert await asyncio.wait_for(waits, 60) == ["B"]
        assert await asyncio.wait_for(rig.texts("c"), 60) == ["C"]
        stuck.cancel()
        await asyncio.wait([stuck])


async def test_a_request_that_waits_has_ejected_replicas_probed():
    """Without a new request, and without the end of one elsewhere."""
    async with fleet_of(failing(Fault.STALL), shout, max_connections=1) as rig:
        await rig.model.load()
        stuck = asyncio.create_task(rig.texts("a"))
        await rig.servers[0].stalled.wait()
        rig.fleet._balancer.eject(rig.servers[1].url)
        waits = asyncio.create_task(rig.texts("b"))
        await asyncio.sleep(0)
        rig.clock.now += 60
        assert await asyncio.wait_for(waits, 60) == ["B"]
        stuck.cancel()
        await asyncio.wait([stuck])


async def test_a_request_that_waits_does_not_return_to_the_replica_that_failed_it():
    """It waits for another one, and those behind it go to any."""
    async with fleet_of(failing(Fault.STALL), failing(refusal(500)), max_connections=1) as rig:
        stuck = asyncio.create_task(rig.texts("a"))
        await rig.servers[0].stalled.wait()
        others = [asyncio.create_task(rig.texts(text)) for text in ("b", "c")]
        await until(lambda: rig.asked[1] >= 2)
        rig.servers[0].script = shout
        stuck.cancel()
        assert await asyncio.wait_for(asyncio.gather(*others), 60) == [["B"], ["C"]]
        assert rig.asked == [3, 2]


async def test_an_answer_that_cannot_be_used_is_sent_to_one_other_replica_and_no_further():
    """The other replica is the repeat: its answer, paid for as well, is not requested again."""
    async with fleet_of(*[lambda _: Reply({"choices": []})] * 3) as rig:
        error = await error_of(rig.model.sample_text("hi", PARAMS))
    assert (error.reason, error.retryable, sum(rig.asked)) == ("BACKEND_ANSWER", False, 2)
