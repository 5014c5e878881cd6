"""The openai backend over real connections: what it sends, what it refuses to follow, and how requests end."""

import asyncio
import importlib.util
import json
import ssl
import sys

import pytest

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InvalidField, NotFound, Unavailable
from crucible_bridge.types import ChatMessage, Conversation, EmbeddedModel, ModelInput, OpenAIModel, SamplingParams
from crucible_worker.backends.openai.backend import OpenAIBackend
from crucible_worker.backends.openai.servers import OpenAIServer
from tests import needs
from tests.service.openai_kit import KEY, Fault, Reply, Request, answer, key_file, refusal, remote, shout
from tests.tables import rows

needs.modules("aiohttp")

pytestmark = pytest.mark.core

PARAMS = SamplingParams(max_tokens=4)


async def error_of(call) -> BridgeError:
    """The error that a call ends with."""
    with pytest.raises(BridgeError) as caught:
        await call
    return caught.value


async def test_text_conversations_and_tokens_go_their_ways():
    """Text is completed as it stands, a conversation is a chat, tokens are completed as tokens."""

    def script(request: Request) -> Reply:
        return answer(request, "yes")

    async with remote(script) as (server, model):
        (of_text,) = await model.sample_text("hi", PARAMS)
        await model.sample_text(Conversation((ChatMessage("user", "hi"),)), PARAMS)
        await model.sample(ModelInput.of([1, 2]), PARAMS)
    assert (of_text.text, of_text.stop_reason, of_text.output_tokens) == ("yes", "stop", 3)
    assert [request.path for request in server.asked] == ["/completions", "/chat/completions", "/completions"]
    assert [request.body.get("prompt") for request in server.asked] == ["hi", None, [1, 2]]
    assert server.asked[1].body["messages"] == [{"role": "user", "content": "hi"}]


async def test_text_is_a_chat_where_the_settings_say_so():
    """For models that are only ever talked to, text is a user's message."""
    async with remote(renderer="chat_template") as (server, model):
        assert (await model.sample_text("hi", PARAMS))[0].text == "HI"
        as_chat = model.fingerprint
    assert server.asked[0].body["messages"] == [{"role": "user", "content": "hi"}]
    async with remote() as (_, model):
        assert model.fingerprint != as_chat


async def test_several_samples_are_requests_with_seeds_of_their_own():
    """Not every server generates several at once, so each is asked for by itself."""
    async with remote() as (server, model):
        samples = await model.sample_text("hi", SamplingParams(max_tokens=4, temperature=1.0, seed=5), 3)
    assert len(samples) == 3
    assert sorted(request.body["seed"] for request in server.asked) == [5, 6, 7]


async def test_only_what_must_be_sent_is_sent(tmp_path, monkeypatch):
    """The key in its header, and nothing of this machine or its environment."""
    for name, value in {
        "OPENAI_API_KEY": "other",
        "OPENAI_ORG_ID": "org",
        "OPENAI_PROJECT_ID": "project",
        "OPENAI_ADMIN_KEY": "admin",
        "OPENAI_CUSTOM_HEADERS": "X-Mine: 1",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    async with remote(key_file=key_file(tmp_path)) as (server, model):
        await model.load()
        await model.sample_text("hi", PARAMS)
    for request in server.requests:
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert set(request.headers) <= {
            "host",
            "accept",
            "accept-encoding",
            "authorization",
            "content-length",
            "content-type",
            "user-agent",
        }


async def test_without_a_key_none_is_shown(monkeypatch):
    """A server that wants no key is told none, whatever the environment holds."""
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    async with remote() as (server, model):
        await model.sample_text("hi", PARAMS)
    assert "authorization" not in server.asked[0].headers


async def test_a_proxy_of_the_settings_is_used():
    """Where the settings name a proxy, requests go to it, with the whole address."""
    async with remote() as (proxy, _):
        backend = OpenAIBackend(
            [OpenAIServer(name="s", base_url="http://far.invalid/v1", proxy=proxy.url.removesuffix("/v1"))]
        )
        model = await backend.open(OpenAIModel("s", "m"))
        await model.sample_text("hi", PARAMS)
        await backend.aclose()
    assert proxy.asked[0].path == "http://far.invalid/v1/completions"


@rows("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(status):
    """A prompt and a key go where the settings say, and nowhere else."""
    async with remote() as (other, _):
        async with remote(lambda _: refusal(status, Location=f"{other.url}/completions")) as (server, model):
            error = await error_of(model.sample_text("hi", PARAMS))
        assert (error.reason, error.retryable, len(server.asked), len(other.requests)) == (
            "BACKEND_REDIRECT",
            False,
            1,
            0,
        )


@rows(
    ("reply", "reason"),
    [
        (Reply(b"<html>busy</html>"), "BACKEND_ANSWER"),
        (Reply(b"["), "BACKEND_ANSWER"),
        (Reply(b"[" * 100_000), "BACKEND_ANSWER"),
        (Reply([]), "BACKEND_ANSWER"),
        (Reply({}), "BACKEND_ANSWER"),
        (Reply(b"\xff\xfe"), "BACKEND_ANSWER"),
        (Reply(b"", headers={"Content-Encoding": "gzip"}), "BACKEND_ANSWER"),
        (refusal(500), "BACKEND_FAILED"),
        (Fault.DROP, "BACKEND_CONNECTION_LOST"),
        (Fault.CUT, "BACKEND_CONNECTION_LOST"),
    ],
    ids=["html", "half", "deep", "list", "empty", "bytes", "compressed", "status", "dropped", "cut"],
)
async def test_what_is_no_answer_is_retryable_and_asked_once(reply, reason):
    """The backend itself never asks again: that is for the gate, which has a budget."""
    async with remote(lambda _: reply) as (server, model):
        error = await error_of(model.sample_text("hi", PARAMS))
    assert isinstance(error, BackendError)
    assert (error.reason, error.retryable, len(server.asked)) == (reason, True, 1)


async def test_an_answer_that_fills_the_memory_is_cut(monkeypatch):
    """An answer is taken up to a bound; one byte more is nonsense."""
    size = len(Reply({"choices": []}).content)
    for bound, told in ((size, "exactly one choice"), (size - 1, "longer than")):
        monkeypatch.setattr("crucible_worker.backends.openai.documents.MAX_ANSWER_BYTES", bound)
        async with remote(lambda _: Reply({"choices": []})) as (_, model):
            assert told in str(await error_of(model.sample_text("hi", PARAMS)))


async def test_a_rate_limit_says_when_to_come_again():
    """429 with Retry-After carries the time to whoever decides on the next try."""
    async with remote(lambda _: refusal(429, **{"Retry-After": "3"})) as (_, model):
        error = await error_of(model.sample_text("hi", PARAMS))
    assert (error.reason, error.retryable, error.retry_after) == ("BACKEND_RATE_LIMITED", True, 3.0)


async def test_a_server_that_sends_nothing_is_given_up():
    """A request is bounded by the time in which nothing comes."""
    async with remote(lambda _: Fault.STALL, stall_seconds=0.05) as (server, model):
        error = await error_of(model.sample_text("hi", PARAMS))
        await asyncio.wait_for(server.hung_up.wait(), 5)
    assert (error.reason, error.retryable) == ("BACKEND_TIMEOUT", True)


async def test_a_server_that_is_not_there():
    """A refused connection is retryable; the model that needs it does not load."""
    backend = OpenAIBackend([OpenAIServer(name="s", base_url="http://127.0.0.1:1/v1")])
    model = await backend.open(OpenAIModel("s", "m"))
    error = await error_of(model.load())
    assert (error.reason, error.retryable) == ("BACKEND_UNREACHABLE", True)
    await backend.aclose()


async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path):
    """TLS is verified, unless the settings name who signed."""
    trustme = pytest.importorskip("trustme", reason=needs.MISSING["trustme"])
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    async with remote() as (server, _):
        plain_port = int(server.url.rpartition(":")[2].removesuffix("/v1"))

        async def relay(reader, writer):
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", plain_port)
            try:
                inner_writer.write(await reader.readuntil(b"\r\n\r\n"))
                writer.write(await inner_reader.readuntil(b"}"))
                await writer.drain()
            finally:
                writer.close()
                inner_writer.close()

        tls = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{tls.sockets[0].getsockname()[1]}/v1"
        backend = OpenAIBackend(
            [
                OpenAIServer(name="unknown", base_url=url),
                OpenAIServer(name="known", base_url=url, ca_file=ca),
            ]
        )
        error = await error_of((await backend.open(OpenAIModel("unknown", "m"))).load())
        assert error.reason == "BACKEND_UNREACHABLE"
        await (await backend.open(OpenAIModel("known", "m"))).load()
        await backend.aclose()
        tls.close()
    assert [request.path for request in server.requests] == ["/models"]


async def test_a_cancelled_request_closes_its_connection():
    """The server sees at once that nobody waits, and can stop generating."""
    async with remote(lambda _: Fault.STALL) as (server, model):
        task = asyncio.create_task(model.sample_text("hi", PARAMS, 3))
        await asyncio.wait_for(server.stalled.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_requests_at_once_are_bounded():
    """More than the settings allow wait for their turn, and connections are used again."""
    async with remote(max_connections=3) as (server, model):
        await asyncio.gather(*(model.sample_text(f"q{index}", PARAMS) for index in range(30)))
    assert (len(server.asked), server.peak, server.connections) == (30, 3, 3)


async def test_a_cancelled_wait_gives_its_turn_to_the_next():
    """Whoever is cancelled while it waits, or is at it, costs the others nothing."""
    async with remote(
        lambda request: Fault.STALL if request.text == "stall" else shout(request), max_connections=1
    ) as (
        server,
        model,
    ):
        first = asyncio.create_task(model.sample_text("stall", PARAMS))
        await asyncio.wait_for(server.stalled.wait(), 5)
        second = asyncio.create_task(model.sample_text("never", PARAMS))
        third = asyncio.create_task(model.sample_text("third", PARAMS))
        await asyncio.sleep(0)
        for task in (first, second):
            task.cancel()
        assert (await third)[0].text == "THIRD"
    assert [request.text for request in server.asked] == ["stall", "third"]


@pytest.mark.parametrize(("status", "reason"), [(401, "BACKEND_UNAUTHENTICATED"), (403, "BACKEND_FORBIDDEN")])
async def test_a_wrong_key_shows_when_the_model_is_loaded(status, reason, tmp_path):
    """One question tells it, before a data set is run through."""
    async with remote(lambda _: refusal(status, f"no {KEY}"), key_file=key_file(tmp_path)) as (server, model):
        error = await error_of(model.load())
    assert (error.reason, error.retryable, len(server.requests)) == (reason, False, 1)
    assert KEY not in str(error)


@pytest.mark.parametrize("status", [404, 405, 500])
async def test_a_server_without_a_list_of_models_is_loaded(status):
    """The list is asked for to see that the server is there; what it says of models does not matter."""
    async with remote(lambda request: refusal(status) if request.method == "GET" else shout(request)) as (
        server,
        model,
    ):
        await model.load()
        await model.load()
    assert len(server.requests) == 1


async def test_what_cannot_be_asked_is_refused_without_a_request():
    """Nothing to say, and images among tokens, are the request's fault."""
    async with remote() as (server, model):
        for call, field in (
            (model.sample_text("", PARAMS), "input"),
            (model.sample_text(Conversation(()), PARAMS), "input.messages"),
            (model.sample(ModelInput.of([]), PARAMS), "prompt"),
            (model.compute_logprobs(ModelInput.of([])), "prompt"),
        ):
            error = await error_of(call)
            assert isinstance(error, InvalidField)
            assert error.field == field
    assert server.requests == []


async def test_names_are_looked_up_before_anything_is_sent(monkeypatch):
    """An unknown server is not found, another kind of model is refused, a missing extra is told."""
    backend = OpenAIBackend([OpenAIServer(name="s", base_url="http://127.0.0.1:1/v1")])
    error = await error_of(backend.open(OpenAIModel("t", "m")))
    assert isinstance(error, NotFound)
    assert (error.reason, error.field, "there are s" in error.message) == ("UNKNOWN_SERVER", "model", True)
    assert isinstance(await error_of(backend.open(EmbeddedModel("m"))), InvalidField)
    assert (await error_of(backend.check(OpenAIModel("t", "m")))).reason == "UNKNOWN_SERVER"
    assert backend.info().unavailable == ""
    assert OpenAIBackend().info().unavailable.startswith("no server")
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    error = await error_of(backend.open(OpenAIModel("s", "m")))
    assert isinstance(error, FailedPrecondition)
    assert error.reason == "EXTRA_NOT_INSTALLED"
    assert "crucible-bridge[openai]" in backend.info().unavailable


async def test_a_key_that_is_gone_is_told(tmp_path):
    """A file that was removed since the start is no reason to ask without a key."""
    path = key_file(tmp_path)
    async with remote(key_file=path) as (server, model):
        path.unlink()
        error = await error_of(model.sample_text("hi", PARAMS))
    assert (error.reason, server.requests) == ("BACKEND_KEY", [])


async def test_a_closed_backend_asks_nothing():
    """After the end no request leaves; one under way fails."""
    async with remote(lambda _: Fault.STALL) as (server, model):
        under_way = asyncio.create_task(model.sample_text("hi", PARAMS))
        await asyncio.wait_for(server.stalled.wait(), 5)
        await model._connection.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        await model._connection.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(BridgeError):
            await asyncio.wait_for(under_way, 5)
        error = await error_of(model.sample_text("hi", PARAMS))
    assert isinstance(error, Unavailable)
    assert (error.reason, error.retryable, len(server.asked)) == ("BACKEND_CLOSED", False, 1)


async def test_log_probabilities_of_a_prompt_arrive():
    """As vLLM tells them, over the wire."""

    def script(request: Request) -> Reply:
        entries = [None, *({str(token): {"logprob": -token / 2}} for token in request.body["prompt"][1:])]
        return answer(request, "x", prompt_logprobs=entries)

    async with remote(script) as (server, model):
        assert await model.compute_logprobs(ModelInput.of([1, 2, 3])) == (None, -1.0, -1.5)
    assert json.dumps(server.asked[0].body["prompt"]) == "[1, 2, 3]"
