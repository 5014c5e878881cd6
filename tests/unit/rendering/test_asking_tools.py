"""Calls of tools in the answers of a model whose prompt the worker makes, behind a tokenizer's own process."""

from __future__ import annotations

from typing import Any

import pytest

from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    ModelInput,
    SampledSequence,
    SamplingParams,
    ToolSpec,
)
from crucible_worker.backends.base import Model
from crucible_worker.backends.local.tokenizer import HostedTokenizer
from crucible_worker.inference.retries import RetryingModel, RetryPolicy
from crucible_worker.rendering import ask
from tests import needs
from tests.tables import rows
from tests.unit.rendering.tokenizers_made import SPECIAL, byte_tokenizer

needs.modules("transformers")

TOOL = ToolSpec(name="add", description="Adds.", parameters='{"type": "object", "properties": {}}')
ASKED = Conversation((ChatMessage("user", "1+1?"),), (TOOL,))
TEMPLATE = "{{ tools }}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


class SayingModel(Model):
    """Says one text, in the tokens of its tokenizer."""

    fingerprint = "saying"

    def __init__(self, text: str, template: str) -> None:
        from crucible_worker.backends.local.host.texts import Texts, facts_of

        self._held = byte_tokenizer(special=(*SPECIAL, "[TOOL_CALLS]", "<|tool_call|>"))
        self._held.add_tokens(["<tool_call>", "</tool_call>"])
        self._held.chat_template = template
        texts = Texts(self._held, 100_000)

        async def call(op: str, **fields: Any) -> Any:
            return texts.answer({"op": op, **fields})

        self.tokenizer = self._tokenizer = HostedTokenizer(call=call, **facts_of(self._held))
        self._text = text
        self.prompt = ""

    async def sample(self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1) -> list[SampledSequence]:
        self.prompt = self._held.decode(prompt.tokens().tolist())
        tokens = tuple(self._held.encode(self._text, add_special_tokens=False))
        text = await self._tokenizer.decode_answer(tokens)
        return [SampledSequence(text=text, tokens=tokens)] * num_samples


@rows(
    ("renderer", "template", "said", "answer", "whole"),
    [
        ("auto", TEMPLATE + "<tool_call>", f"<think>Hm.</think>So: {CALL}<|im_end|>", "So:", True),
        ("auto", TEMPLATE + "[TOOL_CALLS]", '[TOOL_CALLS]add{"a": 1}<|im_end|>', "", False),
        (
            "chat_template",
            TEMPLATE + "<|tool_call|>",
            '<|tool_call|>[{"name": "add", "arguments": {"a": 1}}]',
            "",
            False,
        ),
        ("tinker:qwen3_instruct", TEMPLATE, f"{CALL}<|im_end|>", "", True),
    ],
)
async def test_calls_are_parsed_where_the_prompt_is_made(
    renderer: str, template: str, said: str, answer: str, whole: bool
):
    """The answer is the text without them; the sequence keeps what was generated. Behind the gate as before it."""
    if renderer.startswith("tinker:"):
        pytest.importorskip("tinker_cookbook", reason=needs.MISSING["tinker_cookbook"])
    model = SayingModel(said, template)
    for asked in (model, RetryingModel(model, RetryPolicy(10))):
        (found,) = (await ask(asked, ASKED, SamplingParams(max_tokens=80), renderer=renderer)).answers

        (call,) = found.sequence.tool_calls
        assert (call.name, call.arguments) == ("add", '{"a": 1}')
        assert found.answer == answer
        assert (CALL in found.sequence.text) is whole
        assert "Adds." in model.prompt


async def test_a_call_within_the_reasoning_is_none():
    """A model may think of one; and without tools, a text with its marks is text."""
    thought = SayingModel(f"<think>{CALL}</think>2<|im_end|>", TEMPLATE)
    (found,) = (await ask(thought, ASKED, SamplingParams(max_tokens=80))).answers
    assert (found.answer, found.sequence.tool_calls) == ("2", ())

    quoted = SayingModel(CALL, TEMPLATE.replace("{{ tools }}", ""))
    (found,) = (await ask(quoted, "1+1?", SamplingParams(max_tokens=80))).answers
    assert (found.answer, found.sequence.tool_calls) == (CALL, ())


async def test_a_response_that_a_renderer_refuses_is_no_error_of_the_answer():
    """It is kept as a call that cannot be parsed, as far as the renderer says why."""
    pytest.importorskip("tinker_cookbook", reason=needs.MISSING["tinker_cookbook"])
    model = SayingModel("<tool_call>{</tool_call><|im_end|>", TEMPLATE)
    (found,) = (await ask(model, ASKED, SamplingParams(max_tokens=80), renderer="tinker:qwen3_instruct")).answers

    assert found.sequence.tool_calls == ()
    assert [call.text for call in found.sequence.unparsed_tool_calls] == ["<tool_call>{</tool_call>"]
