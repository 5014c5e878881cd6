"""Pairs of target and answer for the grading benchmarks, and the graders that ours is set against."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["Pair", "Rival", "load_pairs", "load_rivals", "pair_arguments", "tinker_module"]

OWN_PAIRS = Path(__file__).parent.parent / "tests" / "cases" / "math"
"""The cases of the tests, which anybody has."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """A target, and an answer to be compared with it."""

    target: str
    answer: str


@dataclasses.dataclass(frozen=True, slots=True)
class Rival:
    """Another grader."""

    name: str
    grade: Callable[[Pair], bool]


def pair_arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser of `--pairs`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--pairs",
        type=Path,
        metavar="FILE",
        help='JSON lines with "gold" and "pred", as `crucible-worker grade` takes; the cases of the tests if absent',
    )
    return parser


def load_pairs(path: Path | None) -> list[Pair]:
    """Pairs of a file, or of the tests' own cases; each once."""
    if path is not None:
        found = [Pair(row["gold"], row["pred"]) for row in _rows([path])]
    else:
        found = [
            Pair(row["target"], row["answer"])
            for row in _rows(sorted(OWN_PAIRS.glob("*.jsonl")))
            if "policy" not in row
        ]
    return list({(pair.target, pair.answer): pair for pair in found}.values())


def load_rivals() -> list[Rival]:
    """Math-Verify and tinker-cookbook's grade_answer, those that are installed; what is missing is told on stderr."""
    rivals = []
    for name, load in (("math_verify", _math_verify), ("tinker_cookbook", _tinker_cookbook)):
        try:
            rivals.append(Rival(name, load()))
        except ImportError as error:
            print(f"without {name}: {error}; pip install math-verify pylatexenc", file=sys.stderr)
    return rivals


def _rows(paths: Iterable[Path]) -> Iterable[dict[str, str]]:
    for path in paths:
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def _math_verify() -> Callable[[Pair], bool]:
    """As its documentation has it for answers: boxed, so that nothing has to be searched."""
    from math_verify import parse, verify

    def boxed(text: str) -> str:
        return rf"\boxed{{{text}}}"

    return lambda pair: bool(verify(parse(boxed(pair.target)), parse(boxed(pair.answer))))


def _tinker_cookbook() -> Callable[[Pair], bool]:
    module = tinker_module()
    return lambda pair: bool(module.grade_answer(pair.answer, pair.target))


def tinker_module() -> types.ModuleType:
    """tinker-cookbook's grading alone: its package imports what has no part in it, and does not install everywhere.

    Raises:
        ImportError: it is not installed.
    """
    package = importlib.util.find_spec("tinker_cookbook")
    if package is None or not package.submodule_search_locations:
        raise ImportError("tinker-cookbook is not installed")
    path = Path(package.submodule_search_locations[0], "recipes", "math_rl", "math_grading.py")
    spec = importlib.util.spec_from_file_location("tinker_cookbook_math_grading", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is missing")
    module: types.ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
