"""RenderingService at a real worker: tokens, weights and messages are those of transformers and of tinker-cookbook."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import FailedPrecondition, InvalidField, NotFound, PermissionDenied
from crucible_bridge.types import ChatMessage, Conversation, SampledSequence, Termination
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from crucible_worker.util.limits import WorkerLimits
from tests import needs
from tests.service.models_kit import fields, reasons
from tests.tables import rows
from tests.unit.rendering.tokenizers_made import SPECIAL, byte_tokenizer, inputs_of

needs.modules("torch", "transformers")
pytestmark = pytest.mark.asyncio(loop_scope="module")

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
ALTERNATING = "{% if messages[0].role != 'user' %}{{ raise_exception('begin with the user') }}{% endif %}" + CHATML
TEMPLATES = {"chatml": CHATML, "thinking": THINKING, "alternating": ALTERNATING}
FAMILIES = {
    "llama3": ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>"),
    "qwen3": ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"),
    "qwen3_disable_thinking": ("<|im_start|>", "<|im_end|>", "<think>", "</think>"),
    "qwen3_instruct": ("<|im_start|>", "<|im_end|>", "<think>", "</think>"),
    "deepseekv3": (
        "<\uff5cbegin▁of▁sentence\uff5c>",
        "<\uff5cend▁of▁sentence\uff5c>",
        "<\uff5cUser\uff5c>",
        "<\uff5cAssistant\uff5c>",
        "<think>",
        "</think>",
    ),
    "gpt_oss_low_reasoning": ("<|start|>", "<|message|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>"),
    "role_colon": ("<|begin|>", "<|end|>"),
}
"""The special tokens of each format, by a renderer of tinker-cookbook."""
NOT_SPECIAL = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""Those that are tokens without being special ones, as in the tokenizers of these families."""
ANSWERS = ("46", "line\nline", "", "<think>6*7</think>42", "a\n\nUser: b", "é 中 \U0001f600")
TURNS = (
    [{"role": "user", "content": "1+1?"}],
    [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1?"}],
    [
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "é 中 \U0001f600\n"},
    ],
)


def tokenizer_of(specials: Sequence[str]) -> Any:
    """A token per byte, and these special tokens; the first begins a text, the second ends one."""
    tokenizer = byte_tokenizer(bos=False, special=SPECIAL[:3])
    plain = [text for text in specials if text in NOT_SPECIAL]
    marks = [text for text in specials if text not in NOT_SPECIAL]
    tokenizer.add_special_tokens(
        {"bos_token": specials[0], "eos_token": specials[1], "additional_special_tokens": marks}
    )
    tokenizer.add_tokens(plain)
    return tokenizer


def templated(name: str) -> Any:
    """The tokenizer of bytes with a chat template."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATES[name]
    return tokenizer


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model root of tokenizers without models."""
    root = tmp_path_factory.mktemp("root")
    for name in TEMPLATES:
        templated(name).save_pretrained(root / name)
    for name, specials in FAMILIES.items():
        tokenizer_of(specials).save_pretrained(root / f"family_{name}")
    byte_tokenizer().save_pretrained(root / "plain")
    (root / "empty").mkdir()
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridge(root: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    """A worker as it is served, and its client."""
    settings = Settings(port=0, state_dir=tmp_path_factory.mktemp("state"), model_roots=(root,))
    async with Worker(settings.validate()) as worker, crucible_bridge.connect(worker.address) as bridge:
        yield bridge


def conversation(messages: Sequence[dict[str, str]]) -> Conversation:
    """The same as our type."""
    return Conversation(tuple(ChatMessage(one["role"], one["content"]) for one in messages))


def example_of(renderer: Any, messages: Any) -> tuple[Any, Any] | str:
    """What a renderer of tinker-cookbook makes of a conversation; the name of its error if it refuses it."""
    from tinker_cookbook.renderers import TrainOnWhat

    try:
        return renderer.build_supervised_example(messages, train_on_what=TrainOnWhat.LAST_ASSISTANT_MESSAGE)
    except Exception as error:
        return type(error).__name__


TEXTS = ("12+34=", "", " \n", "<|im_end|>", "é 中 \U0001f600", "x" * 10_000)


@rows("add", [True, False])
async def test_tokens_are_those_of_transformers(bridge: Bridge, add: bool):
    """Of every text of a batch, with and without the special tokens around it; and they become the text again."""
    here = templated("chatml")

    found = await bridge.rendering.tokenize("local:chatml", TEXTS, add_special_tokens=add)
    back = await bridge.rendering.detokenize("local:chatml", [item.tokens for item in found.items])
    bare = await bridge.rendering.detokenize(
        "local:chatml", [item.tokens for item in found.items], skip_special_tokens=True
    )

    assert [list(item.tokens) for item in found.items] == [here.encode(text, add_special_tokens=add) for text in TEXTS]
    assert [item.text for item in back.items] == [f"<|begin|>{text}" if add else text for text in TEXTS]
    assert [item.text for item in bare.items] == [text.replace("<|im_end|>", "") for text in TEXTS]


@rows("name", ["chatml", "thinking"])
async def test_prompts_are_those_of_the_chat_template(bridge: Bridge, name: str):
    """By bytes, for each conversation of a batch; the token that closes a message ends an answer."""
    here = templated(name)

    found = await bridge.rendering.build_generation_prompt(f"local:{name}", TURNS)

    assert [list(item.tokens) for item in found.items] == [
        here.apply_chat_template(turns, add_generation_prompt=True, return_dict=False) for turns in TURNS
    ]
    assert found.stop == ("<|im_end|>",)
    stops = await bridge.rendering.get_stop_sequences(f"local:{name}")
    assert (stops.stop, stops.stop_tokens) == (found.stop, (here.convert_tokens_to_ids("<|im_end|>"),))


@rows("renderer", list(FAMILIES))
async def test_prompts_and_weights_are_those_of_tinker_cookbook(bridge: Bridge, renderer: str):
    """Its own renderer, on the same tokenizer in this process, makes the same tokens, weights and stop sequences."""
    renderers = pytest.importorskip("tinker_cookbook.renderers", reason=needs.MISSING["tinker_cookbook"])
    here = tokenizer_of(FAMILIES[renderer])
    theirs, asked = renderers.get_renderer(renderer, here), f"tinker:{renderer}"
    # That of gpt-oss writes a system message by itself, and warns of a second one.
    asking = [turns for turns in TURNS if turns[0]["role"] != "system" or not renderer.startswith("gpt_oss")]
    answered = [[*turns, {"role": "assistant", "content": "2"}] for turns in asking]

    prompts = await bridge.rendering.build_generation_prompt(f"local:family_{renderer}", asking, renderer=asked)
    examples = await bridge.rendering.build_supervised_example(
        f"local:family_{renderer}", answered, renderer=asked, train_on="last_assistant"
    )

    assert [list(item.tokens) for item in prompts.items] == [
        theirs.build_generation_prompt(turns).to_ints() for turns in asking
    ]
    refused: list[str] = []
    stops = theirs.get_stop_sequences()
    assert list(prompts.stop) == [stop if isinstance(stop, str) else here.decode([stop]) for stop in stops]
    for item, messages in zip(examples.items, answered, strict=True):
        example = example_of(theirs, messages)
        if isinstance(example, str):
            refused.append(example)
            assert item.problem is not None
            assert example in item.problem.message
            continue
        assert item.datum is not None
        wanted, weights = example
        targets, weighted = map(np.asarray, inputs_of(item.datum))
        assert list(item.tokens) == wanted.to_ints()
        assert list(item.weights)[1:] == [float(weight) for weight in weights][1:]
        assert item.datum.model_input.tokens().tolist() == wanted.to_ints()[:-1]
        assert targets.tolist() == wanted.to_ints()[1:]
        assert weighted.tolist() == list(item.weights)[1:]
    assert refused == []


@rows("renderer", ["qwen3", "qwen3_instruct", "llama3", "deepseekv3", "role_colon"])
async def test_responses_are_parsed_as_tinker_cookbook_does(bridge: Bridge, renderer: str):
    """Text, reasoning, and whether it ended with a stop sequence, of tokens with and without an end."""
    renderers = pytest.importorskip("tinker_cookbook.renderers", reason=needs.MISSING["tinker_cookbook"])
    here = tokenizer_of(FAMILIES[renderer])
    theirs = renderers.get_renderer(renderer, here)
    (stop,) = theirs.get_stop_sequences()
    end = here.encode(stop, add_special_tokens=False) if isinstance(stop, str) else [stop]
    texts = [here.encode(answer, add_special_tokens=False) for answer in ANSWERS]
    given = [tokens for tokens in [*texts, *([*tokens, *end] for tokens in texts)] if tokens]

    found = await bridge.rendering.parse_response(f"local:family_{renderer}", given, renderer=f"tinker:{renderer}")

    assert reasons(found.items) == [None] * len(given)
    for tokens, item in zip(given, found.items, strict=True):
        message, ended = theirs.parse_response(tokens)
        parts = message["content"]
        parts = [{"type": "text", "text": parts}] if isinstance(parts, str) else parts
        assert item.text == "".join(part["text"] for part in parts if part["type"] == "text")
        assert item.reasoning == "\n\n".join(part["thinking"] for part in parts if part["type"] == "thinking")
        assert (item.termination is Termination.STOP) == (ended == "stop_sequence")


async def test_our_role_colon_is_theirs(bridge: Bridge):
    """Prompts, weights, stop sequences and messages are the same by either name."""
    pytest.importorskip("tinker_cookbook.renderers", reason=needs.MISSING["tinker_cookbook"])
    model, answered = "local:family_role_colon", [[*TURNS[0], {"role": "assistant", "content": "2"}]]
    texts = [" 2\n\nUser:", " 2", " 2\n\nUser: a\n\nUser:", " 2<|end|>", " 2\n\nUser:<|end|>"]

    ours, theirs = [
        (
            await bridge.rendering.build_generation_prompt(model, TURNS, renderer=name),
            (await bridge.rendering.build_supervised_example(model, answered, renderer=name)).items[0].weights[1:],
            await bridge.rendering.get_stop_sequences(model, renderer=name),
            await bridge.rendering.parse_response(model, texts, renderer=name),
        )
        for name in ("role_colon", "tinker:role_colon")
    ]

    assert ours == theirs
    assert [item.termination for item in ours[3].items] == [
        Termination.STOP,
        Termination.TRUNCATED,
        Termination.MALFORMED,
        Termination.EOS,
        Termination.MALFORMED,
    ]


async def test_weights_by_train_on(bridge: Bridge):
    """The last answer, all answers with the tokens that close them, or all tokens."""
    here = templated("chatml")
    turns = [*TURNS[2][:2], {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    counted: dict[str, str] = {}

    for train_on in ("last_assistant", "all_assistant", "all"):
        ((item,),) = [
            (await bridge.rendering.build_supervised_example("local:chatml", [turns], train_on=train_on)).items
        ]
        assert list(item.tokens) == here.apply_chat_template(turns, return_dict=False)
        counted[train_on] = here.decode([token for token, weight in zip(item.tokens, item.weights) if weight])

    assert counted["last_assistant"] == "4<|im_end|>\n"
    assert counted["all_assistant"] == "2<|im_end|>\n4<|im_end|>\n"
    # The first token has no weight: it is the target of none.
    assert counted["all"] == here.apply_chat_template(turns, tokenize=False).removeprefix("<|im_start|>")


PARSED = {
    "46<|im_end|>": ("46", "", Termination.STOP),
    "46": ("46", "", Termination.TRUNCATED),
    "<think>6*7</think>\n42<|im_end|>": ("42", "6*7", Termination.STOP),
    "<think>6*7<|im_end|>": ("", "6*7", Termination.MALFORMED),
    "<think>6*7": ("", "6*7", Termination.TRUNCATED),
    "46<|im_end|> and more": ("46", "", Termination.MALFORMED),
}


async def test_responses_by_a_chat_template(bridge: Bridge):
    """Text is parted from reasoning, and what is missing at its end says how it ended."""
    found = await bridge.rendering.parse_response("local:chatml", list(PARSED))

    assert [(item.text, item.reasoning, item.termination) for item in found.items] == list(PARSED.values())


async def test_calls_of_tools(bridge: Bridge):
    """Those that are JSON are calls, the others are kept as text and make the response malformed."""
    texts = [
        'Look: <tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call><|im_end|>',
        "<tool_call>{</tool_call><|im_end|>",
    ]

    right, wrong = (await bridge.rendering.parse_response("local:chatml", texts)).items

    assert (right.text, right.termination) == ("Look:", Termination.STOP)
    assert [(call.name, json.loads(call.arguments)) for call in right.tool_calls] == [("add", {"a": 1})]
    assert (wrong.tool_calls, wrong.termination) == ((), Termination.MALFORMED)
    assert [call.text for call in wrong.unparsed_tool_calls] == ["<tool_call>{</tool_call>"]


async def test_reasoning_that_the_prompt_opened(bridge: Bridge):
    """A template that opens it in the prompt leaves a response without the opening tag; truncated, all is reasoning."""
    found = await bridge.rendering.parse_response("local:thinking", ["6*7</think>\n42<|im_end|>", "6*7 is"])

    assert [(item.text, item.reasoning, item.termination) for item in found.items] == [
        ("42", "6*7", Termination.STOP),
        ("", "6*7 is", Termination.TRUNCATED),
    ]


async def test_samples_are_parsed_as_they_come(bridge: Bridge):
    """A sampler removes the stop sequence from the text, and `stop_reason` says that there was one."""
    here = byte_tokenizer()
    sampled = [
        SampledSequence(text="46", tokens=tuple(here.encode("46<|im_end|>", add_special_tokens=False))),
        SampledSequence(text="46", tokens=(), stop_reason="stop"),
        SampledSequence(text="46", tokens=(), stop_reason="length"),
    ]

    found = await bridge.rendering.parse_response("local:chatml", sampled)

    assert [(item.text, item.termination) for item in found.items] == [
        ("46", Termination.STOP),
        ("46", Termination.STOP),
        ("46", Termination.TRUNCATED),
    ]


async def test_an_item_that_fails_costs_no_other(bridge: Bridge):
    """Each has a problem at its own path."""
    prompts = await bridge.rendering.build_generation_prompt(
        "local:alternating", [TURNS[0], [{"role": "assistant", "content": "2"}], TURNS[2]]
    )
    texts = await bridge.rendering.detokenize("local:plain", [[1], [10**6], [2]])
    examples = await bridge.rendering.build_supervised_example("local:chatml", [TURNS[0]])

    assert fields(prompts.items) == [None, "conversations[1].messages", None]
    assert fields(texts.items) == [None, "sequences[1].tokens[0]", None]
    assert reasons(examples.items) == ["INVALID_FIELD"]


async def test_a_batch_larger_than_a_request_keeps_its_order(bridge: Bridge):
    """Texts go to the tokenizer in several requests."""
    texts = [f"{index}" * (index % 700) for index in range(1_500)]
    here = byte_tokenizer()

    found = await bridge.rendering.tokenize("local:plain", texts)

    assert [list(item.tokens) for item in found.items] == [
        here.encode(text, add_special_tokens=False) for text in texts
    ]


async def test_what_cannot_be_done_is_refused(bridge: Bridge, root: Path):
    """By an error for the whole call, with its reason."""
    calls = bridge.rendering
    for error, reason, call in (
        (NotFound, "MODEL_NOT_FOUND", calls.tokenize("local:no_such", ["a"])),
        (PermissionDenied, "PATH_OUT_OF_ROOT", calls.tokenize("local:../", ["a"])),
        (FailedPrecondition, "NO_TOKENIZER", calls.tokenize("local:empty", ["a"])),
        (InvalidField, "INVALID_FIELD", calls.tokenize("local:plain", [])),
        (InvalidField, "INVALID_FIELD", calls.tokenize("local:plain", "a")),
        (InvalidField, "INVALID_FIELD", calls.build_generation_prompt("local:plain", ["a"], renderer="no such")),
        (FailedPrecondition, "NO_CHAT_TEMPLATE", calls.build_generation_prompt("local:plain", TURNS[1:2])),
        (InvalidField, "INVALID_FIELD", calls.build_supervised_example("local:chatml", ["a"], train_on="none")),
        (InvalidField, "INVALID_FIELD", calls.parse_response(None, ["a"])),
    ):
        with pytest.raises(error) as caught:
            await call
        assert caught.value.reason == reason


async def test_a_changed_tokenizer_is_read_anew(bridge: Bridge, root: Path):
    """A file that is replaced counts from the next call on."""
    byte_tokenizer().save_pretrained(root / "changing")
    before = await bridge.rendering.tokenize("local:changing", ["<extra>"])
    changed = byte_tokenizer()
    changed.add_special_tokens({"additional_special_tokens": ["<extra>"]})
    changed.save_pretrained(root / "changing")

    after = await bridge.rendering.tokenize("local:changing", ["<extra>"])

    assert [len(found.items[0].tokens) for found in (before, after)] == [len("<extra>"), 1]


async def test_renderers_that_need_no_model(bridge: Bridge):
    """Plain text is parsed without a tokenizer."""
    for renderer in ("role_colon", "tinker:role_colon"):
        found = await bridge.rendering.parse_response(None, [" 46\n\nUser: thanks", " 4"], renderer=renderer)
        stops = await bridge.rendering.get_stop_sequences(renderer=renderer)

        assert [(item.text, item.termination) for item in found.items] == [
            ("46", Termination.STOP),
            ("4", Termination.TRUNCATED),
        ]
        assert stops.stop == ("\n\nUser:",)
    for renderer, why in (("auto", "a part of the tokenizer"), ("tinker:qwen3", "reads token ids")):
        with pytest.raises(InvalidField, match=f"^model is not given.*{why}"):
            await bridge.rendering.get_stop_sequences(renderer=renderer)


async def test_renderers_are_listed(bridge: Bridge):
    """The worker's own, and each of tinker-cookbook that a call accepts."""
    listed = await bridge.rendering.list_renderers()

    names = [renderer.name for renderer in listed]
    assert names[:4] == ["auto", "chat_template", "role_colon", "raw"]
    assert len(set(names)) == len(names)
    if importlib.util.find_spec("tinker_cookbook") is not None:
        assert {f"tinker:{name}" for name in FAMILIES} <= set(names)
        assert not any(renderer.unavailable for renderer in listed)


async def test_the_blocking_client_has_the_same(bridge: Bridge):
    """One call of it, in a thread."""
    address = bridge._calls.address

    def ask() -> Any:
        with crucible_bridge.connect_sync(address) as blocking:
            return blocking.rendering.tokenize("local:plain", ["46"])

    assert await asyncio.to_thread(ask) == await bridge.rendering.tokenize("local:plain", ["46"])


SLOW = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}" + CHATML


async def test_a_template_that_never_ends_costs_its_call_alone(tmp_path: Path):
    """It is killed at its limit, while another tokenizer and health answer; then it is loaded again."""
    slow, quick = byte_tokenizer(), byte_tokenizer()
    slow.chat_template = SLOW
    slow.save_pretrained(tmp_path / "root" / "slow")
    quick.save_pretrained(tmp_path / "root" / "quick")
    settings = Settings(
        port=0,
        state_dir=tmp_path / "state",
        model_roots=(tmp_path / "root",),
        limits=WorkerLimits(max_rendering_seconds=1.0),
    )
    async with Worker(settings.validate()) as worker, crucible_bridge.connect(worker.address) as bridge:
        slowly = [
            asyncio.create_task(bridge.rendering.parse_response("local:slow", ["a", "b"])),
            asyncio.create_task(bridge.rendering.build_generation_prompt("local:slow", ["a"])),
        ]
        found = await bridge.rendering.tokenize("local:quick", ["46"])
        parsed, prompts = await asyncio.gather(*slowly)
        again = await bridge.rendering.tokenize("local:slow", ["46"])

    assert reasons(parsed.items) == ["RENDERING_LIMIT", "RENDERING_LIMIT"]
    assert reasons(prompts.items) == ["RENDERING_LIMIT"]
    assert found == again
