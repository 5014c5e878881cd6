"""Logs: what every line bears, and that a reader who stops reading stops nobody else."""

import errno
import io
import json
import logging
import os
import threading
import time
from typing import Any

import pytest
import structlog

from crucible_worker.telemetry import MAX_TEXT_CHARS, BackgroundWriter, bind_contextvars, configure_logging
from tests.service.logging_kit import restored_logging


@pytest.fixture
def stream():
    """Where lines go; the logging of other tests is restored afterwards."""
    with restored_logging():
        yield io.StringIO()


def lines_of(stream: io.StringIO) -> list[dict[str, object]]:
    """Every line, as JSON."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_every_line_bears_time_level_and_event(stream):
    """Our events and those of libraries are lines of one kind, in JSON."""
    writer = configure_logging("json", "info", stream)
    bind_contextvars(evaluation_id="e1")

    structlog.get_logger().info("ours", number=1)
    logging.getLogger("another.package").warning("theirs %d", 2)
    writer.close(5)

    ours, theirs = lines_of(stream)
    assert (ours["event"], ours["level"], ours["number"]) == ("ours", "info", 1)
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("theirs 2", "warning", "another.package")
    assert all(str(line["timestamp"]).endswith("Z") and line["evaluation_id"] == "e1" for line in (ours, theirs))


def test_a_traceback_is_part_of_its_line(stream):
    """An exception does not spread over several lines, nor does it carry local variables."""
    writer = configure_logging("json", "info", stream)
    secret = "a local variable"

    try:
        raise RuntimeError("what happened")
    except RuntimeError:
        structlog.get_logger().exception("failed")
    writer.close(5)

    (line,) = lines_of(stream)
    assert "RuntimeError: what happened" in str(line["exception"])
    assert secret not in stream.getvalue().replace('secret = "a local variable"', "")


def test_what_json_lacks_is_written_as_text(stream):
    """Lines are ASCII and hold no bare NaN, whatever is logged."""
    writer = configure_logging("json", "info", stream)

    structlog.get_logger().info("odd", number=float("nan"), text="\u00fc\n", thing=object)
    writer.close(5)

    assert stream.getvalue().isascii()
    assert "NaN" not in stream.getvalue()
    assert len(lines_of(stream)) == 1


def test_a_long_text_is_cut(stream):
    """What a caller calls its evaluation fills no disk, and no memory while a line waits; tracebacks stay whole."""
    writer = configure_logging("json", "info", stream)
    bind_contextvars(evaluation_id="e" * 10_000_000)

    structlog.get_logger().info("call")
    logging.getLogger("library").warning("w" * 10_000_000)
    try:
        raise RuntimeError("r" * 2 * MAX_TEXT_CHARS)
    except RuntimeError:
        structlog.get_logger().exception("failed")
    writer.close(5)

    call, library, failed = lines_of(stream)
    assert call["evaluation_id"] == failed["evaluation_id"] == "e" * MAX_TEXT_CHARS + "\u2026"
    assert library["event"] == "w" * MAX_TEXT_CHARS + "\u2026"
    assert "r" * 2 * MAX_TEXT_CHARS in str(failed["exception"])


def test_events_that_something_else_shows_have_no_line(stream):
    """They are left out by their names, and others are not."""
    writer = configure_logging("console", "warning", stream, left_out=("model_away",))

    structlog.get_logger().warning("model_away", error="gone")
    structlog.get_logger().warning("model_back")
    writer.close(5)

    assert "gone" not in stream.getvalue()
    assert "model_back" in stream.getvalue()


def test_what_is_below_the_level_is_not_written(stream):
    """The level holds for our events and for those of libraries."""
    writer = configure_logging("console", "warning", stream)

    structlog.get_logger().info("quiet")
    logging.getLogger("asyncio").info("quiet")
    structlog.get_logger().warning("loud")
    writer.close(5)

    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


class _Disk(io.RawIOBase):
    """Has no room for a while, and then for so many bytes."""

    def __init__(self) -> None:
        self.content, self.room = b"", 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = bytes(data)[: self.room]
        self.content += taken
        self.room -= len(taken)
        return len(taken)


def test_lines_that_a_full_disk_refuses_are_counted():
    """Once there is room, the log says how many are lost; a line of which a part was written stands alone."""
    disk = _Disk()
    writer = BackgroundWriter(io.TextIOWrapper(io.BufferedWriter(disk), encoding="utf-8"))
    for dropped, (line, room) in enumerate((("one\n", 0), ("two\n", 2), ("three\n", 0)), 1):
        disk.room = room
        writer.write(line)
        until = time.monotonic() + 5
        while writer.dropped < dropped:
            assert time.monotonic() < until
            time.sleep(0.001)
    disk.room = 1_000
    writer.write("four\n")
    writer.close(5)

    part, four, lost = disk.content.decode().splitlines()
    assert (part, four) == ("tw", "four")
    assert json.loads(lost) == {"event": "log_lines_dropped", "level": "warning", "count": 3}


def test_a_full_pipe_holds_nobody_up():
    """Lines beyond the queue are dropped and counted, and the count is logged once there is room."""
    reader, pipe = os.pipe()
    with os.fdopen(reader, encoding="ascii") as read_end, os.fdopen(pipe, "w", encoding="ascii") as write_end:
        writer = BackgroundWriter(write_end, capacity=4)
        line = "x" * 32_767 + "\n"  # two of them fill a pipe
        for _ in range(3):  # the thread waits within the third one
            writer.write(line)
            until = time.monotonic() + 5
            while not writer._lines.empty():
                assert time.monotonic() < until
                time.sleep(0.001)
        while writer.dropped < 3:
            writer.write(line)

        dropped = writer.dropped
        received: list[str] = []
        reading = threading.Thread(target=lambda: received.extend(read_end))
        reading.start()
        writer.close(5)
        write_end.close()
        reading.join(5)

    assert json.loads(received[-1]) == {"event": "log_lines_dropped", "level": "warning", "count": dropped}
    assert set(received[:-1]) == {line}
