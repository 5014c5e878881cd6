"""Two tiers of tests: `make test` runs the core, `make test-all` everything.

The core is tests/unit and tests/wire without what is marked `long`, and of the other folders what is marked `core`. A
test of the core takes at most `CORE_CPU_SECONDS`, its children included; the run names those that take more.
"""

from __future__ import annotations

import resource
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest
from hypothesis import settings

CORE_CPU_SECONDS = 3.0
"""Most of a test of the core, with those of the children that have ended."""
EXAMPLES = {True: 25, False: 100}
"""Of a property, in the core and elsewhere."""
SEPARATE = {
    "bench": "measures; `make bench` runs the benchmarks",
    "clusters": "with real clusters of Ray, or real servers of models; `make test-clusters` runs them",
    "docs": "programs and commands of README and docs; `make test-docs` runs them",
    "endpoint": "with harnesses that call the endpoint of OpenAI's API; `make test-endpoint` runs them",
    "failpoints": "most calls of a worker to the system fail in turn; `make test-failpoints` runs them",
    "history": "random calls and faults for minutes; `make test-history` runs them",
    "inspect": "with Inspect AI installed; `make test-inspect` runs them",
    "loggers": "with the libraries of experiment trackers; `make test-loggers` runs them",
    "pages": "pages in a real browser; `make test-pages` runs them",
    "postgres": "with a PostgreSQL server of the machine; `make test-postgres` runs them",
    "tinker": "against a real server of the Tinker API; `make test-tinker` runs them",
    "trainers": "with the libraries of trainers; `make test-trainers` runs them",
    "torture": "many rounds of a robustness test; `make torture` runs them",
}
"""Marks of tests that a run without `-m` leaves out."""
MARKS = {
    **SEPARATE,
    "core": "in tests/service, tests/robustness or tests/interop: is part of `make test`",
    "cuda": "needs a CUDA device; `pytest -m cuda` runs only these",
    "long": "in tests/unit or tests/wire: is part of `make test-all` alone",
}

_TESTS = Path(__file__).parent
_CORE_FOLDERS = ("unit", "wire")
_BEGAN = pytest.StashKey[float]()
_CPU = "cpu_seconds"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options about what tests cost."""
    parser.addoption("--costliest", metavar="N", type=int, default=0, help="name the N tests that took the most CPU")
    parser.addoption(
        "--core-seconds", type=float, default=CORE_CPU_SECONDS, help="of CPU, that a test of the core may take"
    )
    parser.addoption("--refuse-costly", action="store_true", help="fail if a test of the core takes more")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks, and choose what runs by them."""
    for mark, meaning in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {meaning}")
    if not config.option.markexpr:
        config.option.markexpr = " and ".join(f"not {mark}" for mark in SEPARATE)
    # Time says nothing about correctness on a loaded machine.
    settings.register_profile("tier", deadline=None, max_examples=EXAMPLES[_is_core(config)])
    settings.load_profile("tier")
    config.pluginmanager.register(_Costs(config))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module that has nothing of what runs, if only tests with a mark do."""
    mark = config.option.markexpr.split(" ")[0]
    if mark not in MARKS or not collection_path.match("test_*.py"):
        return None
    if mark == "core" and _folder(collection_path) in _CORE_FOLDERS:
        return None
    may_mark = filter(Path.is_file, (collection_path, collection_path.with_name("conftest.py")))
    return not any(f"mark.{mark}" in file.read_text() for file in may_mark) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark what is of the core by its folder."""
    for item in items:
        if _folder(item.path) in _CORE_FOLDERS and not any(map(item.get_closest_marker, (*SEPARATE, "long"))):
            item.add_marker("core")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note when a test begins, in seconds of CPU."""
    item.stash[_BEGAN] = _cpu()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the last report of a test what it took, which travels from pytest-xdist's processes."""
    report = yield
    if report.when == "teardown":
        report.user_properties.append((_CPU, _cpu() - item.stash[_BEGAN]))
    return report


class _Costs:
    """What the tests of a run took; with pytest-xdist, in the process that prints."""

    def __init__(self, config: pytest.Config) -> None:
        self._core, self._refuses = _is_core(config), config.getoption("refuse_costly")
        self._named = config.getoption("costliest")
        self._most = float(config.getoption("core_seconds") or 0)
        self._took: list[tuple[float, str]] = []

    @property
    def _costly(self) -> list[tuple[float, str]]:
        return [each for each in self._took if self._core and each[0] > self._most]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took += [(float(str(value)), report.nodeid) for name, value in report.user_properties if name == _CPU]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._refuses and self._costly and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if costly := self._costly:
            what = "refused: " if self._refuses else ""
            terminalreporter.section(f"{what}more than {self._most:g} s of CPU: make it cheaper, or a test of test-all")
            self._write(terminalreporter, costly)
        if self._named:
            total = sum(seconds for seconds, _ in self._took)
            terminalreporter.section(f"the costliest of {len(self._took)} tests, which took {total:.0f} s of CPU")
            self._write(terminalreporter, sorted(self._took, reverse=True)[: self._named])

    def _write(self, reporter: pytest.TerminalReporter, tests: Iterable[tuple[float, str]]) -> None:
        for seconds, test in sorted(tests, reverse=True):
            reporter.write_line(f"{seconds:6.1f} s  {test}")


def _is_core(config: pytest.Config) -> bool:
    return config.option.markexpr == "core"


def _folder(path: Path) -> str:
    """The folder below tests that a file is in."""
    return path.relative_to(_TESTS).parts[0] if path.is_relative_to(_TESTS) else ""


def _cpu() -> float:
    """Seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
