"""A worker at an address, as the commands that call one are given it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from crucible_bridge import BlockingBridge

__all__ = ["AddressTokenFile", "AddressTrust", "token_in", "worker_at"]

AddressTokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="With --address: the worker's token.")
]
AddressTrust = Annotated[
    Path | None,
    typer.Option("--tls-ca", metavar="FILE", help="With --address: call with TLS, and trust this certificate, PEM."),
]


@contextlib.contextmanager
def worker_at(address: str, token_file: Path | None, tls_ca: Path | None) -> Generator[BlockingBridge, None, None]:
    """Connect to a worker.

    Args:
        address: "HOST:PORT", or "unix:PATH".
        token_file: holds its token, if it wants one.
        tls_ca: the certificate to trust; without TLS if None.

    Raises:
        InvalidField: the token file cannot be read; the error names the option.
    """
    import crucible_bridge

    with crucible_bridge.connect_sync(address, token=token_in(token_file), tls=tls_ca) as bridge:
        yield bridge


def token_in(file: Path | None) -> str | None:
    """The token in a file; None if there is no file.

    Raises:
        InvalidField: the file cannot be read; the error names the option.
    """
    from crucible_bridge.errors import InvalidField

    try:
        return None if file is None else file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidField("--token-file", f"cannot be read: {error}") from error
