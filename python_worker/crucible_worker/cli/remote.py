"""A worker at an address, as the commands that call one are given it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from crucible_bridge import BlockingBridge
    from crucible_bridge.client import Tls

__all__ = ["AddressTokenFile", "AddressTrust", "AddressTrustedName", "Trust", "token_in", "worker_at"]

AddressTokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="With --address: the worker's token.")
]
AddressTrust = Annotated[
    Path | None,
    typer.Option("--tls-ca", metavar="FILE", help="With --address: call with TLS, and trust this certificate, PEM."),
]
AddressTrustedName = Annotated[
    str | None,
    typer.Option(
        "--tls-name",
        metavar="NAME",
        help="With --tls-ca: the name in the worker's certificate, if the address has another one. "
        "Several addresses need it.",
    ),
]


class Trust(NamedTuple):
    """How a worker at an address is known."""

    ca: Path | None
    """The certificate to trust; without TLS if None."""
    name: str | None
    """The name in the worker's certificate; that of the address if None."""

    def tls(self, address: str) -> Tls | None:
        """As a client of the address takes it.

        Raises:
            InvalidField: a name without a certificate, or several addresses without a name; the error names the option.
        """
        from crucible_bridge.client import Tls
        from crucible_bridge.errors import InvalidField

        if self.ca is None and self.name is not None:
            raise InvalidField("--tls-name", "goes with --tls-ca")
        if self.ca is not None and self.name is None and "," in address:
            raise InvalidField("--tls-name", "is needed with several addresses: the name in the workers' certificates")
        return None if self.ca is None else Tls(ca=self.ca, server_name=self.name)


@contextlib.contextmanager
def worker_at(address: str, token_file: Path | None, trust: Trust) -> Generator[BlockingBridge, None, None]:
    """Connect to a worker.

    Args:
        address: "HOST:PORT", or "unix:PATH".
        token_file: holds its token, if it wants one.
        trust: how the worker is known.

    Raises:
        InvalidField: the token file cannot be read, or `trust` cannot be used; the error names the option.
    """
    import crucible_bridge

    with crucible_bridge.connect_sync(address, token=token_in(token_file), tls=trust.tls(address)) as bridge:
        yield bridge


def token_in(file: Path | None) -> str | None:
    """The first token in a file; None if there is no file.

    Raises:
        InvalidField: the file cannot be read; the error names the option.
    """
    from crucible_bridge.errors import InvalidField

    try:
        return None if file is None else file.read_text("utf-8").strip().partition("\n")[0].rstrip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidField("--token-file", f"cannot be read: {error}") from error
