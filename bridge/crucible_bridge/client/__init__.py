"""The typed client of a worker, and its blocking twin."""

from crucible_bridge.channel import Tls
from crucible_bridge.client.blocking import BlockingBridge, BlockingIterator, connect_sync
from crucible_bridge.client.bridge import Bridge, connect
from crucible_bridge.client.evaluation import (
    EvaluationClient,
    EvaluationPage,
    SamplePage,
    request_of,
)
from crucible_bridge.client.grading import GradingClient
from crucible_bridge.client.metrics import MetricsClient
from crucible_bridge.client.models import ModelsClient
from crucible_bridge.client.orchestrator import Answerer
from crucible_bridge.client.plans import RegisteredPlan, StartedEvaluation
from crucible_bridge.client.streams import EventStream
from crucible_bridge.client.telemetry import TelemetryClient
from crucible_bridge.client.worker import WorkerClient

__all__ = [
    "Answerer",
    "BlockingBridge",
    "BlockingIterator",
    "Bridge",
    "EvaluationClient",
    "EvaluationPage",
    "EventStream",
    "GradingClient",
    "MetricsClient",
    "ModelsClient",
    "RegisteredPlan",
    "SamplePage",
    "StartedEvaluation",
    "TelemetryClient",
    "Tls",
    "WorkerClient",
    "connect",
    "connect_sync",
    "request_of",
]
