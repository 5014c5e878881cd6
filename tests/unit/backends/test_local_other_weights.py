"""Models are loaded with all weights of their files and no others, or refused by the names of the weights."""

import json
import re

import pytest

from crucible_bridge.errors import FailedPrecondition
from tests import needs

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
needs.modules("transformers")

from safetensors.torch import load_file, save_file  # noqa: E402 (needs torch)

from crucible_worker.backends.local.host.loading import load  # noqa: E402 (needs torch)
from crucible_worker.backends.local.host.weight_checks import check_sizes  # noqa: E402 (needs torch)

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ATTENTION = "model.layers.0.self_attn"


@pytest.fixture
def model(tmp_path):
    """A function that saves a model of two layers with another configuration or other weights."""

    def make(weights=lambda held: {}, architecture="llama", **config):
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.manual_seed(0)
        sizes = {"vocab_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
        made = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(architecture, **sizes, intermediate_size=32, num_key_value_heads=2, head_dim=8)
        )
        made.save_pretrained(tmp_path)
        held = load_file(tmp_path / WEIGHTS)
        held |= weights(held)
        save_file(
            {name: value for name, value in held.items() if value is not None}, tmp_path / WEIGHTS, {"format": "pt"}
        )
        described = json.loads((tmp_path / "config.json").read_text()) | config
        (tmp_path / "config.json").write_text(json.dumps(described))
        return tmp_path

    return make


def logits(loaded):
    """Those of a short text."""
    with torch.inference_mode():
        return loaded.model(torch.arange(5)[None]).logits


def load_here(directory):
    """Load a model as the host does, after its check of sizes."""
    check_sizes(directory)
    return load(directory, torch.device("cpu"))


@pytest.mark.parametrize(
    ("weights", "config", "told"),
    [
        (
            lambda held: {},
            {"num_hidden_layers": 1},
            r"9 weights \(model\.layers\.1\.input_layernorm\.weight, .*, \.\.\.\)",
        ),
        (
            lambda held: {f"{ATTENTION}.q_proj.bias": torch.ones(16)},
            {},
            r"1 weight \(model\.layers\.0\.self_attn\.q_proj\.bias\) that its configuration does not use",
        ),
        (lambda held: {"v_head.summary.weight": torch.ones(1, 16)}, {}, r"1 weight \(v_head\.summary\.weight\)"),
        (lambda held: {"model.layers.0.attn.bias": torch.ones(16)}, {}, r"1 weight \(model\.layers\.0\.attn\.bias\)"),
        (
            lambda held: {f"{ATTENTION}.q_proj.weight": None},
            {},
            r"lacks 1 weight \(model\.layers\.0\.self_attn\.q_proj\.weight\) of its model",
        ),
        (
            lambda held: {"model.norm.weight": torch.ones(15)},
            {},
            r"1 weight of other shapes \(model\.norm\.weight has 15 in the files, 16 in the model\): config\.json",
        ),
        (
            lambda held: {"lm_head.weight": held["lm_head.weight"] + 1},
            {"tie_word_embeddings": True},
            r"1 weight \(lm_head\.weight\) that config\.json ties .* set tie_word_embeddings to false",
        ),
    ],
    ids=["layer", "bias", "head", "bias with the name of a mask", "missing", "shape", "tied"],
)
def test_weights_that_are_not_those_of_the_configuration_are_refused(model, weights, config, told):
    """The library would drop them, or make random ones; the error names them."""
    with pytest.raises(FailedPrecondition) as refused:
        load_here(model(weights, **config))

    assert refused.value.reason == "MODEL_REFUSED"
    assert re.search(told, str(refused.value)), refused.value


@pytest.mark.parametrize(
    ("weights", "config"),
    [
        (lambda held: {f"{ATTENTION}.rotary_emb.inv_freq": torch.ones(4)}, {}),
        (lambda held: {"model.layers.0.attn.masked_bias": torch.tensor(-1e4)}, {}),
        (lambda held: {"model.layers.0.attn.bias": torch.ones(1, 1, 8, 8, dtype=torch.bool)}, {}),
    ],
    ids=["rotary table", "value of a mask", "mask"],
)
def test_tables_that_the_model_computes_are_no_weights(model, weights, config):
    """Old releases saved them. They change no number."""
    without = logits(load_here(model()))

    assert torch.equal(logits(load_here(model(weights, **config))), without)


def test_tied_weights_may_be_there_twice(model):
    """With equal values; they are those of the file."""
    tied = model(lambda held: {"lm_head.weight": held["model.embed_tokens.weight"].clone()}, tie_word_embeddings=True)

    loaded = load_here(tied).model

    assert torch.equal(loaded.lm_head.weight, load_file(tied / WEIGHTS)["lm_head.weight"])


def sharded(directory, places, shards):
    """Put the weights of a model into shards: a function of the names, and an index that may say something else."""
    held = load_file(directory / WEIGHTS)
    (directory / WEIGHTS).unlink()
    for file, names in shards.items():
        save_file({name: held[name] for name in names(held)}, directory / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: places(name) for name in held}}
    (directory / INDEX).write_text(json.dumps(index))
    return directory


FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def place(name):
    """The shard of a weight."""
    return FIRST if "layers.0" in name else SECOND


def of(file):
    """The names of a shard's weights."""
    return lambda held: [name for name in held if place(name) == file]


def test_shards_have_the_numbers_of_one_file(model):
    """The index says where each weight is."""
    whole = logits(load_here(model()))

    assert torch.equal(logits(load_here(sharded(model(), place, {FIRST: of(FIRST), SECOND: of(SECOND)}))), whole)


@pytest.mark.parametrize(
    ("places", "shards", "told"),
    [
        (
            lambda name: FIRST,
            {FIRST: of(FIRST), SECOND: of(SECOND)},
            r"says that '\S+' is in 'model-00001-of-00002\.safetensors', which does not have it",
        ),
        (
            place,
            {FIRST: list, SECOND: of(SECOND)},
            r"has '\S+' twice, in 'model-00001-of-00002\.safetensors' and in 'model-00002-of-00002\.safetensors'",
        ),
    ],
    ids=["elsewhere", "twice"],
)
def test_shards_of_several_checkpoints_are_refused(model, places, shards, told):
    """An index that belongs to other shards shows in its names; each would be loaded from the last that has it."""
    with pytest.raises(FailedPrecondition) as refused:
        load_here(sharded(model(), places, shards))

    assert refused.value.reason == "MODEL_REFUSED"
    assert re.search(told, str(refused.value)), refused.value
