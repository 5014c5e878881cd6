"""A tokenizer of transformers made here: a token per byte, and the special tokens of a chat format."""

import asyncio
from collections.abc import Sequence
from typing import Any

from crucible_worker.backends.base import Tokenizer
from crucible_worker.rendering import tinker_cookbook

SPECIAL = ("<|begin|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")


def byte_tokenizer(*, bos: bool = True, special: Sequence[str] = SPECIAL) -> Any:
    """Bytes and special tokens; a text begins with the first of these where the caller asks for special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(special))
    if bos:
        made.post_processor = processors.TemplateProcessing(
            single=f"{SPECIAL[0]} $A", special_tokens=[(SPECIAL[0], made.token_to_id(SPECIAL[0]))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=SPECIAL[0] if bos else None, eos_token=SPECIAL[2], name_or_path="bytes"
    )


def inputs_of(datum) -> tuple[Any, Any]:
    """What a datum has as targets and as weights."""
    return datum.loss_fn_inputs["target_tokens"], datum.loss_fn_inputs["weights"]


class HeldTokenizer(Tokenizer):
    """A tokenizer of transformers behind the worker's protocol, in this process."""

    has_chat_template = False

    def __init__(self, tokenizer: Any) -> None:
        self.held = tokenizer
        self.bos_token_id = tokenizer.bos_token_id
        self.eos_token_id = tokenizer.eos_token_id

    async def encode(self, text):
        return self.held.encode(text)

    async def encode_continuation(self, text):
        return self.held.encode(text, add_special_tokens=False)

    async def encode_chat(self, messages, *, generation_prompt):
        raise AssertionError("it has no chat template")

    async def decode(self, tokens):
        return self.held.decode(list(tokens), skip_special_tokens=True)

    async def render_cookbook(self, renderer, messages, *, train_on=None, tools=()):
        return await asyncio.to_thread(tinker_cookbook.render, self.held, renderer, messages, train_on=train_on)
