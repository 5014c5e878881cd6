"""Models of a Tinker service: what is asked of the library, what its answers mean, and when nobody waits any longer."""

import dataclasses

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, Code, FailedPrecondition, InvalidField, NotFound
from crucible_bridge.types import ChatMessage, Datum, ModelInput, SamplingParams, TinkerModel
from crucible_worker.backends.base import MAX_TEXT_BYTES
from crucible_worker.backends.tinker.backend import MAX_SEED, MAX_TOKEN, TinkerBackend
from tests import needs
from tests.service.tinker_kit import (
    EOS,
    KEY,
    SAMPLER,
    STATE,
    Call,
    Characters,
    ScriptedLibrary,
    failed,
    forwarded,
    logprob,
    sampled,
    served,
    service,
    status,
)
from tests.tables import rows

PARAMS = SamplingParams(max_tokens=8)
PROMPT = ModelInput.of([ord("a"), ord("b")])
TRAINING = TinkerModel(state_path=STATE)


def datum(*tokens: int) -> Datum:
    """A datum whose targets are its input, moved by one."""
    return Datum(model_input=list(tokens[:-1]), loss_fn_inputs={"target_tokens": np.array(tokens[1:])})


async def test_samples_are_read(tmp_path):
    """Text without the end of the sequence, tokens with it, their log-probabilities, and truncation as such."""
    async with served(tmp_path) as (library, model):
        await model.load()
        assert model.sampling is not None
        (whole,) = await model.sampling.sample(PROMPT, PARAMS)
        (cut,) = await model.sampling.sample(PROMPT, dataclasses.replace(PARAMS, max_tokens=1))
    assert (whole.text, whole.tokens, whole.stop_reason) == ("AB", (65, 66, EOS), "stop")
    assert whole.logprobs == tuple(logprob(token, 0) for token in whole.tokens)
    assert (cut.text, cut.tokens, cut.stop_reason) == ("A", (65,), "length")
    assert library.of("sampler")[0].asked == {"model_path": SAMPLER, "base_model": None}


async def test_a_sample_ends_at_the_end_of_the_sequence(tmp_path):
    """Also where a server has gone on behind it."""
    beyond = sampled([65, EOS, 66], cut=True)
    async with served(tmp_path, lambda call: beyond if call.kind == "sample" else None) as (_, model):
        assert model.sampling is not None
        (sample,) = await model.sampling.sample(PROMPT, PARAMS)
    assert (sample.text, sample.tokens, sample.stop_reason) == ("A", (65, EOS), "stop")
    assert sample.logprobs == (logprob(65, 0), logprob(EOS, 0))


async def test_parameters_arrive(tmp_path):
    """All of them; no stop strings are None, as an empty list would keep an answer from ending."""
    params = SamplingParams(max_tokens=4, temperature=0.5, top_p=0.9, top_k=3, seed=-1, stop=("B",))
    async with served(tmp_path) as (library, model):
        assert model.sampling is not None
        (sample,) = await model.sampling.sample(PROMPT, params)
        await model.sampling.sample(PROMPT, PARAMS)
    first, second = (call.asked["params"] for call in library.of("sample"))
    assert (first.max_tokens, first.temperature, first.top_p, first.top_k) == (4, 0.5, 0.9, 3)
    assert (first.seed, list(first.stop)) == (MAX_SEED, ["B"])
    assert (second.temperature, second.top_p, second.top_k, second.seed, second.stop) == (0.0, 1.0, -1, None, None)
    assert (sample.text, sample.stop_reason) == ("A", "stop"), "the text ends before the stop string"


@pytest.mark.parametrize(
    ("params", "requests"),
    [
        (SamplingParams(max_tokens=2, temperature=1.0), [(None, 3)]),
        (SamplingParams(max_tokens=2, seed=7), [(7, 3)]),
        (SamplingParams(max_tokens=2, temperature=1.0, seed=MAX_SEED), [(MAX_SEED, 1), (0, 1), (1, 1)]),
    ],
)
async def test_several_samples_are_one_request_unless_seeds_make_them_differ(tmp_path, params, requests):
    """A seed of its own for every sample that is drawn; greedy ones, and those without a seed, are asked at once."""
    async with served(tmp_path) as (library, model):
        assert model.sampling is not None
        assert len(await model.sampling.sample(PROMPT, params, 3)) == 3
    sent = [(call.asked["params"].seed, call.asked["num_samples"]) for call in library.of("sample")]
    assert sorted(sent, key=str) == sorted(requests, key=str)


async def test_log_probabilities_of_a_prompt(tmp_path):
    """As the library gives them; a single token has none before it, and nobody is asked."""
    async with served(tmp_path) as (library, model):
        assert model.sampling is not None
        values = await model.sampling.compute_logprobs(ModelInput.of([3, 4, 5]))
        assert await model.sampling.compute_logprobs(ModelInput.of([3])) == (None,)
    assert values == (None, logprob(4, 1), logprob(5, 2))
    assert len(library.of("compute_logprobs")) == 1


async def test_forward_passes_of_a_training_state(tmp_path):
    """One request for all data, answers in their order; a training state does not sample, and weights do not train."""
    async with served(tmp_path, ref=TRAINING) as (library, model):
        await model.load()
        assert model.sampling is None
        assert model.training is not None
        first, second = await model.training.forward([datum(1, 2, 3), datum(4, 5)])
        assert await model.training.forward([]) == ()
    assert first.tolist() == [logprob(2, 1), logprob(3, 2)]
    assert second.tolist() == [logprob(5, 1)]
    assert library.of("trainer")[0].asked == {"path": STATE}
    assert [call.asked["targets"] for call in library.of("forward")] == [[[2, 3], [5]]]
    async with served(tmp_path) as (_, model):
        assert model.training is None


@rows(
    ("ask", "field"),
    [
        (lambda m: m.sample(ModelInput.of([]), PARAMS), "prompt"),
        (lambda m: m.sample(ModelInput.of([1, -1]), PARAMS), "prompt[1]"),
        (lambda m: m.compute_logprobs(ModelInput.of([MAX_TOKEN + 1])), "prompt[0]"),
        (lambda m: m.sample(PROMPT, PARAMS, 0), "num_samples"),
        (lambda m: m.sample(PROMPT, dataclasses.replace(PARAMS, max_tokens=0)), "sampling.max_tokens"),
        (lambda m: m.sample(PROMPT, dataclasses.replace(PARAMS, temperature=float("nan"))), "sampling.temperature"),
        (lambda m: m.sample(PROMPT, dataclasses.replace(PARAMS, temperature=-0.1)), "sampling.temperature"),
        (lambda m: m.sample(PROMPT, dataclasses.replace(PARAMS, top_p=0.0)), "sampling.top_p"),
        (lambda m: m.sample(PROMPT, dataclasses.replace(PARAMS, top_p=1.1)), "sampling.top_p"),
        (lambda m: m.sample(PROMPT, dataclasses.replace(PARAMS, top_k=0)), "sampling.top_k"),
        (lambda m: m.sample(PROMPT, dataclasses.replace(PARAMS, stop=("a", ""))), "sampling.stop[1]"),
    ],
)
async def test_what_cannot_be_asked_is_not_sent(tmp_path, ask, field):
    """The library validates nothing, so that the backend does: the field is named, and the service not asked."""
    async with served(tmp_path) as (library, model):
        with pytest.raises(InvalidField) as caught:
            await ask(model.sampling)
    assert caught.value.field == field
    assert not library.calls


@rows(
    ("inputs", "field"),
    [
        ({}, 'data[1].loss_fn_inputs["target_tokens"]'),
        ({"target_tokens": np.array([1.0])}, 'data[1].loss_fn_inputs["target_tokens"]'),
        ({"target_tokens": np.array([1, 2])}, 'data[1].loss_fn_inputs["target_tokens"]'),
        ({"target_tokens": np.array([-1])}, 'data[1].loss_fn_inputs["target_tokens"][0]'),
    ],
)
async def test_a_datum_that_cannot_be_measured_is_named(tmp_path, inputs, field):
    """Its targets are missing, no tokens, of another length, or unknown."""
    async with served(tmp_path, ref=TRAINING) as (library, model):
        assert model.training is not None
        with pytest.raises(InvalidField) as caught:
            await model.training.forward([datum(1, 2), Datum(model_input=[1], loss_fn_inputs=inputs)])
    assert caught.value.field == field
    assert not library.calls


@rows(
    ("kind", "answer"),
    [
        ("sample", sampled([65], 2)),
        ("sample", sampled([65], logprobs=[0.0])),
        ("sample", sampled([-5])),
        ("compute_logprobs", [None]),
        ("compute_logprobs", None),
        ("forward", forwarded([])),
        ("forward", forwarded([np.zeros(2, np.float32)])),
    ],
)
async def test_nonsense_is_an_error(tmp_path, kind, answer):
    """Of another number than was asked, or no tokens: retryable, and never taken for an answer."""
    ref = TRAINING if kind == "forward" else TinkerModel(base_model="tiny/one")

    def script(call: Call):
        return ([] if answer is None else answer) if call.kind == kind else None

    asking = {
        "sample": lambda model: model.sampling.sample(PROMPT, PARAMS),
        "compute_logprobs": lambda model: model.sampling.compute_logprobs(PROMPT),
        "forward": lambda model: model.training.forward([datum(1, 2)]),
    }
    async with served(tmp_path, script, ref) as (_, model):
        with pytest.raises(BackendError) as caught:
            await asking[kind](model)
    assert (caught.value.reason, caught.value.retryable) == ("BACKEND_ANSWER", True)


async def test_renderers_of_the_cookbook_run_on_its_tokenizer(tmp_path):
    """The renderer of a base model is chosen by name, as where it was trained."""
    pytest.importorskip("tinker_cookbook", reason=needs.MISSING["tinker_cookbook"])
    pytest.importorskip("torch", reason=needs.MISSING["torch"])
    async with served(tmp_path) as (_, model):
        await model.load()
        assert model.tokenizer is not None
        rendered = await model.tokenizer.render_cookbook("role_colon", [ChatMessage("user", "hi")])
        assert await model.tokenizer.decode(rendered.tokens) == "User: hi\n\nAssistant:"
    assert rendered.stop == ("\n\nUser:",)


async def test_a_model_without_a_tokenizer_measures_tokens(tmp_path):
    """Whoever needs words is told why there are none; another load tries again."""

    def absent():
        raise OSError("/secret/path is not there")

    async with served(tmp_path) as (library, model):
        library.tokenizer = absent
        await model.load()
        assert model.sampling is not None
        assert model.tokenizer is not None
        assert len(await model.sampling.compute_logprobs(PROMPT)) == 2
        for ask in (model.sampling.sample(PROMPT, PARAMS), model.tokenizer.encode("a")):
            with pytest.raises(FailedPrecondition, match=r"'tiny/characters' cannot be loaded \(OSError\)") as caught:
                await ask
            assert caught.value.reason == "NO_TOKENIZER"
        assert not library.of("sample")
        library.tokenizer = ScriptedLibrary().tokenizer
        await model.load()
        assert list(await model.tokenizer.encode("a")) == [97]


async def test_a_sample_that_no_page_could_carry_is_an_error(tmp_path):
    """Tokens may stand for any text; asking again would not make it shorter."""

    class Long(Characters):
        def decode(self, tokens, **options):
            return "x" * (MAX_TEXT_BYTES + len(tokens) - 2)

    async with served(tmp_path) as (library, model):
        library.tokenizer = Long
        assert model.sampling is not None
        (longest,) = await model.sampling.sample(PROMPT, SamplingParams(max_tokens=2))
        assert len(longest.text) == MAX_TEXT_BYTES
        with pytest.raises(BackendError, match="more than 16,777,216 bytes") as caught:
            await model.sampling.sample(PROMPT, SamplingParams(max_tokens=3))
    assert (caught.value.reason, caught.value.retryable) == ("BACKEND_ANSWER", False)


@rows(
    ("error", "kind", "reason", "code"),
    [
        (status(401, f"bad {KEY}"), BackendError, "BACKEND_UNAUTHENTICATED", Code.FAILED_PRECONDITION),
        (status(402, f"pay {KEY}"), BackendError, "BACKEND_QUOTA", Code.FAILED_PRECONDITION),
        (status(404, f"gone {KEY}"), NotFound, "UNKNOWN_MODEL", Code.NOT_FOUND),
        (failed(f"no {KEY}", "user"), BackendError, "BACKEND_REFUSED", Code.FAILED_PRECONDITION),
    ],
)
async def test_a_refusal_tells_no_key(tmp_path, error, kind, reason, code):
    """What the service says is repeated without the key, be it when a client is made or later."""
    for refused in ("session", "sampler", "sample"):
        async with served(tmp_path, lambda call, refused=refused: error if call.kind == refused else None) as (
            library,
            model,
        ):
            assert model.sampling is not None
            with pytest.raises(kind) as caught:
                await model.sampling.sample(PROMPT, PARAMS)
        assert (caught.value.reason, caught.value.code, caught.value.retryable) == (reason, code, False)
        assert KEY not in str(caught.value)
        assert library.keys == {KEY}


async def test_a_service_is_known_by_its_name(tmp_path, monkeypatch):
    """An unknown one is refused with those that there are; without settings, the environment's key makes a default."""
    backend = TinkerBackend([service(tmp_path, name="lab")])
    with pytest.raises(NotFound, match="there are default, lab") as caught:
        await backend.check(TinkerModel(base_model="m", service="labs"))
    assert caught.value.reason == "UNKNOWN_SERVICE"
    assert backend.info().unavailable == ""
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    assert "has no key: set the variable TINKER_API_KEY" in TinkerBackend().info().unavailable
    with pytest.raises(FailedPrecondition) as unreadable:
        await (await TinkerBackend().open(TinkerModel(base_model="m"))).load()
    assert unreadable.value.reason == "BACKEND_KEY"
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    assert TinkerBackend().info().unavailable == ""
