"""Tokenizers of base models that were made to do harm: each costs its own requests, in bounded time and memory."""

import asyncio
import contextlib
import json
import os
import shutil
import signal

import pytest
import pytest_asyncio

from tests import needs

pytest.importorskip("tinker", reason=needs.MISSING["tinker"])

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.types import ChatMessage, ModelInput, SamplingParams, TinkerModel
from crucible_worker.backends.tinker.backend import TinkerBackend
from crucible_worker.backends.tinker.tokenizer import CODE_PREFIXES, ServedTokenizer, TextHost, TokenizerName
from crucible_worker.embedded import registry
from crucible_worker.util.limits import WorkerLimits
from tests.processes import children_of, is_alive, seconds_of, status_of
from tests.service.processes_kit import hosts_of, wait_until
from tests.service.tinker_kit import SAMPLER, ScriptedLibrary, service

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = WorkerLimits(max_rendering_seconds=5.0, max_rendering_bytes=256 * 1024 * 1024, max_rendered_chars=10_000)
MEGABYTE = 1024 * 1024
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
CONTENT = "{{ messages[0].content }}"
SOMETIMES = "{% if messages[0].content == '1' %}" + ENDLESS + "{% endif %}" + CONTENT
ADDITION = (4, 5, 13, 6, 7, 14)
TEMPLATES = {
    "loops": ENDLESS,
    "power": "{{ 9 ** (9 ** 10) }}",
    "string": "{{ 'b' * 1000000000 }}",
    "chars": "{{ 'a' * 10001 }}",
}
"""Each exceeds one of the limits."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Every test puts its tokenizers there; the library takes the path of one for the name of a base model."""
    return tmp_path_factory.mktemp("root")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host():
    """One text host for all tests of this module."""
    host = TextHost(LIMITS)
    yield host
    await host.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def good(host, root):
    """A tokenizer with a chat template as it should be."""
    return await load(host, made(root, "good", CONTENT))


def made(root, name, template="", **changes):
    """A copy of the tokenizer of the embedded models with something else in it."""
    ignored = shutil.ignore_patterns("*.safetensors")
    directory = shutil.copytree(registry.path("arithmetic@600"), root / name, ignore=ignored)
    if template:
        (directory / "chat_template.jinja").write_text(template)
    path = directory / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return TokenizerName(str(directory))


async def load(host, name):
    """A tokenizer that is there."""
    tokenizer = await ServedTokenizer.load(host, name)
    tokenizer.there()
    return tokenizer


async def chat(tokenizer, content="12+34="):
    """The tokens of a conversation."""
    return await tokenizer.encode_chat([ChatMessage("user", content)], generation_prompt=True)


async def answers(tokenizer):
    """A tokenizer answers, each way."""
    assert await chat(tokenizer) == ADDITION
    assert await tokenizer.encode_continuation("12+34=") == ADDITION
    assert await tokenizer.decode(ADDITION) == "12+34="
    return True


@pytest.mark.parametrize("name", TEMPLATES)
async def test_a_template_beyond_a_limit_costs_its_request(host, root, good, name):
    """The error names the limit, and is final; the host lives, its tokenizers answer, and the worker stays as it is."""
    tokenizer = await load(host, made(root, name, TEMPLATES[name]))
    life, had = host._host.life, status_of(os.getpid(), "VmHWM")

    with pytest.raises(BackendError, match=r"\(max_render") as caught:
        await chat(tokenizer)

    assert (caught.value.reason, caught.value.retryable) == ("RENDERING_LIMIT", False)
    assert await answers(good)
    assert await tokenizer.decode(ADDITION) == "12+34="
    assert host._host.life == life
    assert status_of(os.getpid(), "VmHWM") - had < 32 * MEGABYTE


async def test_a_tokenizer_that_backtracks_for_ever_costs_its_request(host, root, good):
    """Its regular expression is killed with its process; the worker's thread is free at all times."""
    pattern = {"type": "Split", "pattern": {"Regex": r"(1|11|1+)+2$"}, "behavior": "Isolated", "invert": False}
    tokenizer = await load(host, made(root, "backtracking", pre_tokenizer=pattern))
    slow = asyncio.create_task(tokenizer.encode("1" * 20_000))
    while not slow.done():
        assert await answers(good)

    with pytest.raises(BackendError) as caught:
        await slow

    assert caught.value.reason == "RENDERING_LIMIT"


async def test_what_a_tokenizer_makes_of_a_text_is_bounded(host, root):
    """More tokens than a limit, and more text, never reach the worker."""
    tokens = {"type": "Replace", "pattern": {"String": "1"}, "content": "1" * 10_001}
    growing = await load(host, made(root, "growing-tokens", normalizer=tokens))
    text = {"type": "Replace", "pattern": {"String": "1"}, "content": "1" * (33 * MEGABYTE)}
    long = await load(host, made(root, "growing-text", decoder=text))

    with pytest.raises(BackendError, match="tokens of 1 characters, 10,000 are accepted") as caught:
        await growing.encode("1")
    assert (caught.value.reason, caught.value.retryable) == ("RENDERING_LIMIT", False)
    with pytest.raises(BackendError, match="are accepted") as caught:
        await long.decode(await long.encode("1"))
    assert (caught.value.reason, caught.value.retryable) == ("RENDERING_LIMIT", False)


async def test_a_template_that_fails_refuses_its_messages(host, root):
    """Whatever it raises: recursion without end, wrong types, its own refusal."""
    for index, template in enumerate(
        ["{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ 1 + 'a' }}", "{{ raise_exception('no tools') }}"]
    ):
        tokenizer = await load(host, made(root, f"failing-{index}", template))
        with pytest.raises(InvalidField, match="refused by the chat template"):
            await chat(tokenizer)


async def test_processes_that_are_killed_are_replaced(host, root):
    """That of a tokenizer by another one, its request retryable; the host by another host."""
    tokenizer = await load(host, made(root, "killed", SOMETIMES))
    life = host._host.life
    (server,) = children_of(life)
    known = set(children_of(server))
    call = asyncio.create_task(chat(tokenizer, "1"))
    before = {pid: seconds_of(pid) for pid in known}

    def looping():
        return [pid for pid in known if is_alive(pid) and seconds_of(pid) - before[pid] > 0.3]

    await asyncio.to_thread(wait_until, looping, "it loops")
    (process,) = looping()
    os.kill(process, signal.SIGKILL)
    with pytest.raises(BackendError) as caught:
        await call
    assert (caught.value.reason, caught.value.retryable) == ("RENDERING_LIMIT", True)
    assert await answers(tokenizer)
    assert host._host.life == life

    os.kill(life, signal.SIGKILL)
    with contextlib.suppress(BackendError):  # the one that is in flight when the host's end shows
        await answers(tokenizer)
    assert await answers(tokenizer)
    assert host._host.life not in (0, life)


async def test_a_tokenizer_that_cannot_be_loaded_in_time_is_none(root):
    """Tokens can do without it; the reason names the limit, and its process ends."""
    host = TextHost(WorkerLimits(max_checkpoint_seconds=0.001))
    try:
        tokenizer = await ServedTokenizer.load(host, made(root, "slow"))
        with pytest.raises(FailedPrecondition, match="max_checkpoint_seconds") as caught:
            tokenizer.there()
        assert caught.value.reason == "NO_TOKENIZER"
        (server,) = children_of(host._host.life)
        await asyncio.to_thread(
            wait_until, lambda: not any(map(is_alive, children_of(server))), "the process is killed"
        )
    finally:
        await host.aclose()


async def test_an_absent_tokenizer_is_reported(host, root):
    """By the name of its base model and the kind of the error, without the error's text."""
    tokenizer = await ServedTokenizer.load(host, TokenizerName(str(root / "absent")))
    with pytest.raises(FailedPrecondition, match=r"absent' cannot be loaded \(\w+\)$") as caught:
        tokenizer.there()
    assert caught.value.reason == "NO_TOKENIZER"


@pytest.mark.parametrize("field", ["base_model", "tokenizer_id"])
async def test_tokenizers_that_are_programs_are_refused(host, field):
    """Whether the base model is one of them, or the service names the tokenizer of one."""
    name = TokenizerName(**{"base_model": "tiny/model", field: f"{CODE_PREFIXES[0]}K3"})
    with pytest.raises(FailedPrecondition, match="is a program"):
        (await ServedTokenizer.load(host, name)).there()


async def test_a_backend_loads_tokenizers_in_its_host(root, tmp_path):
    """With the worker's limits; the host ends with the backend."""
    library = ScriptedLibrary()
    library.base_model = made(root, "served", ENDLESS).base_model
    limits = WorkerLimits(max_rendering_seconds=0.5)
    backend = TinkerBackend([service(tmp_path)], library, limits)
    before = hosts_of(os.getpid(), "tinker")
    try:
        model = await backend.open(TinkerModel(model_path=SAMPLER))
        await model.load()
        (host,) = set(hosts_of(os.getpid(), "tinker")) - set(before)
        with pytest.raises(BackendError, match=r"longer than 0\.\d+ s \(max_rendering_seconds\)"):
            await chat(model.tokenizer)
        assert model.sampling is not None
        assert model.tokenizer is not None
        (sample,) = await model.sampling.sample(ModelInput.of([5, 6]), SamplingParams(max_tokens=2))
        assert sample.text == await model.tokenizer.decode(sample.tokens)
    finally:
        await backend.aclose()
    assert not is_alive(host)
