"""Checkpoints that were made to do harm: each costs its own requests alone, in bounded time and memory."""

import asyncio
import dataclasses
import json
import os
import shutil
import signal

import pytest
import pytest_asyncio

import crucible_bridge
from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.types import ChatMessage, LocalModel, ModelInput, Sample, SamplingParams
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.embedded import registry
from crucible_worker.util.limits import WorkerLimits
from tests import needs
from tests.processes import children_of, is_alive, seconds_of, status_of
from tests.service.processes_kit import DRAIN_SECONDS, WAIT_SECONDS, hosts_of, serving, wait_until

needs.modules("torch", "transformers")
pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMITS = WorkerLimits(max_rendering_seconds=5.0, max_rendering_bytes=256 * 1024 * 1024, max_rendered_chars=10_000)
MEGABYTE = 1024 * 1024
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
MESSAGES = (ChatMessage("user", "12+34="),)
ADDITION = ModelInput.of([4, 5, 13, 6, 7, 14])
GREEDY = SamplingParams(max_tokens=8)
CONTENT = "{{ messages[0].content }}"
SOMETIMES = "{% if messages[0].content == '1' %}" + ENDLESS + "{% endif %}" + CONTENT

TEMPLATES = {
    "loops": ENDLESS,
    "string": "{{ 'a' * 1000000000 }}",
    "power": "{{ 9 ** (9 ** 10) }}",
    "width": "{{ '%1000000000d' % 1 }}",
    "center": "{{ 'a' | center(1000000000) }}",
    "indent": "{{ ('a\n' * 9000) | indent(1000000) }}",
    "join": "{{ range(99999) | join('a' * 100000) }}",
    "doubled": "{% set n = namespace(t='a') %}{% for i in range(40) %}{% set n.t = n.t ~ n.t %}{% endfor %}{{ n.t }}",
    "chars": "{{ 'a' * 10001 }}",
}
"""Each exceeds one of the limits."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A model root; every test puts its checkpoints there."""
    return tmp_path_factory.mktemp("root")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(root):
    """One backend, and so one host, for all tests of this module."""
    local = LocalBackend([root], "cpu", LIMITS)
    yield local
    await local.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def good(local, root):
    """A model with a chat template as it should be."""
    return await load(local, made(root, "good", template=CONTENT))


def made(root, name, *, template="", config=None, tokenizer=None):
    """A copy of an embedded checkpoint with something else in it."""
    directory = shutil.copytree(registry.path("arithmetic@600"), root / name)
    if template:
        (directory / "chat_template.jinja").write_text(template)
    for file, changes in (("config.json", config), ("tokenizer.json", tokenizer)):
        if changes is not None:
            path = directory / file
            path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return LocalModel(name)


async def load(local, ref):
    """A model that the host holds."""
    model = await local.open(ref)
    await model.load()
    return model


async def chat(model, content="12+34="):
    """The tokens of a conversation."""
    return await model.tokenizer.encode_chat([ChatMessage("user", content)], generation_prompt=True)


async def answers(model):
    """A model answers: by its chat template, by its tokenizer, and by its weights."""
    tokens = await chat(model)
    assert tokens == tuple(ADDITION.tokens())
    assert (await model.sample(ModelInput.of(tokens), GREEDY))[0].text == "46"
    return True


@pytest.mark.parametrize("name", TEMPLATES)
async def test_a_template_beyond_a_limit_costs_its_request(local, root, good, name):
    """The error names the limit, and is final; the host lives, and serves this model's weights and the other model."""
    model = await load(local, made(root, name, template=TEMPLATES[name]))
    life = local._host.life

    with pytest.raises(BackendError, match=r"\(max_render") as caught:
        await chat(model)

    assert (caught.value.reason, caught.value.retryable) == ("RENDERING_LIMIT", False)
    assert (await model.sample(ADDITION, GREEDY))[0].text == "46"
    assert await answers(good)
    assert local._host.life == life


async def test_a_template_that_fails_refuses_its_messages(local, root):
    """Whatever it raises: recursion without end, wrong types, its own refusal."""
    for index, template in enumerate(
        ["{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ 1 + 'a' }}", "{{ raise_exception('no tools') }}"]
    ):
        model = await load(local, made(root, f"failing-{index}", template=template))
        with pytest.raises(InvalidField, match="refused by the chat template"):
            await chat(model)


async def test_a_request_that_cannot_be_read_is_answered(good):
    """With an error, as a caller without an answer would wait for ever; the next request has its own answer."""
    with pytest.raises(BackendError) as caught:
        async with asyncio.timeout(30):
            await good.tokenizer.call("encode_chat", alone=False, messages=[5], generation_prompt=True, named=False)

    assert (caught.value.reason, caught.value.retryable) == ("MODEL_FAILED", False)
    assert await answers(good)


async def test_other_models_answer_while_a_template_loops(root):
    """Its process computes without end while each way of asking the other model is answered."""
    local = LocalBackend([root], "cpu", dataclasses.replace(LIMITS, max_rendering_seconds=600.0))
    try:
        good = await load(local, made(root, "good-beside", template=CONTENT))
        endless = await load(local, made(root, "endless", template=ENDLESS))
        calls = [asyncio.create_task(chat(endless)) for _ in range(8)]
        for _ in range(5):
            assert await answers(good)
        assert not any(call.done() for call in calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    finally:
        await local.aclose()


async def test_what_waits_for_a_process_that_is_killed_is_answered_by_the_next(local, root):
    """One conversation that the template loops over costs itself; the others of the model are answered."""
    model = await load(local, made(root, "sometimes", template=SOMETIMES))

    slow = asyncio.create_task(chat(model, "1"))
    await asyncio.sleep(0)  # let it write its request first
    quick = [asyncio.create_task(chat(model)) for _ in range(10)]
    results = await asyncio.gather(slow, *quick, return_exceptions=True)

    assert getattr(results[0], "reason", None) == "RENDERING_LIMIT"
    assert results[1:] == [tuple(ADDITION.tokens())] * 10


async def test_memory_is_that_of_the_limit(local, root, good):
    """A template that wants a gigabyte gets its limit; the host has no more than before."""
    (host,) = hosts_of(os.getpid())
    (server,) = children_of(host)
    others = set(children_of(server))
    model = await load(local, made(root, "gigabyte", template="{{ 'b' * 1000000000 }}"))
    (child,) = set(children_of(server)) - others
    had = status_of(host, "VmHWM")

    for _ in range(3):
        with pytest.raises(BackendError):
            await chat(model)

    assert status_of(child, "VmPeak") <= status_of(server, "VmSize") + LIMITS.max_rendering_bytes + MEGABYTE
    assert status_of(host, "VmHWM") - had < LIMITS.max_rendering_bytes


async def test_a_tokenizer_that_backtracks_for_ever_costs_its_request(local, root, good):
    """Its regular expression runs in the same process, and is killed with it."""
    pattern = {"type": "Split", "pattern": {"Regex": r"(1|11|1+)+2$"}, "behavior": "Isolated", "invert": False}
    model = await load(local, made(root, "backtracking", tokenizer={"pre_tokenizer": pattern}))

    with pytest.raises(BackendError) as caught:
        await model.tokenizer.encode("1" * 20_000)

    assert caught.value.reason == "RENDERING_LIMIT"
    assert await answers(good)


@pytest.mark.parametrize(
    ("name", "decoder", "told"),
    [
        ("expression", {"type": "Replace", "pattern": {"Regex": "(1|11)+2"}, "content": ""}, "regular expressions"),
        ("growing", {"type": "Replace", "pattern": {"String": "1"}, "content": "11"}, "make it longer"),
        ("many", {"type": "Sequence", "decoders": [{"type": "Fuse"}] * 33}, "33 decoders, 32 are accepted"),
    ],
)
async def test_decoders_are_linear(local, root, name, decoder, told):
    """Tokens become text where all models compute: what could take any time there, or make any text, is refused."""
    with pytest.raises(FailedPrecondition, match=told) as caught:
        await load(local, made(root, name, tokenizer={"decoder": decoder}))
    assert caught.value.reason == "MODEL_REFUSED"


async def test_a_token_has_bounded_text(local, root):
    """A token of 4,097 characters is refused, one of 4,096 is not."""
    tokenizer = json.loads((registry.path("arithmetic@600") / "tokenizer.json").read_text())
    for length, refused in ((4_096, False), (4_097, True)):
        added = {"id": 15, "content": "1" * length, "single_word": False, "lstrip": False, "rstrip": False,
                 "normalized": False, "special": False}  # fmt: skip
        ref = made(root, f"token-{length}", tokenizer={"added_tokens": [*tokenizer["added_tokens"], added]})
        if refused:
            with pytest.raises(FailedPrecondition, match="4,097 characters"):
                await load(local, ref)
        else:
            await load(local, ref)


@pytest.mark.parametrize(
    ("name", "config", "told"),
    [
        ("layers", {"num_hidden_layers": 20_000}, "num_hidden_layers is 20,000"),
        ("vocabulary", {"vocab_size": 6_000_000}, "vocab_size is 6,000,000"),
        ("hidden", {"hidden_size": 1 << 20}, "hidden_size is 1,048,576"),
        ("intermediate", {"intermediate_size": 1 << 30}, "weights, the safetensors have"),
        ("nested", {"text_config": {"vocab_size": 6_000_000}}, "text_config.vocab_size is 6,000,000"),
        ("list", {"model_type": "mixtral", "num_local_experts": 1 << 40}, "weights, the safetensors have"),
    ],
)
async def test_a_configuration_describes_what_the_weights_hold(local, root, good, name, config, told):
    """A larger one is refused before anything is built of it; the error names the field as it stands in config.json."""
    (host,) = hosts_of(os.getpid())
    had = status_of(host, "VmHWM")

    with pytest.raises(FailedPrecondition, match=told) as caught:
        await load(local, made(root, f"config-{name}", config=config))

    assert caught.value.reason == "MODEL_REFUSED"
    assert "config.json" in caught.value.message
    assert status_of(host, "VmHWM") - had < 64 * MEGABYTE
    assert await answers(good)


async def test_a_configuration_that_takes_too_long_is_refused(root):
    """What a model is built of is tried out in the process that is killed, under a limit of its own."""
    local = LocalBackend([root], "cpu", dataclasses.replace(LIMITS, max_checkpoint_seconds=0.001))
    try:
        with pytest.raises(FailedPrecondition, match="max_checkpoint_seconds") as caught:
            await load(local, made(root, "slow"))
        assert caught.value.reason == "MODEL_REFUSED"
        (host,) = hosts_of(os.getpid())[-1:]
        (server,) = children_of(host)
        await asyncio.to_thread(
            wait_until, lambda: not any(map(is_alive, children_of(server))), "the process is killed"
        )
    finally:
        await local.aclose()


async def test_processes_that_are_killed_are_replaced(root):
    """That of a model's texts by another one, its request retryable; the fork server with the whole host."""
    local = LocalBackend([root], "cpu", dataclasses.replace(LIMITS, max_rendering_seconds=600.0))
    try:
        model = await load(local, made(root, "killed", template=SOMETIMES))
        life = local._host.life
        (server,) = children_of(life)
        (texts,) = children_of(server)
        call = asyncio.create_task(chat(model, "1"))
        await asyncio.to_thread(wait_until, lambda: seconds_of(texts) > 1, "it loops")
        os.kill(texts, signal.SIGKILL)
        with pytest.raises(BackendError) as caught:
            await call
        assert caught.value.retryable
        assert await answers(model)
        assert local._host.life == life

        os.kill(server, signal.SIGKILL)
        with pytest.raises(BackendError) as caught:
            await load(local, made(root, "after"))
        assert (caught.value.reason, caught.value.retryable) == ("HOST_DIED", True)
        assert await answers(model)
    finally:
        await local.aclose()


async def test_a_host_that_does_not_answer_is_killed_and_started_again(root):
    """Its calls fail, retryable, and say so; the next one is served by another host."""
    local = LocalBackend([root], "cpu", WorkerLimits(max_host_silence_seconds=10.0))
    try:
        model = await load(local, made(root, "silent"))
        life = local._host.life
        os.kill(life, signal.SIGSTOP)
        calls = [asyncio.create_task(model.sample(ADDITION, GREEDY)), asyncio.create_task(model.tokenizer.encode("1"))]

        results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), WAIT_SECONDS)

        for result in results:
            assert isinstance(result, BackendError)
            assert (result.reason, result.retryable) == ("HOST_DIED", True)
            assert "max_host_silence_seconds" in result.message
        assert (await model.sample(ADDITION, GREEDY))[0].text == "46"
        assert local._host.life not in (0, life)
    finally:
        await local.aclose()


async def test_a_worker_told_to_go_while_a_template_loops_goes(root, tmp_path):
    """Exit code 0 within the drain's bound; the host, its fork server and the looping process go with it."""
    made(root, "endless-served", template=ENDLESS)
    with serving(tmp_path, f"--model-root={root}", "--limit=max_rendering_seconds=600") as (worker, address):
        async with crucible_bridge.connect(address) as bridge:
            await bridge.evaluation.start_evaluation(
                evaluation_id="endless",
                model="local:endless-served",
                evaluators=["accuracy"],
                dataset=[Sample(input="1+1=", targets=("2",))],
                sampling=GREEDY,
            )
            await asyncio.to_thread(wait_until, lambda: hosts_of(worker.pid), "the host runs")
            (host,) = hosts_of(worker.pid)
            await asyncio.to_thread(
                wait_until,
                lambda: [loop for server in children_of(host) for loop in children_of(server)],
                "it has children",
            )
            below = [host, *children_of(host), *(loop for server in children_of(host) for loop in children_of(server))]

            worker.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.wait, DRAIN_SECONDS) == 0
            await asyncio.to_thread(wait_until, lambda: not any(map(is_alive, below)), "all of them have ended")
