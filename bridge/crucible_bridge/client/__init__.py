"""The typed client of a worker, and its blocking version."""

from crucible_bridge.channel import Tls
from crucible_bridge.client.blocking import connect_sync
from crucible_bridge.client.blocking_calls import (
    BlockingBridge,
    BlockingEvaluationClient,
    BlockingExperimentLog,
    BlockingExperimentsClient,
    BlockingGradingClient,
    BlockingMetricsClient,
    BlockingModelsClient,
    BlockingTelemetryClient,
    BlockingWorkerClient,
)
from crucible_bridge.client.bridge import Bridge, connect
from crucible_bridge.client.caller_parts import CallerEnvironment, EnvironmentFactory, GraderFunction
from crucible_bridge.client.evaluation import (
    EvaluationClient,
    EvaluationPage,
    SamplePage,
)
from crucible_bridge.client.experiment_log import ExperimentLog
from crucible_bridge.client.experiments import ExperimentsClient
from crucible_bridge.client.given import ArrayLike, DatasetLike, DatumLike, EvaluatorsLike, ModelLike
from crucible_bridge.client.grading import GradingClient
from crucible_bridge.client.loop_thread import BlockingEventStream, BlockingIterator
from crucible_bridge.client.metrics import MetricsClient
from crucible_bridge.client.models import ModelsClient
from crucible_bridge.client.orchestrator import Answerer
from crucible_bridge.client.plans import RegisteredPlan, StartedEvaluation
from crucible_bridge.client.request_fields import EvaluateFields
from crucible_bridge.client.requests import request_of
from crucible_bridge.client.streams import EventStream
from crucible_bridge.client.telemetry import TelemetryClient
from crucible_bridge.client.worker import WorkerClient

__all__ = [
    "Answerer",
    "ArrayLike",
    "BlockingBridge",
    "BlockingEvaluationClient",
    "BlockingEventStream",
    "BlockingExperimentLog",
    "BlockingExperimentsClient",
    "BlockingGradingClient",
    "BlockingIterator",
    "BlockingMetricsClient",
    "BlockingModelsClient",
    "BlockingTelemetryClient",
    "BlockingWorkerClient",
    "Bridge",
    "CallerEnvironment",
    "DatasetLike",
    "DatumLike",
    "EnvironmentFactory",
    "EvaluateFields",
    "EvaluationClient",
    "EvaluationPage",
    "EvaluatorsLike",
    "EventStream",
    "ExperimentLog",
    "ExperimentsClient",
    "GraderFunction",
    "GradingClient",
    "MetricsClient",
    "ModelLike",
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
