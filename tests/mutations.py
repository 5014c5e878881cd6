"""Put a fault into one line at a time, and see whether the core of the tests notices it.

    python -m tests.mutations --faults 40 --seed 1

The core runs once under coverage, which notes which tests reach which line. Then each fault is put into a copy of the
project: the tests of the core that reach its line run there, and if none of them fails, all tests that are not of the
core. Lines that the core reaches only in other processes count as not reached.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import coverage
import pytest

from tests.tiers import SEPARATE

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__", ".hypothesis", "_build", "deps")
"""Of the copy, which the environment of this process runs."""
PACKAGES = ("runs", "grading", "metrics", "services", "backends")
"""Of the worker: where faults are put."""
TURNED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_DATA = "MUTATIONS_COVERAGE"
"""Variable with the file of the coverage; the process that measures has it."""


class Fault(NamedTuple):
    """Another text in the place of a part of a line."""

    file: str
    """From the project's root."""
    line: int
    begin: int
    end: int
    """Columns, in bytes of UTF-8."""
    text: str

    def put(self, root: Path) -> None:
        """Put it into a copy of the project."""
        path = root / self.file
        lines = path.read_bytes().splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.begin] + self.text.encode() + line[self.end :]
        path.write_bytes(b"".join(lines))

    def __str__(self) -> str:
        """Where it is, what was there, and what is."""
        line = (ROOT / self.file).read_bytes().splitlines()[self.line - 1]
        return f"{self.file}:{self.line}  {line[self.begin : self.end].decode()}  ->  {self.text}"


def faults_of(file: Path) -> Iterator[Fault]:
    """Every fault that a file may have: comparisons turned, constants changed, statements dropped."""
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            turned = ast.Compare(node.left, [TURNED[type(node.ops[0])]()], node.comparators)
            yield from _in_place_of(node, file, f"({ast.unparse(turned)})")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            value = not node.value if isinstance(node.value, bool) else node.value + 1
            yield from _in_place_of(node, file, repr(value))
        elif isinstance(node, ast.AugAssign | ast.Raise) or (
            isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        ):
            yield from _in_place_of(node, file, "pass")


def _in_place_of(node: ast.expr | ast.stmt, file: Path, text: str) -> Iterator[Fault]:
    if node.end_lineno == node.lineno and node.end_col_offset is not None:
        yield Fault(file.relative_to(ROOT).as_posix(), node.lineno, node.col_offset, node.end_col_offset, text)


def measure(data: Path) -> Mapping[tuple[str, int], set[str]]:
    """The tests of the core that reach each line, by file and line."""
    command = [sys.executable, "-m", "pytest", "-m", "core", "--quiet", "-p", "tests.mutations"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, _DATA: str(data)}, check=True)
    found = coverage.CoverageData(str(data))
    found.read()
    return {
        (Path(file).relative_to(ROOT).as_posix(), line): {test for test in tests if test}
        for file in found.measured_files()
        for line, tests in found.contexts_by_lineno(file).items()
    }


class _Contexts:
    """Notes which test reaches a line, as a plugin of pytest."""

    def __init__(self, data: str) -> None:
        folders = [str(ROOT / "python_worker" / "crucible_worker" / package) for package in PACKAGES]
        self._coverage = coverage.Coverage(data_file=data, source=folders)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_unconfigure(self) -> None:
        self._coverage.stop()
        self._coverage.save()


def pytest_configure(config: pytest.Config) -> None:
    """Measure, in the process that is asked to."""
    if data := os.environ.get(_DATA):
        config.pluginmanager.register(_Contexts(data))


def fails(root: Path, options: Sequence[str]) -> bool:
    """Whether tests of a copy of the project fail."""
    paths = os.pathsep.join([str(root / "bridge"), str(root / "python_worker")])
    command = [sys.executable, "-m", "pytest", "--quiet", "--exitfirst", "-p", "no:cacheprovider", *options]
    run = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return run.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def main() -> None:
    """Measure, and print a line for each fault and the share that the core catches."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--core-alone", action="store_true", help="do not run the other tests on what the core misses")
    options = parser.parse_args()
    others = ["-m", " and ".join(f"not {mark}" for mark in ("core", *SEPARATE)), f"--numprocesses={os.cpu_count()}"]
    caught = {"core": 0, "others": 0}
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        reached = measure(Path(folder, "coverage"))
        files = [
            file
            for package in PACKAGES
            for file in sorted((ROOT / "python_worker" / "crucible_worker" / package).rglob("*.py"))
        ]
        candidates = [fault for file in files for fault in faults_of(file)]
        for number, fault in enumerate(random.Random(options.seed).sample(candidates, options.faults)):
            root = Path(folder, str(number))
            shutil.copytree(ROOT, root, ignore=LEFT_OUT)
            fault.put(root)
            tests, began = sorted(reached.get((fault.file, fault.line), ())), time.monotonic()
            if tests and fails(root, ["-m", "core", *tests]):
                found = "core"
            elif not options.core_alone and fails(root, others):
                found = "others"
            else:
                found = "missed"
            if found in caught:
                caught[found] += 1
            print(f"{found:7} {len(tests):4} tests {time.monotonic() - began:6.0f} s  {fault}", flush=True)
    print(f"the core catches {caught['core']} of the {sum(caught.values())} faults that any test catches")


if __name__ == "__main__":
    main()
