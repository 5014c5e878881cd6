"""What strangers send costs time in proportion to its size, wherever it is read outside of killable processes.

A row is a function and the maker of an input that is as bad for it as any of that size. To add one, name it in `ROWS`.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crucible_bridge.codec.metric_results import metrics_from_bytes, metrics_to_bytes
from crucible_bridge.errors import BridgeError
from crucible_bridge.types import Metrics, TrajectoryBatch
from crucible_bridge.v1 import metrics_pb2
from crucible_worker.grading.code.assertions import read_assertions
from crucible_worker.grading.code.compare import equals
from crucible_worker.grading.code.extract import program_of
from crucible_worker.grading.json_schema import JsonSchema
from crucible_worker.metrics.trajectory import trajectory_metrics
from tests.robustness.linear_time import MAX_RATIO, Row, ratios

SCHEMA = JsonSchema.parse('{"uniqueItems": true}', "schema")
RESPONSE = metrics_pb2.ComputeTrajectoryMetricsResponse


def refused(run: Callable[[Any], object], value: Any) -> None:
    """Work that may end in a refusal, which must not cost more either."""
    with contextlib.suppress(BridgeError):
        run(value)


def _hex(digits: int, seed: int) -> str:
    """An odd number without a pattern, in hexadecimal."""
    return random.Random(seed).randbytes(digits // 2).hex() + "1"


def _tagged(tags: list[str]) -> object:
    ones = np.ones(2)
    batch = TrajectoryBatch(
        trajectories_per_group=np.ones(2, np.int64),
        transitions_per_trajectory=np.ones(2, np.int64),
        rewards=ones,
        final_rewards=ones,
        action_tokens=np.ones(2, np.int64),
        observation_tokens=np.ones(2, np.int64),
        tags=(tuple(tags), ()),
    )
    return trajectory_metrics(batch)


ROWS = {
    "code: one line of letters between fences": Row(make=lambda n: "```" + "a" * n + "`", run=program_of, size=4_000),
    "code: one line of blanks between fences": Row(make=lambda n: "```" + " " * n + "`", run=program_of, size=4_000),
    "code: a fence of tildes that ends in a backtick": Row(make=lambda n: "~" * n + "`", run=program_of, size=4_000),
    "code: many fences": Row(make=lambda n: "```\n" * n, run=program_of, size=4_000),
    "code: a definition without a name": Row(
        make=lambda n: "```\n" + "async " * n + "\n" + "x" + " " * n,
        run=lambda text: program_of(text, ["f"]),
        size=4_000,
    ),
    "code: as many definitions as wanted names": Row(
        make=lambda n: ("```\n" + "def g(): pass\n" * n, [f"f{number}" for number in range(n)]),
        run=lambda given: program_of(*given),
        size=500,
    ),
    "code: a returned Fraction": Row(
        make=lambda n: {"q": [_hex(n, 1), _hex(n, 2)]}, run=lambda value: equals(value, 1.5), size=50_000
    ),
    "code: a returned Fraction as a key": Row(
        make=lambda n: {"s": [{"q": [_hex(n, 1), _hex(n, 2)]}]}, run=lambda value: equals(value, {1.5}), size=50_000
    ),
    "code: a returned range": Row(
        make=lambda n: {"r": [0, {"i": _hex(n, 1)}, {"i": _hex(n // 2, 2)}]},
        run=lambda value: equals(value, 1),
        size=20_000,
    ),
    "code: a returned Decimal with many digits": Row(
        make=lambda n: {"m": "7" * n}, run=lambda value: equals(value, 1), size=50_000
    ),
    "code: a large integer where a Decimal is returned": Row(
        make=lambda n: int(_hex(n, 1), 16), run=lambda expected: equals({"m": "0.5"}, expected), size=50_000
    ),
    "code: a set of integers of one hash": Row(
        make=lambda n: f"assert f(1) == {{{', '.join(str((2**61 - 1) * k) for k in range(n))}}}",
        run=read_assertions,
        size=1_000,
    ),
    "schema: items that are integers of one hash": Row(
        make=lambda n: [(2**61 - 1) * k for k in range(n)],
        run=lambda items: SCHEMA.check().flaw(SCHEMA.root, items, 0),
        size=1_000,
    ),
    "metrics: many tags of one group": Row(
        make=lambda n: [f"tag{number}" for number in range(n)], run=lambda tags: refused(_tagged, tags), size=1_000
    ),
    "metrics: an answer with many keys": Row(
        make=lambda n: Metrics.of({f"env/tag{number}/reward/total": 1.0 for number in range(n)}),
        run=lambda metrics: metrics_from_bytes(RESPONSE, metrics_to_bytes(RESPONSE, metrics)),
        size=30_000,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_time_is_linear(name: str) -> None:
    """CPU time less than triples at each of three doublings of the input."""
    found = ratios(ROWS[name])

    assert max(found) < MAX_RATIO, [round(ratio, 2) for ratio in found]
