"""The local backend through its host process: what it answers, and what it refuses."""

import asyncio
import json
import math
import shutil

import numpy as np
import pytest
import pytest_asyncio

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    ImageChunk,
    LocalModel,
    ModelInput,
    SamplingParams,
)
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import held_out
from crucible_worker.inference.retries import RetryingModel, RetryPolicy
from crucible_worker.inference.transcripts import CallListener, Transcript
from crucible_worker.rendering import render_prompt, render_supervised, sample_answers
from tests import needs
from tests.tables import rows

needs.modules("torch", "transformers")
pytestmark = pytest.mark.asyncio(loop_scope="module")

CHECKPOINTS = registry.path("arithmetic@600").parent
"""Here they are local models: PyTorch runs these."""
CONTEXT = 32
VOCABULARY = 15
GREEDY = SamplingParams(max_tokens=8)
SAMPLING_OF_FILES = {
    "do_sample": True,
    "temperature": 0.01,
    "top_k": 1,
    "top_p": 0.01,
    "min_p": 0.9,
    "repetition_penalty": 5.0,
    "no_repeat_ngram_size": 1,
    "suppress_tokens": list(range(3, 12)),
    "max_new_tokens": 1,
    "max_length": 2,
}
"""What a model's files recommend, and no request has."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A model root with a checkpoint that has a chat template, and one without a tokenizer."""
    root = tmp_path_factory.mktemp("root")
    for name in ("chat", "tokens", "defaults"):
        shutil.copytree(registry.path("arithmetic@600"), root / name)
    (root / "chat" / "chat_template.jinja").write_text(
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
        "{{ m.content }}{% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    (root / "defaults" / "generation_config.json").write_text(json.dumps(SAMPLING_OF_FILES))
    for file in (root / "tokens").glob("tokenizer*"):
        file.unlink()
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(root):
    """One backend, and so one host, for all tests of this module."""
    local = LocalBackend([root, CHECKPOINTS], device="cpu")
    yield local
    await local.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model(local):
    """The embedded model that knows best."""
    return await load(local, LocalModel("600"))


async def load(local, ref):
    """A model that the host holds."""
    model = await local.open(ref)
    await model.load()
    return model


async def prompt_of(model, text="12+34="):
    """A text as the model's tokens."""
    return ModelInput.of(await model.tokenizer.encode(text))


async def test_accuracies_of_the_embedded_checkpoints_rise(local):
    """The checkpoints of a run answer 5 to 20, 30 to 55, 65 to 85 and above 90 % of the first 200 problems."""
    accuracies = []
    for name in registry.names():
        model = await load(local, LocalModel(registry.path(name).name))

        async def right(sample, model=model):
            (answer,) = await model.sample(await render_prompt(model.tokenizer, sample.input), GREEDY)
            return answer.text == sample.targets[0]

        answers = await asyncio.gather(*map(right, held_out(200)))
        accuracies.append(sum(answers) / len(answers))

    for accuracy, (low, high) in zip(accuracies, [(0.05, 0.20), (0.30, 0.55), (0.65, 0.85), (0.90, 1.0)]):
        assert low <= accuracy <= high, accuracies


async def test_a_sample_bears_text_tokens_and_logprobs(model):
    """The text lacks the end of sequence, the tokens have it; each token has its log-probability."""
    (sample,) = await model.sample(await prompt_of(model), GREEDY)

    assert sample.text == "46"
    assert sample.tokens == (*await model.tokenizer.encode_continuation("46"), model.tokenizer.eos_token_id)
    assert sample.stop_reason == "stop"
    assert len(sample.logprobs) == len(sample.tokens)
    assert all(-0.5 < logprob <= 0 for logprob in sample.logprobs)


async def test_max_tokens_ends_a_sample(model):
    """The length is a reason of its own."""
    (sample,) = await model.sample(await prompt_of(model), SamplingParams(max_tokens=1))

    assert (sample.text, sample.stop_reason) == ("4", "length")


@rows(
    ("stop", "text", "reason"),
    [
        (("6",), "4", "stop"),
        (("46",), "", "stop"),
        (("6", "46"), "", "stop"),
        (("7",), "46", "stop"),
        (("",), "46", "stop"),
    ],
)
async def test_stop_strings_are_cut_from_the_text(model, stop, text, reason):
    """The first stop string ends the text, without itself, wherever tokens begin; an empty one stops nothing."""
    (sample,) = await model.sample(await prompt_of(model), SamplingParams(max_tokens=8, stop=stop))

    assert (sample.text, sample.stop_reason) == (text, reason)


async def test_a_stop_string_ends_the_generation(model):
    """Nothing is generated behind it."""
    (sample,) = await model.sample(await prompt_of(model), SamplingParams(max_tokens=8, stop=("4",)))

    assert len(sample.tokens) == 1


async def test_several_samples_differ_and_repeat_by_seed(model):
    """Sample i is drawn by (seed, i), on every call."""
    params = SamplingParams(max_tokens=4, temperature=3.0, seed=-3)
    prompt = await prompt_of(model)

    first, again = await model.sample(prompt, params, 6), await model.sample(prompt, params, 6)
    other = await model.sample(prompt, SamplingParams(max_tokens=4, temperature=3.0, seed=2**80), 6)

    two = await model.sample(prompt, params, 2)

    assert [sample.tokens for sample in first] == [sample.tokens for sample in again]
    assert [sample.tokens for sample in first[:2]] == [sample.tokens for sample in two]
    assert len({sample.tokens for sample in first}) > 1
    assert first != other


async def test_a_full_context_ends_a_sample(model):
    """Prompt and answer fill the context to its last token, and no further."""
    prompt = ModelInput.of([5] * (CONTEXT - 3))

    samples = await model.sample(prompt, SamplingParams(max_tokens=100, temperature=50.0, seed=11), 16)

    ended = [sample for sample in samples if sample.tokens[-1] != model.tokenizer.eos_token_id]
    assert len(ended) >= 4
    assert {(len(sample.tokens), sample.stop_reason) for sample in ended} == {(3, "length")}


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 1])
async def test_a_prompt_without_room_is_never_cut(model, length):
    """A prompt that leaves no room for one more token is refused, by its length."""
    assert len(await model.sample(ModelInput.of([5] * (CONTEXT - 1)), SamplingParams(max_tokens=3))) == 1
    with pytest.raises(InvalidField, match=rf"^prompt has {length} tokens") as caught:
        await model.sample(ModelInput.of([5] * length), GREEDY)

    assert caught.value.reason == "PROMPT_TOO_LONG"


async def test_a_sequence_longer_than_the_context_is_not_scored(model):
    """A context full to its last token is; one more is refused, with the field's path."""
    full, over = [5] * CONTEXT, [5] * (CONTEXT + 1)

    assert len(await model.compute_logprobs(ModelInput.of(full))) == CONTEXT
    with pytest.raises(InvalidField, match=r"^prompt ") as caught:
        await model.compute_logprobs(ModelInput.of(over))
    assert caught.value.reason == "PROMPT_TOO_LONG"
    good = Datum(model_input=ModelInput.of(full), loss_fn_inputs={"target_tokens": full})
    with pytest.raises(InvalidField, match=r"^data\[1\]\.model_input has 33 tokens") as caught:
        await model.forward([good, Datum(model_input=ModelInput.of(over), loss_fn_inputs={"target_tokens": over})])
    assert caught.value.reason == "PROMPT_TOO_LONG"


@pytest.mark.parametrize("token", [-1, VOCABULARY])
async def test_unknown_tokens_are_refused(model, token):
    """A token outside of the vocabulary is named by its place."""
    with pytest.raises(InvalidField, match=rf"^prompt\[1\] is {token}; the vocabulary has 15"):
        await model.sample(ModelInput.of([3, token]), GREEDY)
    with pytest.raises(InvalidField, match=r"^prompt\[1\]"):
        await model.compute_logprobs(ModelInput.of([3, token]))
    with pytest.raises(InvalidField, match=r'^data\[0\]\.loss_fn_inputs\["target_tokens"\]\[0\]'):
        await model.forward([Datum(model_input=ModelInput.of([3]), loss_fn_inputs={"target_tokens": [token]})])


@rows(
    ("inputs", "message"),
    [
        ({"target_tokens": [3, 4]}, "has shape"),
        ({"target_tokens": [[3, 4, 5]]}, "has shape"),
        ({"target_tokens": [0.5, 1.0, 2.0]}, "not token ids"),
        ({"weights": [1.0, 1.0, 1.0]}, "is missing"),
    ],
)
async def test_targets_that_do_not_fit_name_their_field(model, inputs, message):
    """Every input token has one target."""
    with pytest.raises(InvalidField, match=message) as caught:
        await model.forward([Datum(model_input=ModelInput.of([3, 4, 5]), loss_fn_inputs=inputs)])

    assert caught.value.field == 'data[0].loss_fn_inputs["target_tokens"]'


async def test_an_input_needs_tokens(model):
    """Nothing, or an image, is refused."""
    image = ModelInput((ImageChunk(data=b"", format="png"),))

    with pytest.raises(InvalidField, match=r"^prompt is empty"):
        await model.sample(ModelInput.of([]), GREEDY)
    with pytest.raises(InvalidField, match=r"^prompt\.chunks\[0\] is an image"):
        await model.compute_logprobs(image)


@rows(
    ("field", "value"),
    [("max_tokens", 0), ("temperature", -0.1), ("temperature", math.nan), ("temperature", math.inf), ("top_p", 0.0),
     ("top_p", 1.1), ("top_p", math.nan), ("top_k", 0)],
)  # fmt: skip
async def test_parameters_out_of_range_are_refused(model, field, value):
    """Nothing reaches the model that it cannot sample with."""
    with pytest.raises(InvalidField, match=rf"^sampling\.{field}"):
        await model.sample(ModelInput.of([3]), SamplingParams(**{"max_tokens": 1, field: value}))


async def test_logprobs_and_forward_are_two_views_of_one_thing(model):
    """The first log-probability of a prompt is None, the others are those of a forward pass over it."""
    tokens = await model.tokenizer.encode("12+34=46")

    first, *others = await model.compute_logprobs(ModelInput.of(tokens))
    (forward,) = await model.forward(
        [Datum(model_input=ModelInput.of(tokens[:-1]), loss_fn_inputs={"target_tokens": tokens[1:]})]
    )

    assert first is None
    assert others == forward.tolist()
    assert await model.compute_logprobs(ModelInput.of([3])) == (None,)
    assert await model.forward([]) == ()


async def test_sums_of_logprobs_equal_a_direct_computation(local):
    """The loss of the rendered samples is what transformers computes for them by itself."""
    import torch
    from transformers import AutoModelForCausalLM

    model = await load(local, LocalModel("320"))
    data = [await render_supervised(model.tokenizer, sample) for sample in held_out(20)]
    direct = AutoModelForCausalLM.from_pretrained(registry.path("arithmetic@320"), dtype=torch.float32)

    results = await model.forward(data)

    for datum, logprobs in zip(data, results):
        weights = np.asarray(datum.loss_fn_inputs["weights"])
        labels = np.where(weights > 0, np.asarray(datum.loss_fn_inputs["target_tokens"]), -100)
        tokens = torch.tensor(datum.model_input.tokens())[None]
        with torch.inference_mode():
            logits = direct(input_ids=tokens).logits[0]
            loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels), ignore_index=-100, reduction="sum")
        assert -(logprobs * weights).sum() == pytest.approx(loss.item(), rel=1e-5, abs=1e-5)


async def test_scores_are_bit_equal_alone_together_and_in_another_host(root, local):
    """An evaluation that goes on elsewhere, at another concurrency, gets the same bits."""
    model = await load(local, LocalModel("240"))
    data = [await render_supervised(model.tokenizer, sample) for sample in held_out(30)]
    noise = asyncio.gather(*(model.sample(datum.model_input, GREEDY) for datum in data))

    together = await asyncio.gather(*(model.forward([datum]) for datum in reversed(data)))
    at_once = await model.forward(data)
    await noise
    other = LocalBackend([root, CHECKPOINTS], device="cpu")
    try:
        elsewhere = [await (await load(other, LocalModel("240"))).forward([datum]) for datum in data]
    finally:
        await other.aclose()

    expected = [values.tobytes() for values in at_once]
    assert [values.tobytes() for (values,) in reversed(together)] == expected
    assert [values.tobytes() for (values,) in elsewhere] == expected


async def test_a_cancelled_call_does_not_hold_up_the_others(model):
    """Its rows leave the batch; the host goes on."""
    prompt = await prompt_of(model)
    tasks = [asyncio.create_task(model.sample(prompt, SamplingParams(max_tokens=20), 8)) for _ in range(20)]
    await asyncio.sleep(0)  # let them write their requests

    for task in tasks[1:]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert not isinstance(results[0], BaseException)
    assert len(results[0]) == 8
    assert all(isinstance(result, asyncio.CancelledError) for result in results[1:])
    assert (await model.sample(prompt, GREEDY))[0].text == "46"


async def test_the_chat_template_is_the_models_own(local):
    """Conversations and text go through it; what it refuses is the conversation's fault."""
    model = await load(local, LocalModel("chat"))

    assert model.tokenizer.has_chat_template
    prompt = await render_prompt(model.tokenizer, "12+34")
    assert (await model.sample(prompt, GREEDY))[0].text == "46"
    with pytest.raises(InvalidField, match="no tools"):
        await model.tokenizer.encode_chat([ChatMessage("tool", "12")], generation_prompt=True)


@rows("params", [GREEDY, SamplingParams(max_tokens=8, temperature=1.5, seed=3)])
async def test_sampling_is_that_of_the_request(local, params):
    """The model's generation_config.json changes no token and no log-probability of what is sampled."""
    plain, other = [await load(local, LocalModel(name)) for name in ("chat", "defaults")]
    prompt = await prompt_of(plain, "77+88=")
    for one, two in zip(await plain.sample(prompt, params, 8), await other.sample(prompt, params, 8), strict=True):
        assert (one.tokens, one.logprobs, one.stop_reason) == (two.tokens, two.logprobs, two.stop_reason)
    assert await plain.compute_logprobs(prompt) == await other.compute_logprobs(prompt)


async def test_what_the_chat_template_made_is_heard(local):
    """A sample's transcript has the template's own text as the prompt, and the model's tokens as their number."""
    model = await load(local, LocalModel("chat"))
    messages = [ChatMessage("user", "12+34")]
    rendered = await model.tokenizer.render_chat(messages, generation_prompt=True)
    tokens = await model.tokenizer.encode_chat(messages, generation_prompt=True)
    assert (rendered.text, list(rendered.tokens)) == ("12+34=", list(tokens))

    transcript = Transcript(10_000)
    gated = RetryingModel(model, RetryPolicy(1), listener=CallListener(transcript))
    await sample_answers(gated, Conversation(tuple(messages)), GREEDY)
    assert transcript.prompt == "12+34="


async def test_a_model_without_a_chat_template_says_so(model):
    """There is nothing to render a conversation by."""
    assert not model.tokenizer.has_chat_template
    with pytest.raises(FailedPrecondition) as caught:
        await model.tokenizer.encode_chat([ChatMessage("user", "12")], generation_prompt=True)
    assert caught.value.reason == "NO_CHAT_TEMPLATE"


async def test_a_model_without_a_tokenizer_takes_tokens(local):
    """It samples without text, and refuses stop strings, which it could not find."""
    model = await load(local, LocalModel("tokens"))

    (sample,) = await model.sample(ModelInput.of([4, 5, 13, 6, 7, 14]), GREEDY)

    assert model.tokenizer is None
    assert (sample.text, sample.tokens) == ("", (7, 9, 1))
    with pytest.raises(InvalidField, match=r"^sampling\.stop"):
        await model.sample(ModelInput.of([4]), SamplingParams(max_tokens=1, stop=("4",)))


async def test_text_that_is_not_unicode_is_refused(model):
    """Half a surrogate pair, which JSON can hold, is an error of the input."""
    with pytest.raises(InvalidField, match="not valid Unicode"):
        await model.tokenizer.encode("1\ud800")
