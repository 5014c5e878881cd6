"""What each call does, in one sentence, for tools: `snakepit/call_descriptions.py`."""

from __future__ import annotations

import re
from pathlib import Path

from generator.schema import PACKAGE, Schema
from generator.sources import HEADER

__all__ = ["make"]


def make(schema: Schema, into: Path) -> dict[str, str]:
    """The module's text."""
    lines = [
        f"    {f'/{PACKAGE}.{service.name}/{method.name}'!r}: {_sentence(method.comment)!r},"
        for service in schema.services.values()
        for method in service.methods
    ]
    text = f'''{HEADER}
"""What each call does, in one sentence."""

# Sentences are not wrapped.
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CALL_DESCRIPTIONS"]

CALL_DESCRIPTIONS: Mapping[str, str] = {{
{chr(10).join(lines)}
}}
"""By the path of the call, the first sentence of its comment in the protos."""
'''
    return {"call_descriptions.py": text}


def _sentence(comment: str) -> str:
    return re.split(r"(?<=\.) ", " ".join(comment.split()), maxsplit=1)[0]
