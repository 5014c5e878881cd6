"""Time that passes at once."""

import asyncio
import time

from tests import virtual_time


def test_timers_ring_in_their_order_at_their_times():
    """However far they lie apart; what is ready runs first."""
    log: list[tuple[str, float]] = []

    async def ring(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        log.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        await asyncio.gather(ring("late", 86_400.0), ring("now", 0.0), ring("soon", 0.5))

    virtual_time.run(main())

    assert log == [("now", 0.0), ("soon", 0.5), ("late", 86_400.0)]


def test_threads_are_waited_for():
    """What only another thread can end is waited for as ever."""

    async def main() -> str:
        return await asyncio.to_thread(lambda: time.sleep(0.01) or "done")

    assert virtual_time.run(main()) == "done"
