"""Adapters, types and devices of local models: the numbers are those of torch, and what cannot be used is refused."""

import asyncio
import importlib.util
import json
import math
import shutil

import numpy as np
import pytest
import pytest_asyncio

from crucible_bridge.errors import FailedPrecondition, NotFound, PermissionDenied
from crucible_bridge.types import EmbeddedModel, LocalModel, ModelInput, SamplingParams
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.embedded import registry
from tests import needs
from tests.tables import rows

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
needs.modules("peft")
safetensors = pytest.importorskip("safetensors.torch", reason=needs.MISSING["safetensors"])
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # peft asks transformers by a name that is about to go.
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]

PROMPT = [4, 5, 13, 6, 7, 14]
"""12+34= as the embedded tokenizer's tokens."""
CHECKPOINT = registry.path("arithmetic@240")


def base_model(dtype="float32"):
    """The model that adapters are made for."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(CHECKPOINT, dtype=getattr(torch, dtype), local_files_only=True).eval()


def save_adapter(directory, *, zero=False, **options):
    """Save an adapter with random weights, or one that changes nothing; the model that peft makes of it, merged."""
    import peft

    torch.manual_seed(7)
    config = peft.LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **options)
    adapted = peft.get_peft_model(base_model(), config)
    if not zero:
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter.data, std=0.1)
    adapted.save_pretrained(directory)
    return adapted.eval().merge_and_unload()


def logprobs_of(model, tokens):
    """Log-probabilities of tokens given those before them, by torch."""
    with torch.inference_mode():
        distribution = model(input_ids=torch.tensor([tokens[:-1]])).logits[0].double().log_softmax(1)
    return [distribution[index, token].item() for index, token in enumerate(tokens[1:])]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A model root with a base model, and adapters that cannot be used."""
    root = tmp_path_factory.mktemp("root")
    shutil.copytree(CHECKPOINT, root / "base")
    save_adapter(root / "good", target_modules=["q_proj"])
    for name in (
        "damaged",
        "incomplete",
        "foreign",
        "pickled",
        "nothing",
        "typed",
        "imports",
        "pissa",
        "listed",
        "diverged",
        "unmatched",
        "deeper",
        "wider",
        "stray",
    ):
        shutil.copytree(root / "good", root / name)
    weights = root / "good" / "adapter_model.safetensors"
    (root / "damaged" / weights.name).write_bytes(b"no weights")
    (root / "pickled" / weights.name).rename(root / "pickled" / "adapter_model.bin")
    (root / "nothing" / weights.name).unlink()
    change(root / "incomplete", target_modules=["q_proj", "v_proj"])
    change(root / "foreign", target_modules=["query_key_value"])
    change(root / "typed", peft_type="LOHA")
    change(root / "imports", megatron_config={"tensor_model_parallel_size": 1}, megatron_core="evil")
    change(root / "pissa", init_lora_weights="pissa")
    (root / "listed" / "adapter_config.json").write_text("[]")
    change(root / "unmatched", target_modules="(")
    tensors = safetensors.load_file(weights)
    safetensors.save_file(
        {name: tensor * torch.nan for name, tensor in tensors.items()}, root / "diverged" / weights.name
    )
    # Tensors of a layer and of a module that the model does not have, and of the model's own weights.
    for name, added in (
        ("deeper", "base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight"),
        ("wider", "base_model.model.model.layers.0.self_attn.gate.lora_A.weight"),
        ("stray", "base_model.model.model.layers.0.self_attn.q_proj.bias"),
    ):
        safetensors.save_file(tensors | {added: next(iter(tensors.values())).clone()}, root / name / weights.name)
    return root


def change(adapter, **fields):
    """Change fields of an adapter's configuration."""
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local(root):
    """One backend, and so one host, for all tests of this module."""
    local = LocalBackend([root], device="cpu")
    yield local
    await local.aclose()


async def logprobs(local, **options):
    """Log-probabilities of the prompt by the base model with these options."""
    model = await local.open(LocalModel("base", **options))
    first, *others = await model.compute_logprobs(ModelInput.of(PROMPT))
    assert first is None
    return others


@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": ["q_proj", "v_proj"]},
        {"target_modules": "all-linear", "use_rslora": True},
        {"target_modules": ["q_proj", "down_proj"], "rank_pattern": {"down_proj": 2}, "alpha_pattern": {"q_proj": 3}},
        {"target_modules": ["o_proj"], "use_dora": True},
        {"target_modules": ["q_proj"], "modules_to_save": ["norm"]},
    ],
    ids=["projections", "rslora", "patterns", "dora", "modules to save"],
)
async def test_an_adapter_gives_the_numbers_of_pefts_merged_model(local, root, request, options):
    """Every option that decides what the layers compute is followed."""
    directory = root / request.node.callspec.id.replace(" ", "_")
    merged = save_adapter(directory, **options)

    adapted = await logprobs(local, adapter_path=directory.name)

    assert adapted == pytest.approx(logprobs_of(merged, PROMPT), abs=1e-5)
    assert adapted != pytest.approx(await logprobs(local), abs=1e-2)


async def test_an_adapter_samples_as_pefts_merged_model_does(local, root):
    """Greedy tokens are those of the most probable continuation under the adapter."""
    merged = save_adapter(root / "sampled", target_modules="all-linear")
    model = await local.open(LocalModel("base", adapter_path="sampled"))

    (answer,) = await model.sample(ModelInput.of(PROMPT), SamplingParams(max_tokens=6))

    tokens = list(PROMPT)
    for token in answer.tokens:
        with torch.inference_mode():
            assert token == merged(input_ids=torch.tensor([tokens])).logits[0, -1].argmax().item()
        tokens.append(token)


async def test_an_adapter_that_changes_nothing_gives_the_same_bits(local, root):
    """A new adapter's second matrix is zero: the model is its base, under a fingerprint of its own."""
    save_adapter(root / "zero", zero=True, target_modules="all-linear")

    assert await logprobs(local, adapter_path="zero") == await logprobs(local)
    plain, adapted = await local.open(LocalModel("base")), await local.open(LocalModel("base", adapter_path="zero"))
    assert plain.fingerprint != adapted.fingerprint


async def test_types_are_followed(local):
    """In 16 bits the numbers are torch's in that type, near those of 32; what is asked for makes another model."""
    full = await logprobs(local)

    for dtype in ("bfloat16", "float16"):
        half = await logprobs(local, dtype=dtype)
        # Threads add up in another order here and there: a few roundings of 16 bits.
        assert half == pytest.approx(logprobs_of(base_model(dtype), PROMPT), abs=0.02)
        assert half != full
        assert half == pytest.approx(full, abs=0.2)
    assert await logprobs(local, dtype="float32") == full
    models = [await local.open(LocalModel("base", dtype=dtype)) for dtype in (None, "float32", "bfloat16")]
    assert len({model.fingerprint for model in models}) == 3


async def test_young_adapters_are_not_lost_to_rounding(local, root):
    """On weights of 16 bits an adapter keeps its own precision, as it has while it is trained."""
    save_adapter(root / "young", target_modules="all-linear")
    from safetensors.torch import load_file, save_file

    file = root / "young" / "adapter_model.safetensors"
    weights = {name: value * 0.1 if "lora_B" in name else value for name, value in load_file(file).items()}
    save_file(weights, file, {"format": "pt"})

    change_in_full = np.subtract(await logprobs(local, adapter_path="young"), await logprobs(local))
    adapted = await logprobs(local, adapter_path="young", dtype="bfloat16")
    plain = await logprobs(local, dtype="bfloat16")

    assert adapted != plain
    assert np.subtract(adapted, plain) == pytest.approx(change_in_full, abs=0.1)


async def test_models_of_one_host_keep_apart(local, root):
    """Adapters, types and devices of one base are asked at once, and each answers with its own numbers."""
    options = [{}, {"adapter_path": "good"}, {"dtype": "bfloat16"}, {"adapter_path": "good", "dtype": "bfloat16"}]
    alone = [await logprobs(local, **one) for one in options]

    together = await asyncio.gather(*(logprobs(local, **one) for one in options * 3))

    assert together == alone * 3
    assert len({tuple(values) for values in alone}) == len(options)
    assert await logprobs(local, device="cpu") == alone[0]


async def test_an_adapter_that_is_written_again_is_another_model(local, root):
    """What was open answers as before; opened again it has a new fingerprint and its own numbers."""
    save_adapter(root / "trained", target_modules=["q_proj"])
    before = await local.open(LocalModel("base", adapter_path="trained"))
    values = await before.compute_logprobs(ModelInput.of(PROMPT))

    save_adapter(root / "trained", target_modules=["v_proj"])
    after = await local.open(LocalModel("base", adapter_path="trained"))

    assert after.fingerprint != before.fingerprint
    assert await after.compute_logprobs(ModelInput.of(PROMPT)) != values
    assert await before.compute_logprobs(ModelInput.of(PROMPT)) == values


@rows(
    ("adapter", "kind", "reason"),
    [
        ("damaged", FailedPrecondition, "ADAPTER_REFUSED"),
        ("incomplete", FailedPrecondition, "ADAPTER_REFUSED"),
        ("foreign", FailedPrecondition, "ADAPTER_REFUSED"),
        ("typed", FailedPrecondition, "ADAPTER_REFUSED"),
        ("imports", FailedPrecondition, "ADAPTER_REFUSED"),
        ("pissa", FailedPrecondition, "ADAPTER_REFUSED"),
        ("listed", FailedPrecondition, "ADAPTER_REFUSED"),
        ("diverged", FailedPrecondition, "ADAPTER_REFUSED"),
        ("unmatched", FailedPrecondition, "ADAPTER_REFUSED"),
        ("deeper", FailedPrecondition, "ADAPTER_REFUSED"),
        ("wider", FailedPrecondition, "ADAPTER_REFUSED"),
        ("stray", FailedPrecondition, "ADAPTER_REFUSED"),
        ("pickled", FailedPrecondition, "PICKLED_WEIGHTS_REFUSED"),
        ("nothing", FailedPrecondition, "NO_SAFETENSORS"),
        ("base", FailedPrecondition, "NO_ADAPTER_CONFIG"),
        ("absent", NotFound, "MODEL_NOT_FOUND"),
        ("../root", PermissionDenied, "PATH_OUT_OF_ROOT"),
    ],
)
async def test_what_is_no_adapter_of_the_model_is_refused(local, adapter, kind, reason):
    """Other kinds and models, damage, weights that are missing or no numbers, pickles, names of modules to import."""
    with pytest.raises(kind) as caught:
        await logprobs(local, adapter_path=adapter)

    assert caught.value.reason == reason
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "fields",
    [
        {"lora_alpha": 0},
        {"lora_alpha": -8},
        {"lora_alpha": math.nan},
        {"lora_alpha": math.inf},
        {"lora_alpha": "8"},
        {"lora_alpha": True},
        {"lora_alpha": None},
        {"r": 0},
        {"r": 4.0},
        {"r": True},
        {"r": 1_000_000_000},
        {"rank_pattern": {"q_proj": 0}},
        {"rank_pattern": {"q_proj": 1_000_000_000}},
        {"rank_pattern": ["q_proj"]},
        {"alpha_pattern": {"q_proj": -1}},
        {"alpha_pattern": {"q_proj": "8"}},
        {"use_rslora": "no"},
        {"use_dora": 1},
    ],
    ids=str,
)
async def test_an_adapter_that_makes_no_sense_is_refused(local, root, fields):
    """A scale of nothing, below it or beyond numbers, a rank that is none: the field is named, and nothing loaded."""
    directory = root / f"odd-{fields}".replace("/", "")
    shutil.copytree(root / "good", directory)
    change(directory, **fields)

    with pytest.raises(FailedPrecondition, match=next(iter(fields))) as caught:
        await logprobs(local, adapter_path=directory.name)

    assert caught.value.reason == "ADAPTER_REFUSED"


async def test_an_adapter_is_no_model(local):
    """The error says how to name it."""
    with pytest.raises(FailedPrecondition, match="as the adapter") as caught:
        await local.open(LocalModel("good"))

    assert caught.value.reason == "ADAPTER_REFUSED"


@pytest.mark.skipif(torch.cuda.is_available(), reason=needs.NO_CUDA)
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
async def test_a_device_that_is_not_there_is_refused(local, device):
    """It is the world that is not as the request needs."""
    with pytest.raises(FailedPrecondition, match=f"the device {device!r} cannot be used") as caught:
        await (await local.open(LocalModel("base", device=device))).load()

    assert caught.value.reason == "DEVICE_NOT_FOUND"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason=needs.CUDA)
async def test_two_devices_of_one_host_hold_the_same_model(local):
    """One fingerprint, nearly the same numbers, and neither answers for the other."""
    options = {"adapter_path": "good", "dtype": "float32"}
    models = [await local.open(LocalModel("base", device=device, **options)) for device in ("cpu", "cuda:0", "cuda")]

    cpu, first, same = await asyncio.gather(*(model.compute_logprobs(ModelInput.of(PROMPT)) for model in models))

    assert len({model.fingerprint for model in models}) == 1
    assert first == same
    assert first[1:] == pytest.approx(cpu[1:], abs=1e-3)


async def test_without_peft_it_says_what_to_install(monkeypatch, local):
    """Models without an adapter need it not."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "peft" else find(name))

    with pytest.raises(FailedPrecondition, match=r"crucible-bridge\[lora\]") as caught:
        await local.open(LocalModel("base", adapter_path="good"))

    assert caught.value.reason == "EXTRA_NOT_INSTALLED"
    assert (await local.open(EmbeddedModel("arithmetic@600"))).fingerprint
