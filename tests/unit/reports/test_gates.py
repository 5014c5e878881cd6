"""What a gate says, as JUnit XML and as annotations of GitHub Actions: whole, whatever keys and ids hold."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import GatedMetric, GateResponse, GateTier, GateVerdict, Metrics
from crucible_worker.reports.gates import gate_as_data, github_lines, junit

TEXT = st.text(st.characters(codec=None), max_size=30)  # pyright: ignore[reportArgumentType]
VERDICTS = st.sampled_from(GateVerdict)


def reported(*verdicts: GateVerdict, key: str = "accuracy", reason: str = "worse by 0.1.") -> GateResponse:
    """A report with a metric of each verdict."""
    metrics = [
        GatedMetric(
            key=key,
            tier=GateTier.BLOCK,
            verdict=verdict,
            reasons=(reason, "More."),
            metrics=Metrics({"drop": 0.1}),
        )
        for verdict in verdicts
    ]
    return GateResponse(verdict=GateVerdict.BLOCK, metrics=tuple(metrics))


def test_each_metric_is_a_test_case():
    """A metric that blocks is a failure, an inconclusive one is skipped, a warning is output; the counts agree."""
    suite = ET.fromstring(junit(reported(*GateVerdict), "e1", "e2"))[0]

    assert suite.attrib == {
        "name": "gate of e2 against e1",
        "tests": "4",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    passed, warned, blocked, opened = suite
    assert {case.tag for case in suite} == {"testcase"}
    assert (passed.find("failure"), passed.find("skipped")) == (None, None)
    assert (warned.findtext("system-out") or "").startswith("WARN: worse by 0.1.")
    failure = blocked.find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.text) == ("worse by 0.1.", "worse by 0.1.\nMore.")
    skipped = opened.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "INCONCLUSIVE: worse by 0.1."


@given(TEXT, TEXT, TEXT, VERDICTS)
def test_any_text_is_valid_xml(key: str, reason: str, candidate: str, verdict: GateVerdict):
    """A parser reads what is written; characters that XML has no form for are replaced, markup is escaped."""
    case = ET.fromstring(junit(reported(verdict, key=key, reason=reason), "e1", candidate))[0][0]
    plain = key.isprintable() and "\ufffe" not in key and "\uffff" not in key
    if plain and not any("\ud800" <= character <= "\udfff" for character in key):
        assert case.get("name") == key


def test_annotations_have_the_escapes_of_workflow_commands():
    """Of a percent sign and line ends everywhere, and of colons and commas in a title."""
    (line,) = github_lines(reported(GateVerdict.BLOCK, key="a:b,c\n%", reason="95 %\r\nworse"), "e2")
    assert line == "::error title=BLOCK%3A a%3Ab%2Cc%0A%25 of e2::95 %25%0D%0Aworse More."


def test_annotations_are_as_severe_as_verdicts():
    """An error stops, a warning does not, a notice informs."""
    levels = [line.split(" ")[0] for line in github_lines(reported(*GateVerdict), "e2")]
    assert levels == ["::notice", "::warning", "::error", "::warning"]


@given(TEXT, TEXT)
def test_a_metric_is_one_line(key: str, reason: str):
    """No text begins a line of its own, which could be another command."""
    (line,) = github_lines(reported(GateVerdict.WARN, key=key, reason=reason), "e2")
    assert "\n" not in line
    assert "\r" not in line


@given(TEXT, TEXT)
def test_data_is_json_of_any_reader(key: str, reason: str):
    """Half of a surrogate pair is replaced: every line is UTF-8."""
    data = gate_as_data(reported(GateVerdict.PASS, key=key, reason=reason), "e1", "e2")
    assert json.loads(json.dumps(data, allow_nan=False).encode())["metrics"][0]["metrics"] == {"drop": 0.1}
