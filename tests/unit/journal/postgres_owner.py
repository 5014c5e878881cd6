"""A process that owns an evaluation of a PostgreSQL journal, and writes to it until it is refused.

Usage: postgres_owner.py URL STATE_DIR
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from crucible_bridge.codec.events import event_to_record
from crucible_worker.history import lifecycle
from crucible_worker.journal import Journal, JournalUnavailable
from crucible_worker.journal.journal import FencedJournal
from tests.unit.journal.journals import claim


async def main(url, state_dir):
    """Own it, write to it, and print what becomes of that."""
    journal = await Journal.open(Path(state_dir), event_to_record, url=url)
    owners = journal.owners("owners")
    row = (await claim(journal, owners)).row
    owned = FencedJournal(journal, owners, row.number)
    print("owns", flush=True)
    try:
        while True:
            await owned.submit(lambda transaction: lifecycle.keep_time(transaction, row.number, 1))
            await asyncio.sleep(0.01)
    except JournalUnavailable as error:
        print(f"refused: {error}", flush=True)
    await journal.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
