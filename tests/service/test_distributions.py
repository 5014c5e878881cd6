"""top_k, last_n, targets, text and conversations of ModelService, on an embedded and a local model of a real worker."""

from __future__ import annotations

import shutil
import threading
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import ChatMessage, Conversation, Datum, LogprobsItem, ModelInput, SamplingParams, Teacher
from crucible_worker.backends.local import model as local
from crucible_worker.embedded import registry
from crucible_worker.server import Worker
from crucible_worker.testing import ScriptedModel, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests import needs
from tests.service.models_kit import fields, reasons
from tests.service.server_kit import settings_for
from tests.tables import rows

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
transformers = pytest.importorskip("transformers", reason=needs.MISSING["transformers"])
pytestmark = pytest.mark.asyncio(loop_scope="module")

EMBEDDED, LOCAL, CHAT, BLIND = "embedded:arithmetic@320", "local:llama", "local:chat", "local:tokens"
TEXT = "12+34="
CLOSE = 1e-4
"""Most nats between two computations: each rounds to float32 in its own order."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: Any) -> Path:
    """Models: one with random weights, one with a chat template, and one without a tokenizer."""
    root = tmp_path_factory.mktemp("root")
    torch.manual_seed(3)
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
    config = transformers.LlamaConfig(**sizes, **heads, bos_token_id=None, eos_token_id=None)
    model = transformers.LlamaForCausalLM(config)
    for parameter in model.parameters():  # far apart: no ties that rounding could break
        parameter.data.mul_(8)
    model.save_pretrained(root / "llama")
    for name in ("chat", "tokens"):
        shutil.copytree(registry.path("arithmetic@320"), root / name)
    (root / "chat" / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    for file in (root / "tokens").glob("tokenizer*"):
        file.unlink()
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridge(tmp_path_factory: Any, root: Path) -> AsyncIterator[Bridge]:
    """A worker as it is served, and its client."""
    settings = settings_for(tmp_path_factory.mktemp("state"), model_roots=(root,), device="cpu")
    async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
        yield bridge


def expected(path: Path, tokens: list[int]) -> np.ndarray:
    """Log-probabilities of every token after each but the last, shape (n - 1, vocabulary), by transformers itself."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens])).logits[0, :-1]
    return torch.log_softmax(logits.double(), 1).numpy()


def path_of(model: str, root: Path) -> Path:
    """Where a model's files are."""
    return registry.path("arithmetic@320") if model == EMBEDDED else root / model.removeprefix("local:")


@rows("model", [EMBEDDED, LOCAL])
async def test_columns_are_those_of_log_softmax(bridge: Any, root: Path, model: str):
    """The likeliest tokens by falling log-probability, targets where they are tokens, and the sequence's own."""
    tokens = [3, 1, 4, 1, 5, 9, 2, 6]
    table = expected(path_of(model, root), tokens)
    targets = np.array([[7, -1]] * 7, np.int32)

    answer = await bridge.models.compute_logprobs(model, [tokens], top_k=5, targets=[targets])

    (found,) = answer.sequences
    assert found.problem is None
    assert found.first == 1
    assert found.tokens == ()
    np.testing.assert_allclose(found.logprobs, table[np.arange(7), tokens[1:]], atol=CLOSE)
    np.testing.assert_allclose(found.top_logprobs, -np.sort(-table, axis=1)[:, :5], atol=CLOSE)
    assert found.top_tokens.tolist() == np.argsort(-table, axis=1, kind="stable")[:, :5].tolist()
    assert (found.top_tokens.dtype, found.top_logprobs.dtype) == (np.int32, np.float64)
    np.testing.assert_allclose(found.target_logprobs[:, 0], table[:, 7], atol=CLOSE)
    assert np.isnan(found.target_logprobs[:, 1]).all()
    assert answer.usage.calls == 1
    assert answer.usage.prompt_tokens == 8


async def test_only_the_last_tokens_are_measured(bridge: Any):
    """As many as `last_n` says; an item's own wins, and targets have as many rows."""
    whole = await bridge.models.compute_logprobs(LOCAL, [[3, 1, 4, 1, 5]], top_k=2)
    items = [LogprobsItem(prompt=ModelInput.of([3, 1, 4, 1, 5]), last_n=last_n) for last_n in (None, 1)]

    answer = await bridge.models.compute_logprobs(LOCAL, items, top_k=2, last_n=3)
    alone = await bridge.models.compute_logprobs(LOCAL, [[3, 1, 4, 1, 5], [6]], last_n=100)
    slices = await bridge.models.compute_logprobs(LOCAL, [[3, 1, 4, 1, 5]], last_n=2)

    for found, last in zip(answer.sequences, (3, 1), strict=True):
        assert found.first == 5 - last
        np.testing.assert_allclose(found.logprobs, whole.sequences[0].logprobs[-last:], atol=CLOSE)
        assert found.top_tokens.tolist() == whole.sequences[0].top_tokens[-last:].tolist()
    assert alone.sequences[0].logprobs.tolist() == whole.sequences[0].logprobs.tolist()
    assert (alone.sequences[1].logprobs.shape, alone.sequences[1].first) == ((0,), 1)
    np.testing.assert_allclose(slices.sequences[0].logprobs, whole.sequences[0].logprobs[-2:], atol=CLOSE)
    assert slices.sequences[0].top_tokens is None


async def test_one_token_has_columns_without_rows(bridge: Any):
    """No model has a distribution in place of the first token."""
    answer = await bridge.models.compute_logprobs(EMBEDDED, [[3]], top_k=4)

    (found,) = answer.sequences
    assert (found.top_tokens.shape, found.top_logprobs.shape, found.first) == ((0, 4), (0, 4), 1)


async def test_a_small_vocabulary_has_fewer_columns(bridge: Any):
    """K is the vocabulary's size then, and the probabilities of a row are all there is."""
    answer = await bridge.models.compute_logprobs(EMBEDDED, [[3, 1, 4]], top_k=100)

    (found,) = answer.sequences
    assert found.top_tokens.shape == (2, 15)
    np.testing.assert_allclose(np.exp(found.top_logprobs).sum(axis=1), 1)


async def test_text_is_measured_as_its_tokens(bridge: Any):
    """As Tokenize reads it; the answer has the tokens, also of a text that a continuation follows."""
    (tokenized,) = (await bridge.rendering.tokenize(EMBEDDED, [TEXT])).items
    tokens = list(tokenized.tokens)
    targets = np.array([tokens[0], tokens[1]])

    answer = await bridge.models.compute_logprobs(EMBEDDED, [TEXT, tokens], top_k=3, targets=[targets, None])
    continued = await bridge.models.compute_logprobs(
        EMBEDDED, [LogprobsItem(prompt=TEXT, continuation=(4, 6)), [*tokens, 4, 6]], top_k=3
    )

    text, plain = answer.sequences
    assert (text.tokens, plain.tokens) == (tokenized.tokens, ())
    assert text.logprobs.tolist() == plain.logprobs.tolist()
    assert text.top_logprobs.tolist() == plain.top_logprobs.tolist()
    assert text.target_logprobs.shape == (len(tokens) - 1, 2)
    assert plain.target_logprobs is None
    after, whole = continued.sequences
    assert after.tokens == (*tokens, 4, 6)
    assert after.first == len(tokens)
    np.testing.assert_allclose(after.logprobs, whole.logprobs[-2:], atol=CLOSE)
    assert after.top_tokens.tolist() == whole.top_tokens[-2:].tolist()


async def test_conversations_go_through_the_chat_template(bridge: Any):
    """Whole, or with the beginning of an answer where a continuation follows."""
    conversation = Conversation((ChatMessage("user", "12+34"), ChatMessage("assistant", "=46")))
    question = Conversation((ChatMessage("user", "12+34"),))
    encoded = (await bridge.rendering.tokenize(CHAT, ["12+34=46", "12+34="])).items

    answer = await bridge.models.compute_logprobs(
        CHAT, [conversation, LogprobsItem(prompt=question, continuation=encoded[0].tokens[-2:])]
    )

    whole, opened = answer.sequences
    assert whole.tokens == encoded[0].tokens == opened.tokens
    assert opened.first == len(encoded[1].tokens)
    np.testing.assert_allclose(opened.logprobs, whole.logprobs[-2:], atol=CLOSE)


async def test_forward_reads_text_and_conversations(bridge: Any):
    """Text has weight 1 on each token but the first; conversations as BuildSupervisedExample weighs them."""
    conversation = Conversation((ChatMessage("user", "12+34"), ChatMessage("assistant", "=46")))
    (example,) = (await bridge.rendering.build_supervised_example(CHAT, [conversation])).items
    (tokenized,) = (await bridge.rendering.tokenize(CHAT, [TEXT])).items
    tokens = np.array(tokenized.tokens)
    datum = Datum(
        model_input=tokens[:-1],
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": np.ones(tokens.size - 1, np.float32)},
    )

    answer = await bridge.models.forward(CHAT, [TEXT, conversation, datum, example.datum])
    everything = await bridge.models.forward(CHAT, [conversation], train_on="all")

    text, chat, plain, known = answer.outputs
    assert (text.tokens, chat.tokens, plain.tokens) == (tokenized.tokens, example.tokens, ())
    assert text.weights == (1.0,) * (tokens.size - 1)
    assert chat.weights == example.weights[1:]
    assert text.logprobs.tolist() == plain.logprobs.tolist()
    assert text.loss == plain.loss
    assert chat.logprobs.tolist() == known.logprobs.tolist()
    assert chat.loss == known.loss
    assert set(everything.outputs[0].weights) == {1.0}
    assert everything.outputs[0].loss == pytest.approx(-everything.outputs[0].logprobs.sum())


@rows("model", [EMBEDDED, LOCAL])
async def test_samples_have_the_likeliest_tokens(bridge: Any, root: Path, model: str):
    """Of each generated token, under the unmodified distribution, whatever the temperature."""
    sampling = SamplingParams(max_tokens=6, temperature=2.0, seed=4)

    answer = await bridge.models.sample(model, [[3, 1, 4]], sampling, num_samples=2, top_logprobs=4)
    plain = await bridge.models.sample(model, [[3, 1, 4]], sampling, num_samples=2)

    for sequence, same in zip(answer.items[0].sequences, plain.items[0].sequences, strict=True):
        assert sequence.tokens == same.tokens
        assert same.top_tokens is None
        table = expected(path_of(model, root), [3, 1, 4, *sequence.tokens])[2:]
        assert sequence.top_tokens.shape == (len(sequence.tokens), 4)
        np.testing.assert_allclose(sequence.top_logprobs, -np.sort(-table, axis=1)[:, :4], atol=CLOSE)
        assert sequence.top_tokens.tolist() == np.argsort(-table, axis=1, kind="stable")[:, :4].tolist()


async def test_an_item_that_is_wrong_costs_no_other(bridge: Any):
    """Its field says where."""
    targets = [np.array([[99], [1]]), np.array([[1]]), np.array([[-2], [1]]), None, None, None]
    sequences = [[3, 1, 4], [3, 1, 4], [3, 1, 4], [3, 77], "", [3, 1, 4]]

    answer = await bridge.models.compute_logprobs(EMBEDDED, sequences, top_k=2, targets=targets)

    assert fields(answer.sequences) == [
        "items[0].targets[0][0]",
        "items[1].targets",
        "items[2].targets[0][0]",
        "items[3].prompt[1]",
        "items[4].prompt",
        None,
    ]
    assert set(reasons(answer.sequences)) == {"INVALID_FIELD", None}


@rows(
    ("call", "field"),
    [
        (lambda models: models.compute_logprobs(EMBEDDED, [[1, 2]], top_k=129), "top_k"),
        (lambda models: models.compute_logprobs(EMBEDDED, [[1, 2]], top_k=0), "top_k"),
        (lambda models: models.compute_logprobs(EMBEDDED, [[1, 2]], last_n=0), "last_n"),
        (lambda models: models.compute_logprobs(EMBEDDED, [[1, 2]], targets=[]), "targets"),
        (lambda models: models.compute_logprobs(EMBEDDED, [[1, 2]], targets=[[0.5]]), "targets[0]"),
        (lambda models: models.compute_logprobs(EMBEDDED, []), "sequences"),
        (lambda models: models.sample(EMBEDDED, ["x"], SamplingParams(max_tokens=1), top_logprobs=129), "top_logprobs"),
        (lambda models: models.forward(EMBEDDED, ["12+34"], train_on="some"), "train_on"),
    ],
)
async def test_a_bound_that_is_wrong_ends_the_call(bridge: Any, call: Any, field: str):
    """By the field, as the caller wrote it."""
    with pytest.raises(InvalidField) as caught:
        await call(bridge.models)
    assert caught.value.field == field


async def test_the_bound_is_told(bridge: Any):
    """By GetInfo."""
    assert (await bridge.worker.get_info()).limits["max_top_k"] == WorkerLimits().max_top_k


async def test_text_needs_a_tokenizer(bridge: Any):
    """A model without one is still asked about tokens."""
    tokens = LogprobsItem(prompt=ModelInput.of([1, 2]), last_n=1)

    answer = await bridge.models.compute_logprobs(BLIND, ["12+34", tokens])

    assert reasons(answer.sequences) == ["NO_TOKENIZER", None]


async def test_a_model_that_lacks_it_refuses_by_name():
    """One error for the whole call, with the question that it does not answer; `last_n` alone works with any model."""
    async with run_worker({"m": ScriptedModel()}) as worker:
        models: Any = worker.bridge.models
        for call, needs in (
            (models.compute_logprobs("embedded:m", [[1, 2]], top_k=2), "compute_distributions, which top_k needs"),
            (models.compute_logprobs("embedded:m", [[1, 2]], targets=[[3]]), "which targets needs"),
            (models.sample("embedded:m", ["x"], SamplingParams(max_tokens=1), top_logprobs=1), "sample_with_top"),
        ):
            with pytest.raises(FailedPrecondition, match=needs) as caught:
                await call
            assert (caught.value.reason, caught.value.field) == ("MISSING_CLIENT", "model")
        answer = await models.compute_logprobs("embedded:m", [[1, 2, 3], "abc"], last_n=1)
        whole = await models.compute_logprobs("embedded:m", [[1, 2, 3], [97, 98, 99]])

    for found, same in zip(answer.sequences, whole.sequences, strict=True):
        assert found.first == 2
        assert found.logprobs.tolist() == same.logprobs[-1:].tolist()


async def test_an_answer_that_has_no_room_is_not_computed(tmp_path: Path):
    """Items have room in their order; those without room have a problem, and the others their columns."""
    limits = WorkerLimits(max_message_bytes=1 << 20)
    sequence = [1 + index % 14 for index in range(30)]
    async with (
        Worker(settings_for(tmp_path, limits=limits)) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        answer = await bridge.models.compute_logprobs(EMBEDDED, [sequence] * 60, top_k=100)
        refused = await bridge.models.sample(EMBEDDED, ["1+1="], SamplingParams(max_tokens=10_000), top_logprobs=100)

    found = reasons(answer.sequences)
    assert set(found) == {None, "ANSWER_TOO_LARGE"}
    assert 20 <= found.count(None) < 60
    assert reasons(refused.items) == ["INVALID_FIELD"]


async def test_targets_that_have_no_room_take_no_memory(bridge: Any):
    """A row of targets for each measured token is made only where the answer has room for their values."""
    targets = np.ones(2_000_000, np.int32)

    tracemalloc.start()
    try:
        answer = await bridge.models.compute_logprobs(EMBEDDED, [[1] * 30], targets=[targets])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert reasons(answer.sequences) == ["ANSWER_TOO_LARGE"]
    assert most < 30 * targets.size * 8 / 2


async def test_errors_name_what_the_caller_wrote(bridge: Any):
    """A token of a continuation by its own index; what Forward was given, which has no prompt."""
    items = [LogprobsItem(prompt=ModelInput.of(prompt), continuation=(3, 99)) for prompt in ([1, 2], [1, 77])]
    chat = Conversation((ChatMessage("user", "1" * 100), ChatMessage("assistant", "=2")))

    measured = await bridge.models.compute_logprobs(EMBEDDED, items)
    passed = await bridge.models.forward(CHAT, ["1" * 100, chat])

    assert fields(measured.sequences) == ["items[0].continuation[1]", "items[1].prompt[1]"]
    assert reasons(passed.outputs) == ["PROMPT_TOO_LONG"] * 2
    assert fields(passed.outputs) == ["data[0]", "data[1]"]


async def test_teachers_of_two_vocabularies_are_told_so(bridge: Any):
    """The likeliest tokens of one are unknown to the other; the caller gave no targets, and the error names none."""
    teachers = [Teacher.of(EMBEDDED), Teacher.of(LOCAL)]

    (found,) = (await bridge.models.compute_logprobs(teachers, [[3, 1, 4]], top_k=20)).sequences

    assert (found.problem.reason, found.problem.field) == ("INVALID_FIELD", "sequences[0]")
    assert found.problem.message.startswith("teachers[0]: ")
    assert found.problem.message.endswith("needs one vocabulary")


async def test_a_continuation_beyond_the_context_is_refused_by_its_name(bridge: Any):
    """Whatever the prompt is."""
    items = [LogprobsItem(prompt=prompt, continuation=(1,) * 33) for prompt in (ModelInput.of([1]), TEXT)]

    answer = await bridge.models.compute_logprobs(EMBEDDED, items)

    assert reasons(answer.sequences) == ["PROMPT_TOO_LONG"] * 2
    assert fields(answer.sequences) == ["items[0].continuation", "items[1].continuation"]


async def test_many_targets_are_checked_by_a_thread(bridge: Any, monkeypatch: pytest.MonkeyPatch):
    """The event loop has other calls to answer; the values are those of few."""
    by: list[bool] = []
    check = local._check_known

    def noted(facts: Any, tokens: np.ndarray, field: str, **further: Any) -> None:
        if field == "targets":
            by.append(threading.current_thread() is threading.main_thread())
        check(facts, tokens, field, **further)

    monkeypatch.setattr(local, "_check_known", noted)
    (few,) = (await bridge.models.compute_logprobs(EMBEDDED, [[3, 1]], targets=[[5, 6]])).sequences
    (many,) = (await bridge.models.compute_logprobs(EMBEDDED, [[3, 1]], targets=[[5, 6] * 60_000])).sequences

    assert by == [True, False]
    assert many.target_logprobs[0, -2:].tolist() == few.target_logprobs[0].tolist()
