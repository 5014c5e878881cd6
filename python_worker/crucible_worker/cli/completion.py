"""What a shell completes: ids of evaluations, kinds of evaluators, and values of options that have few.

A shell starts the program for each press of Tab, so that this reads one table at most, and imports nothing large.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from crucible_worker import suites

__all__ = ["EVALUATORS", "MAX_IDS", "evaluation_ids", "one_of", "run_ids", "suite_names"]

EVALUATORS = (
    *("accuracy", "bits_per_byte", "classification", "comparison", "inspect", "multiple_choice", "next_token_accuracy"),
    *("nll", "pass_at_k", "perplexity", "preference", "rl_test_set", "rollout", "rubric"),
)
"""Kinds that come with the worker; a test compares them with the registry, which takes time to import."""
MAX_IDS = 200
"""Ids that are offered, the newest."""
BUSY_SECONDS = 0.2
"""How long a journal that is being written is waited for."""

_JOURNAL_FILE = "journal.sqlite3"


def one_of(*values: str) -> Callable[[str], list[str]]:
    """Completes one of a few values."""

    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


def suite_names(incomplete: str) -> list[str]:
    """Completes a suite that ships with the worker."""
    return [name for name in suites.names() if name.startswith(incomplete)]


def evaluation_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes an id of the state directory that the command would read; none of a worker at an address."""
    given = ctx.params.get("ids") or ctx.params.get("evaluation_ids") or ()
    return [one for one in _column(ctx, "evaluation_id", incomplete) if one not in given]


def run_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes a run, likewise."""
    return [run for run in _column(ctx, "run_id", incomplete) if run]


def _column(ctx: typer.Context, column: str, incomplete: str) -> Iterable[str]:
    """The newest values of a column of the journal's evaluations; none if there is no journal, or it is busy."""
    if ctx.params.get("address"):
        return ()
    import sqlite3

    from crucible_worker.config import SettingsError, read_settings

    config, state_dir = (ctx.params.get(name) for name in ("config", "state_dir"))
    try:
        settings = read_settings(
            {} if state_dir is None else {"state_dir": state_dir}, os.environ, None if config is None else Path(config)
        )
        if settings.journal is not None:  # a shell waits for no network
            return ()
        journal = f"{(settings.state_dir / _JOURNAL_FILE).absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(journal, uri=True, timeout=BUSY_SECONDS)) as connection:
            rows = connection.execute(
                f"SELECT {column} FROM evaluations WHERE substr({column}, 1, ?) = ?"
                f" GROUP BY {column} ORDER BY MAX(number) DESC LIMIT ?",
                (len(incomplete), incomplete, MAX_IDS),
            ).fetchall()
    except (SettingsError, sqlite3.Error):
        # A shell has no place for errors; the command itself says what is wrong.
        return ()
    return [value for (value,) in rows]
