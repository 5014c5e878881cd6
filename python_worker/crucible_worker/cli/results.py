"""Results of evaluations for commands that show them: from a worker at an address, or a journal on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_bridge.client import Tls
    from crucible_worker.config import Settings

__all__ = ["results_of_journal", "results_of_worker"]


@contextlib.asynccontextmanager
async def results_of_worker(address: str, token: str | None, tls: Tls | None) -> AsyncIterator[Bridge]:
    """A client of a worker.

    Args:
        address: "HOST:PORT", or "unix:PATH".
        token: the worker's token, if it needs one.
        tls: the certificate to trust; without TLS if None.
    """
    import crucible_bridge

    async with crucible_bridge.connect(address, token=token, tls=tls) as bridge:
        yield bridge


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
