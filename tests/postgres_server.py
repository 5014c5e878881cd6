"""A PostgreSQL server for tests, by the programs of the machine: in a temporary folder, on a Unix socket alone."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["PostgresServer", "programs", "running_server"]

from tests import needs

_START_SECONDS = 60.0
_FOLDERS = "/usr/lib/postgresql"
# In the child, as `subprocess` would fork for another user: a process in which gRPC is at work may not survive that.
_AS_USER = """import os, sys
user, group = map(int, sys.argv[1:3])
os.setgroups(())
os.setgid(group)
os.setuid(user)
os.execv(sys.argv[3], sys.argv[3:])"""


def programs() -> Path | None:
    """The folder with `initdb` and `postgres`, the newest where there are several; None if there is none."""
    found = sorted(Path(_FOLDERS).glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return None if initdb is None else Path(os.path.realpath(initdb)).parent


class PostgresServer:
    """A server, with a database for each who asks."""

    def __init__(self, bin_folder: Path, folder: Path, *, durable: bool = False) -> None:
        """Create a cluster in a folder that belongs to the server's user.

        Args:
            bin_folder: with the server's programs.
            folder: of the cluster.
            durable: whether commits outlive the machine; those of tests outlive the server alone.
        """
        self._settings = ("listen_addresses=", "max_connections=200")
        if not durable:
            self._settings += ("fsync=off", "full_page_writes=off")
        self._bin, self._folder = bin_folder, folder
        self._databases = 0
        self._of_folders: dict[Path, str] = {}
        self._process: subprocess.Popen[Any] | None = None
        # PostgreSQL refuses to run as root.
        self._as: list[str] = []
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(folder, user.pw_uid, user.pw_gid)
            self._as = [sys.executable, "-c", _AS_USER, str(user.pw_uid), str(user.pw_gid)]
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        subprocess.run(
            [*self._as, self._bin / "initdb", f"--pgdata={folder / 'data'}", *options],
            check=True,
            capture_output=True,
            cwd=folder,
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        import psycopg

        log = (self._folder / "log").open("ab")
        with log:
            process = self._process = subprocess.Popen(
                [
                    *self._as,
                    self._bin / "postgres",
                    "-D",
                    self._folder / "data",
                    "-k",
                    self._folder,
                    *(part for setting in self._settings for part in ("-c", setting)),
                ],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > until or process.poll() is not None:
                    raise RuntimeError((self._folder / "log").read_text()) from None
                time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends every connection, SIGQUIT ends the server as a crash does."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(60)
        self._process = None

    def url(self, database: str) -> str:
        """The URL of a database."""
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        self._databases += 1
        name = f"journal_{self._databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def database_of(self, folder: Path) -> str:
        """The URL of the database in the place of a state directory; a new one for each directory."""
        return self._of_folders.get(folder) or self._of_folders.setdefault(folder, self.new_database())

    @property
    def running(self) -> bool:
        """Whether it was started, and not stopped."""
        return self._process is not None


@contextlib.contextmanager
def running_server(*, durable: bool = False) -> Iterator[PostgresServer]:
    """A server that is stopped and removed in the end; see `PostgresServer`.

    Raises:
        LookupError: the machine has no PostgreSQL server, or no psycopg.
    """
    if importlib.util.find_spec("psycopg") is None:
        raise LookupError(needs.MISSING["psycopg"])
    bin_folder = programs()
    if bin_folder is None:
        raise LookupError(needs.MISSING["postgresql"])
    with tempfile.TemporaryDirectory(prefix="crucible-postgres-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(bin_folder, Path(folder), durable=durable)
        server.start()
        try:
            yield server
        finally:
            if server.running:
                server.stop()
