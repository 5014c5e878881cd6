"""Distributions with entry points, laid out as pip installs them."""

from __future__ import annotations

import importlib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

EVALUATOR_PACKAGE = Path(__file__).parent / "cases" / "evaluator_package"
"""One with an evaluator, as a user would write it."""
RELEASE_BEFORE = EVALUATOR_PACKAGE.with_name("release_before")
"""Packages as users wrote them for the release before."""
ENVIRONMENT_PACKAGE = EVALUATOR_PACKAGE.with_name("environment_package")
"""One with an environment."""


def lay_out(folder: Path, module: str, source: str, group: str, points: Mapping[str, str]) -> None:
    """A distribution of one module, which announces `points` in a group."""
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = (f"{name} = {value}\n" for name, value in points.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{''.join(lines)}")


def lay_out_evaluator_package(folder: Path) -> None:
    """That of `EVALUATOR_PACKAGE`, with the entry points of its pyproject.toml."""
    _lay_out_package(folder, EVALUATOR_PACKAGE)


def lay_out_packages_of_before(folder: Path) -> None:
    """Those of `RELEASE_BEFORE`, likewise."""
    for project in sorted(RELEASE_BEFORE.glob("*/pyproject.toml")):
        _lay_out_package(folder, project.parent)


def lay_out_environment_package(folder: Path) -> None:
    """That of `ENVIRONMENT_PACKAGE`, likewise."""
    _lay_out_package(folder, ENVIRONMENT_PACKAGE)


def _lay_out_package(folder: Path, package: Path) -> None:
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    ((group, points),) = project["entry-points"].items()
    (module,) = package.glob("*.py")
    lay_out(folder, module.stem, module.read_text(), group, points)


def install(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """Have this process, and those that it starts, find distributions that are laid out in folders."""
    for folder in folders:
        monkeypatch.syspath_prepend(folder)
    paths = (*folders, *filter(None, [os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, paths)))
    importlib.invalidate_caches()
