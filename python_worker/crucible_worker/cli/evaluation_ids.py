"""Ids of evaluations that people can read: "arithmetic-600-arithmetic-20261124-211530-7k2f".

The id names the model, what it was evaluated on, and the local time; four random characters make it unique.
"""

from __future__ import annotations

import datetime
import re
import secrets

__all__ = ["MAX_PART", "new_id"]

MAX_PART = 32
"""Characters of the model's name, and of what it was evaluated on."""
RANDOM_CHARACTERS = 4
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
"""Without characters that look alike."""
_OTHERS = re.compile(r"[^A-Za-z0-9._]+")


def new_id(model: str, made_for: str, now: datetime.datetime | None = None) -> str:
    """A new id, of characters that a shell leaves alone.

    Args:
        model: as it was typed, "embedded:arithmetic@600"; empty if there are several.
        made_for: a data set, task or suite as it was typed, "jsonl:data/sums.jsonl".
        now: the time; the current one if None.
    """
    when = (datetime.datetime.now() if now is None else now).strftime("%Y%m%d-%H%M%S")
    unique = "".join(secrets.choice(_ALPHABET) for _ in range(RANDOM_CHARACTERS))
    return "-".join(filter(None, (_named(model), _named(made_for), when, unique)))


def _named(text: str) -> str:
    """The last part of a path or name, without scheme, columns and the ending of a file."""
    *_, last = text.partition("?")[0].rstrip("/").split("/")
    if "/" not in text:
        last = last.partition(":")[2] or last
    for ending in (".jsonl", ".csv", ".parquet", ".toml"):
        last = last.removesuffix(ending)
    return _OTHERS.sub("-", last).strip("-.")[:MAX_PART].rstrip("-.")
