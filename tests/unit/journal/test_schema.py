"""The journal's file: made once, whoever comes first, and refused where it is not ours."""

import concurrent.futures
import multiprocessing
import sqlite3
import stat

import pytest

from crucible_bridge.errors import FailedPrecondition
from crucible_worker.journal.queries import head
from crucible_worker.journal.schema import JOURNAL_FILE, SCHEMA_VERSION, connect, prepare
from tests.unit.journal.journals import event, open_journal


def _log_id(state_dir):
    connection = connect(prepare(state_dir), read_only=True)
    try:
        return head(connection).log_id
    finally:
        connection.close()


def test_processes_that_prepare_at_once_make_one_journal(tmp_path):
    """Several processes that start together on no directory: one journal, one log, nobody fails."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(3, mp_context=context) as pool:
        found = list(pool.map(_log_id, [tmp_path / "new" / "state"] * 12))
    assert len(set(found)) == 1


def test_journal_is_kept(tmp_path):
    """Preparing again leaves the log what it is."""
    assert _log_id(tmp_path) == _log_id(tmp_path)


def test_a_new_directory_has_a_new_log(tmp_path):
    """Each journal has an identity of its own."""
    assert _log_id(tmp_path / "a") != _log_id(tmp_path / "b")


def test_journal_of_an_older_version_is_brought_to_the_present_one(tmp_path):
    """What it has stays, what it lacks is there afterwards, and a second worker finds it done."""
    path = prepare(tmp_path)
    connection = sqlite3.connect(path)
    connection.executescript("DROP TABLE plans; DROP TABLE plan_steps; PRAGMA user_version = 1;")
    connection.execute("INSERT INTO events VALUES (1, 0, 'kind', 'run', x'01')")
    connection.commit()
    connection.close()
    identity = _log_id(tmp_path)

    assert _log_id(tmp_path) == identity
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert connection.execute("SELECT run_id FROM events").fetchall() == [("run",)]
    assert connection.execute("SELECT COUNT(*) FROM plans, plan_steps").fetchone() == (0,)
    connection.close()


def test_journal_of_an_earlier_release_gets_what_it_lacks(tmp_path):
    """Of the same version, so that workers of that release work on; what it has stays."""
    path = prepare(tmp_path)
    connection = sqlite3.connect(path)
    connection.executescript("DROP TABLE later_events")
    connection.execute("INSERT INTO events VALUES (1, 0, 'kind', 'run', x'01')")
    connection.commit()
    connection.close()

    assert _log_id(tmp_path) == _log_id(tmp_path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert connection.execute("SELECT run_id FROM events").fetchall() == [("run",)]
    assert connection.execute("SELECT COUNT(*) FROM later_events").fetchone() == (0,)
    connection.close()


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 99])
def test_journal_of_another_version_is_refused(tmp_path, version):
    """FAILED_PRECONDITION, JOURNAL_VERSION, and the file is left alone."""
    path = prepare(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(FailedPrecondition) as caught:
        prepare(tmp_path)
    assert caught.value.reason == "JOURNAL_VERSION"
    assert str(version) in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("what", ["a file", "no database"])
def test_directory_that_cannot_be_used_is_refused(tmp_path, what):
    """A path that is a file, or a journal that is no database: FAILED_PRECONDITION, STATE_DIR_UNUSABLE."""
    state_dir = tmp_path / "state"
    if what == "a file":
        state_dir.write_text("")
    else:
        state_dir.mkdir()
        (state_dir / JOURNAL_FILE).write_text("this is no database" * 100)
    with pytest.raises(FailedPrecondition) as caught:
        prepare(state_dir)
    assert caught.value.reason == "STATE_DIR_UNUSABLE"
    assert str(state_dir) in str(caught.value)


def test_directory_and_file_are_private(tmp_path):
    """A directory that is made has mode 0700, the journal 0600: samples may be confidential."""
    path = prepare(tmp_path / "state")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_readers_cannot_write(tmp_path):
    """A read-only connection is one."""
    connection = connect(prepare(tmp_path), read_only=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("UPDATE head SET sequence = 1")
    connection.close()


async def test_clean_end_leaves_the_whole_journal_in_its_file(tmp_path):
    """When the last worker closes the journal, nothing of it lies in files beside it any more."""
    async with open_journal(tmp_path) as journal:
        await journal.submit(lambda transaction: transaction.append(0, [event()]))
        await journal.read(head)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.sqlite3", "journal.told.1", "prepare.lock"]
