"""What a worker is told of the Tinker services that it may ask: addresses, and where their keys lie.

Requests name a service, or none and mean the default one; never an address or a key. A key is read when the service is
first asked, and given to its client alone.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crucible_worker.backends.endpoints import (
    Kind,
    check_name,
    check_way,
    checked_url,
    read_endpoints,
    read_flag,
    read_key,
    read_number,
    read_path,
    read_text,
    read_whole,
)

__all__ = ["DEFAULT", "MAX_STALL_SECONDS", "PRODUCTION_URL", "TinkerService", "default_service", "read_services"]

PRODUCTION_URL = "https://tinker.thinkingmachines.dev/services/tinker-prod"
"""Where the Tinker service itself is."""

DEFAULT = "default"
"""The service that is meant where a request names none."""

KEY_VARIABLE = "TINKER_API_KEY"
"""Holds the key where settings say nothing of one."""

URL_VARIABLE = "TINKER_BASE_URL"
"""Where the default service is, unless settings say; production without it."""

MAX_STALL_SECONDS = 7200.0
"""What `stall_seconds` may be at most; the client itself gives up after as long."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TinkerService:
    """A Tinker service, or a server that speaks its API."""

    name: str
    """What requests call it: letters, digits, ".", "_" and "-"."""
    base_url: str = PRODUCTION_URL
    """Its address."""
    key_file: Path | None = None
    """File with the key (mode 0600)."""
    key_env: str | None = None
    """Environment variable with the key, in place of a file; TINKER_API_KEY where there is neither."""
    max_in_flight: int = 256
    """Calls at once, at most; more wait."""
    stall_seconds: float = 600.0
    """How long a call may wait while the service answers none; however long it takes while others are answered."""
    insecure_no_tls: bool = False
    """Show the key to another machine without TLS."""

    def check(self) -> None:
        """Refuse what cannot work and what would not be safe; the key is read, to know that it can be.

        Raises:
            ValueError: the first thing that is wrong; no secret is in it.
        """
        where = _KIND.where(self.name)
        check_name(self.name, where)
        url = checked_url(self.base_url, f"{where}: base_url")
        self.key()
        if not self.insecure_no_tls:
            check_way(url, where)
        if self.max_in_flight < 1:
            raise ValueError(f"{where}: max_in_flight is {self.max_in_flight}, must be at least 1")
        if not 0 < self.stall_seconds <= MAX_STALL_SECONDS:
            raise ValueError(
                f"{where}: stall_seconds is {self.stall_seconds}, not above 0 and at most {MAX_STALL_SECONDS:.0f}"
            )

    def key(self, environment: Mapping[str, str] = os.environ) -> str:
        """The key, read from where it lies.

        Raises:
            ValueError: it is not there, empty or no key, or everybody on this machine could read it.
        """
        variable = KEY_VARIABLE if self.key_file is None and self.key_env is None else self.key_env
        key = read_key(self.key_file, variable, _KIND.where(self.name), environment)
        assert key is not None  # one of the two is there
        return key


def default_service(environment: Mapping[str, str] = os.environ) -> TinkerService:
    """The default service where settings have none: as TINKER_BASE_URL and TINKER_API_KEY say."""
    return TinkerService(name=DEFAULT, base_url=environment.get(URL_VARIABLE) or PRODUCTION_URL)


def read_services(value: Any, base: Path) -> tuple[TinkerService, ...]:
    """Read services from a TOML table of tables, or from texts "NAME=URL".

    Args:
        value: a table by name, a sequence of texts, or texts separated by blanks.
        base: folder that paths are relative to.

    Raises:
        ValueError: what is wrong; no value is repeated, as one might be a key in the wrong place.
    """
    return read_endpoints(_KIND, value, base)


_KIND = Kind(
    setting="tinker_services",
    noun="Tinker service",
    article="a",
    make=TinkerService,
    readers={
        "base_url": read_text,
        "key_file": read_path,
        "key_env": read_text,
        "max_in_flight": read_whole,
        "stall_seconds": read_number,
        "insecure_no_tls": read_flag,
    },
    required="",
)
