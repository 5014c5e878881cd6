"""Checks in a child, which can be killed, whether a checkpoint can be loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.host.loading import load_tokenizer
from crucible_worker.backends.local.host.refusals import refusing
from crucible_worker.backends.local.host.sizes import check_sizes
from crucible_worker.backends.local.host.texts import Texts, check_tokenizer

__all__ = ["load"]


def load(message: dict[str, Any], max_rendered_chars: int) -> tuple[Texts | None, bool]:
    """The checkpoint's texts, and whether it has a tokenizer.

    Raises:
        FailedPrecondition: its configuration does not describe its weights, or its tokenizer cannot be read
            (MODEL_REFUSED).
    """
    directory = Path(message["path"])
    with refusing(directory, Reason.MODEL_REFUSED):
        check_sizes(directory)
        tokenizer = load_tokenizer(directory)
    if tokenizer is None:
        return None, False
    check_tokenizer(tokenizer, directory)
    return Texts(tokenizer, max_rendered_chars), True
