"""Maps the errors of transformers and peft about invalid files to one error."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError

from crucible_bridge.errors import FailedPrecondition

__all__ = ["refusing"]

_RAISED = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ImportError,
    RuntimeError,
    re.error,
    SafetensorError,
)


@contextlib.contextmanager
def refusing(directory: Path, reason: str) -> Iterator[None]:
    """Turn a library's error about a directory into ours; a lack of memory is raised unchanged.

    Raises:
        FailedPrecondition: with that reason.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except _RAISED as error:
        if "can't allocate memory" in str(error):
            raise
        raise FailedPrecondition(f"{directory.name!r} cannot be loaded: {_first_line(error)}", reason=reason) from error


def _first_line(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"malformed JSON: {error}"
    return (str(error) or type(error).__name__).strip().splitlines()[0]
