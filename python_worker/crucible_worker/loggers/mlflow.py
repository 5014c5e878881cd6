"""The logger `mlflow`: a run of MLflow, at a tracking server or in a database."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from crucible_worker.loggers.base import Delivery, Experiment, Hparams, Logger, LongText, MetricRow

__all__ = ["MlflowLogger"]

_RUN_TAG = "crucible_bridge.run_id"
_SEQUENCE_TAG = "crucible_bridge.sequence"
_PARAM_TAG = "crucible_bridge.param"
_MAX_METRICS = 1_000  # of one call, by MLflow's API
_MAX_PARAMS = 100
_MAX_PARAM = 6_000
_FORBIDDEN = re.compile(r"[^/\w.\- :]", re.ASCII)
_SQLITE = "sqlite:///"


@dataclasses.dataclass(kw_only=True)
class MlflowLogger(Logger):
    """A run of MLflow."""

    target: ClassVar[str | None] = "experiment"
    operator_options: ClassVar[frozenset[str]] = frozenset({"tracking_uri"})
    delivery: ClassVar[Delivery] = Delivery.EXACTLY_ONCE
    library: ClassVar[str | None] = "mlflow"
    extra: ClassVar[str | None] = "mlflow"
    variables: ClassVar[tuple[str, ...]] = ("MLFLOW_*", "AWS_*", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_STORAGE_*")

    experiment: str = "crucible-bridge"
    """MLflow's experiment, which has a run for each experiment of the bridge."""
    tracking_uri: str = ""
    """A server, "https://mlflow.example.org", or a database, "sqlite:////data/mlflow.db"; if empty, that of
    MLFLOW_TRACKING_URI, or MLflow's own default below the worker's working directory."""

    def open(self, experiment: Experiment) -> None:
        """Find the run, or make it.

        Raises:
            mlflow.exceptions.MlflowException: the server cannot be reached, or refuses.
        """
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        import mlflow  # pyright: ignore[reportMissingImports]
        from mlflow.entities import Metric, Param, RunTag  # pyright: ignore[reportMissingImports]

        self._metric, self._param, self._tag = Metric, Param, RunTag
        uri = self.tracking_uri or mlflow.get_tracking_uri()
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        self._uri = uri
        found = self._client.get_experiment_by_name(self.experiment)
        self._experiment_id = found.experiment_id if found else self._make_experiment(uri)
        wanted = experiment.run_id.replace("'", "")
        runs = self._client.search_runs([self._experiment_id], f"tags.`{_RUN_TAG}` = '{wanted}'", max_results=1)
        run = runs[0] if runs else self._make_run(experiment, wanted)
        self._run_id = run.info.run_id
        if runs:
            self._client.update_run(self._run_id, status="RUNNING")
        self._params = dict(run.data.params)
        self._position = int(run.data.tags.get(_SEQUENCE_TAG, 0))
        if not runs and experiment.config:
            self._log_params(experiment.config)

    def position(self) -> int | None:
        """The sequence in a tag of the run, which is written after each batch.

        A batch that is written again changes nothing: in the database a metric's value, step and time are its key.
        """
        return self._position

    def log_metrics(self, rows: Sequence[MetricRow]) -> None:
        """Write the values at the steps of their rows, or at step 0, as MLflow does without one."""
        metrics = [
            self._metric(_FORBIDDEN.sub("_", name), value, row.unix_time_ns // 1_000_000, row.step or 0)
            for row in rows
            for name, value in row.values.items()
        ]
        for begin in range(0, len(metrics), _MAX_METRICS):
            self._client.log_batch(self._run_id, metrics=metrics[begin : begin + _MAX_METRICS])
        self._mark(rows[-1].sequence)

    def log_hparams(self, hparams: Hparams) -> None:
        """Write them as parameters. MLflow's never change: a new value becomes a tag."""
        self._log_params(hparams.values)
        self._mark(hparams.sequence)

    def log_long_text(self, text: LongText) -> None:
        """Write a text as an artifact."""
        name = _FORBIDDEN.sub("_", text.key).replace("..", "_").strip("/ ")
        self._client.log_text(self._run_id, text.text, f"texts/{name}/{text.sequence}.txt")
        self._mark(text.sequence)

    def close(self) -> None:
        """Mark the run as finished."""
        self._client.set_terminated(self._run_id)

    def get_url(self) -> str:
        """The run's page; the database if there is no server."""
        if not self._uri.startswith("http"):
            return self._uri
        return f"{self._uri.rstrip('/')}/#/experiments/{self._experiment_id}/runs/{self._run_id}"

    def _make_experiment(self, uri: str) -> str:
        from mlflow.exceptions import MlflowException  # pyright: ignore[reportMissingImports]

        # Else the texts of a database's runs would be in the worker's working directory.
        database = uri.removeprefix(_SQLITE) if uri.startswith(_SQLITE) else ""
        place = str(Path(database).absolute().parent / "mlartifacts") if database else None
        try:
            return self._client.create_experiment(self.experiment, artifact_location=place)
        except MlflowException:
            # Another logger was first.
            found = self._client.get_experiment_by_name(self.experiment)
            if found is None:
                raise
            return found.experiment_id

    def _make_run(self, experiment: Experiment, identity: str) -> Any:
        tags = {_RUN_TAG: identity, _SEQUENCE_TAG: "0"}
        return self._client.create_run(self._experiment_id, run_name=experiment.name, tags=tags)

    def _log_params(self, values: Any) -> None:
        texts = {
            _FORBIDDEN.sub("_", name): (value if isinstance(value, str) else json.dumps(value))[:_MAX_PARAM]
            for name, value in values.items()
        }
        new = [self._param(name, text) for name, text in texts.items() if name not in self._params]
        for begin in range(0, len(new), _MAX_PARAMS):
            self._client.log_batch(self._run_id, params=new[begin : begin + _MAX_PARAMS])
        for name, text in texts.items():
            if self._params.setdefault(name, text) != text:
                self._client.set_tag(self._run_id, f"{_PARAM_TAG}.{name}", text)

    def _mark(self, sequence: int) -> None:
        self._client.set_tag(self._run_id, _SEQUENCE_TAG, str(sequence))
