"""Images in conversations: chunks in the places that the template or the renderer gives them."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ChatMessage, Conversation, ImageAssetChunk, ImageChunk, Sample, TokensChunk, ToolCall
from crucible_worker.rendering import render_supervised
from crucible_worker.rendering.prompts import images_of, input_of, render_question, weights_of
from tests import needs
from tests.unit.rendering.tokenizers_made import HeldTokenizer, byte_tokenizer, inputs_of

VISION = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
FIRST = ImageChunk(data=b"\x89PNG not decoded", format="png", expected_tokens=3)
SECOND = ImageAssetChunk(location="tinker://asset", format="jpeg", expected_tokens=2)
SHOWN = Conversation(
    (
        ChatMessage("user", parts=("Compare", FIRST, "with", SECOND)),
        ChatMessage("assistant", "", tool_calls=(ToolCall(name="look", arguments='{"at": "é"}', id="c1"),)),
        ChatMessage("tool", "equal", tool_call_id="c1"),
        ChatMessage("assistant", "They are equal."),
    )
)


@pytest.fixture(scope="module")
def tokenizer():
    """One of a chat format with marks of images."""
    pytest.importorskip("transformers", reason=needs.MISSING["transformers"])
    pytest.importorskip("tinker_cookbook.renderers", reason=needs.MISSING["tinker_cookbook"])
    made = byte_tokenizer()
    made.add_special_tokens({"additional_special_tokens": VISION})
    return HeldTokenizer(made)


def theirs(tokenizer):
    """tinker-cookbook's renderer, to which the images take the tokens that they say, and the same conversation."""
    from PIL import Image
    from tinker_cookbook.renderers import ToolCall as CookbookToolCall
    from tinker_cookbook.renderers import get_renderer

    class Sized:
        merge_size = 1

        def get_number_of_image_patches(self, height, width, images_kwargs=None):
            return width

    def picture(tokens):
        return {"type": "image", "image": Image.new("RGB", (tokens, 1))}

    text = {"type": "text"}
    body = CookbookToolCall.FunctionBody(name="look", arguments='{"at": "é"}')
    messages = [
        {"role": "user", "content": [text | {"text": "Compare"}, picture(3), text | {"text": "with"}, picture(2)]},
        {"role": "assistant", "content": "", "tool_calls": [CookbookToolCall(function=body, id="c1")]},
        {"role": "tool", "content": "equal", "tool_call_id": "c1", "name": "look"},
        {"role": "assistant", "content": "They are equal."},
    ]
    processor: Any = Sized()
    return get_renderer("qwen3_vl_instruct", tokenizer.held, processor), messages


def chunks_of(model_input):
    """Token ids of each chunk; of an image, how many it takes."""
    return [
        list(chunk.tokens) if hasattr(chunk, "tokens") and chunk.type != "image" else chunk.expected_tokens
        for chunk in model_input.chunks
    ]


def supervised_common():
    """tinker-cookbook's module that shifts targets; its package imports what need not be installed."""
    import tinker_cookbook

    path = Path(tinker_cookbook.__file__).parent / "supervised" / "common.py"
    spec = importlib.util.spec_from_file_location("cookbook_supervised_common", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def length_of(chunk):
    """Tokens of a chunk."""
    return chunk if isinstance(chunk, int) else len(chunk)


def joined(chunks):
    """The same with neighbouring chunks of tokens in one."""
    found = []
    for chunk in chunks:
        if isinstance(chunk, list) and found and isinstance(found[-1], list):
            found[-1] = found[-1] + chunk
        else:
            found.append(chunk)
    return found


def ours(model_input):
    """The chunks of our type in that form."""
    return [
        chunk.tokens.tolist() if isinstance(chunk, TokensChunk) else chunk.expected_tokens
        for chunk in model_input.chunks
    ]


async def test_a_prompt_is_that_of_tinker_cookbook(tokenizer):
    """Chunk by chunk; the images are the caller's, unchanged."""
    renderer, messages = theirs(tokenizer)
    asked = Conversation(SHOWN.messages[:3])
    rendered = await render_question(tokenizer, asked, "tinker:qwen3_vl_instruct")

    found = input_of(rendered.tokens, images_of(asked))
    assert ours(found) == joined(chunks_of(renderer.build_generation_prompt(messages[:3])))
    assert [chunk for chunk in found.chunks if not isinstance(chunk, TokensChunk)] == [FIRST, SECOND]


@pytest.mark.parametrize("train_on", ["last_assistant", "all"])
async def test_an_example_is_that_of_tinker_cookbook(tokenizer, train_on):
    """Input, targets and weights, each of the length that the images take."""
    from tinker_cookbook.renderers import TrainOnWhat

    renderer, messages = theirs(tokenizer)
    kind = {"last_assistant": TrainOnWhat.LAST_ASSISTANT_MESSAGE, "all": TrainOnWhat.ALL_TOKENS}
    expected = supervised_common().datum_from_model_input_weights(
        *renderer.build_supervised_example(messages, kind[train_on])
    )
    datum = await render_supervised(tokenizer, Sample(input=SHOWN), train_on, "tinker:qwen3_vl_instruct")

    targets, weights = inputs_of(datum)
    assert ours(datum.model_input) == joined(chunks_of(expected.model_input))
    assert targets.tolist() == list(expected.loss_fn_inputs["target_tokens"].data)
    # With "all", theirs would train on predicting an image as token 0: ours has no weight there.
    of_images = [chunk for chunk in chunks_of(expected.model_input) for _ in range(length_of(chunk))][1:]
    given = [float(weight) for weight in expected.loss_fn_inputs["weights"].data]
    assert weights.tolist() == [
        0.0 if isinstance(chunk, int) else weight for chunk, weight in zip([*of_images, []], given, strict=True)
    ]


async def test_an_example_needs_the_length_of_its_images(tokenizer):
    """Weights have the length of the input."""
    image = ImageChunk(data=b"", format="png")
    turns = (ChatMessage("user", parts=(image,)), ChatMessage("assistant", "A dot."))

    with pytest.raises(InvalidField, match="expected_tokens"):
        await render_supervised(
            tokenizer, Sample(input=Conversation(turns)), "last_assistant", "tinker:qwen3_vl_instruct"
        )


@pytest.mark.parametrize("renderer", ["role_colon", "raw", "tinker:qwen3_instruct"])
async def test_renderers_of_text_refuse_images(tokenizer, renderer):
    """None leaves an image out."""
    with pytest.raises(InvalidField):
        await render_question(tokenizer, Conversation(SHOWN.messages[:1]), renderer)


def test_places_become_images():
    """The first chunk may be an image, and two may follow each other."""
    found = input_of([-1, 5, -2, -3, 6], (FIRST, SECOND, FIRST))

    assert [chunk.tokens.tolist() if isinstance(chunk, TokensChunk) else chunk for chunk in found.chunks] == [
        FIRST,
        [5],
        SECOND,
        FIRST,
        [6],
    ]
    assert input_of(np.array([1, 2]), ()).tokens().tolist() == [1, 2]


def test_images_take_a_bounded_number_of_tokens_together():
    """The caller says how many; arrays of as many are made, but not of more than any model reads."""
    images = [ImageChunk(data=b"", format="png", expected_tokens=count) for count in (600_000, 600_000)]
    tokens = np.array([-1, 5, -2, 6])

    assert weights_of(tokens[:2], np.ones(2, np.float32), images[:1]).size == 600_001
    with pytest.raises(InvalidField, match=r"take 1,200,000 tokens together, at most 1,000,000"):
        weights_of(tokens, np.ones(4, np.float32), images)


@pytest.mark.parametrize("count", [0, -1])
def test_an_image_takes_a_token_at_least(count):
    """The error says what was given."""
    image = ImageChunk(data=b"", format="png", expected_tokens=count)
    with pytest.raises(InvalidField, match=rf"`expected_tokens` of {count}"):
        weights_of(np.array([-1, 5]), np.ones(2, np.float32), [image])
