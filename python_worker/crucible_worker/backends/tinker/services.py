"""Settings of the Tinker services that a worker may use: addresses, and where their keys are.

Requests name a service, or none for the default one; never an address or a key. A key is read when the service is first
used, and only its client gets it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from crucible_worker.backends.endpoints import (
    EndpointSettings,
    Kind,
    check_name,
    check_way,
    checked_url,
    read_flag,
    read_key,
    read_number,
    read_path,
    read_text,
    read_whole,
)

__all__ = ["DEFAULT", "KIND", "MAX_STALL_SECONDS", "PRODUCTION_URL", "TinkerService", "default_service"]

PRODUCTION_URL = "https://tinker.thinkingmachines.dev/services/tinker-prod"
"""Address of the Tinker service itself."""

DEFAULT = "default"
"""The service of requests that name none."""

KEY_VARIABLE = "TINKER_API_KEY"
"""Environment variable with the key if the settings name none."""

URL_VARIABLE = "TINKER_BASE_URL"
"""Environment variable with the address of the default service, unless the settings have one; production without it."""

MAX_STALL_SECONDS = 7200.0
"""The largest `stall_seconds`; the client itself gives up after as long."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TinkerService(EndpointSettings):
    """A Tinker service, or a server that speaks its API."""

    base_url: str = PRODUCTION_URL
    """Its address."""
    key_file: Path | None = None
    """File with the key (mode 0600)."""
    key_env: str | None = None
    """Environment variable with the key, in place of a file; TINKER_API_KEY if there is neither."""
    max_in_flight: int = 256
    """Most concurrent calls; further ones wait."""
    stall_seconds: float = 600.0
    """How long a call may wait while the service answers none; while others are answered, there is no limit."""
    insecure_no_tls: bool = False
    """Send the key to another machine without TLS."""

    def check(self) -> None:
        """Refuse settings that cannot work or are not safe; reads the key as a test."""
        where = KIND.where(self.name)
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
        """The key, read from its file or variable.

        Raises:
            ValueError: it does not exist, is empty or no key, or every user of this machine could read it.
        """
        variable = KEY_VARIABLE if self.key_file is None and self.key_env is None else self.key_env
        key = read_key(self.key_file, variable, KIND.where(self.name), environment)
        assert key is not None  # a file or a variable is set
        return key


def default_service(environment: Mapping[str, str] = os.environ) -> TinkerService:
    """The default service if the settings have none: by TINKER_BASE_URL and TINKER_API_KEY."""
    return TinkerService(name=DEFAULT, base_url=environment.get(URL_VARIABLE) or PRODUCTION_URL)


KIND = Kind(
    setting="tinker_services",
    noun="Tinker service",
    option="tinker_service",
    key_variables=(KEY_VARIABLE,),
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
