"""What the protos declare, read from their text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

__all__ = ["CALLS", "COMPUTING"]

_TEXT = "\n".join(
    path.read_text() for path in (Path(__file__).parents[1] / "protos" / "crucible_bridge" / "v1").glob("*.proto")
)

CALLS: Mapping[str, frozenset[str]] = {
    service: frozenset(re.findall(r"^  rpc (\w+)", body, re.MULTILINE))
    for service, body in re.findall(r"^service (\w+) \{(.*?)^\}", _TEXT, re.MULTILINE | re.DOTALL)
}
"""The calls of each service, by its name."""

COMPUTING = frozenset({"MetricsService", "GradingService", "ModelService", "RenderingService"})
"""Services that compute: docs/one_line_each.md has a line for each call of them."""
