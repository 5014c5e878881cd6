"""Tinker's own data in calls of MetricsService."""

import numpy as np
import pytest

from crucible_bridge.types import Datum
from crucible_worker.testing import run_worker
from tests import needs

tinker = pytest.importorskip("tinker", reason=needs.MISSING["tinker"])


async def test_tinkers_own_data_are_taken():
    """The same metrics from a tinker Datum as from ours."""
    inputs = {"logprobs": np.array([-1, -2, -4], np.float32), "mask": np.array([0, 1, 1], np.float32)}
    theirs = tinker.Datum(
        model_input=tinker.ModelInput.from_ints([1, 2, 3]),
        loss_fn_inputs={key: tinker.TensorData.from_numpy(array) for key, array in inputs.items()},
    )
    ours = Datum(model_input=[1, 2, 3], loss_fn_inputs=inputs)

    async with run_worker({}) as worker:
        compute = worker.bridge.metrics.compute_kl_sample_train
        answers = [await compute([each], [[0.0, -1.0, -2.0]]) for each in (theirs, ours)]

    assert answers[0].metrics == answers[1].metrics
    assert answers[1].metrics.values["optim/kl_sample_train_v1"] == -1.5
