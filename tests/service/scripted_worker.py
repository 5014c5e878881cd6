"""A worker in a process of its own, whose evaluations do as they are told: `python -m` this, with settings as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from crucible_worker.config import Settings
from crucible_worker.server import Parts, serve
from crucible_worker.util.limits import WorkerLimits
from tests.service.server_kit import ScriptedBackend, ScriptedEvaluations, parts_of


def main(options: dict[str, Any]) -> int:
    """Serve; `blocks` and `starts_slowly` say what a worker may be busy with when it is told to go."""
    blocks, starts_slowly = options.get("blocks", False), options.get("starts_slowly", False)

    def block() -> None:
        Path(settings.state_dir, "blocked").touch()
        # Neither the event loop nor Python's own signal handlers run during one call into C.
        time.sleep(60)

    async def build(settings: Settings) -> Parts:
        if starts_slowly:
            await asyncio.to_thread(Path(settings.state_dir, "starting").touch)
            await asyncio.sleep(60)
        evaluations = ScriptedEvaluations()
        if blocks:
            asyncio.get_running_loop().call_later(0.2, block)
        return parts_of(evaluations, ScriptedBackend())

    settings = Settings(
        port=0,
        state_dir=Path(options["state_dir"]),
        ready_file=Path(options["ready_file"]),
        limits=WorkerLimits(drain_seconds=options.get("drain_seconds", 5.0)),
    )
    return serve(settings, build=build)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
