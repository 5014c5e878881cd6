"""Texts of others within lines for people."""

from __future__ import annotations

__all__ = ["one_line"]


def one_line(text: str) -> str:
    """A text without what a terminal would obey, or a system that reads lines.

    A line end would begin another line, which could look like a command of GitHub Actions.
    """
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
