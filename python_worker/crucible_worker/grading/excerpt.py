"""Truncates extracted answers for reports."""

from __future__ import annotations

__all__ = ["MAX_EXTRACTED_CHARS", "shown"]

MAX_EXTRACTED_CHARS = 1_000
"""Most characters of an extracted answer that are reported: in a grade, in an evaluation's samples, in a file."""


def shown(answer: str) -> str:
    """The extracted answer, truncated to `MAX_EXTRACTED_CHARS`; the last of them is then an ellipsis."""
    return answer if len(answer) <= MAX_EXTRACTED_CHARS else answer[: MAX_EXTRACTED_CHARS - 1] + "…"
