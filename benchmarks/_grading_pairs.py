"""Pairs of target and answer for the grading benchmarks, and the baseline graders."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import multiprocessing
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

__all__ = ["Baseline", "Graded", "Pair", "baselines", "load_pairs", "pair_arguments", "tinker_module"]

OWN_PAIRS = Path(__file__).parent.parent / "tests" / "cases" / "math"
"""The cases of the tests, which are in the repository."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """A target, and an answer to be compared with it."""

    target: str
    answer: str


PAIR_SECONDS = 10.0
"""Time limit of a baseline for a pair, by the clock: some compute any power of 10 that an answer names."""


@dataclasses.dataclass(frozen=True, slots=True)
class Graded:
    """A baseline's result for a pair."""

    accepted: bool | None
    """None if it was stopped."""
    seconds: float
    """Seconds of its process's time; `PAIR_SECONDS` if it was stopped."""


class Baseline:
    """A baseline grader, in a process that is killed if a pair takes longer than `PAIR_SECONDS`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopped = 0
        """Pairs that took too long."""
        self._start()

    def grade(self, pair: Pair) -> Graded:
        """Grade one pair; the next one finds a new process if this one took too long."""
        self._pipe.send(pair)
        if self._pipe.poll(PAIR_SECONDS):
            graded: Graded = self._pipe.recv()
            return graded
        self.close()
        self.stopped += 1
        self._start()
        return Graded(accepted=None, seconds=PAIR_SECONDS)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_grade_on_request, args=(self.name, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe.recv()


def pair_arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser of `--pairs`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--pairs",
        type=Path,
        metavar="FILE",
        help='JSON lines with "gold" and "pred", as for `crucible-worker grade`; the cases of the tests if absent',
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


@contextlib.contextmanager
def baselines() -> Iterator[list[Baseline]]:
    """Math-Verify and tinker-cookbook's grade_answer, those that are installed; missing ones are reported on stderr."""
    started: list[Baseline] = []
    try:
        for name, load in GRADERS.items():
            try:
                load()
            except ImportError as error:
                print(f"without {name}: {error}; pip install math-verify pylatexenc", file=sys.stderr)
                continue
            started.append(Baseline(name))
        yield started
    finally:
        for baseline in started:
            baseline.close()


def _grade_on_request(name: str, pipe: Connection) -> None:
    """The process of a `Baseline`: reports that it is ready, then answers each pair until the other end closes."""
    grade = GRADERS[name]()
    grade(Pair("1", "1"))
    pipe.send(None)
    with contextlib.suppress(EOFError):
        while True:
            pair = pipe.recv()
            started = time.process_time()
            accepted = grade(pair)
            pipe.send(Graded(accepted=accepted, seconds=time.process_time() - started))


def _rows(paths: Iterable[Path]) -> Iterable[dict[str, str]]:
    for path in paths:
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def _math_verify() -> Callable[[Pair], bool]:
    """In the documented form for answers: boxed, so that nothing is searched."""
    from math_verify import parse, verify

    def boxed(text: str) -> str:
        return rf"\boxed{{{text}}}"

    return lambda pair: bool(verify(parse(boxed(pair.target)), parse(boxed(pair.answer))))


def _tinker_cookbook() -> Callable[[Pair], bool]:
    module = tinker_module()
    return lambda pair: bool(module.grade_answer(pair.answer, pair.target))


def tinker_module() -> types.ModuleType:
    """tinker-cookbook's grading alone: its package imports unrelated libraries, and does not install everywhere.

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


GRADERS: dict[str, Callable[[], Callable[[Pair], bool]]] = {
    "math_verify": _math_verify,
    "tinker_cookbook": _tinker_cookbook,
}
