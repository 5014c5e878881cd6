"""Gate policies as files: what they may say, and how what they may not say is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.gate_policies import load_gate_policy, parse_gate_policy
from crucible_bridge.types import GateMetric, GatePolicy, GateTier, Goal
from tests.tables import rows

METRIC = '[[metrics]]\nkey = "accuracy"\nmax_drop = 0.01\n'


def test_a_policy_says_what_a_candidate_is_held_to():
    """Every key, and the defaults of those that are absent."""
    text = f"""
        confidence = 0.9
        cluster_by = "passage"
        {METRIC}
        [[metrics]]
        key = "test/nll"
        max_relative_drop = 1
        tier = "warn"
        min_n = 100
        direction = "lower"
    """
    assert parse_gate_policy(text) == GatePolicy(
        metrics=(
            GateMetric(key="accuracy", max_drop=0.01),
            GateMetric(key="test/nll", max_relative_drop=1.0, tier=GateTier.WARN, min_n=100, direction=Goal.LOWER),
        ),
        confidence=0.9,
        cluster_by="passage",
    )


@rows(
    ("text", "field", "said"),
    [
        ("", "metrics", "is missing at the top of the policy's file"),
        ("metrics = []", "metrics", "is empty, at least one is needed"),
        ("metrics = 3", "metrics", "is 3, not a list"),
        ("metrics = [3]", "metrics[0]", "is 3, not a table"),
        ("[[metrics]]\nmax_drop = 0", "metrics[0].key", "is missing"),
        ('[[metrics]]\nkey = ""\nmax_drop = 0', "metrics[0].key", "is empty"),
        (
            '[[metrics]]\nkey = "a"',
            "metrics[0].max_drop",
            "is missing, and max_relative_drop too: one of them is needed",
        ),
        (METRIC + "max_relative_drop = 0.1", "metrics[0].max_relative_drop", "is given alongside max_drop"),
        (METRIC + METRIC, "metrics[1].key", "is also the key of metrics[0]"),
        (METRIC + METRIC.replace("accuracy", "nll").replace("0.01", "nan"), "metrics[1].max_drop", "is nan, must be"),
        (METRIC.replace("0.01", "inf"), "metrics[0].max_drop", "is inf, must be finite and at least 0"),
        (METRIC.replace("0.01", "-0.01"), "metrics[0].max_drop", "is -0.01, must be finite and at least 0"),
        (METRIC.replace("0.01", "1" + "0" * 400), "metrics[0].max_drop", "not a number of float64"),
        (METRIC.replace("0.01", "true"), "metrics[0].max_drop", "is True, not a number"),
        (METRIC + 'tier = "critical"', "metrics[0].tier", "is 'critical', not 'block' or 'warn'"),
        (METRIC + "tier = 1", "metrics[0].tier", "is 1, not a text"),
        (METRIC + 'direction = "up"', "metrics[0].direction", "is 'up', not 'higher' or 'lower'"),
        (METRIC + "min_n = 0", "metrics[0].min_n", "is 0, must be at least 1"),
        (METRIC + "min_n = 1.5", "metrics[0].min_n", "is 1.5, not a whole number"),
        (METRIC + "max_drops = 1", "metrics[0].max_drops", "is unknown; there are key, max_drop,"),
        ("version = 1\n" + METRIC, "version", "is unknown; there are metrics, confidence, cluster_by"),
        ("confidence = 0.4\n" + METRIC, "confidence", "is 0.4, must be from 0.5 to 0.999"),
        ("confidence = nan\n" + METRIC, "confidence", "is nan, must be from 0.5 to 0.999"),
        (METRIC + "max_drop = 0.02", "policy", "is not TOML: "),
        ("a = " + "[" * 5_000, "policy", "is not TOML: "),
    ],
)
def test_what_is_wrong_is_named(text, field, said):
    """An error has the path in the file, and what is allowed."""
    with pytest.raises(InvalidField) as refused:
        parse_gate_policy(text)
    assert refused.value.field == field
    assert refused.value.message.startswith(said) or said in refused.value.message


def test_a_file_is_read(tmp_path: Path):
    """As UTF-8; other bytes are named, and a missing file is an OSError."""
    file = tmp_path / "gate.toml"
    file.write_text(METRIC)
    assert load_gate_policy(file).metrics[0].key == "accuracy"

    file.write_bytes(b"# \xff")
    with pytest.raises(InvalidField, match="is not UTF-8, at byte 2"):
        load_gate_policy(file)
    with pytest.raises(FileNotFoundError):
        load_gate_policy(tmp_path / "no-such.toml")
