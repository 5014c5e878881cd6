"""Tokenizers without a model: each has a separate process."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.bounds import HostBounds
from crucible_worker.backends.local.host.fork_server import ForkServerEnded, HostForkServer
from crucible_worker.backends.local.host.text_process import TextProcess

__all__ = ["LOADERS", "MAX_TOKENIZERS", "TextEngine"]

MAX_TOKENIZERS = 16
"""Most processes with a tokenizer; the least recently used one is ended."""
LOADERS = 4
"""Tokenizers that are loaded at once: fetching one may take a minute."""

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _OpenTexts:
    texts: TextProcess
    facts: dict[str, Any]


class TextEngine:
    """Accepts requests from the pipe's thread; the threads of the processes answer them.

    Args:
        bounds: of the processes.
        fork_server: makes them.
        answer: sends a result or an error; called from several threads.
    """

    def __init__(self, bounds: HostBounds, fork_server: HostForkServer, answer: Callable[[int, Any], None]) -> None:
        self._bounds = bounds
        self._fork_server = fork_server
        self._answer = answer
        self._opened: OrderedDict[str, _OpenTexts] = OrderedDict()
        self._lock = threading.Lock()
        self._loaders = ThreadPoolExecutor(LOADERS, thread_name_prefix="loader")

    def submit(self, message: dict[str, Any]) -> None:
        """Accept a request; it is answered in any case."""
        identity, op = message["id"], message["op"]
        try:
            match op:
                case "open":
                    self._loaders.submit(self._load, identity, message)
                case "ping":
                    self._answer(identity, None)
                case "abort":
                    with self._lock:
                        opened = list(self._opened.values())
                    for one in opened:
                        one.texts.abort(identity)
                case _:
                    self._texts(message["model"]).submit(identity, message)
        except Exception as error:  # any error is an answer; the host continues
            self._answer(identity, _error_of(error))

    def _texts(self, model: str) -> TextProcess:
        with self._lock:
            opened = self._opened.get(model)
            if opened is None:
                raise FailedPrecondition("the model is not open", reason=Reason.MODEL_NOT_OPEN)
            self._opened.move_to_end(model)
            return opened.texts

    def _load(self, identity: int, message: dict[str, Any]) -> None:
        try:
            facts = self._facts(message)
        except ForkServerEnded:
            _log.exception("the fork server has ended, and so does the host")
            os._exit(1)
        except Exception as error:  # any error is an answer; the host continues
            self._answer(identity, _error_of(error))
        else:
            self._answer(identity, facts)

    def _facts(self, message: dict[str, Any]) -> dict[str, Any]:
        model = message["model"]
        if (opened := self._living(model)) is not None:
            return opened.facts
        texts = TextProcess(self._fork_server.fork(""), self._bounds, self._answer)
        facts = texts.load(message["name"], message["load"])
        if not facts:
            raise FailedPrecondition(f"{message['name']!r} has no tokenizer", reason=Reason.NO_TOKENIZER)
        with self._lock:
            other = self._opened.get(model)
            if other is not None and not other.texts.dead:  # loaded by another thread meanwhile
                texts.close()
                return other.facts
            self._opened[model] = _OpenTexts(texts, facts)
            self._opened.move_to_end(model)
            while len(self._opened) > MAX_TOKENIZERS:
                self._opened.popitem(last=False)[1].texts.close()
        return facts

    def _living(self, model: str) -> _OpenTexts | None:
        with self._lock:
            opened = self._opened.get(model)
        return None if opened is None or opened.texts.dead else opened


def _error_of(error: Exception) -> BridgeError:
    if isinstance(error, BridgeError):
        return error
    _log.error("a request failed", exc_info=error)
    return BackendError(f"the tokenizer failed: {type(error).__name__}", reason=Reason.MODEL_FAILED, retryable=False)
