"""The endpoint of OpenAI's API: who is answered, what is refused before it costs anything, and what clients read."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.types import EmbeddedModel, ModelInput, SampleItem, SamplingParams
from crucible_worker.config import SettingsError
from crucible_worker.rpc.calls import Method
from crucible_worker.server import Worker
from crucible_worker.server.credentials import StartError
from crucible_worker.server.parts import build
from crucible_worker.testing import STALL, RunningWorker, ScriptedModel, run_worker, scripted_build
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.web import openai_endpoint
from tests import needs
from tests.service.openai_endpoint_kit import CHAT, COMPLETIONS, MODELS, ask, head_of, opened, read_reply, settings

pytestmark = [needs.installed("uvicorn"), pytest.mark.core]

ASKED = {"model": "embedded:mine", "messages": [{"role": "user", "content": "hello"}]}
EMBEDDED = "embedded:arithmetic@320"


@pytest.fixture
async def worker() -> AsyncIterator[RunningWorker]:
    """A worker whose model repeats its prompt in upper case."""
    async with run_worker({"mine": ScriptedModel()}, openai=True) as running:
        yield running


async def test_a_message_is_answered_with_its_usage(worker: RunningWorker):
    """In OpenAI's form; the worker counts what it took."""
    reply = await ask(worker.openai_address, CHAT, {**ASKED, "n": 2, "max_completion_tokens": 3})

    answer = json.loads(reply.body)
    choice = {"role": "assistant", "content": "HEL", "refusal": None}
    assert reply.status == 200
    assert [one["message"] for one in answer["choices"]] == [choice, choice]
    assert [one["finish_reason"] for one in answer["choices"]] == ["length", "length"]
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert answer["model"] == "embedded:mine"
    load = (await worker.bridge.worker.get_info()).usage
    assert [(one.model, one.usage.prompt_tokens, one.usage.output_tokens) for one in load] == [("embedded:mine", 5, 6)]


@pytest.mark.parametrize("prompt", ["ab", ["ab"], [97, 98], [[97, 98]]])
async def test_a_prompt_has_four_forms(worker: RunningWorker, prompt: Any):
    """Text, tokens, and lists of either; a text is continued as it stands."""
    reply = await ask(worker.openai_address, COMPLETIONS, {"model": "embedded:mine", "prompt": prompt, "echo": True})

    assert [one["text"] for one in json.loads(reply.body)["choices"]] == ["abAB"]


async def test_a_prompt_alone_may_be_echoed(worker: RunningWorker):
    """With no tokens to generate: then no model is asked, unless log-probabilities are wanted."""
    body = {"model": "embedded:mine", "prompt": [97, 98], "echo": True, "max_tokens": 0}

    plain = json.loads((await ask(worker.openai_address, COMPLETIONS, body)).body)["choices"]
    measured = json.loads((await ask(worker.openai_address, COMPLETIONS, {**body, "logprobs": 0})).body)["choices"]

    assert [one["text"] for one in (*plain, *measured)] == ["ab", "ab"]
    assert measured[0]["logprobs"]["token_logprobs"] == [None, -2.0]
    assert plain[0]["logprobs"] is None


async def test_an_answer_of_gigabytes_is_refused_before_it_is_made(worker: RunningWorker):
    """One small request may ask for the tokens of a thousand choices: the size is estimated first."""
    wanted = {"echo": True, "max_tokens": 0, "logprobs": 0, "n": 1000}
    body = {"model": "embedded:mine", "prompt": [[97] * 4096] * 4, **wanted}

    async with asyncio.timeout(60):
        reply = await ask(worker.openai_address, COMPLETIONS, body)

    assert reply.status == 400
    assert "an answer of about " in json.loads(reply.body)["error"]["message"]


async def test_an_error_after_the_beginning_of_a_stream_is_an_event(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Its status was sent already; here the drain ends a stream that waits."""
    monkeypatch.setattr(openai_endpoint, "STATUS_SECONDS", 0.0)
    model = ScriptedModel(fault=lambda call: STALL)
    async with Worker(settings(tmp_path), build=scripted_build({"mine": model})) as worker:
        asked = asyncio.create_task(ask(worker.openai_address, CHAT, {**ASKED, "stream": True}))
        while not model.counts["in_flight"]:
            await asyncio.sleep(0)
        worker.drain()
        reply = await asked

    assert (reply.status, reply.headers["content-type"][:17]) == (200, "text/event-stream")
    assert b": no answer yet" in reply.body
    assert b'"code":"DRAINING"' in reply.body


async def test_the_choices_of_several_prompts_are_in_order(worker: RunningWorker):
    """Those of the first prompt come first."""
    body = {"model": "embedded:mine", "prompt": ["a", "b"], "n": 2}

    choices = json.loads((await ask(worker.openai_address, COMPLETIONS, body)).body)["choices"]

    assert [(one["index"], one["text"]) for one in choices] == [(0, "A"), (1, "A"), (2, "B"), (3, "B")]


async def test_a_stream_has_the_answer_its_end_and_its_usage(worker: RunningWorker):
    """As server-sent events that end with [DONE]."""
    body = {**ASKED, "stream": True, "stream_options": {"include_usage": True}}

    reply = await ask(worker.openai_address, CHAT, body)

    events = [line.removeprefix("data: ") for line in reply.body.decode().splitlines() if line.startswith("data: ")]
    *pieces, last = map(json.loads, events[:-1])
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert events[-1] == "[DONE]"
    assert "".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces) == "HELLO"
    assert [piece["choices"][0]["finish_reason"] for piece in pieces] == [None, "stop"]
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 5)


async def test_the_error_of_a_stream_has_its_status(worker: RunningWorker):
    """Nothing of the stream is sent before it is known whether there is an answer."""
    reply = await ask(worker.openai_address, CHAT, {**ASKED, "model": "embedded:none", "stream": True})

    assert (reply.status, reply.error["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": "gpt"}, 404, "model"),
        ({"model": "embedded:none"}, 404, "model"),
        ({"model": "hub:a/b"}, 404, "model"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "king", "content": ""}]}, 400, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, 400, "messages[0].content[0].type"),
        ({"n": 0}, 400, "n"),
        ({"n": 1_001}, 400, "n"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": 2, "max_completion_tokens": 3}, 400, "max_completion_tokens"),
        ({"temperature": -1}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"seed": 2**70}, 400, "seed"),
        ({"stop": ["a"] * 65}, 400, "stop"),
        ({"stop": ""}, 400, "stop"),
        ({"logprobs": True, "top_logprobs": 129}, 400, "top_logprobs"),
        ({"top_logprobs": 1}, 400, "top_logprobs"),
        ({"tools": [{"type": "function", "function": {"name": "add"}}]}, 400, "tools"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"frequency_penalty": 0.5}, 400, "frequency_penalty"),
        ({"logit_bias": {"1": 5}}, 400, "logit_bias"),
        ({"colour": "red"}, 400, "colour"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
    ],
)
async def test_what_a_backend_has_not_is_refused(worker: RunningWorker, change: Any, status: int, param: str):
    """With the parameter's name, in OpenAI's form: nothing is left out without a word."""
    reply = await ask(worker.openai_address, CHAT, {**ASKED, **change})

    assert (reply.status, reply.error["param"], reply.error["type"]) == (status, param, "invalid_request_error")


async def test_values_that_change_nothing_are_accepted(worker: RunningWorker):
    """Harnesses send them with every request."""
    neutral = {
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "logit_bias": {},
        "tools": [],
        "user": "me",
        "stop": None,
    }

    reply = await ask(worker.openai_address, CHAT, {**ASKED, **neutral, "response_format": {"type": "text"}})

    assert reply.status == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b'{"model": ' + b"[" * 100_000, b'{"model": "embedded:mine"}']
)
async def test_a_body_that_cannot_be_read_is_the_clients_error(worker: RunningWorker, body: bytes):
    """Also one that is nested deeply."""
    assert (await ask(worker.openai_address, CHAT, body, method="POST")).status == 400


async def test_only_this_server_and_no_page_of_another_site(worker: RunningWorker):
    """As for the live pages: a foreign name may lead here, and browsers send requests of any page."""
    statuses = [
        (await ask(worker.openai_address, MODELS, headers=headers)).status
        for headers in (
            {"host": "evil.example"},
            {"origin": "http://evil.example"},
            {"sec-fetch-site": "cross-site"},
            {"origin": "null"},
            {},
        )
    ]

    assert statuses == [403, 403, 403, 403, 200]


async def test_the_tokens_of_the_worker_are_the_api_keys(tmp_path: Path):
    """Each of them; without one nothing is read or said."""
    token_file = tmp_path / "token"
    token_file.write_text("first\nsecond\n")
    token_file.chmod(0o600)
    build = scripted_build({"mine": ScriptedModel()})
    async with Worker(settings(tmp_path, token_file=token_file), build=build) as worker:
        keys = ({}, *({"authorization": f"Bearer {key}"} for key in ("wrong", "first", "second")))
        replies = [await ask(worker.openai_address, CHAT, ASKED, headers=headers) for headers in keys]

    assert [reply.status for reply in replies] == [401, 401, 200, 200]
    assert replies[0].error["code"] == "invalid_api_key"


async def test_a_large_body_is_refused_before_it_is_sent():
    """By what the client says of it; and a body of unknown length, once it is larger."""
    limits = WorkerLimits(max_message_bytes=1024 * 1024)
    async with run_worker({"mine": ScriptedModel()}, openai=True, limits=limits) as worker:
        address = worker.openai_address
        reader, writer = await opened(address)
        writer.write(head_of(address, "POST", CHAT, {"content-length": str(2 * 1024 * 1024)}))
        declared = await read_reply(reader)
        writer.close()
        reader, writer = await opened(address)
        writer.write(head_of(address, "POST", CHAT, {"transfer-encoding": "chunked"}))
        writer.write(b"10000\r\n%b\r\n" % (b"x" * 0x10000) * 17)
        chunked = await read_reply(reader)
        writer.close()

    assert (declared.status, chunked.status) == (413, 413)


async def test_too_many_values_are_counted_before_they_are_parsed(worker: RunningWorker):
    """A parser would let nothing else of the worker run meanwhile."""
    body = b'{"model": "embedded:mine", "prompt": [%b97]}' % (b"97," * 2_000_000)

    reply = await ask(worker.openai_address, COMPLETIONS, body)

    assert (reply.status, reply.error["message"][:34]) == (400, "The body has more than 2,000,000 v")


async def test_too_many_open_calls_are_told_when_to_come_again():
    """429, with Retry-After."""
    model = ScriptedModel(fault=lambda call: STALL)
    async with run_worker({"mine": model}, openai=True, limits=WorkerLimits(max_calls_per_service=1)) as worker:
        first = asyncio.create_task(ask(worker.openai_address, CHAT, ASKED))
        while not model.counts["in_flight"]:
            await asyncio.sleep(0)
        second = await ask(worker.openai_address, CHAT, ASKED)
        first.cancel()

    assert (second.status, second.headers["retry-after"]) == (429, "1")
    assert second.error["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_cancels_its_call(stream: bool):
    """The model is asked no longer, and the call is open no longer."""
    model = ScriptedModel(fault=lambda call: STALL)
    async with run_worker({"mine": model}, openai=True) as worker:
        body = json.dumps({**ASKED, "stream": stream}).encode()
        _, writer = await opened(worker.openai_address)
        writer.write(head_of(worker.openai_address, "POST", CHAT, {"content-length": str(len(body))}) + body)
        async with asyncio.timeout(60):
            while not model.counts["in_flight"]:
                await asyncio.sleep(0)
            writer.close()
            while model.counts["in_flight"]:
                await asyncio.sleep(0)


async def test_a_drain_answers_503(tmp_path: Path):
    """A call that is open gets it, and so does each later one."""
    model = ScriptedModel(fault=lambda call: STALL)
    worker = Worker(settings(tmp_path), build=scripted_build({"mine": model}))
    async with worker:
        asked = asyncio.create_task(ask(worker.openai_address, CHAT, ASKED))
        while not model.counts["in_flight"]:
            await asyncio.sleep(0)
        worker.drain()
        reply = await asked

    assert (reply.status, reply.error["code"]) == (503, "DRAINING")
    assert "retry-after" in reply.headers


async def test_models_are_listed_and_found(tmp_path: Path):
    """Those that backends know by themselves; any reference is found by its name."""
    async with Worker(settings(tmp_path), build=build) as worker:
        listed = json.loads((await ask(worker.openai_address, MODELS)).body)["data"]
        found = await ask(worker.openai_address, f"{MODELS}/{EMBEDDED}")
        missing = await ask(worker.openai_address, f"{MODELS}/embedded:none")

    assert EMBEDDED in [one["id"] for one in listed]
    assert (found.status, json.loads(found.body)["id"]) == (200, EMBEDDED)
    assert missing.status == 404


async def test_other_paths_and_methods(worker: RunningWorker):
    """404 and 405, in OpenAI's form."""
    assert (await ask(worker.openai_address, "/v1/embeddings", {})).status == 404
    assert (await ask(worker.openai_address, CHAT)).status == 405


async def test_numbers_are_those_of_the_model(tmp_path: Path):
    """Of an embedded model: what `Sample` and `ComputeLogprobs` say, the endpoint says too."""
    import crucible_bridge

    async with Worker(settings(tmp_path), build=build) as worker, crucible_bridge.connect(worker.address) as bridge:
        (tokens,) = (await bridge.rendering.tokenize(EMBEDDED, ["12+34="])).items
        ids = list(tokens.tokens)
        body = {"model": EMBEDDED, "prompt": ids, "max_tokens": 4, "seed": 7, "n": 3, "logprobs": 2, "echo": True}
        choices = json.loads((await ask(worker.openai_address, COMPLETIONS, body)).body)["choices"]
        item = SampleItem(prompt=ModelInput.of(ids), num_samples=3, seed=7)
        sampling = SamplingParams(max_tokens=4, temperature=1.0)
        sampled = (await bridge.models.sample(EmbeddedModel("arithmetic@320"), [item], sampling)).items[0]
        measured = (await bridge.models.compute_logprobs(EmbeddedModel("arithmetic@320"), [ids])).sequences[0]

    assert measured.logprobs is not None
    for choice, sequence in zip(choices, sampled.sequences, strict=True):
        found = choice["logprobs"]
        assert choice["text"] == f"12+34={sequence.text}"
        assert found["token_logprobs"][0] is None
        assert found["token_logprobs"][1 : len(ids)] == measured.logprobs.tolist()
        assert found["token_logprobs"][len(ids) :] == pytest.approx(sequence.logprobs, abs=1e-6)
        assert found["tokens"][: len(ids)] == ["1", "2", "+", "3", "4", "="]
        for value, likeliest in zip(found["token_logprobs"][1:], found["top_logprobs"][1:], strict=True):
            assert len(likeliest) in (2, 3)
            assert value <= max(likeliest.values())
            assert all(math.isfinite(one) for one in likeliest.values())


async def test_a_server_gets_messages_and_texts_as_they_are(tmp_path: Path):
    """A prompt is no message at an OpenAI-compatible server, and the caller gets the refusals of that server."""
    pytest.importorskip("aiohttp", reason=needs.MISSING["aiohttp"])
    from crucible_worker.backends.openai.servers import OpenAIServer
    from tests.service.openai_kit import ScriptedServer, refusal

    messages = [{"role": "developer", "content": "Shout."}, {"role": "user", "content": "hello"}]
    async with ScriptedServer().serving() as server:
        known = (OpenAIServer(name="s", base_url=server.url),)
        async with Worker(settings(tmp_path, endpoints=known), build=build) as worker:
            address = worker.openai_address
            said = await ask(address, CHAT, {"model": "openai:s/m", "messages": messages})
            continued = await ask(address, COMPLETIONS, {"model": "openai:s/m", "prompt": "abc", "echo": True})
            server.script = lambda request: refusal(400, "no such thing")
            refused = await ask(address, CHAT, {"model": "openai:s/m", "messages": messages})

    chat, completion, *_ = [request.body for request in server.asked]
    assert json.loads(said.body)["choices"][0]["message"]["content"] == "HELLO"
    assert [message["role"] for message in chat["messages"]] == ["system", "user"]
    assert json.loads(continued.body)["choices"][0]["text"] == "abcABC"
    assert completion["prompt"] == "abc"
    assert refused.status in (400, 502)
    assert "no such thing" in refused.error["message"]


async def test_the_openai_package_reads_all_of_it(tmp_path: Path):
    """Messages, completions, streams, models and errors, by its own types."""
    openai = pytest.importorskip("openai", reason=needs.MISSING["openai"])
    async with (
        Worker(settings(tmp_path), build=build) as worker,
        openai.AsyncOpenAI(base_url=worker.openai_address, api_key="any", max_retries=0) as client,
    ):
        messages = [{"role": "user", "content": "12+34="}]
        answer = await client.chat.completions.create(
            model=EMBEDDED, messages=messages, temperature=0, logprobs=True, top_logprobs=2
        )
        stream = await client.chat.completions.create(model=EMBEDDED, messages=messages, temperature=0, stream=True)
        streamed = "".join([piece.choices[0].delta.content or "" async for piece in stream])
        completed = await client.completions.create(model=EMBEDDED, prompt="12+34=", temperature=0)
        names = [model.id async for model in client.models.list()]
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="gpt-4", prompt="a")

    said = answer.choices[0].message.content
    assert said == streamed == completed.choices[0].text
    content = answer.choices[0].logprobs.content
    assert content[0].token == said[0]
    assert content[0].logprob == pytest.approx(content[0].top_logprobs[0].logprob, abs=1e-6)
    assert EMBEDDED in names


async def test_the_program_of_the_page(tmp_path: Path):
    """It prints an answer."""
    pytest.importorskip("openai", reason=needs.MISSING["openai"])
    page = (Path(__file__).parents[2] / "docs" / "endpoint.md").read_text()
    program = page.partition("```python\n")[2].partition("```")[0]
    async with Worker(settings(tmp_path), build=build) as worker:
        (tmp_path / "ask.py").write_text(program.replace("http://127.0.0.1:8000/v1", worker.openai_address))
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(tmp_path / "ask.py"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        printed, errors = await process.communicate()

    assert (printed, errors) == (b"46\n", b"")


def test_connections_send_at_once():
    """Without TCP_NODELAY an answer of two writes would wait for the client's delayed acknowledgement, 40 ms."""
    from crucible_worker.web.listening import LOOPBACK, listen

    with listen(LOOPBACK, 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP  # what asyncio looks at


def test_other_machines_are_not_served(tmp_path: Path):
    """It is HTTP without TLS."""
    with pytest.raises(SettingsError, match=r"openai_listen is 0\.0\.0\.0, which other machines can reach"):
        settings(tmp_path, openai_listen=("0.0.0.0", 8000))


async def test_a_port_that_is_taken_ends_the_start(tmp_path: Path):
    """With the option that takes another one."""
    async with Worker(settings(tmp_path), build=build) as worker:
        port = int(worker.openai_address.rpartition(":")[2].partition("/")[0])
        with pytest.raises(StartError, match="--openai-listen takes another port"):
            await Worker(settings(tmp_path, openai_listen=("127.0.0.1", port)), build=build).start()


def test_its_calls_are_no_health_checks():
    """They have their own count of open calls."""
    assert not Method(path="/openai.v1/completions", streams=False).essential
