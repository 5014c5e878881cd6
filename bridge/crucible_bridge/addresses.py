"""Where a client finds its workers: one address, several of one pool, or a name of DNS that has many.

127.0.0.1:50051                          one worker
10.0.0.1:50051,10.0.0.2:50051            the workers of one pool
dns:///crucible-bridge-workers:50051     the workers that a name has, such as that of a headless service
"""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import socket
from collections.abc import Sequence

from crucible_bridge.channel import Address, parse_address
from crucible_bridge.errors import InvalidField, Unavailable
from crucible_bridge.reasons import Reason

__all__ = ["MAX_ADDRESSES", "Workers", "located", "parse_workers"]

MAX_ADDRESSES = 256
"""Most addresses of one pool."""

_DNS = "dns:"


@dataclasses.dataclass(frozen=True, slots=True)
class Workers:
    """The workers of a client, before names are looked up."""

    addresses: tuple[Address, ...]
    """One, or several of a pool; empty for a name of DNS."""
    name: str = ""
    """A target of DNS in gRPC's form, "dns:///name:port"; empty for addresses."""

    @property
    def pool(self) -> bool:
        """Whether there may be several workers."""
        return bool(self.name) or len(self.addresses) > 1

    def __str__(self) -> str:
        """The workers, as errors show them."""
        return self.name or ",".join(address.target for address in self.addresses)


def parse_workers(address: str | Sequence[str]) -> Workers:
    """Read an address, several of one pool as a sequence or with commas, or "dns:///name:port".

    Raises:
        InvalidField: one of them is none of these, or they do not go together.
    """
    if isinstance(address, str):
        texts = [address] if address.startswith("unix:") else [text.strip() for text in address.split(",")]
    else:
        texts = list(address)
    if not texts or len(texts) > MAX_ADDRESSES:
        raise InvalidField("address", f"has {len(texts)} addresses, must have 1 to {MAX_ADDRESSES}")
    if any(text.startswith(_DNS) for text in texts):
        if len(texts) > 1:
            raise InvalidField("address", f"has {len(texts)} addresses, and a name of DNS stands alone")
        return Workers((), _dns_target(texts[0]))
    # A worker that is named twice is one worker.
    addresses = tuple(dict.fromkeys(parse_address(text) for text in texts))
    if len(addresses) > 1 and (sockets := [found.target for found in addresses if found.path]):
        raise InvalidField("address", f"has {sockets[0]!r} in a list: a Unix socket stands alone")
    return Workers(addresses)


async def located(workers: Workers) -> str:
    """The target of these workers, as gRPC resolves it; names in a list are looked up, once.

    A name that has no address is a worker that is gone: the others are the pool.

    Raises:
        Unavailable: no name has an address (TRANSPORT).
        InvalidField: some of the workers have IPv4 addresses alone, and others IPv6 addresses alone.
    """
    if workers.name:
        return workers.name
    if len(workers.addresses) == 1:
        return workers.addresses[0].target
    asked = await asyncio.gather(*map(_numeric, workers.addresses), return_exceptions=True)
    found = [numbers for numbers in asked if not isinstance(numbers, BaseException)]
    for error in asked:
        if isinstance(error, BaseException) and (not found or not isinstance(error, Unavailable)):
            raise error
    for family, scheme in ((socket.AF_INET, "ipv4"), (socket.AF_INET6, "ipv6")):
        if all(family in numbers for numbers in found):
            return f"{scheme}:{','.join(dict.fromkeys(numbers[family] for numbers in found))}"
    raise InvalidField("address", f"is {workers}, a mixture of IPv4 and IPv6: a list needs all in one of them")


async def _numeric(address: Address) -> dict[socket.AddressFamily, str]:
    """The first "number:port" of each family that an address has."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        message = f"{address.host} has no address: {error.strerror}"
        raise Unavailable(message, reason=Reason.TRANSPORT, metadata={"address": address.target}) from error
    numbers: dict[socket.AddressFamily, str] = {}
    for family, _, _, _, place in found:
        host = f"[{place[0]}]" if family == socket.AF_INET6 else place[0]
        numbers.setdefault(family, f"{host}:{address.port}")
    return numbers


def _dns_target(text: str) -> str:
    """Check "dns:name:port", "dns:///name:port" or "dns://server/name:port"."""
    rest = text.removeprefix(_DNS)
    server = ""
    if rest.startswith("//"):
        server, separator, rest = rest.removeprefix("//").partition("/")
        if not separator:
            raise InvalidField("address", f'is {text!r}; write "dns:///name:port"')
    found = parse_address(rest)
    if found.path or found.port == 0 or _is_number(found.host):
        raise InvalidField("address", f'is {text!r}; "dns:///name:port" needs a name and its port')
    return f"dns://{server}/{found.target}"


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
