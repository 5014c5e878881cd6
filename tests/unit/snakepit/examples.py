"""The example of each tool that docs/snakepit.md prints: page and tests have one source."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "snakepit.md"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A tool as the page calls it."""

    name: str
    parameters: Mapping[str, Any]
    binary: Mapping[str, bytes]


def examples() -> list[Example]:
    """All of them, in the page's order, in which they run."""
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)]
    return [
        Example(
            name=block["tool"],
            parameters=block["parameters"],
            binary={name: base64.b64decode(data) for name, data in block.get("binary_parameters", {}).items()},
        )
        for block in blocks
    ]
