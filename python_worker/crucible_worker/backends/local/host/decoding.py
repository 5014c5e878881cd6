"""The text of generated tokens: without special tokens, except those that mark where reasoning begins and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crucible_worker.util.reasoning import CHANNEL, CHANNEL_MARKS, TAGS

__all__ = ["decoded_answer", "marks_of"]


def marks_of(tokenizer: Any) -> Mapping[int, str]:
    """The special tokens of a tokenizer that mark reasoning, by id: without them it would look like an answer."""
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    special = {index: token.content for index, token in added.items() if token.special}
    marks = TAGS | CHANNEL_MARKS if CHANNEL in special.values() else TAGS
    return {index: content for index, content in special.items() if content in marks}


def decoded_answer(tokenizer: Any, marks: Mapping[int, str], tokens: Sequence[int]) -> str:
    """The text of tokens, with the marks that `marks_of` returned."""
    if not marks or marks.keys().isdisjoint(tokens):  # as a rule
        return _decoded(tokenizer, tokens)
    pieces: list[str] = []
    begin = 0
    for place, token in enumerate(tokens):
        if token in marks:
            pieces += (_decoded(tokenizer, tokens[begin:place]), marks[token])
            begin = place + 1
    return "".join((*pieces, _decoded(tokenizer, tokens[begin:])))


def _decoded(tokenizer: Any, tokens: Sequence[int]) -> str:
    return tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False) if tokens else ""
