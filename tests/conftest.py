"""What holds for every test."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from crucible_worker.journal import Journal
from tests.postgres_server import PostgresServer, running_server
from tests.skips import skipped_rows, skipped_tests

pytest_plugins = ["tests.tiers"]

# A shell that starts the tests in the background has them ignore Ctrl-C, and nohup a hang-up. What they start would
# inherit that; a handler it does not inherit.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL)

# Workers in processes of their own grade no math unless a test is about that: each would load it anew, for seconds.
os.environ["CRUCIBLE_GRADING_PROCESSES"] = "0"


@pytest.fixture(scope="session", autouse=True)
def default_state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands that keep results without --state-dir keep them in a folder of the tests, never in the user's."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        yield


@pytest.fixture(autouse=True)
def logging_of_a_test_ends_with_it() -> Iterator[None]:
    """A command that runs in this process configures the log: later tests would not see every line of theirs."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of the tests of this process; skipped where the machine has none."""
    try:
        with running_server() as server:
            yield server
    except LookupError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def journals_of_tests(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With TEST_JOURNAL=postgres, a database stands in the place of each state directory's journal."""
    if os.environ.get("TEST_JOURNAL") == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        in_folder = Journal.open

        async def open_journal(state_dir: Path, encode: Any, *, url: str | None = None) -> Journal:
            return await in_folder(state_dir, encode, url=url or server.database_of(state_dir))

        monkeypatch.setattr(Journal, "open", open_journal)
        monkeypatch.setattr("tests.robustness.harness.database_of", server.database_of)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--row`, for the tests over a table (see tests/tables.py)."""
    parser.addoption("--row", metavar="TEXT", help="of tests over a table, run only the rows with TEXT in their names")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was skipped, and why: a line for each reason, and one for each test of which rows were."""
    reports = terminalreporter.getreports
    for line in (*skipped_tests(reports("skipped")), *skipped_rows(reports("passed") + reports("failed"))):
        terminalreporter.write_line(line)
