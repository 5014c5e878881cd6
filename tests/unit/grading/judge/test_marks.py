"""Marks of chat templates before a tokenizer that knows them: none is left of what a judge is shown."""

from __future__ import annotations

from typing import Any

import pytest

from crucible_worker.grading.judge.texts import digest_mark, readable
from tests import needs
from tests.tables import rows
from tests.unit.grading.judge.gullible import injections

tokenizers: Any = pytest.importorskip("tokenizers", reason=needs.MISSING["tokenizers"])

FAMILIES: dict[str, tuple[str, ...]] = {
    "ChatML": ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_middle|>"),
    "Llama 3": ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"),
    "Llama 2": ("<s>", "</s>", "<unk>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"),
    "Mistral": (
        "[TOOL_CALLS]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[SYSTEM_PROMPT]",
        "[THINK]",
    ),
    "Gemma": ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<pad>", "<mask>", "<unused7>"),
    "Phi": ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
    "DeepSeek": (
        "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<\uff5cUser\uff5c>",
        "<\uff5cAssistant\uff5c>",
    ),
    "Harmony": ("<|start|>", "<|channel|>", "<|message|>", "<|return|>", "<|call|>"),
    "Command": (
        "<|START_OF_TURN_TOKEN|>",
        "<|END_OF_TURN_TOKEN|>",
        "<|SYSTEM_TOKEN|>",
        "<|CHATBOT_TOKEN|>",
        "<BOS_TOKEN>",
    ),
    "EXAONE": ("[|system|]", "[|user|]", "[|assistant|]", "[|endofturn|]"),
    "InternLM": ("<eoh>", "<eoa>", "[UNUSED_TOKEN_145]"),
    "MiniMax": ("]~!b[", "]~b]", "[e~["),
    "Seed": ("<seed:bos>", "<seed:eos>", "<seed:think>", "</seed:think>"),
    "StarCoder": ("<fim_prefix>", "<fim_middle>", "<fim_suffix>"),
    "GLM": ("[gMASK]", "<sop>", "<eop>", "<|observation|>"),
    "thoughts and tools": ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
}
MARKS = [mark for family in FAMILIES.values() for mark in family]


@pytest.fixture(scope="module", params=[False, True], ids=["as written", "normalized"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    """One that knows the marks of every family, those of normalized text as well."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.normalizer = tokenizers.normalizers.NFKC()
    made.add_special_tokens([tokenizers.AddedToken(mark, normalized=request.param) for mark in MARKS])
    return made


@rows("mark", MARKS)
def test_a_mark_is_read_as_letters(tokenizer: Any, mark: str) -> None:
    """As it stands it ends a turn, or begins one; as a judge is shown it, it does not."""
    assert tokenizer.encode(mark).tokens != []
    assert tokenizer.encode(readable(mark)).tokens == []
    for text in (f"4{mark * 3}4", mark[:2] + mark + mark[2:], mark.replace(mark[1], f"\u200b{mark[1]}", 1)):
        assert tokenizer.encode(readable(text)).tokens == []


@rows("name", injections())
def test_no_injection_makes_a_turn(tokenizer: Any, name: str) -> None:
    """Of all that is tried."""
    assert tokenizer.encode(readable(injections()[name])).tokens == []


def test_a_mark_of_ours_is_none_of_theirs(tokenizer: Any) -> None:
    """Digits and letters alone."""
    assert tokenizer.encode(f"==== {digest_mark(('x',))}").tokens == []
