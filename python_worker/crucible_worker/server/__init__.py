"""The worker as a gRPC server: build -> warm -> serve -> drain."""

from crucible_worker.server.listen import StartError
from crucible_worker.server.parts import Parts
from crucible_worker.server.process import serve
from crucible_worker.server.worker import Worker

__all__ = ["Parts", "StartError", "Worker", "serve"]
