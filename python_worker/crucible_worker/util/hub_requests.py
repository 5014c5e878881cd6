"""How child processes query the Hugging Face hub, and what its library's errors mean."""

from __future__ import annotations

import importlib
from typing import Any

from huggingface_hub import set_client_factory
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import get_session

__all__ = ["SILENT_SECONDS", "bound_silence", "is_of_network"]

SILENT_SECONDS = 30.0
"""How long the hub may send nothing in one request; the library repeats all but the first, about six times."""

_BUSY = 429
_SERVER_ERRORS = 500


def bound_silence() -> None:
    """Bound the time of every request of the library.

    It sends some requests without any bound, and a process that waits forever keeps another data set from being read.
    """
    made = get_session()  # of httpx or httpx2: whichever the library has
    client = type(made)
    hooks = {**made.event_hooks, "request": [*made.event_hooks["request"], _bounded]}
    set_client_factory(lambda: client(event_hooks=hooks, follow_redirects=True, timeout=SILENT_SECONDS))


def _bounded(request: Any) -> None:
    given = request.extensions.get("timeout", {})
    request.extensions["timeout"] = {
        each: SILENT_SECONDS if given.get(each) is None else min(given[each], SILENT_SECONDS)
        for each in ("connect", "read", "write", "pool")
    }


def is_of_network(error: BaseException) -> bool:
    """Whether an error, or what caused it, says that the hub cannot be reached or is in trouble."""
    return any(map(_is_of_network, _causes(error)))


def _is_of_network(error: BaseException) -> bool:
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return status == _BUSY or status >= _SERVER_ERRORS
    client = importlib.import_module(type(get_session()).__module__.partition(".")[0])  # httpx or httpx2, as above
    network = (ConnectionError, TimeoutError, client.TransportError, LocalEntryNotFoundError, OfflineModeIsEnabled)
    return isinstance(error, network)


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
