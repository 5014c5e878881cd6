"""Where the workers of a client are: one address, several, a name."""

import pytest

from crucible_bridge.addresses import MAX_ADDRESSES, located, parse_workers
from crucible_bridge.errors import InvalidField
from tests.tables import rows


@rows(
    ("address", "shown", "pool"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", False),
        ("unix:/run/a,b", "unix:/run/a,b", False),
        (["unix:/run/w"], "unix:/run/w", False),
        ("a:1,b:2", "a:1,b:2", True),
        ("a:1, b:2", "a:1,b:2", True),
        (["a:1", "[::1]:2"], "a:1,[::1]:2", True),
        (("a:1", "a:1"), "a:1", False),
        ("dns:///workers:1", "dns:///workers:1", True),
        ("dns:workers:1", "dns:///workers:1", True),
        ("dns://10.0.0.1:53/workers:1", "dns://10.0.0.1:53/workers:1", True),
    ],
)
def test_addresses_of_pools_are_read(address: object, shown: str, pool: bool):
    """A list, text with commas, a name; one address is no pool."""
    found = parse_workers(address)  # pyright: ignore[reportArgumentType] - rows of several types

    assert (str(found), found.pool) == (shown, pool)


@rows(
    "address",
    [
        "",
        [],
        "a:1,",
        ["a:1", "b"],
        ["a:1", "unix:/w"],
        ["dns:///a:1", "b:2"],
        "dns:///",
        "dns:///a",
        "dns://a:1",
        "dns:///unix:/w",
        "dns:///127.0.0.1:1",
        "dns:///a:0",
        [f"a:{port}" for port in range(1, MAX_ADDRESSES + 2)],
    ],
)
def test_other_addresses_of_pools_are_refused(address: object):
    """The error names the parameter."""
    with pytest.raises(InvalidField) as caught:
        parse_workers(address)  # pyright: ignore[reportArgumentType] - rows of several types

    assert caught.value.field == "address"


async def test_targets_are_those_of_grpc():
    """Numbers of one family in a list, each worker once; a single worker and a name as they are."""
    assert await located(parse_workers("worker.example:1")) == "worker.example:1"
    assert await located(parse_workers("dns:workers:1")) == "dns:///workers:1"
    assert await located(parse_workers("127.0.0.1:1,127.0.0.2:2")) == "ipv4:127.0.0.1:1,127.0.0.2:2"
    assert await located(parse_workers("[::1]:1,[::1]:2")) == "ipv6:[::1]:1,[::1]:2"
    with pytest.raises(InvalidField, match="mixture"):
        await located(parse_workers("[::1]:1,127.0.0.1:2"))
