"""The worker as a gRPC server: build -> warm -> serve -> drain."""

from crucible_worker.server.process import serve
from crucible_worker.server.worker import StartError, Worker

__all__ = ["StartError", "Worker", "serve"]
