"""The journal's file: its tables, and how it is opened by several workers at once."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import structlog

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.journal.copies import read_marks, recognize
from crucible_worker.journal.locks import exclusively
from crucible_worker.journal.queries import JournalDamaged
from crucible_worker.util.files import make_private_folder, narrow, open_private

__all__ = [
    "BUSY_SECONDS",
    "JOURNAL_FILE",
    "SCHEMA",
    "SCHEMA_VERSION",
    "SqliteConnection",
    "connect",
    "prepare",
    "unusable",
]

_log = structlog.get_logger(__name__)

JOURNAL_FILE = "journal.sqlite3"
"""Name of the journal inside the state directory."""
PREPARE_LOCK = "prepare.lock"
"""Name of the lock file of the worker that creates or upgrades the journal."""
SCHEMA_VERSION = 2
"""Stored as SQLite's `user_version`; an older journal is upgraded to it, a newer one refused."""
BUSY_SECONDS = 5.0
"""How long a writer waits for the writers of other workers before it calls the journal unwritable."""

# A comment above a table is its description, and a line "--   column: ..." in it that of a column. Comments inside of a
# table would be part of what SQLite stores, and differ from the tables of older journals.
_TABLES = """
-- One row: the log's identity, its last sequence, and the oldest one still retained.
CREATE TABLE head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    log_id TEXT NOT NULL,
    created_ns INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    oldest INTEGER NOT NULL
);
-- An evaluation. `number` is never used again: it is also the byte that its owner locks.
--   run_id: the orchestrator's run; empty if there is none
--   step: the orchestrator's training step
--   state: queued, running, interrupted, completed, failed or cancelled
--   fingerprint: of the specification; the same id with another one is refused
--   request: the request, packed
--   attempt: attempts so far
--   total: runs of samples to do, of all evaluators
--   done: those of them that are done
--   unscored: those of the done ones without a score
--   created_ns: Unix time in nanoseconds
--   ended_ns: likewise; 0 until it ends
--   interrupted_ns: likewise; 0 until it is interrupted
--   first_sequence: of its first event in the log
--   last_sequence: of its last one
--   cancel_reason: why a caller wants it to end; NULL if no caller does
--   result: metrics, results of evaluators, usage and problem, packed; NULL until there are some
CREATE TABLE evaluations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    evaluation_id TEXT NOT NULL UNIQUE,
    run_id TEXT NOT NULL,
    step INTEGER,
    state TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    -- Empty, as the next one, and `total` 0, until an attempt has read the data set and found the model.
    dataset_fingerprint TEXT NOT NULL,
    model_fingerprint TEXT NOT NULL,
    request BLOB NOT NULL,
    correlation_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    total INTEGER NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    unscored INTEGER NOT NULL DEFAULT 0,
    created_ns INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL DEFAULT 0,
    interrupted_ns INTEGER NOT NULL DEFAULT 0,
    -- Time with an owner: of finished attempts, and of the present one as far as it was written down.
    past_active_ns INTEGER NOT NULL DEFAULT 0,
    active_ns INTEGER NOT NULL DEFAULT 0,
    first_sequence INTEGER NOT NULL DEFAULT 0,
    last_sequence INTEGER NOT NULL DEFAULT 0,
    cancel_reason TEXT,
    result BLOB
);
CREATE INDEX evaluations_by_state ON evaluations (state);
CREATE INDEX evaluations_by_run ON evaluations (run_id, step);
-- The result of a sample, in the data set's order. A sample that is run again replaces its row.
--   number: of the evaluation
--   position: of the sample in the data set, from 0
--   evaluator: of the evaluator in the request, from 0
--   repeat: which of several answers to the sample, from 0
--   label: the evaluator's name, or its kind if it has none
--   verdict: correct, incorrect, partial, undecided, error or measured
--   attempt: the attempt that ran it
--   retryable: whether a resumption of the evaluation runs it again
--   record: score, output, extracted answer and further fields of the result, packed
CREATE TABLE samples (
    number INTEGER NOT NULL,
    position INTEGER NOT NULL,
    evaluator INTEGER NOT NULL,
    repeat INTEGER NOT NULL,
    label TEXT NOT NULL,
    verdict TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    retryable INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (number, position, evaluator, repeat)
) WITHOUT ROWID;
-- The log. `number` is 0 where an event belongs to no evaluation.
--   number: of the evaluation, or 0
--   record: the event, packed as a message of the protocol
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    run_id TEXT NOT NULL,
    record BLOB NOT NULL
);
-- Written to find out whether writing works again.
CREATE TABLE probe (one INTEGER PRIMARY KEY CHECK (one = 1), filling BLOB NOT NULL);
"""

_PLAN_TABLES = """
-- A plan; its record is the whole of it, inline samples included.
CREATE TABLE plans (
    plan_id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    record BLOB NOT NULL,
    used_ns INTEGER NOT NULL
);
-- Which evaluation evaluates a part of a plan at a step; the fingerprint is that of the step with its model.
CREATE TABLE plan_steps (
    plan_id TEXT NOT NULL,
    step INTEGER NOT NULL,
    part INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    evaluation_id TEXT NOT NULL,
    PRIMARY KEY (plan_id, step, part)
) WITHOUT ROWID;
"""

_ADDITIONS = """
-- Events of later kinds (NEW_KINDS), in the same sequence of the log. Workers of an earlier release read only `events`:
-- so they send no kind that their callers do not know.
CREATE TABLE IF NOT EXISTS later_events (
    sequence INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    run_id TEXT NOT NULL,
    record BLOB NOT NULL
);
-- One row: the time in which at least one worker ran, and the monotonic clock up to which it is counted.
CREATE TABLE IF NOT EXISTS lived (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    lived_ns INTEGER NOT NULL,
    through_ns INTEGER NOT NULL
);
-- Readings of the machine's clock by lived time.
CREATE TABLE IF NOT EXISTS clock_readings (lived_ns INTEGER PRIMARY KEY, unix_ns INTEGER NOT NULL);
-- One row: which file the journal is, so that a copy is detected.
CREATE TABLE IF NOT EXISTS journal_file (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    birth_ns INTEGER NOT NULL,
    inode INTEGER NOT NULL
);
-- The parts of a request that are too large for the row of its evaluation: options and labels.
CREATE TABLE IF NOT EXISTS requests_apart (number INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TRIGGER IF NOT EXISTS requests_apart_go AFTER DELETE ON evaluations
BEGIN
    DELETE FROM requests_apart WHERE number = OLD.number;
END;
-- What callers have changed of an evaluation that has not ended: no row if nothing.
--   number: of the evaluation
--   change: how often it was changed: of two readings, the one with the higher number is the later one
--   paused: whether no sample may begin
--   concurrency: how many samples may be at work at once; NULL if its request says it
CREATE TABLE IF NOT EXISTS evaluation_controls (
    number INTEGER PRIMARY KEY,
    change INTEGER NOT NULL,
    paused INTEGER NOT NULL,
    concurrency INTEGER
);
CREATE TRIGGER IF NOT EXISTS evaluation_controls_go AFTER DELETE ON evaluations
BEGIN
    DELETE FROM evaluation_controls WHERE number = OLD.number;
END;
-- Evaluations whose models did not answer at some time: no row if they always did.
--   number: of the evaluation
--   waiting_for: what it waits for, and since when; empty if it does not
--   outages: attempts in a row that an outage has interrupted
--   not_before_ns: no attempt begins before
CREATE TABLE IF NOT EXISTS evaluation_waits (
    number INTEGER PRIMARY KEY,
    waiting_for TEXT NOT NULL,
    outages INTEGER NOT NULL,
    not_before_ns INTEGER NOT NULL
);
CREATE TRIGGER IF NOT EXISTS evaluation_waits_go AFTER DELETE ON evaluations
BEGIN
    DELETE FROM evaluation_waits WHERE number = OLD.number;
END;
-- Evaluations that were interrupted since a call for them: no row if a release before this table interrupted it.
--   number: of the evaluation
--   done: samples done at the last interruption
--   failures: deaths of its owner in a row without a sample done
--   held: whether it waits for a call: its user has ended the command that ran it
--   not_before_ns: no attempt begins before without a call
--   warned_ns: when a log has said that retention will cancel it; 0 until then
CREATE TABLE IF NOT EXISTS resumptions (
    number INTEGER PRIMARY KEY,
    done INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    held INTEGER NOT NULL,
    not_before_ns INTEGER NOT NULL,
    warned_ns INTEGER NOT NULL
);
CREATE TRIGGER IF NOT EXISTS resumptions_go AFTER DELETE ON evaluations
BEGIN
    DELETE FROM resumptions WHERE number = OLD.number;
END;
-- The rules by which evaluations measure: no row if the releases before this table began it, by version 1. Releases
-- that do not know the table do not name their attempt in it.
--   number: of the evaluation
--   rules: the version; 0 if attempts of several versions ran samples of it
--   attempt: the last attempt that measured by these
CREATE TABLE IF NOT EXISTS evaluation_rules (
    number INTEGER PRIMARY KEY,
    rules INTEGER NOT NULL,
    attempt INTEGER NOT NULL
);
CREATE TRIGGER IF NOT EXISTS evaluation_rules_mixed AFTER UPDATE OF attempt ON evaluations
WHEN NEW.attempt <> OLD.attempt
BEGIN
    UPDATE evaluation_rules SET rules = 0 WHERE number = NEW.number AND attempt <> NEW.attempt;
END;
-- The version is retained as long as what the evaluation measured.
CREATE TRIGGER IF NOT EXISTS evaluation_rules_go AFTER DELETE ON evaluations
WHEN NOT EXISTS (SELECT 1 FROM checkpoint_results WHERE number = OLD.number)
BEGIN
    DELETE FROM evaluation_rules WHERE number = OLD.number;
END;
-- The graders by which evaluations judge: no row if the releases before this table began it, by the first versions.
-- Releases that do not know the table do not name their attempt in it.
--   number: of the evaluation
--   graders: JSON, the versions of graders by name, by evaluator
--   attempt: the last attempt that judged by these
--   mixed: 1 if attempts of several releases ran samples of it
CREATE TABLE IF NOT EXISTS evaluation_graders (
    number INTEGER PRIMARY KEY,
    graders TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    mixed INTEGER NOT NULL
);
CREATE TRIGGER IF NOT EXISTS evaluation_graders_mixed AFTER UPDATE OF attempt ON evaluations
WHEN NEW.attempt <> OLD.attempt
BEGIN
    UPDATE evaluation_graders SET mixed = 1 WHERE number = NEW.number AND attempt <> NEW.attempt;
END;
-- They are retained as long as what the evaluation measured.
CREATE TRIGGER IF NOT EXISTS evaluation_graders_go AFTER DELETE ON evaluations
WHEN NOT EXISTS (SELECT 1 FROM checkpoint_results WHERE number = OLD.number)
BEGIN
    DELETE FROM evaluation_graders WHERE number = OLD.number;
END;
-- Evaluations whose cost or tokens are bounded. A bound that is not given is NULL.
--   number: of the evaluation
--   max_cost: bound of its cost
--   max_output_tokens: bound of its generated tokens
--   max_run_cost: bound of the cost of all rows of its run together
--   max_run_output_tokens: likewise of the tokens
--   cost: of all calls so far, those of repeated runs included
--   output_tokens: likewise
--   spent: which bound is reached, in words; empty if none is
CREATE TABLE IF NOT EXISTS evaluation_budgets (
    number INTEGER PRIMARY KEY,
    max_cost REAL,
    max_output_tokens INTEGER,
    max_run_cost REAL,
    max_run_output_tokens INTEGER,
    cost REAL NOT NULL,
    output_tokens INTEGER NOT NULL,
    spent TEXT NOT NULL
);
CREATE TRIGGER IF NOT EXISTS evaluation_budgets_go AFTER DELETE ON evaluations
BEGIN
    DELETE FROM evaluation_budgets WHERE number = OLD.number;
END;
-- How often evaluations got an owner: an owner writes nothing any more once there was another one after it.
CREATE TABLE IF NOT EXISTS owner_generations (number INTEGER PRIMARY KEY, generation INTEGER NOT NULL);
CREATE TRIGGER IF NOT EXISTS owner_generations_go AFTER DELETE ON evaluations
BEGIN
    DELETE FROM owner_generations WHERE number = OLD.number;
END;
-- Evaluators that have begun: the evaluation's time with an owner at that moment, and, once it has ended, its result.
CREATE TABLE IF NOT EXISTS evaluator_spans (
    number INTEGER NOT NULL,
    evaluator INTEGER NOT NULL,
    started_ns INTEGER NOT NULL,
    result BLOB,
    PRIMARY KEY (number, evaluator)
) WITHOUT ROWID;
-- They are removed with their evaluation, whichever release's worker removes it.
CREATE TRIGGER IF NOT EXISTS evaluator_spans_go AFTER DELETE ON evaluations
BEGIN
    DELETE FROM evaluator_spans WHERE number = OLD.number;
END;
-- How models are prompted: one row per evaluation; none if an earlier release started it.
CREATE TABLE IF NOT EXISTS evaluation_renderings (number INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TRIGGER IF NOT EXISTS evaluation_renderings_go AFTER DELETE ON evaluations
BEGIN
    DELETE FROM evaluation_renderings WHERE number = OLD.number;
END;
-- The Inspect logs that workers with a log folder write: a row for each evaluation that ended at such a worker.
--   number: of the evaluation
--   folder: the absolute path of the folder
--   file: the name of the file, once it is written
--   problem: why it could not be written the last time
CREATE TABLE IF NOT EXISTS log_files (
    number INTEGER NOT NULL,
    folder TEXT NOT NULL,
    file TEXT,
    problem TEXT,
    PRIMARY KEY (number, folder)
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS log_files_go AFTER DELETE ON evaluations
BEGIN
    DELETE FROM log_files WHERE number = OLD.number;
END;
-- Evaluations that are being removed, by chunks: reads no longer find them.
CREATE TABLE IF NOT EXISTS removals (number INTEGER PRIMARY KEY);
CREATE TRIGGER IF NOT EXISTS removals_go AFTER DELETE ON evaluations
BEGIN
    DELETE FROM removals WHERE number = OLD.number;
END;
-- Contents of samples, each stored once, whatever data sets and evaluations have it.
CREATE TABLE IF NOT EXISTS contents (
    content INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    record BLOB NOT NULL
);
-- Data sets of which contents are recorded, by their fingerprint.
CREATE TABLE IF NOT EXISTS recorded_datasets (dataset INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE);
-- Which content is at which position of a data set.
CREATE TABLE IF NOT EXISTS dataset_contents (
    dataset INTEGER NOT NULL,
    position INTEGER NOT NULL,
    content INTEGER NOT NULL,
    PRIMARY KEY (dataset, position)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS dataset_contents_by_content ON dataset_contents (content);
-- Evaluations that record samples of a data set, and the bytes that they have added.
CREATE TABLE IF NOT EXISTS recorded_evaluations (
    number INTEGER PRIMARY KEY,
    dataset INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS recorded_evaluations_by_dataset ON recorded_evaluations (dataset);
-- The text around the input in the prompts of an evaluator.
CREATE TABLE IF NOT EXISTS prompt_frames (
    number INTEGER NOT NULL,
    evaluator INTEGER NOT NULL,
    frame INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (number, evaluator, frame)
) WITHOUT ROWID;
-- The parts of a sample's result that earlier releases do not know, in the run of that attempt: prompt and turns, if
-- they are recorded, and usage. A worker of an earlier release that runs the sample again leaves this row unchanged:
-- then it belongs to no result.
CREATE TABLE IF NOT EXISTS sample_records (
    number INTEGER NOT NULL,
    position INTEGER NOT NULL,
    evaluator INTEGER NOT NULL,
    repeat INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    record BLOB,
    usage BLOB,
    PRIMARY KEY (number, position, evaluator, repeat)
) WITHOUT ROWID;
-- All of it is removed with the last evaluation that needs it, whichever release's worker removes that.
CREATE TRIGGER IF NOT EXISTS sample_records_go AFTER DELETE ON samples
BEGIN
    DELETE FROM sample_records WHERE number = OLD.number AND position = OLD.position AND evaluator = OLD.evaluator
        AND repeat = OLD.repeat;
END;
CREATE TRIGGER IF NOT EXISTS recorded_evaluations_go AFTER DELETE ON evaluations
BEGIN
    DELETE FROM sample_records WHERE number = OLD.number;
    DELETE FROM prompt_frames WHERE number = OLD.number;
    DELETE FROM recorded_evaluations WHERE number = OLD.number;
END;
CREATE TRIGGER IF NOT EXISTS recorded_datasets_go AFTER DELETE ON recorded_evaluations
WHEN NOT EXISTS (SELECT 1 FROM recorded_evaluations WHERE dataset = OLD.dataset)
BEGIN
    DELETE FROM dataset_contents WHERE dataset = OLD.dataset;
    DELETE FROM recorded_datasets WHERE dataset = OLD.dataset;
END;
CREATE TRIGGER IF NOT EXISTS contents_go AFTER DELETE ON dataset_contents
WHEN NOT EXISTS (SELECT 1 FROM dataset_contents WHERE content = OLD.content)
BEGIN
    DELETE FROM contents WHERE content = OLD.content;
END;
-- What each evaluation of a run that has ended measured of its checkpoint. It is retained longer than the evaluation.
--   number: of the evaluation
--   run_id: of the evaluation
--   ended_ns: of the evaluation
--   record: checkpoint, data set, labels and metrics, packed
CREATE TABLE IF NOT EXISTS checkpoint_results (
    number INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL,
    ended_ns INTEGER NOT NULL,
    record BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS checkpoint_results_by_run ON checkpoint_results (run_id);
CREATE TRIGGER IF NOT EXISTS evaluation_rules_go_last AFTER DELETE ON checkpoint_results
WHEN NOT EXISTS (SELECT 1 FROM evaluations WHERE number = OLD.number)
BEGIN
    DELETE FROM evaluation_rules WHERE number = OLD.number;
END;
CREATE TRIGGER IF NOT EXISTS evaluation_graders_go_last AFTER DELETE ON checkpoint_results
WHEN NOT EXISTS (SELECT 1 FROM evaluations WHERE number = OLD.number)
BEGIN
    DELETE FROM evaluation_graders WHERE number = OLD.number;
END;
-- Of how many results the metrics in `checkpoint_results` are made: no row if an earlier release has written that.
--   number: of the evaluation
--   record: for each of its evaluators there, the results and those with a score, packed
CREATE TABLE IF NOT EXISTS checkpoint_counts (number INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TRIGGER IF NOT EXISTS checkpoint_counts_go AFTER DELETE ON checkpoint_results
BEGIN
    DELETE FROM checkpoint_counts WHERE number = OLD.number;
END;
-- Plans with patience: the best steps of their runs are reported.
--   record: metric, goal, patience and so on, packed
--   best_file: whether the file BEST is written
--   pending: how often the end of an attempt has changed what is known, since it was last looked at; 0 if nothing has
--   turn: how often the steps were looked at
--   best_step: the best step so far; NULL if there is none yet
--   written_step: the step that the file BEST has; NULL if there is no file
CREATE TABLE IF NOT EXISTS patient_plans (
    plan_id TEXT PRIMARY KEY,
    record BLOB NOT NULL,
    best_file INTEGER NOT NULL,
    pending INTEGER NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0,
    best_step INTEGER,
    written_step INTEGER
);
-- The steps of such a plan that have the metric: which step was the best when this one was reached.
--   value: of the metric
--   model: of the step, as text
--   best_step: the best step of those up to this one
--   since: evaluations since that step
CREATE TABLE IF NOT EXISTS patient_steps (
    plan_id TEXT NOT NULL,
    step INTEGER NOT NULL,
    evaluation_id TEXT NOT NULL,
    model TEXT NOT NULL,
    value REAL NOT NULL,
    best_step INTEGER NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (plan_id, step)
) WITHOUT ROWID;
-- Which events of a plan are in the log: RUN_BEST by its step, RUN_PLATEAU by the best step before it.
CREATE TABLE IF NOT EXISTS patient_events (
    plan_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    step INTEGER NOT NULL,
    PRIMARY KEY (plan_id, kind, step)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS plan_steps_by_evaluation ON plan_steps (evaluation_id);
-- Whichever release's worker ends an attempt: the look at its plan is due in the same transaction.
CREATE TRIGGER IF NOT EXISTS patient_plans_due AFTER UPDATE OF state ON evaluations
WHEN NEW.state IN ('completed', 'failed', 'cancelled', 'interrupted')
BEGIN
    UPDATE patient_plans SET pending = pending + 1
    WHERE plan_id IN (SELECT plan_id FROM plan_steps WHERE evaluation_id = NEW.evaluation_id);
END;
CREATE TRIGGER IF NOT EXISTS patient_plans_go AFTER DELETE ON plans
BEGIN
    DELETE FROM patient_plans WHERE plan_id = OLD.plan_id;
    DELETE FROM patient_steps WHERE plan_id = OLD.plan_id;
    DELETE FROM patient_events WHERE plan_id = OLD.plan_id;
END;
-- Runs whose directory of checkpoints is followed. `number` is never used again: it is also the byte that the worker
-- locks in `follows.lock` while it follows.
--   run_id: the run; it follows one directory
--   plan_id: the plan that is notified of each checkpoint
--   directory: the absolute path of the directory
--   hold_folder: the absolute path of the folder in which checkpoints are held
--   policy: all, latest or every
--   every: checkpoints for each evaluated one, by the policy every; otherwise 0
--   name_pattern: how checkpoints are named; empty for the names of known trainers
--   marker: the file that makes a checkpoint whole; empty without one
--   base_model: the model of adapters, as text; empty for the one that adapters name
--   mark: whether a file is put into a released checkpoint
--   by_command: whether a command follows, which no worker replaces
--   ended_ns: Unix time in nanoseconds; 0 until it ends
CREATE TABLE IF NOT EXISTS follows (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL UNIQUE,
    plan_id TEXT NOT NULL,
    directory TEXT NOT NULL,
    hold_folder TEXT NOT NULL,
    policy TEXT NOT NULL,
    every INTEGER NOT NULL,
    name_pattern TEXT NOT NULL,
    marker TEXT NOT NULL,
    base_model TEXT NOT NULL,
    mark INTEGER NOT NULL,
    by_command INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL DEFAULT 0
);
-- Checkpoints of followed runs, each once.
--   follow: the number of the followed run
--   name: of the checkpoint
--   identity: of its content; a trainer may write another checkpoint of the same name
--   state: held until the plan is notified of it, then started; released or skipped at the end
--   source: the checkpoint's directory
--   path: the directory that is evaluated
--   model: the model that is evaluated, as text: the directory, or the adapter in it on its model
--   held: links, copy or nothing
--   held_identity: as identity, of the directory that is evaluated
--   written_ns: when it was last written, Unix time in nanoseconds
CREATE TABLE IF NOT EXISTS followed_checkpoints (
    follow INTEGER NOT NULL,
    name TEXT NOT NULL,
    identity TEXT NOT NULL,
    step INTEGER NOT NULL,
    state TEXT NOT NULL,
    source TEXT NOT NULL,
    path TEXT NOT NULL,
    model TEXT NOT NULL,
    held TEXT NOT NULL,
    held_identity TEXT NOT NULL,
    written_ns INTEGER NOT NULL,
    PRIMARY KEY (follow, name, identity)
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS followed_checkpoints_go AFTER DELETE ON follows
BEGIN
    DELETE FROM followed_checkpoints WHERE follow = OLD.number;
END;
-- A followed run goes with its plan.
CREATE TRIGGER IF NOT EXISTS follows_go AFTER DELETE ON plans
BEGIN
    DELETE FROM follows WHERE plan_id = OLD.plan_id;
END;
-- Experiments: what a run logs. `number` is never used again.
--   experiment_id: its identity; of evaluations that log, their run_id, or their evaluation_id if they have no run
--   sequence: of its last entry; each row of metrics, set of hyperparameters and text is one
--   bytes: of the entries that are retained
--   config: its hyperparameters, those of all entries together, packed
--   created_ns: Unix time in nanoseconds
--   used_ns: likewise; when it was last opened or logged to
--   closed_ns: likewise; 0 while it is open
--   sync_wanted: up to which sequence its loggers are to write out, or send, what they have
CREATE TABLE IF NOT EXISTS experiments (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    experiment_id TEXT NOT NULL UNIQUE,
    sequence INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    config BLOB NOT NULL,
    created_ns INTEGER NOT NULL,
    used_ns INTEGER NOT NULL,
    closed_ns INTEGER NOT NULL,
    sync_wanted INTEGER NOT NULL
);
-- Loggers of experiments. `number` is also the byte that the worker locks which feeds the logger.
--   number: never used again
--   experiment: its number
--   logger: as it was named: "trackio:PROJECT"
--   by_operator: whether the operator of a worker named it, whose loggers may write to more places
--   position: the sequence through which it has every entry
--   synced: likewise, written out or sent
--   missed: entries that it never got
--   missed_told: those of them that were reported to it
--   url: where people look at it; empty if nowhere, or if it was not opened yet
--   problem: why it got no further at its last try; empty if it did
CREATE TABLE IF NOT EXISTS experiment_loggers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    experiment INTEGER NOT NULL,
    logger TEXT NOT NULL,
    by_operator INTEGER NOT NULL,
    position INTEGER NOT NULL,
    synced INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    missed_told INTEGER NOT NULL,
    url TEXT NOT NULL,
    problem TEXT NOT NULL,
    UNIQUE (experiment, logger)
);
-- What experiments logged and a logger has not got yet. One row may have many rows of metrics.
--   experiment: its number
--   sequence: of the last entry in it
--   entries: how many are in it
--   loggers: numbers of those that get it, packed; all if NULL
--   record: the entries, packed
CREATE TABLE IF NOT EXISTS experiment_entries (
    experiment INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    loggers BLOB,
    record BLOB NOT NULL,
    PRIMARY KEY (experiment, sequence)
);
CREATE TRIGGER IF NOT EXISTS experiments_go AFTER DELETE ON experiments
BEGIN
    DELETE FROM experiment_loggers WHERE experiment = OLD.number;
    DELETE FROM experiment_entries WHERE experiment = OLD.number;
END;
-- Parts of evaluations that workers of an earlier release run together; this one writes none. `part` is also the byte
-- that its holder locks in `parts.lock`.
--   number: of the evaluation
--   evaluator: of the evaluator in the request, from 0
--   remaining: runs of samples without a result of this attempt
--   holder: the lease that runs it, named by its worker; NULL if none does
--   record: its runs of samples, each with position, repeat and attempt, packed
CREATE TABLE IF NOT EXISTS parts (
    part INTEGER PRIMARY KEY AUTOINCREMENT,
    number INTEGER NOT NULL,
    evaluator INTEGER NOT NULL,
    remaining INTEGER NOT NULL,
    holder TEXT,
    record BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS parts_by_number ON parts (number);
-- The inline samples of such an evaluation, as the journal has no others; in chunks, packed.
CREATE TABLE IF NOT EXISTS part_samples (
    number INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    record BLOB NOT NULL,
    PRIMARY KEY (number, chunk)
) WITHOUT ROWID;
-- Whichever release's worker ends, interrupts or resumes an evaluation: holders of its parts can write no more.
CREATE TRIGGER IF NOT EXISTS parts_end AFTER UPDATE OF state, attempt ON evaluations
WHEN NEW.state NOT IN ('queued', 'running') OR NEW.attempt <> OLD.attempt
BEGIN
    DELETE FROM parts WHERE number = NEW.number;
    DELETE FROM part_samples WHERE number = NEW.number;
END;
CREATE TRIGGER IF NOT EXISTS parts_go AFTER DELETE ON evaluations
BEGIN
    DELETE FROM parts WHERE number = OLD.number;
    DELETE FROM part_samples WHERE number = OLD.number;
END;
"""
"""Tables that earlier releases of this schema version work without: adding them does not change the version."""

SCHEMA = _TABLES + _PLAN_TABLES + _ADDITIONS
"""A new journal; its comments are the source of docs/reference/journal.md."""

_CHANGES = {0: _TABLES + _PLAN_TABLES, 1: _PLAN_TABLES}
"""Statements that upgrade a journal of each version to the present one; 0 is an empty file."""


class SqliteConnection(sqlite3.Connection):
    """A connection in autocommit: transactions are begun and ended explicitly."""

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads of the block are of one moment of the journal, whatever is written meanwhile."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            self.execute("COMMIT")


def connect(path: Path, *, read_only: bool = False) -> SqliteConnection:
    """Open one connection.

    Any thread may use it, one at a time: a connection is handed between threads, never shared.
    """
    target = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
    connection = sqlite3.connect(
        target,
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        factory=SqliteConnection,
    )
    # NORMAL in WAL mode: no commit is lost when the process dies; the last commits may be lost at a power failure.
    try:
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error:  # the file is read here for the first time
        connection.close()
        raise
    return connection


def prepare(state_dir: Path, ended: threading.Event | None = None) -> Path:
    """Create the state directory and the journal in it, if they do not exist; several workers may do so at once.

    Args:
        state_dir: the directory.
        ended: set by another thread to end the wait for a worker that prepares it.

    Returns:
        The journal's path.

    Raises:
        FailedPrecondition: the directory cannot be used, the journal is of a newer version, or another process has
            its lock.
    """
    path = state_dir / JOURNAL_FILE
    try:
        if not state_dir.is_dir():  # the mode of one that exists is the operator's
            make_private_folder(state_dir)
        # The switch to WAL mode ignores SQLite's busy time-out: our lock makes the other workers wait.
        with exclusively(state_dir / PREPARE_LOCK, ended or threading.Event()):
            _make_private(path)
            with contextlib.closing(connect(path)) as connection:
                _create(connection)
                recognize(connection, path)
    except (OSError, sqlite3.Error, JournalDamaged) as error:
        raise unusable(state_dir, error) from error
    return path


def _make_private(path: Path) -> None:
    """Create the journal, or narrow the modes of its files: SQLite gives those next to it the journal's mode."""
    for file in (path, *(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm")), *read_marks(path.parent)):
        with contextlib.suppress(FileNotFoundError):  # a new journal; or another worker has ended, or renamed its mark
            if (mode := narrow(file)) is not None:
                _log.warning("made_private", path=str(file), mode=f"{mode:04o}")
    os.close(open_private(path, os.O_RDWR))


def unusable(state_dir: Path, error: Exception) -> FailedPrecondition:
    """The error with which a worker refuses to start."""
    return FailedPrecondition(f"state directory {state_dir} cannot be used: {error}", reason=Reason.STATE_DIR_UNUSABLE)


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        connection.executescript(_ADDITIONS)
        return
    if version not in _CHANGES:
        raise FailedPrecondition(
            f"the journal is of version {version}, this worker writes {SCHEMA_VERSION}: use another --state-dir",
            reason=Reason.JOURNAL_VERSION,
        )
    changes = _CHANGES[version] + _ADDITIONS
    connection.executescript(f"BEGIN IMMEDIATE; {changes} PRAGMA user_version = {SCHEMA_VERSION};")
    if version == 0:
        connection.execute("INSERT INTO head VALUES (1, ?, ?, 0, 1)", (uuid.uuid4().hex, time.time_ns()))
    connection.execute("COMMIT")
