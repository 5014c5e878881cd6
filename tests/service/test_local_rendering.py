"""Renderers on a model of the local backend: what its host makes of them, and where its answers end."""

import itertools
import shutil

import numpy as np
import pytest
import pytest_asyncio

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    EmbeddedModel,
    LocalModel,
    ModelInput,
    Sample,
    SamplingParams,
)
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.embedded import registry
from crucible_worker.rendering import ask, render_prompt, render_supervised, sample_answers
from crucible_worker.rendering.prompts import render_question
from tests import needs
from tests.tables import rows
from tests.unit.rendering.tokenizers_made import SPECIAL, HeldTokenizer, byte_tokenizer, inputs_of

needs.modules("torch", "transformers")
pytestmark = pytest.mark.asyncio(loop_scope="module")

TURNS = Conversation((ChatMessage("user", "1+1?"), ChatMessage("assistant", "2"), ChatMessage("user", "2+2?")))
GREEDY = SamplingParams(max_tokens=8)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A model root with a tiny random model whose tokens are bytes."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    root = tmp_path_factory.mktemp("root")
    tokenizer = byte_tokenizer()
    tokenizer.save_pretrained(root / "bytes")
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama",
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=None,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(root / "bytes")
    shutil.copytree(registry.path("arithmetic@600"), root / "arithmetic")
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(root):
    """One backend, and so one host, for all tests of this module."""
    local = LocalBackend([root], device="cpu")
    yield local
    await local.aclose()


async def load(local, ref):
    """A model that the host holds."""
    model = await local.open(ref)
    await model.load()
    return model


@rows("renderer", ["role_colon", "raw", "tinker:role_colon", "tinker:qwen3_instruct"])
async def test_the_host_renders_as_this_process_does(local, renderer):
    """Tokens, weights and stop sequences are those of the same tokenizer at hand."""
    if renderer.startswith("tinker:"):
        pytest.importorskip("tinker_cookbook.renderers", reason=needs.MISSING["tinker_cookbook"])
    model = await load(local, LocalModel("bytes"))
    here = HeldTokenizer(byte_tokenizer())
    input = "2+2?" if renderer == "raw" else TURNS
    sample = Sample(input=input, targets=("4",))

    asked = [await render_question(one, input, renderer) for one in (model.tokenizer, here)]
    measured = [await render_supervised(one, sample, renderer=renderer) for one in (model.tokenizer, here)]

    assert list(asked[0].tokens) == list(asked[1].tokens)
    assert tuple(asked[0].stop) == tuple(asked[1].stop)
    assert measured[0].model_input.tokens().tolist() == measured[1].model_input.tokens().tolist()
    for held, told in zip(*map(inputs_of, measured), strict=True):
        assert np.array_equal(held, told)


async def test_a_renderer_that_tinker_cookbook_lacks_is_refused(local):
    """What the host says of it reaches whoever asked."""
    pytest.importorskip("tinker_cookbook.renderers", reason=needs.MISSING["tinker_cookbook"])
    model = await load(local, LocalModel("bytes"))

    with pytest.raises(FailedPrecondition, match="no renderer 'no_such'") as caught:
        await sample_answers(model, "2+2?", GREEDY, renderer="tinker:no_such")
    assert caught.value.reason == "UNKNOWN_RENDERER"


async def test_a_special_token_stops_where_its_text_is_a_stop_string(local):
    """It has no text in the answer, and is told by its token alone; where it is no stop string it ends nothing."""
    model = await load(local, LocalModel("bytes"))
    end = byte_tokenizer().convert_tokens_to_ids(SPECIAL[1])
    prompt = ModelInput.of(await model.tokenizer.encode("2+2?"))
    drawn = SamplingParams(max_tokens=200, temperature=3.0, seed=1)

    free = await model.sample(prompt, drawn, 8)
    stopped = await model.sample(prompt, SamplingParams(max_tokens=200, temperature=3.0, seed=1, stop=(SPECIAL[1],)), 8)

    assert any(end in sequence.tokens for sequence in free)
    for before, after in zip(free, stopped, strict=True):
        if end in before.tokens:
            assert after.tokens == before.tokens[: before.tokens.index(end) + 1]
            assert after.stop_reason == "stop"
        else:
            assert after.tokens == before.tokens


PIECES = {
    "Q": False,
    "\n": False,
    "12\n+": False,
    "34; ": False,
    "46": False,
    "; ": False,
    "no": False,
    "<think>": True,
    "</think>": True,
    "[THINK]": True,
    "[/THINK]": True,
    "<end>": True,
}
"""The tokens of the model that says a text, and whether they are special."""


def saying(folder, template, chain):
    """Make a model without chance: after each piece comes the next one of a chain."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    made.decoder = decoders.Fuse()
    made.add_tokens([AddedToken(piece, normalized=False, special=special) for piece, special in PIECES.items()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>", unk_token="<unk>")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    size = len(tokenizer)
    config = AutoConfig.for_model(
        "llama",
        vocab_size=size,
        hidden_size=size + size % 2,
        intermediate_size=2,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = AutoModelForCausalLM.from_config(config)
    ids = [tokenizer.convert_tokens_to_ids(piece) for piece in chain]
    with torch.no_grad():
        for weights in model.parameters():
            weights.zero_()
        model.model.norm.weight.fill_(1.0)
        for token in range(size):
            model.model.embed_tokens.weight[token, token] = 1.0
        for before, after in itertools.pairwise(ids):
            model.lm_head.weight[after, before] = 1.0
    model.save_pretrained(folder)


OPENED = "{{ messages[0]['content'] + '<think>\\n' }}"
PLAIN = "{{ messages[0]['content'] }}"


@rows(
    ("name", "template", "chain", "stop", "max_tokens", "found"),
    [
        (
            "opened",
            OPENED,
            ["\n", "12\n+", "34; ", "</think>", "46", "; ", "no", "<end>"],
            ("\n", ";"),
            20,
            ("46", "12\n+34;", False, "stop", 5),
        ),
        ("cut", OPENED, ["\n", "12\n+", "34; ", "46", "<end>"], (), 3, ("", "12\n+34; 46", True, "length", 3)),
        ("open", OPENED, ["\n", "12\n+", "34; ", "46", "<end>"], ("\n",), 20, ("", "12\n+34; 46", True, "stop", 4)),
        (
            "tagged",
            PLAIN,
            ["Q", "[THINK]", "12\n+", "[/THINK]", "46", "; ", "no", "<end>"],
            ("; n",),
            20,
            ("46", "12\n+", False, "stop", 6),
        ),
        ("plain", PLAIN, ["Q", "46", "; ", "no", "<end>"], (), 20, ("46; no", "", False, "stop", 4)),
    ],
)
async def test_a_local_model_is_stopped_after_its_reasoning_alone(
    root, local, name, template, chain, stop, max_tokens, found
):
    """Tags that are special tokens are seen; a stop string in reasoning, which the prompt may open, ends nothing."""
    saying(root / name, template, chain)
    model = await load(local, LocalModel(name))

    asked = await ask(model, "Q", SamplingParams(max_tokens=max_tokens, temperature=0.0, stop=stop))

    (one,) = asked.answers
    said = one.sequence
    assert (one.answer, said.reasoning, one.unfinished, said.stop_reason, len(said.tokens)) == found


async def test_renderers_of_a_model_without_a_chat_template(local):
    """Text is plain to auto and to raw alike, on the tokens of an embedded model; there is no template to force."""
    model = await load(local, EmbeddedModel("arithmetic@600"))
    expected = (await render_prompt(model.tokenizer, "12+34=")).tokens().tolist()

    for renderer in ("auto", "raw"):
        assert list((await render_question(model.tokenizer, "12+34=", renderer)).tokens) == expected
        (answer,) = await sample_answers(model, "12+34=", GREEDY, renderer=renderer)
        assert (answer.text, answer.stop_reason) == ("46", "stop")
    with pytest.raises(FailedPrecondition) as caught:
        await sample_answers(model, "12+34=", GREEDY, renderer="chat_template")
    assert caught.value.reason == "NO_CHAT_TEMPLATE"
