"""Several texts in tokens, in one call where the tokenizer takes them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import TypeGuard

from crucible_worker.backends.base import BatchTokenizer, Tokenizer

__all__ = ["encode_all"]


async def encode_all(
    tokenizer: Tokenizer, texts: Sequence[str], *, continuations: bool = False
) -> Sequence[Sequence[int]]:
    """Token ids of each text.

    Args:
        tokenizer: who is asked.
        texts: may be none.
        continuations: whether they go on from other text, see `Tokenizer.encode_continuation`.
    """
    batches = tokenizer  # a name of its own: the guard's answer takes the place of what is known of the type
    if _takes_all(batches):
        return await batches.encode_all(texts, continuations=continuations)
    encode = tokenizer.encode_continuation if continuations else tokenizer.encode
    return await asyncio.gather(*map(encode, texts))


def _takes_all(tokenizer: object) -> TypeGuard[BatchTokenizer]:
    return _is_batch_tokenizer(type(tokenizer))


@functools.cache
def _is_batch_tokenizer(kind: type) -> bool:
    # A protocol takes 10 us to look for its methods.
    return issubclass(kind, BatchTokenizer)
