"""A process whose children grade for ever, to be killed. Run by `test_grading_kill`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from crucible_worker.grading.pool import GradingPool
from tests.unit.grading import pool_work


async def main(ready_file: Path) -> None:
    """Start a pool, keep every child busy, and say so."""
    # With sympy the fork server takes its time to load, as it does in a worker.
    pool = GradingPool(3, modules=("sympy",))
    await pool.start()
    slow = [pool.run(pool_work.hang_in_c, None) for _ in range(1_000)]
    turns = pool.map(pool_work.sleep, [0.005] * 100_000)
    busy = asyncio.gather(*slow, turns)
    await pool.map(pool_work.double, range(1_000))
    ready_file.touch()
    await busy


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
