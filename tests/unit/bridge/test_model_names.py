"""Models as one text: what is written is read again, and what names none is refused."""

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import EmbeddedModel, LocalModel, OpenAIModel, format_model, parse_model


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("embedded:arithmetic@600", EmbeddedModel("arithmetic@600")),
        ("local:runs/7/merged", LocalModel("runs/7/merged")),
        ("openai:vllm/org/name:tag", OpenAIModel("vllm", "org/name:tag")),
        ("openai:serve//models/one", OpenAIModel("serve", "/models/one")),
    ],
)
def test_a_model_is_one_text(text, model):
    """Reading and writing are each other's inverse; only the first slash parts a server from its model."""
    assert parse_model(text) == model
    assert format_model(model) == text


@pytest.mark.parametrize("text", ["", "embedded:", "local:", "openai:", "openai:a", "openai:a/", "openai:/m", "gpt"])
def test_text_that_names_no_model_is_refused(text):
    """A scheme and what it needs, both of them."""
    with pytest.raises(InvalidField) as caught:
        parse_model(text)
    assert caught.value.field == "model"
