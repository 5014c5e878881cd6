"""Experiment trackers hold what was logged, each value at its step, late ones too, and after kills of their loggers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crucible_worker.loggers.base import Entry, Experiment, Hparams, LongText, MetricRow, Missed
from crucible_worker.loggers.registry import read
from crucible_worker.loggers.runner import LoggerRunner, LoggerState, Timing
from tests.service.trackers_kit import (
    Point,
    mlflow_points,
    tensorboard_points,
    tensorboard_texts,
    trackio_points,
    wandb_records,
)

pytestmark = pytest.mark.loggers

START_SECONDS = 120.0
"""For a tracker's server to start on a machine that has other things to do; a bound, no expectation."""
NOW = 1_795_000_000 * 10**9

ENTRIES: list[Entry] = [
    MetricRow(sequence=1, unix_time_ns=NOW, values={"loss": 0.5}, step=1, family="train"),
    MetricRow(sequence=2, unix_time_ns=NOW + 10**9, values={"loss": 0.25}, step=100, family="train"),
    # Evaluations of earlier checkpoints end later, in any order.
    MetricRow(sequence=3, unix_time_ns=NOW + 2 * 10**9, values={"test/acc": 0.75}, step=50, family="test"),
    MetricRow(sequence=4, unix_time_ns=NOW + 3 * 10**9, values={"test/acc": 0.625}, step=10, family="test"),
    Hparams(sequence=5, unix_time_ns=NOW, values={"lr": 0.1, "_big": 10**30, "list": [1, {"a": None}]}),
    LongText(sequence=6, unix_time_ns=NOW, key="samples/one", text="<b>not bold</b>", step=50),
    Missed(sequence=9, unix_time_ns=NOW, count=3),
]
POINTS = [
    Point("loss", 1, 0.5),
    Point("loss", 100, 0.25),
    Point("test/acc", 10, 0.625),
    Point("test/acc", 50, 0.75),
]


def runner(text: str, folder: Path, run_id: str = "run/1") -> LoggerRunner:
    """That of a logger, of the experiment `first`."""
    spec = read(text, "--log-to", by_operator=True)
    experiment = Experiment(name="first", run_id=run_id, directory=folder / "own", config={"seed": 7})
    return LoggerRunner(spec, experiment, Timing(first_back_off_seconds=0.1, open_seconds=START_SECONDS))


async def fed(text: str, folder: Path, entries: list[Entry] = ENTRIES) -> str:
    """Feed entries to a logger, without any failure, and end it; its URL."""
    logger = runner(text, folder)
    await logger.feed(entries)
    await logger.sync()
    await logger.aclose()
    assert (logger.status.state, logger.status.error) == (LoggerState.CLOSED, "")
    return logger.status.url


def mine() -> list[int]:
    """The processes of loggers that this process has started."""
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if f"loggers.host\0--parent={os.getpid()}\0".encode() in cmdline.read_bytes():
                found.append(int(cmdline.parent.name))
    return found


def many(first: int, last: int) -> list[Entry]:
    """Rows with these sequences, each with one value."""
    return [
        MetricRow(sequence=number, unix_time_ns=NOW + number * 10**6, values={"m": number / 4}, step=number)
        for number in range(first, last + 1)
    ]


async def killed_and_resumed(text: str, folder: Path, last: int) -> None:
    """Feed rows while the logger is killed a few times, then some of them again by another runner."""
    logger = runner(text, folder)
    task = asyncio.create_task(logger.feed(many(1, last // 2)))
    for _ in range(3):
        through = logger.status.through
        while not task.done() and (logger.status.state != LoggerState.OPEN or logger.status.through == through):
            await asyncio.sleep(0.01)
        for pid in mine():
            os.kill(pid, signal.SIGKILL)
    await task
    await logger.feed(many(last // 2 - 100, last - 200))
    for pid in mine():
        os.kill(pid, signal.SIGKILL)
    await logger.aclose()
    again = runner(text, folder)
    await again.feed(many(last // 2, last))
    await again.aclose()


async def test_trackio_has_each_value_at_its_step(tmp_path: Path) -> None:
    """With the configuration, the texts, and the number of entries that are missing."""
    database = Path(await fed(f"trackio:lab?directory={tmp_path / 'trackio'}", tmp_path))
    assert database == tmp_path / "trackio" / "lab.db"
    assert trackio_points(tmp_path / "trackio", "lab", "first") == POINTS

    import sqlite3

    with contextlib.closing(sqlite3.connect(database)) as connection:
        ((config,),) = connection.execute("SELECT config FROM configs").fetchall()
        texts = [json.loads(row) for (row,) in connection.execute("SELECT metrics FROM metrics ORDER BY id")]
    assert {name: value for name, value in json.loads(config).items() if name[0] != "_"} == {
        "seed": 7,
        "lr": 0.1,
        "big": str(10**30),
        "list": [1, {"a": None}],
    }
    assert {"samples/one": {"_type": "trackio.markdown", "_value": "<b>not bold</b>"}} in texts
    assert texts[-1]["crucible_bridge/missed"]["_value"].startswith("3 entries were removed")


async def test_trackio_has_each_value_once_after_kills(tmp_path: Path) -> None:
    """It knows what it has."""
    await killed_and_resumed(f"trackio:lab?directory={tmp_path / 'trackio'}", tmp_path, 6_000)
    points = trackio_points(tmp_path / "trackio", "lab", "first")
    assert points == [Point("m", number, number / 4) for number in range(1, 6_001)]


async def test_trackio_shows_what_json_does_not_have(tmp_path: Path) -> None:
    """NaN and infinities, and a row without a step after the highest one."""
    rows: list[Entry] = [
        MetricRow(sequence=1, unix_time_ns=NOW, values={"a": math.inf, "step": 7.0}, step=41),
        MetricRow(sequence=2, unix_time_ns=NOW, values={"b": -math.inf}),
        MetricRow(sequence=3, unix_time_ns=NOW, values={"c": 1.0}, step=7),
        MetricRow(sequence=4, unix_time_ns=NOW, values={"d": 2.0}),
    ]
    await fed(f"trackio:lab?directory={tmp_path / 'trackio'}", tmp_path, rows)
    assert trackio_points(tmp_path / "trackio", "lab", "first") == [
        Point("__step", 41, 7.0),
        Point("a", 41, math.inf),
        Point("b", 42, -math.inf),
        Point("c", 7, 1.0),
        Point("d", 43, 2.0),
    ]


async def test_a_name_that_trackio_refuses_is_reported(tmp_path: Path) -> None:
    """In the status; the logger is tried again until it is closed."""
    logger = runner(f"trackio:lab_system?directory={tmp_path}", tmp_path)
    task = asyncio.create_task(logger.open())
    while not logger.status.error:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert "is not allowed" in logger.status.error
    await logger.aclose()


async def test_mlflow_has_each_value_at_its_step(tmp_path: Path) -> None:
    """In a database; parameters, and the text as an artifact beside it."""
    database = tmp_path / "data" / "mlflow.db"
    database.parent.mkdir()
    await fed(f"mlflow:lab?tracking_uri=sqlite:///{database}", tmp_path)
    assert mlflow_points(database) == POINTS

    import sqlite3

    with contextlib.closing(sqlite3.connect(database)) as connection:
        params = dict(connection.execute("SELECT key, value FROM params"))
        tags = dict(connection.execute("SELECT key, value FROM tags"))
        ((state,),) = connection.execute("SELECT status FROM runs").fetchall()
    assert params == {"seed": "7", "lr": "0.1", "_big": str(10**30), "list": '[1, {"a": null}]'}
    assert (tags["crucible_bridge.run_id"], tags["crucible_bridge.sequence"], state) == ("run/1", "9", "FINISHED")
    (text,) = (tmp_path / "data" / "mlartifacts").rglob("samples/one/6.txt")
    assert text.read_text() == "<b>not bold</b>"


async def test_mlflow_has_each_value_once_after_kills(tmp_path: Path) -> None:
    """The database knows what it has; names and values that MLflow does not have are written as close as it has."""
    database = tmp_path / "mlflow.db"
    uri = f"mlflow:lab?tracking_uri=sqlite:///{database}"
    await killed_and_resumed(uri, tmp_path, 4_000)
    assert mlflow_points(database) == [Point("m", number, number / 4) for number in range(1, 4_001)]

    rows: list[Entry] = [
        MetricRow(sequence=4_001, unix_time_ns=NOW, values={"pass@1": 0.5, "inf": math.inf}),
        Hparams(sequence=4_002, unix_time_ns=NOW, values={"seed": 8}),
    ]
    await fed(uri, tmp_path, rows)
    last = [point for point in mlflow_points(database) if point.name != "m"]
    assert last == [Point("inf", 0, sys.float_info.max), Point("pass_1", 0, 0.5)]


async def test_mlflow_logs_to_a_server(tmp_path: Path, mlflow_server: str) -> None:
    """Over HTTP; the URL is the run's page."""
    url = await fed(f"mlflow:lab?tracking_uri={mlflow_server}", tmp_path)
    assert re.fullmatch(rf"{mlflow_server}/#/experiments/\d+/runs/[0-9a-f]+", url)
    assert mlflow_points(tmp_path / "server.db") == POINTS


@pytest.fixture
def mlflow_server(tmp_path: Path) -> Iterator[str]:
    """A tracking server of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = f"sqlite:///{tmp_path / 'server.db'}"
    command = [sys.executable, "-m", "mlflow", "server", "--host=127.0.0.1", f"--port={port}", "--workers=1"]
    command += [f"--backend-store-uri={store}", f"--artifacts-destination={tmp_path / 'artifacts'}"]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, start_new_session=True) as server:
        try:
            _until_healthy(f"http://127.0.0.1:{port}", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGKILL)


def _until_healthy(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(f"{url}/health"):
            return
        assert server.poll() is None, "the server has ended"
        assert time.monotonic() < end, "the server does not start"
        time.sleep(0.1)


async def test_tensorboard_has_each_value_at_its_step(tmp_path: Path) -> None:
    """In event files, with the configuration and the texts."""
    folder = Path(await fed(f"tensorboardx:{tmp_path / 'runs'}", tmp_path))
    assert folder == tmp_path / "runs" / "first"
    assert tensorboard_points(folder) == POINTS
    texts = tensorboard_texts(folder)
    assert texts["samples/one/text_summary"] == "<b>not bold</b>"
    assert str(10**30) in texts["config/text_summary"]


async def test_tensorboard_has_each_value_at_least_once_after_kills(tmp_path: Path) -> None:
    """It cannot tell what it has: some are there twice, at the same step."""
    await killed_and_resumed(f"tensorboardx:{tmp_path / 'runs'}", tmp_path, 6_000)
    points = tensorboard_points(tmp_path / "runs" / "first")
    assert sorted(set(points)) == [Point("m", number, number / 4) for number in range(1, 6_001)]


async def test_wandb_has_each_value_on_the_axis_of_its_family(tmp_path: Path) -> None:
    """Offline: the file that `wandb sync` sends. Its own steps rise, so it ignores none that is late."""
    folder = Path(await fed(f"wandb:lab?mode=offline&directory={tmp_path / 'wb'}", tmp_path))
    assert folder.parent == tmp_path / "wb" / "wandb"
    records = wandb_records(tmp_path / "wb")

    histories = [(each.history.step.num, _items(each.history.item)) for each in records if each.HasField("history")]
    assert [step for step, _ in histories] == [1, 2, 3, 4, 6, 9]
    assert [{name: row[name] for name in row if name[0] != "_"} for _, row in histories[:4]] == [
        {"loss": 0.5, "train/step": 1},
        {"loss": 0.25, "train/step": 100},
        {"test/acc": 0.75, "test/step": 50},
        {"test/acc": 0.625, "test/step": 10},
    ]
    axes = {each.metric.name: each.metric.step_metric for each in records if each.HasField("metric")}
    assert axes["loss"] == "train/step"
    assert axes["test/acc"] == "test/step"
    (run,) = (each.run for each in records if each.HasField("run"))
    assert (run.project, run.display_name, run.run_id) == ("lab", "first", "run-1")
    pages = [page.read_text() for page in folder.rglob("*.html")]
    assert "<pre>&lt;b&gt;not bold&lt;/b&gt;</pre>" in pages


async def test_wandb_resumes_after_kills(tmp_path: Path) -> None:
    """Its process writes every few seconds: a kill may lose the last ones, an orderly end loses none."""
    await killed_and_resumed(f"wandb:lab?mode=offline&directory={tmp_path / 'wb'}", tmp_path, 3_000)
    found = {
        int(_items(record.history.item)["step"])
        for record in wandb_records(tmp_path / "wb")
        if record.HasField("history")
    }
    # The last runner was given these, and closed.
    assert set(range(1_500, 3_001)) <= found <= set(range(1, 3_001))


def _items(items: Any) -> dict[str, Any]:
    """The values of a row of wandb's history, by name."""
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}
