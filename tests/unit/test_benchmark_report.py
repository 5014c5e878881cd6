"""How benchmarks compare what they measured with what is claimed."""

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.tables import rows


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/_report.py, which is no package's."""
    spec = importlib.util.spec_from_file_location("_report", Path(__file__).parents[2] / "benchmarks" / "_report.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "_report", loaded)  # dataclasses look their module up
    spec.loader.exec_module(loaded)
    return loaded


def _claim(module: ModuleType, **fields: Any) -> Any:
    return module.Claim(**{"name": "speed", "ours": [1.0, 3.0, 2.0], "unit": "pairs", "claim": "fast", **fields})


@rows(
    "fields",
    [
        {},
        {"at_least": 2.0},
        {"at_most": 2.0},
        {"at_least": 4.0, "ratio": 4.0, "baseline": [8.0]},
        {"at_most": 1.3, "ratio": 1.3, "baseline": [2.0]},
    ],
)
def test_a_claim_that_holds_passes(fields: dict[str, Any], module: ModuleType, capsys: pytest.CaptureFixture[str]):
    """Bounds hold at their own value: of the ratio where there is one, else of the median."""
    module.report([_claim(module, **fields)], as_json=False)

    out, err = capsys.readouterr()
    assert out.startswith("speed: 2 pairs")
    assert err == ""


@rows(
    ("fields", "told"),
    [
        ({"at_least": 2.5}, "missed: speed: 2, at least 2.5 is claimed"),
        ({"at_most": 1.5}, "missed: speed: 2, at most 1.5 is claimed"),
        ({"at_least": 4.0, "ratio": 3.9, "baseline": [8.0]}, "missed: speed: ratio 3.9, at least 4 is claimed"),
        ({"at_most": 1.3, "ratio": 1.4, "baseline": [8.0]}, "missed: speed: ratio 1.4, at most 1.3 is claimed"),
        ({"at_most": 1.3, "ratio": math.nan}, "missed: speed: ratio nan, at most 1.3 is claimed"),
    ],
)
def test_a_claim_that_is_missed_fails(
    fields: dict[str, Any], told: str, module: ModuleType, capsys: pytest.CaptureFixture[str]
):
    """Everything is printed all the same, then by what it is missed, and the script exits with 1."""
    with pytest.raises(SystemExit) as caught:
        module.report([_claim(module, **fields), _claim(module, name="other")], as_json=False)

    out, err = capsys.readouterr()
    assert caught.value.code == 1
    assert "other: 2 pairs" in out
    assert err.splitlines() == [told]


def test_json_tells_bounds_and_whether_they_hold(module: ModuleType, capsys: pytest.CaptureFixture[str]):
    """One object on stdout, also where a claim is missed."""
    with pytest.raises(SystemExit):
        module.report([_claim(module, at_least=3.0)], as_json=True)

    row = json.loads(capsys.readouterr().out)["speed"]
    assert (row["at_least"], row["at_most"], row["holds"]) == (3.0, None, False)


@rows("unit", ["s", "ms", "ns", "MB", "pairs/s"])
def test_a_figure_of_one_machine_is_bounded_by_a_ratio_alone(unit: str, module: ModuleType):
    """Times, rates and sizes without a baseline are printed; a bound of them is refused where it is written."""
    _claim(module, unit=unit)
    _claim(module, unit=unit, at_most=1.3, ratio=1.3, baseline=[2.0])
    for bound in ("at_least", "at_most"):
        with pytest.raises(ValueError, match="bound a ratio to a baseline"):
            _claim(module, unit=unit, **{bound: 2.0})
