"""Readers of data sets that follow a script, in place of those that read anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from crucible_worker.datasets import row_process

__all__ = ["scripted_reader"]

_BEGINNING = """
import os, sys
end = int(next(word for word in sys.argv if word.startswith("--socket=")).partition("=")[2])

def say(body):
    os.write(end, len(body).to_bytes(4, "little") + body)
"""


def scripted_reader(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Have a script read: it has `say`, which sends a frame."""
    (folder / "a_scripted_reader.py").write_text(f"{_BEGINNING}\n{script}\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(row_process, "_HUB_READER", "a_scripted_reader")
    monkeypatch.setattr(row_process, "_TABLE_READER", "a_scripted_reader")
