"""The blocks of docs/rewards.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "rewards.md"


def block(heading: str) -> str:
    """The Python below a heading of the page."""
    section = re.split(rf"^#+ {heading}$", PAGE.read_text(), flags=re.MULTILINE)[1]
    found = re.search(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def defined(heading: str) -> dict[str, Any]:
    """What a block defines."""
    names: dict[str, Any] = {}
    exec(compile(block(heading), heading, "exec"), names)
    return names
