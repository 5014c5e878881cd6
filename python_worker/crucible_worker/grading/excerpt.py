"""How much of an extracted answer is reported."""

from __future__ import annotations

__all__ = ["MAX_EXTRACTED_CHARS", "shown"]

MAX_EXTRACTED_CHARS = 1_000
"""Most characters of an extracted answer that are reported: in a grade, in an evaluation's samples, in a file."""


def shown(answer: str) -> str:
    """What was taken for the answer, cut to `MAX_EXTRACTED_CHARS`, the last of which is an ellipsis then."""
    return answer if len(answer) <= MAX_EXTRACTED_CHARS else answer[: MAX_EXTRACTED_CHARS - 1] + "…"
