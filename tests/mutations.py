"""Put a fault into one line at a time, and see whether the core of the tests notices it.

    python -m tests.mutations --faults 40 --seed 1

The core runs once under coverage, which notes which tests reach which line. Then each fault is put into a copy of the
project, and the tests of the core that reach its line run there. All faults that are left are put into one copy, where
the whole core runs: it reaches some lines in other processes alone, such as those that grade. The tests that fail there
run again with each fault alone, which shows the fault that makes them fail. This is repeated with the faults that are
left until no test fails; then with the tests that are not of the core.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import coverage
import pytest

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__", ".hypothesis", "_build", "deps")
"""Of the copy, which the environment of this process runs."""
PACKAGES = (
    *("analysis", "datasets", "engine", "events", "experiments", "history", "inference", "journal", "planning"),
    *("grading", "metrics", "rpc", "backends"),
)
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
MOST_SECONDS = 3600
"""Of a run of tests; one that takes longer has failed."""
NO_TEST = "the run as a whole"
"""What fails if no test does, and the run does not succeed."""

# Variables: the folder for the coverage of each process that runs tests, and the file of tests that fail.
_COVERAGE, _FAILURES = "MUTATIONS_COVERAGE", "MUTATIONS_FAILURES"


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


def measure(folder: Path) -> Mapping[tuple[str, int], set[str]]:
    """The tests of the core that reach each line, by file and line; without those that fail when they are measured."""
    measured = folder / "coverage"
    measured.mkdir()
    failed = set(_run(ROOT, ["-m", "core", *_processes()], folder / "failures", {_COVERAGE: str(measured)}))
    reached: dict[tuple[str, int], set[str]] = {}
    for file in measured.iterdir():
        found = coverage.CoverageData(str(file))
        found.read()
        for name in found.measured_files():
            for line, tests in found.contexts_by_lineno(name).items():
                known = reached.setdefault((Path(name).relative_to(ROOT).as_posix(), line), set())
                known.update(test for test in tests if test and test not in failed)
    return reached


class _Contexts:
    """Notes which test reaches a line, as a plugin of pytest."""

    def __init__(self, data: Path) -> None:
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


class _Failures:
    """Writes the ids of tests that fail, a line each, as a plugin of pytest."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self._file.open("a") as file:
                file.write(f"{report.nodeid}\n")


def pytest_configure(config: pytest.Config) -> None:
    """In each process that runs tests, measure; in the one that collects their reports, write what failed."""
    process = os.environ.get("PYTEST_XDIST_WORKER")
    if process and (folder := os.environ.get(_COVERAGE)):
        config.pluginmanager.register(_Contexts(Path(folder, process)))
    elif not process and (file := os.environ.get(_FAILURES)):
        config.pluginmanager.register(_Failures(Path(file)))


def failing(root: Path, options: Sequence[str]) -> list[str]:
    """The tests of a copy of the project that fail, by their ids; `NO_TEST` if none could be run, or they hang."""
    paths = os.pathsep.join([str(root / "bridge"), str(root / "python_worker")])
    return _run(root, options, root / "failures", {"PYTHONPATH": paths})


def _run(root: Path, options: Sequence[str], failures: Path, variables: Mapping[str, str]) -> list[str]:
    failures.write_text("")
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "--quiet", "-p", "tests.mutations", "-p", "no:cacheprovider", *options],
        cwd=root,
        env={**os.environ, **variables, _FAILURES: str(failures)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        ended = process.wait(MOST_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        ended = process.wait()
    failed = list(dict.fromkeys(failures.read_text().splitlines()))
    return failed or ([] if ended in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) else [NO_TEST])


def missed_where_reached(faults: Sequence[Fault], folder: Path) -> list[Fault]:
    """Those that no test of the core notices that reaches the line in its own process; prints a line for each fault."""
    reached, missed = measure(folder), []
    for fault in faults:
        tests, began = sorted(reached.get((fault.file, fault.line), ())), time.monotonic()
        with _copy(folder, [fault]) as root:
            noticed = bool(tests) and failing(root, ["-m", "core", "--exitfirst", *_processes(), *tests])
        if not noticed:
            missed.append(fault)
        what = "core" if noticed else "left"
        print(f"{what:8} {len(tests):4} tests {time.monotonic() - began:5.0f} s  {fault}", flush=True)
    return missed


def noticed(faults: Sequence[Fault], folder: Path, marks: str) -> list[Fault]:
    """Those that a test with such marks notices; prints a line for each."""
    left, found = list(faults), list[Fault]()
    while left:
        with _copy(folder, left) as root:
            failed = [test for test in failing(root, ["-m", marks, *_processes()]) if test != NO_TEST]
        more = []
        for fault in left if failed else ():
            with _copy(folder, [fault]) as root:
                if tests := failing(root, failed):
                    more.append(fault)
                    print(f"{tests[0]}  {fault}", flush=True)
        if not more:
            break
        found += more
        left = [fault for fault in left if fault not in more]
    return found


@contextlib.contextmanager
def _copy(folder: Path, faults: Sequence[Fault]) -> Iterator[Path]:
    """A copy of the project with some faults."""
    root = folder / "project"
    shutil.copytree(ROOT, root, ignore=LEFT_OUT)
    try:
        for fault in faults:
            fault.put(root)
        yield root
    finally:
        shutil.rmtree(root)


def _processes() -> list[str]:
    return [f"--numprocesses={os.cpu_count()}", "--dist=worksteal"]


def main() -> None:
    """Measure, and print a line for each fault and the share that the core catches."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--core-alone", action="store_true", help="do not run the other tests on what the core misses")
    options = parser.parse_args()
    files = [
        file
        for package in PACKAGES
        for file in sorted((ROOT / "python_worker" / "crucible_worker" / package).rglob("*.py"))
    ]
    candidates = [fault for file in files for fault in faults_of(file)]
    # Two in one line would stand in each other's way.
    lines = {
        (fault.file, fault.line): fault for fault in random.Random(options.seed).sample(candidates, len(candidates))
    }
    faults = list(lines.values())[: options.faults]
    from tests.tiers import SEPARATE  # as a plugin, this module may not import what pytest will

    with tempfile.TemporaryDirectory(prefix="mutations-") as name:
        folder = Path(name)
        left = missed_where_reached(faults, folder)
        by_core = noticed(left, folder, "core")
        left = [fault for fault in left if fault not in by_core]
        core = len(faults) - len(left)
        if options.core_alone:
            print(f"the core catches {core} of {len(faults)} faults")
        else:
            others = " and ".join(f"not {mark}" for mark in ("core", *SEPARATE))
            both = core + len(noticed(left, folder, others))
            print(f"the core catches {core} of the {both} faults that any test catches, of {len(faults)}")


if __name__ == "__main__":
    main()
