"""A copy of the project that a test may change."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["ROOT", "copy_project"]

ROOT = Path(__file__).parents[1]
"""The project itself."""
COPIED = (
    *("README.md", "pyproject.toml", "bridge", "docs", "protos", "python_worker", "tests"),
    "elixir_client_example/lib",
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.safetensors", "cases", "recordings")


def copy_project(target: Path) -> None:
    """Copy what the protos' generator and the quick tests need."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=LEFT_OUT)
        else:
            shutil.copy(source, target / name)
