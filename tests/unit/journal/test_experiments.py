"""Experiments in the journal: sequences, what loggers get next, and when entries are removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import LoggedMetrics
from crucible_worker.journal import Journal, experiments
from crucible_worker.journal.experiments import (
    ExperimentRow,
    NamedLogger,
    Page,
    packed_hparams,
    packed_metrics,
    packed_text,
    unpacked,
)
from crucible_worker.loggers.base import Hparams, LongText, MetricRow
from tests.unit.journal.journals import open_journal

PLENTY = 1 << 30


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    """An open journal."""
    async with open_journal(tmp_path) as opened:
        yield opened


async def opened(journal: Journal, *loggers: str, by_operator: bool = False) -> ExperimentRow:
    """The experiment `r` with these loggers."""
    named = [NamedLogger(text=text, by_operator=by_operator) for text in loggers]
    row, _ = await journal.submit(lambda now: experiments.open_experiment(now, "r", named))
    return row


async def log(
    journal: Journal,
    row: ExperimentRow,
    *steps: int,
    only: Sequence[int] | None = None,
    most_bytes: int = PLENTY,
    key: str = "loss",
) -> int:
    """Log a row of metrics for each step, in one record."""
    rows = [LoggedMetrics(values={key: float(step)}, step=step) for step in steps]
    record = packed_metrics(rows, 7)
    return await journal.submit(
        lambda now: experiments.append(now, row.number, record, len(rows), most_bytes=most_bytes, loggers=only)
    )


async def page(journal: Journal, logger: experiments.LoggerRow) -> Page:
    """What a logger gets next."""
    found = await journal.read(experiments.read_page, logger.number)
    assert found is not None
    return found


async def acknowledge(journal: Journal, found: Page, *, synced: bool = False, refused: int = 0) -> None:
    """Have a logger acknowledge a page."""
    await journal.submit(
        lambda now: experiments.acknowledge(now, found.logger, found.through, refused=refused, url="u", synced=synced)
    )


async def stored(journal: Journal) -> int:
    """Records of all experiments."""
    count = "SELECT COUNT(*) FROM experiment_entries"
    return (await journal.read(lambda connection: connection.execute(count).fetchone()))[0]


def steps_of(found: Page) -> list[int | None]:
    """The steps of a page's rows."""
    return [entry.step for entry in found.entries if isinstance(entry, MetricRow)]


def test_records_are_unpacked_as_they_were_packed():
    """Each row of a record has a sequence; numbers that are not finite survive, and a row without a time gets one."""
    rows = [LoggedMetrics(values={"a": float("inf")}, family="f", unix_time_ns=3), LoggedMetrics(values={"b": 1.0})]
    first, second = unpacked(packed_metrics(rows, 9), 5)
    (hparams,) = unpacked(packed_hparams({"lr": [1, None, {"x": "y"}]}, 9), 6)
    (text,) = unpacked(packed_text("k", "ü", None, 9), 7)

    assert first == MetricRow(sequence=5, unix_time_ns=3, values={"a": float("inf")}, family="f")
    assert second == MetricRow(sequence=6, unix_time_ns=9, values={"b": 1.0})
    assert hparams == Hparams(sequence=6, unix_time_ns=9, values={"lr": [1, None, {"x": "y"}]})
    assert text == LongText(sequence=7, unix_time_ns=9, key="k", text="ü")


async def test_a_logger_gets_what_comes_after_its_position(journal: Journal):
    """Entries come in order, those of one record with sequences of their own; what every logger has is removed."""
    row = await opened(journal, "a", "b")
    one, other = row.loggers
    assert await log(journal, row, 1, 2) == 2
    assert await log(journal, row, 3) == 3

    found = await page(journal, one)
    assert [entry.sequence for entry in found.entries] == [1, 2, 3]
    assert (steps_of(found), found.through) == ([1, 2, 3], 3)
    await acknowledge(journal, found)
    assert (steps_of(await page(journal, one)), await stored(journal)) == ([], 2)

    await acknowledge(journal, await page(journal, other))
    assert await stored(journal) == 0
    size = "SELECT bytes FROM experiments"
    assert await journal.read(lambda connection: connection.execute(size).fetchone()) == (0,)


async def test_an_entry_for_some_loggers_is_for_no_others(journal: Journal):
    """An evaluation's metrics go to the loggers that it names; the position of the others passes them."""
    row = await opened(journal, "a", "b")
    one, other = row.loggers
    await log(journal, row, 1, only=[other.number])
    await log(journal, row, 2)

    assert steps_of(await page(journal, one)) == [2]
    assert steps_of(await page(journal, other)) == [1, 2]


async def test_a_logger_that_joins_later_gets_what_comes_then(journal: Journal):
    """Naming a logger again changes nothing; the operator's word about it stays."""
    row = await opened(journal, "a", by_operator=True)
    await log(journal, row, 1)
    row = await opened(journal, "a", "b")
    await log(journal, row, 2)

    one, other = row.loggers
    assert (one.by_operator, other.by_operator) == (True, False)
    assert (steps_of(await page(journal, one)), steps_of(await page(journal, other))) == ([1, 2], [2])


async def test_beyond_the_bound_the_oldest_go_and_are_counted(journal: Journal):
    """The record that was just written stays, however large; a logger that had the removed ones has missed none."""
    row = await opened(journal, "slow", "fast")
    slow, fast = row.loggers
    await log(journal, row, 1, 2, 3)
    await acknowledge(journal, await page(journal, fast))
    await log(journal, row, 4, most_bytes=1)

    found = await page(journal, slow)
    assert (steps_of(found), found.logger.missed, found.logger.missed_told) == ([4], 3, 0)
    assert (await page(journal, fast)).logger.missed == 0
    await acknowledge(journal, found, refused=1)
    assert ((await page(journal, slow)).logger.missed, (await page(journal, slow)).logger.missed_told) == (4, 4)


async def test_what_is_for_another_logger_is_not_missed(journal: Journal):
    """Entries for others count only for these."""
    row = await opened(journal, "a", "b")
    one, other = row.loggers
    await log(journal, row, 1, 2, only=[other.number])
    await log(journal, row, 3, most_bytes=1)

    assert ((await page(journal, one)).logger.missed, (await page(journal, other)).logger.missed) == (0, 2)


async def test_a_sync_is_wanted_until_it_is_done(journal: Journal):
    """Once it has every entry, a logger is to sync; closing wants it again, so that loggers close."""
    row = await opened(journal, "a")
    await log(journal, row, 1)
    await journal.submit(lambda now: experiments.want_sync(now, row.number, close=False))
    (logger,) = row.loggers
    found = await page(journal, logger)
    assert not found.sync_wanted
    await acknowledge(journal, found)
    found = await page(journal, logger)
    assert (found.sync_wanted, found.closed) == (True, False)
    await acknowledge(journal, found, synced=True)
    assert not (await page(journal, logger)).sync_wanted
    assert await journal.read(experiments.find_waiting) == []

    for _ in range(2):
        await journal.submit(lambda now: experiments.want_sync(now, row.number, close=True))
        found = await page(journal, logger)
        assert found.closed
        if found.sync_wanted:
            await acknowledge(journal, found, synced=True)
    assert not (await page(journal, logger)).sync_wanted


async def test_hyperparameters_add_up_within_a_bound(journal: Journal):
    """A name that comes again gets the new value; more than the bound is refused whole."""
    row = await opened(journal, "a")
    await journal.submit(lambda now: experiments.add_config(now, row.number, {"lr": 1, "seed": 2}))
    await journal.submit(lambda now: experiments.add_config(now, row.number, {"lr": 3}))
    with pytest.raises(InvalidField) as caught:
        await journal.submit(
            lambda now: experiments.add_config(now, row.number, {"text": "x" * experiments.MAX_CONFIG_BYTES})
        )

    assert caught.value.field == "hparams"
    assert await journal.read(experiments.config_of, row.number) == {"lr": 3, "seed": 2}


async def test_loggers_are_bounded(journal: Journal):
    """One more than an experiment may have is refused, and none is added."""
    await opened(journal, *(f"l{number}" for number in range(experiments.MAX_LOGGERS)))
    with pytest.raises(InvalidField) as caught:
        await opened(journal, "more")

    assert caught.value.field == "log_to"
    row = await journal.read(experiments.find_experiment, "r")
    assert row is not None
    assert len(row.loggers) == experiments.MAX_LOGGERS


async def test_an_unused_experiment_is_removed_whole(journal: Journal):
    """With its entries and loggers; one that is used stays."""
    row = await opened(journal, "a")
    await log(journal, row, 1)

    assert not await journal.submit(lambda now: experiments.remove_unused_experiment(now, row.created_ns))
    assert await journal.submit(lambda now: experiments.remove_unused_experiment(now, 1 << 62))
    assert await journal.read(experiments.find_experiment, "r") is None
    assert await journal.read(experiments.read_page, row.loggers[0].number) is None
    assert await stored(journal) == 0
