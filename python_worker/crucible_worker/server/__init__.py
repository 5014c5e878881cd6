"""The worker as a gRPC server: build -> warm -> serve -> drain."""

import crucible_worker.telemetry.logging  # noqa: F401 - before anything else imports structlog: see there
from crucible_worker.server.credentials import StartError
from crucible_worker.server.parts import Parts
from crucible_worker.server.process import serve
from crucible_worker.server.worker import Worker

__all__ = ["Parts", "StartError", "Worker", "serve"]
