"""The calls of each service in the table of docs/overview.md."""

from __future__ import annotations

import re
from pathlib import Path

from generator.schema import PROTOS, Schema

__all__ = ["make"]


def make(schema: Schema, into: Path) -> dict[str, str]:
    """The page's text."""
    text = (PROTOS.parent / "docs" / "overview.md").read_text()
    for service in schema.services.values():
        row = re.compile(rf"^(\| `{service.name}` \| )`\w+`(?:, `\w+`)*", re.MULTILINE)
        calls = ", ".join(f"`{method.name}`" for method in service.methods)
        text, replaced = row.subn(rf"\g<1>{calls}", text)
        if replaced != 1:
            raise SystemExit(f"docs/overview.md has {replaced} rows of {service.name}, must have one")
    return {"docs/overview.md": text}
