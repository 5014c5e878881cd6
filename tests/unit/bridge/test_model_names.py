"""Models as one text: what is written is read again, and what names none is refused."""

import pytest
from hypothesis import given

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    EmbeddedModel,
    HubModel,
    InstalledModel,
    LocalModel,
    OpenAIModel,
    TinkerModel,
    format_model,
    parse_model,
)
from crucible_bridge.types.models import MAX_DEVICES
from tests.tables import rows
from tests.unit.bridge import strategies as some


@rows(
    ("text", "model"),
    [
        ("embedded:arithmetic@600", EmbeddedModel("arithmetic@600")),
        ("local:runs/7/merged", LocalModel("runs/7/merged")),
        ("local:50%", LocalModel("50%")),
        ("local:runs/7?adapter=runs/7/lora", LocalModel("runs/7", adapter_path="runs/7/lora")),
        ("local:big?device=cuda:1&dtype=bfloat16", LocalModel("big", device="cuda:1", dtype="bfloat16")),
        ("local:big?devices=cuda:0,cuda:1", LocalModel("big", device="cuda:0,cuda:1")),
        ("hub:acme/m?devices=cpu,cpu&dtype=float32", HubModel("acme/m", device="cpu,cpu", dtype="float32")),
        ("local:what%3F?", LocalModel("what?")),
        ("local:50%25?adapter=a%26b%3Dc%3F", LocalModel("50%", adapter_path="a&b=c?")),
        ("hub:Qwen/Qwen3-0.6B", HubModel("Qwen/Qwen3-0.6B")),
        ("hub:acme/m?revision=step/100", HubModel("acme/m", revision="step/100")),
        (
            "hub:acme/m?revision=main&adapter=lora&device=cpu&dtype=float32",
            HubModel("acme/m", revision="main", adapter_path="lora", device="cpu", dtype="float32"),
        ),
        ("openai:vllm/org/name:tag", OpenAIModel("vllm", "org/name:tag")),
        ("openai:serve//models/one", OpenAIModel("serve", "/models/one")),
        ("tinker://run/sampler_weights/final", TinkerModel(model_path="tinker://run/sampler_weights/final")),
        ("tinker://run/weights/7?service=lab", TinkerModel(state_path="tinker://run/weights/7", service="lab")),
        ("tinker://run/7?kind=state", TinkerModel(state_path="tinker://run/7")),
        ("tinker://run/weights/7?kind=model", TinkerModel(model_path="tinker://run/weights/7")),
        (
            "tinker://run/sampler_weights/7?state=tinker://run/weights/7&service=lab",
            TinkerModel(
                model_path="tinker://run/sampler_weights/7", state_path="tinker://run/weights/7", service="lab"
            ),
        ),
        (
            "tinker://run/weights/7?kind=model&state=tinker://run/8",
            TinkerModel(model_path="tinker://run/weights/7", state_path="tinker://run/8"),
        ),
        ("sums:exact", InstalledModel("sums", "exact")),
        ("my-lab.2://a:b?c=%GG", InstalledModel("my-lab.2", "//a:b?c=%GG")),
        ("tinker:Qwen/Qwen3-8B", TinkerModel(base_model="Qwen/Qwen3-8B")),
        ("tinker:Qwen/Qwen3-8B?service=lab", TinkerModel(base_model="Qwen/Qwen3-8B", service="lab")),
    ],
)
def test_a_model_is_one_text(text, model):
    """Reading and writing are each other's inverse; only the first slash parts a server from its model."""
    assert parse_model(text) == model
    assert format_model(model) == text


def test_one_device_may_be_written_as_several():
    """A list of one is that device, and is written as it; as many as are accepted are accepted."""
    assert format_model(parse_model("local:m?devices=cuda:1")) == "local:m?device=cuda:1"
    most = f"local:m?devices={','.join(['cpu'] * MAX_DEVICES)}"
    assert format_model(parse_model(most)) == most


@given(some.models)
def test_every_model_is_one_text(model):
    """Whatever its names hold, what is written is read again."""
    assert parse_model(format_model(model)) == model


@rows(
    ("text", "field"),
    [
        ("local:m?dtype=float8", "model.dtype"),
        ("local:m?device=tpu", "model.device"),
        ("local:m?device=cuda:", "model.device"),
        ("local:m?devices=cuda:0,", "model.device"),
        ("local:m?devices=cpu,cuda:0", "model.device"),
        (f"local:m?devices={','.join(['cpu'] * (MAX_DEVICES + 1))}", "model.device"),
        ("local:m?device=cpu&devices=cpu,cpu", "model"),
        ("local:m?adapter=", "model.adapter_path"),
        ("local:m?revision=main", "model"),
        ("hub:gpt2", "model.repo_id"),
        ("hub:../etc", "model.repo_id"),
        ("hub:acme/m/more", "model.repo_id"),
        ("hub:acme/m?revision=../main", "model.revision"),
        ("hub:acme/m?revision=/etc", "model.revision"),
        ("hub:acme/m?split=test", "model"),
        ("hub:acme/m?dtype=float8", "model.dtype"),
        ("local:?dtype=float32", "model.path"),
        ("local:m?dtpye=float32", "model"),
        ("local:m?dtype", "model"),
        ("local:m?dtype=float32&dtype=float32", "model"),
        ("local:m%ff?dtype=float32", "model"),
        ("tinker:m?service=", "model.service"),
        ("tinker:m?kind=state", "model.state_path"),
        ("tinker:m?kind=x", "model"),
        ("tinker:m?state=tinker://run/weights/7", "model"),
        ("tinker://run/weights/7?state=tinker://run/weights/7", "model"),
        ("tinker://run/sampler_weights/7?state=run/weights/7", "model.state_path"),
        ("tinker://run/sampler_weights/7?state=", "model.state_path"),
        ("tinker:m?rank=8", "model"),
        ("tinker:?service=lab", "model.base_model"),
    ],
)
def test_options_that_cannot_be_are_refused(text, field):
    """Unknown ones, those that say nothing or twice, and values that there are not."""
    with pytest.raises(InvalidField) as caught:
        parse_model(text)
    assert caught.value.field == field


@rows(
    ("scheme", "name", "field"),
    [
        ("Sums", "x", "model.scheme"),
        ("", "x", "model.scheme"),
        ("local", "x", "model.scheme"),
        ("sums", "", "model.name"),
        ("s" * 61, "x", "model.scheme"),
        ("sums", "x" * 1001, "model.name"),
        ("sums", "é" * 501, "model.name"),
    ],
)
def test_an_installed_model_that_cannot_be_is_refused(scheme, name, field):
    """A scheme that could be none, one of the worker's own, no name, or more bytes than a message may hold."""
    with pytest.raises(InvalidField) as caught:
        InstalledModel(scheme, name).checked("model")
    assert caught.value.field == field


def test_the_longest_installed_model_is_one():
    """60 bytes of scheme and 1,000 of name."""
    model = InstalledModel("s" * 60, "é" * 500)
    assert model.checked("model") is model


@rows(
    "text",
    [
        "",
        "embedded:",
        "local:",
        "openai:",
        "openai:a",
        "openai:a/",
        "openai:/m",
        "tinker:",
        "gpt",
        "sums:",
        "Sums:exact",
        "7b:x",
        "a b:x",
    ],
)
def test_text_that_names_no_model_is_refused(text):
    """A scheme and what it needs, both of them."""
    with pytest.raises(InvalidField) as caught:
        parse_model(text)
    assert caught.value.field == "model"


def test_a_model_of_a_server_without_a_server_is_corrected():
    """What OpenAI's clients call a model has a server before it here."""
    with pytest.raises(InvalidField, match=r"without a server: openai:SERVER/MODEL, as in openai:openai/gpt-4o$"):
        parse_model("openai:gpt-4o")
