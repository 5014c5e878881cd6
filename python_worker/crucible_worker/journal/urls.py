"""The URL of a journal, as people may see it."""

from __future__ import annotations

import re

__all__ = ["without_password"]


def without_password(url: str) -> str:
    """The URL for people: without a password."""
    return re.sub(r"(//[^/:@]*):[^@/]*@", r"\1@", re.sub(r"(password=)[^&\s]*", r"\1...", url))
