"""How a child of the text host loads the tokenizer of a base model."""

from __future__ import annotations

from typing import Any

from tinker.lib.public_interfaces.sampling_client import (
    # `get_tokenizer` of the library's clients calls it. A client has a session and a key, which no child gets.
    _load_tokenizer_from_model_info as load_tokenizer,
)

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.host.texts import Texts, facts_of

__all__ = ["load"]


def load(message: dict[str, Any], max_rendered_chars: int) -> tuple[Texts, dict[str, Any]]:
    """The texts of a base model, and the facts about its tokenizer that the worker needs.

    It may be fetched from the Hugging Face hub, or come from the hub's offline cache.

    Raises:
        FailedPrecondition: it cannot be loaded (NO_TOKENIZER).
    """
    base_model = message["base_model"]
    try:
        tokenizer: Any = load_tokenizer(base_model, message["tokenizer_id"])
    except MemoryError:
        raise
    except Exception as error:
        # Loaders fail in many ways, with the same meaning; their texts contain addresses and paths.
        why = f"that of {base_model!r} cannot be loaded ({type(error).__name__})"
        raise FailedPrecondition(why, reason=Reason.NO_TOKENIZER) from error
    return Texts(tokenizer, max_rendered_chars), facts_of(tokenizer)
