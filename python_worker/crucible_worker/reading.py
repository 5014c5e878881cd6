"""Reads a journal of this machine by a client, as the commands do: no worker has to run.

with open_journal("journal") as bridge:
evaluation = bridge.evaluation.get_evaluation("nightly-320")
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from crucible_worker.config import Settings, read_settings

if TYPE_CHECKING:
    from crucible_bridge import BlockingBridge, Bridge

__all__ = ["open_journal", "results_of_journal"]


def open_journal(state_dir: Path | str | None = None, *, config: Path | str | None = None) -> BlockingBridge:
    """A client of a journal, which ends with its `with` block, or by `close()`.

    It reads what commands and workers have recorded. It runs no evaluation, and grades nothing.

    Args:
        state_dir: where the journal is; if None, as `crucible-worker` finds it: CRUCIBLE_STATE_DIR, or the default one.
        config: a file of settings, which may name a journal in PostgreSQL.

    Raises:
        SettingsError: the settings cannot be used.
        NotFound: the state directory has no journal.
        FailedPrecondition: the journal cannot be opened.
    """
    import structlog

    from crucible_bridge.client.blocking_calls import BlockingBridge
    from crucible_bridge.client.loop_thread import LoopThread

    if not structlog.is_configured():  # the program has no log: what only workers have to say is left out
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    given = {} if state_dir is None else {"state_dir": Path(state_dir)}
    settings = read_settings(given, os.environ, None if config is None else Path(config))
    thread = LoopThread()
    try:
        return BlockingBridge(thread, thread.enter(results_of_journal(settings)))
    except BaseException:
        thread.close()
        raise


@contextlib.asynccontextmanager
async def results_of_journal(settings: Settings) -> AsyncIterator[Bridge]:
    """A client of a worker inside this command; the worker opens the journal of the settings, and grades nothing.

    So a command reads its results in one way, for a journal and for an address. The worker listens on
    a Unix socket in a temporary folder that only this user can open.

    Raises:
        NotFound: the state directory has no journal.
        FailedPrecondition: the journal cannot be opened.
    """
    import crucible_bridge
    from crucible_bridge.errors import NotFound
    from crucible_bridge.reasons import Reason
    from crucible_worker.journal.schema import JOURNAL_FILE
    from crucible_worker.server.parts import build
    from crucible_worker.server.worker import Worker

    if settings.journal is None and not (settings.state_dir / JOURNAL_FILE).is_file():
        message = f"{settings.state_dir} has no journal: nothing is recorded there; give another one, or --address"
        raise NotFound(message, reason=Reason.UNKNOWN_EVALUATION, field="--state-dir")
    with tempfile.TemporaryDirectory(prefix="crucible-") as folder:
        inside = dataclasses.replace(
            settings,
            unix_socket=Path(folder) / "worker",
            token_file=None,
            tls_cert=None,
            tls_key=None,
            ready_file=None,
            log_dir=None,
            model_roots=(),
            log_to=(),
            resume_interrupted=False,
            grading_processes=0,
            code_sandboxes=0,
            # A command that shows results does not clean up the journal of other workers.
            limits=settings.limits.without_retention(),
        )
        building = functools.partial(build, feed_all=False)
        async with Worker(inside, build=building) as worker, crucible_bridge.connect(worker.address) as bridge:
            yield bridge
