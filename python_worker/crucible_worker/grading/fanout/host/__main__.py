"""The process in which Ray runs: tied to the worker's life, at the other end of a socket."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

from crucible_bridge.errors import BridgeError
from crucible_worker.children.lifetime import begin
from crucible_worker.children.messages import error_to_map, pack
from crucible_worker.children.process import Channel


def main() -> None:
    """Serve the worker until it closes the socket, or the cluster is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True, help="of the cluster")
    arguments, end = begin("crucible_worker.grading.fanout.host", __doc__, parser)
    logging.basicConfig(stream=sys.stderr, format="fanout host: %(levelname)s %(name)s: %(message)s")
    # Imported only now: Ray takes a second.
    from crucible_worker.grading.fanout.host import cluster
    from crucible_worker.grading.fanout.host.cluster import Orders

    try:
        cluster.connect(arguments.address)
        refusal = None
    except BridgeError as error:
        refusal = error

    async def serve() -> None:
        channel = await Channel.over(end)
        if refusal is not None:
            channel.send(pack({"id": 0, "error": error_to_map(refusal)}))
            await channel.drained()
            return
        await Orders(channel).serve()

    asyncio.run(serve())
    cluster.leave()
    # Threads of Ray may wait for what is gone.
    os._exit(0)


if __name__ == "__main__":
    main()
