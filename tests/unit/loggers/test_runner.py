"""A logger's process: it is fed, replaced when it fails, and what it does wrong stays with it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from crucible_worker.loggers.base import Entry, Hparams, LongText, Missed
from crucible_worker.loggers.runner import LoggerRunner, LoggerState, Timing
from tests.processes import is_alive
from tests.unit.loggers.loggers_kit import (
    QUICK,
    experiment,
    install_loggers,
    lines_of,
    row,
    rows,
    sequences,
    spec,
)

BOUND_SECONDS = 60.0
"""For what must come to an end, on a machine that has other things to do; a bound, no expectation."""


@pytest.fixture(autouse=True)
def loggers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that scripted loggers write to."""
    install_loggers(tmp_path / "packages", monkeypatch)
    return tmp_path


def runner(folder: Path, options: str = "", timing: Timing = QUICK) -> LoggerRunner:
    """That of a scripted logger, which writes lines into `lines`."""
    return LoggerRunner(spec(f"scripted:{folder / 'lines'}{options}"), experiment(folder, config={"lr": 0.1}), timing)


def pids(folder: Path) -> list[int]:
    """The processes that the scripted logger has had."""
    return [int(pid) for pid in (folder / "lines.pids").read_text().split()]


async def until(condition: object, seconds: float = BOUND_SECONDS) -> None:
    """Wait until a function is true."""
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never became true"
        await asyncio.sleep(0.01)


async def test_entries_arrive_in_order_with_all_that_they_say(loggers: Path) -> None:
    """Metrics, hyperparameters with whole numbers of any size, texts, and the report of what is missing."""
    fed = runner(loggers)
    entries: list[Entry] = [
        row(1, {"a": float("inf"), "b": -0.5}, step=None, family="train"),
        Hparams(sequence=2, unix_time_ns=2, values={"big": 10**30, "deep": {"x": [None, True]}}),
        LongText(sequence=3, unix_time_ns=3, key="sample", text="ł\ud800"),
        row(4),
        Missed(sequence=9, unix_time_ns=9, count=5),
    ]

    assert await fed.feed(entries) == 9
    await fed.sync()
    await fed.aclose()

    opened, first, hparams, text, second, missed, synced, closed = lines_of(loggers / "lines")
    assert opened == {"open": "run", "resumed": False, "config": {"lr": 0.1}}
    assert first == {"sequence": 1, "step": None, "values": {"a": float("inf"), "b": -0.5}, "family": "train"}
    assert hparams == {"sequence": 2, "hparams": {"big": 10**30, "deep": {"x": [None, True]}}}
    assert text == {"sequence": 3, "key": "sample", "text": "ł\ud800"}
    assert second["sequence"] == 4
    assert missed["key"] == "crucible_bridge/missed"
    assert missed["text"].startswith("5 entries were removed")
    assert (synced, closed) == ({"sync": True}, {"close": True})


async def test_the_status_says_how_it_fares(loggers: Path) -> None:
    """From new to closed, with the URL and the last sequence."""
    fed = runner(loggers)
    assert (fed.status.state, fed.status.through, fed.status.url) == (LoggerState.NEW, 0, "")

    await fed.open()
    assert (fed.status.state, fed.status.url) == (LoggerState.OPEN, f"file:{loggers / 'lines'}")
    await fed.feed([row(1), Missed(sequence=5, unix_time_ns=1, count=3)])
    assert (fed.status.through, fed.status.missed, fed.status.error) == (5, 3, "")

    await fed.aclose()
    assert fed.status.state == LoggerState.CLOSED
    assert not is_alive(pids(loggers)[0])


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("raise", "RuntimeError: no luck"),
        ("exit", "its process ended: exit status 7"),
        ("block", "did not finish 'log' within 2 s, and was killed"),
    ],
)
async def test_one_that_fails_is_tried_again_in_a_new_process(loggers: Path, fault: str, error: str) -> None:
    """As often as it takes, and nothing is lost; the processes before are gone."""
    fed = runner(loggers, f"?fault={fault}&times=2")

    async with asyncio.timeout(BOUND_SECONDS):
        assert await fed.feed(rows(1, 5)) == 5

    assert sequences(loggers / "lines") == [1, 2, 3, 4, 5]
    assert [line["resumed"] for line in lines_of(loggers / "lines") if "open" in line] == [False, True, True]
    assert (fed.status.state, fed.status.failures, fed.status.error) == (LoggerState.OPEN, 0, error)
    *before, last = pids(loggers)
    await until(lambda: not any(map(is_alive, before)))
    assert is_alive(last)
    await fed.aclose()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("position", "TypeError: position() returned 'last', neither a sequence nor None"),
        ("negative position", "TypeError: position() returned -1, neither a sequence nor None"),
        ("large position", f"TypeError: position() returned {10**30}, neither a sequence nor None"),
        ("url", "TypeError: get_url() returned 5, no text of at most 8,192 characters"),
        ("long url", "no text of at most 8,192 characters"),
    ],
)
async def test_one_that_returns_what_it_must_not_has_failed(loggers: Path, fault: str, error: str) -> None:
    """The error says which method of it returned what."""
    fed = runner(loggers, f"?fault={fault.replace(' ', '%20')}&times=1")

    async with asyncio.timeout(BOUND_SECONDS):
        assert await fed.feed(rows(1, 2)) == 2

    assert error in fed.status.error
    assert sequences(loggers / "lines") == [1, 2]
    await fed.aclose()


async def test_a_url_has_escapes_for_bytes_that_are_no_text(loggers: Path) -> None:
    """The journal could not have them: a folder may be named so."""
    fed = runner(loggers, "?fault=path")

    await fed.open()

    assert (fed.status.url, fed.status.error) == ("file:\\udcff", "")
    await fed.aclose()


async def test_one_that_fails_stops_no_other(loggers: Path) -> None:
    """One that raises and one that blocks are fed for ever, while the third takes all."""
    others = [
        LoggerRunner(spec(f"scripted:{loggers / fault}?fault={fault}&times=1000000"), experiment(loggers), QUICK)
        for fault in ("raise", "block")
    ]
    tasks = [asyncio.create_task(each.feed(rows(1, 5))) for each in others]
    await until(lambda: others[0].status.failures > 1)

    fed = runner(loggers)
    async with asyncio.timeout(BOUND_SECONDS):
        assert await fed.feed(rows(1, 3_000)) == 3_000
    assert not any(task.done() for task in tasks)
    assert others[0].status.state == LoggerState.FAILING

    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*(each.aclose() for each in (*others, fed)))


async def test_the_pauses_grow_up_to_their_bound(loggers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They double with each failure in a row."""
    slept: list[float] = []
    pause = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await pause(0)

    monkeypatch.setattr("crucible_worker.loggers.runner.asyncio.sleep", sleep)
    fed = runner(loggers, "?fault=exit&times=4", Timing(first_back_off_seconds=3.0, max_back_off_seconds=10.0))
    await fed.feed(rows(1, 1))
    await fed.aclose()

    assert slept == [3.0, 6.0, 10.0, 10.0]


@pytest.mark.parametrize("refused", [1, 3, 5])
async def test_an_entry_that_is_refused_is_left_out_and_counted(loggers: Path, refused: int) -> None:
    """Wherever it is in a batch; the others are there, in the same process."""
    fed = runner(loggers, f"?refuse={refused}")

    assert await fed.feed(rows(1, 5)) == 5
    assert await fed.feed(rows(5, 6)) == 6
    assert sequences(loggers / "lines") == [number for number in range(1, 7) if number != refused]
    assert (fed.status.refused, fed.status.failures, fed.status.error) == (1, 0, "not this one")
    assert len(pids(loggers)) == 1
    await fed.aclose()


async def test_one_that_is_killed_while_it_waits_is_replaced_with_the_next_entry(loggers: Path) -> None:
    """An idle logger that dies costs nothing that it had acknowledged."""
    fed = runner(loggers)
    await fed.feed(rows(1, 2))
    os.kill(pids(loggers)[0], signal.SIGKILL)

    assert await fed.feed(rows(2, 4)) == 4
    assert sequences(loggers / "lines") == [1, 2, 3, 4]
    assert fed.status.error == "its process ended: signal 9"
    await fed.aclose()


async def test_a_feed_that_is_cancelled_ends_the_process(loggers: Path) -> None:
    """What was not acknowledged can be fed again, to a new one."""
    fed = runner(loggers, "?fault=block&times=1", Timing())
    task = asyncio.create_task(fed.feed(rows(1, 2)))
    await until(lambda: (loggers / "lines.pids").exists() and pids(loggers))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not is_alive(pids(loggers)[0]))

    assert await fed.feed(rows(1, 2)) == 2
    assert sequences(loggers / "lines") == [1, 2]
    await fed.aclose()


async def test_one_that_does_not_close_is_killed(loggers: Path) -> None:
    """After the seconds that it is given."""
    fed = runner(loggers, "?fault=block%20at%20close")
    await fed.feed(rows(1, 1))
    await fed.aclose(0.2)

    assert fed.status.error == "did not finish 'close' within 0.2 s, and was killed"
    assert not is_alive(pids(loggers)[0])
    await fed.aclose()


async def test_a_full_disk_loses_nothing_and_leaves_whole_lines(loggers: Path) -> None:
    """The logger is tried again until there is room; each row is there once."""
    limit = loggers / "bytes"
    limit.write_text("20000")
    fed = LoggerRunner(spec(f"full_disk:{loggers / 'out'}?bytes_file={limit}"), experiment(loggers), QUICK)
    task = asyncio.create_task(fed.feed(rows(1, 2_000)))
    await until(lambda: fed.status.failures > 2)
    written = sequences(loggers / "out" / "run" / "metrics.jsonl", "_sequence")
    assert written == list(range(1, len(written) + 1))
    assert "File too large" in fed.status.error

    limit.write_text("10000000")
    async with asyncio.timeout(BOUND_SECONDS):
        assert await task == 2_000
    assert sequences(loggers / "out" / "run" / "metrics.jsonl", "_sequence") == list(range(1, 2_001))
    await fed.aclose()


async def test_a_new_runner_resumes_what_the_tracker_has(loggers: Path) -> None:
    """Entries that are there are not written again, whatever the journal believes."""
    for first, last in ((1, 700), (300, 1_500), (1, 2_000)):
        fed = LoggerRunner(spec(f"jsonl:{loggers / 'out'}"), experiment(loggers), QUICK)
        assert await fed.feed(rows(first, last)) == last
        await fed.aclose()

    assert sequences(loggers / "out" / "run" / "metrics.jsonl", "_sequence") == list(range(1, 2_001))


async def test_the_process_has_only_the_variables_of_its_logger(loggers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of the worker's environment is no logger's, unless it names it."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    fed = runner(loggers)
    await fed.open()

    environment = Path(f"/proc/{pids(loggers)[0]}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"hf_secret" not in environment
    await fed.aclose()
