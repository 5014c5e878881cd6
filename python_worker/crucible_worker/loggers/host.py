"""The process of one logger: it dies with the worker, and does what each message says, one after the other."""

from __future__ import annotations

import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.errors import BridgeError
from crucible_worker.children.frames import receive
from crucible_worker.children.lifetime import begin, lower_priority, set_oom_score
from crucible_worker.children.messages import pack_text, unpack
from crucible_worker.loggers.base import Entry, EntryRefused, Hparams, Logger, LoggerSpec, LongText, MetricRow, Missed
from crucible_worker.loggers.batches import entries_of, experiment_of
from crucible_worker.loggers.registry import make

_MAX_ERROR = 2_000  # characters of a failure that the worker reads
_MAX_URL = 8_192  # characters: a path and what is put before it
_MAX_SHOWN = 60


class Host:
    """Does what the messages of the worker say."""

    def __init__(self) -> None:
        self._logger: Logger | None = None
        self._through = 0

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Do one thing; what went wrong is part of the answer, with the last entry that was written before."""
        answer: dict[str, Any] = {}
        try:
            match message["do"]:
                case "open":
                    answer["position"] = self._open(message)
                case "log":
                    self._log(message["runs"])
                case "sync":
                    self._opened.sync()
                case "close":
                    self._opened.close()
            answer["url"] = _url(self._opened)
        except EntryRefused as error:
            answer |= {"refused": error.sequence, "error": _told(error)}
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            answer["error"] = _told(error)
        return {**answer, "through": self._through}

    @property
    def _opened(self) -> Logger:
        assert self._logger is not None
        return self._logger

    def _open(self, message: Mapping[str, Any]) -> int | None:
        spec = LoggerSpec(kind=message["kind"], options=message["options"], text=message["text"])
        logger = make(spec)
        logger.open(experiment_of(message["experiment"]))
        self._logger = logger
        position = _position(logger)
        self._through = position or 0
        return position

    def _log(self, runs: Sequence[tuple[str, bytes]]) -> None:
        for kind, body in runs:
            entries = [entry for entry in entries_of(kind, body) if entry.sequence > self._through]
            if entries and isinstance(entries[0], MetricRow):
                self._opened.log_metrics([entry for entry in entries if isinstance(entry, MetricRow)])
                self._through = entries[-1].sequence
                continue
            for entry in entries:
                self._log_one(entry)
                self._through = entry.sequence

    def _log_one(self, entry: Entry) -> None:
        match entry:
            case Hparams():
                self._opened.log_hparams(entry)
            case LongText():
                self._opened.log_long_text(entry)
            case Missed():
                self._opened.log_missed(entry)
            case MetricRow():
                self._opened.log_metrics([entry])


def _position(logger: Logger) -> int | None:
    position: Any = logger.position()
    if position is not None and (type(position) is not int or not 0 <= position < 1 << 63):
        raise TypeError(f"position() returned {repr(position)[:_MAX_SHOWN]}, neither a sequence nor None")
    return position


def _url(logger: Logger) -> str:
    """Its URL, with escapes for bytes of a path that are not UTF-8: the journal could not have them."""
    url: Any = logger.get_url()
    if not isinstance(url, str) or len(url) > _MAX_URL:
        raise TypeError(f"get_url() returned {repr(url)[:_MAX_SHOWN]}, no text of at most {_MAX_URL:,} characters")
    return url.encode(errors="backslashreplace").decode()


def _told(error: BaseException) -> str:
    text = str(error) if isinstance(error, BridgeError | EntryRefused) else f"{type(error).__name__}: {error}"
    return text[:_MAX_ERROR]


def main() -> None:
    """Serve the worker at the other end of a socket until it closes it."""
    _, end = begin("crucible_worker.loggers.host", __doc__)
    lower_priority()
    set_oom_score()
    _serve(end)


def _serve(end: socket.socket) -> None:
    host = Host()
    while (body := receive(end)) is not None:
        message = unpack(body)
        end.sendall(pack_text(host.answer(message)))
        if message["do"] == "close":
            sys.stdout.flush()
            return


if __name__ == "__main__":
    main()
