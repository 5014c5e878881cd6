"""The client's experiments: what it sends, and what it refuses before anything is sent."""

from __future__ import annotations

import dataclasses
import enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict

import crucible_bridge
from crucible_bridge.client.experiment_log import plain_config
from crucible_bridge.errors import InvalidField
from crucible_bridge.v1 import experiments_pb2 as pb
from tests.wire.conftest import CannedWorker


class Kind(enum.Enum):
    """A kind of something."""

    ONE = "one"


@dataclasses.dataclass
class Config:
    """What a recipe is configured with."""

    lr: float
    path: Path
    kind: Kind = Kind.ONE
    layers: tuple[int, ...] = (1, 2)


class Plain:
    """An object with attributes."""

    def __init__(self) -> None:
        self.depth, self._hidden, self.inner = 3, 4, {"a": float("nan")}


@pytest.mark.parametrize(
    ("config", "values"),
    [
        ({"a": 1, 2: None}, {"a": 1, "2": None}),
        (Config(lr=1e-4, path=Path("x")), {"lr": 1e-4, "path": "x", "kind": "one", "layers": [1, 2]}),
        (Plain(), {"depth": 3, "inner": {"a": "nan"}}),
        ({"function": len}, {"function": str(len)}),
    ],
)
def test_a_configuration_becomes_json(config: object, values: dict[str, Any]):
    """Mappings, dataclasses and objects alike; what JSON does not have becomes text."""
    assert plain_config(config, "config") == values


def test_a_configuration_has_names():
    """A list or a number is none; the error says what would be one."""
    with pytest.raises(InvalidField, match="must be a mapping"):
        plain_config([1], "config")


async def test_an_experiment_is_opened_logged_to_and_closed(worker: CannedWorker, address: str):
    """Each method is one call; numbers of any library are sent as such."""
    experiment = pb.Experiment(experiment_id="r")
    worker.replies = {
        "OpenExperiment": pb.OpenExperimentResponse(experiment=experiment),
        "LogMetrics": pb.LogMetricsResponse(sequence=2),
        "CloseExperiment": pb.CloseExperimentResponse(experiment=experiment, synced=True),
        "GetUrl": pb.GetUrlResponse(),
    }
    async with (
        crucible_bridge.connect(address) as bridge,
        bridge.experiment("r", log_to=["jsonl"], config={"lr": 1}) as log,
    ):
        assert await log.log_metrics({"a": np.float32(0.5), "b": True, "c": np.array(2)}, step=3) == 2
        assert await log.get_logger_url() is None
        values: dict[str, Any] = {"a": "0.5"}
        with pytest.raises(InvalidField) as caught:
            await log.log_metrics(values)

    assert caught.value.field == "metrics['a']"
    sent = dict(worker.requests)
    assert MessageToDict(sent["OpenExperiment"]) == {"experimentId": "r", "logTo": ["jsonl"], "config": {"lr": 1.0}}
    (row,) = sent["LogMetrics"].rows
    assert (dict(row.values), row.step) == ({"a": 0.5, "b": 1.0, "c": 2.0}, 3)
    assert row.unix_time_ns > 0
    assert [name for name, _ in worker.requests] == ["OpenExperiment", "LogMetrics", "GetUrl", "CloseExperiment"]
