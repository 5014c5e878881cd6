"""Checks in a child, which can be killed, whether a checkpoint can be loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.host.loading import load_tokenizer
from crucible_worker.backends.local.host.refusals import refusing
from crucible_worker.backends.local.host.sizes import check_sizes
from crucible_worker.backends.local.host.texts import Texts, check_tokenizer, facts_of

__all__ = ["load"]


def load(message: dict[str, Any], max_rendered_chars: int) -> tuple[Texts | None, Any]:
    """The texts of a directory, and the facts about its tokenizer, which are empty if it has none.

    Args:
        message: the `path`, and whether its tokenizer is wanted `alone`: then there need be no model.
        max_rendered_chars: bound of the texts.

    Raises:
        FailedPrecondition: its configuration does not describe its weights, or its tokenizer cannot be read
            (MODEL_REFUSED).
    """
    directory = Path(message["path"])
    with refusing(directory, Reason.MODEL_REFUSED):
        if not message["alone"]:
            check_sizes(directory)
        tokenizer = load_tokenizer(directory)
    if tokenizer is None:
        return None, {}
    check_tokenizer(tokenizer, directory)
    return Texts(tokenizer, max_rendered_chars), facts_of(tokenizer)
