"""What a gate says, for systems that run it: data, JUnit XML, and annotations of GitHub Actions."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # only written: nothing is parsed
from collections.abc import Iterator
from typing import Any

from crucible_bridge.types import GatedMetric, GateResponse, GateVerdict
from crucible_worker.reports.plain_json import plain

__all__ = ["gate_as_data", "github_lines", "junit"]

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no form for, not even an escaped one."""
_ANNOTATIONS = {
    GateVerdict.PASS: "notice",
    GateVerdict.WARN: "warning",
    GateVerdict.INCONCLUSIVE: "warning",
    GateVerdict.BLOCK: "error",
}


def gate_as_data(report: GateResponse, baseline_id: str, candidate_id: str) -> dict[str, Any]:
    """The report for json."""
    return plain(
        {
            "baseline_id": baseline_id,
            "candidate_id": candidate_id,
            "verdict": report.verdict.value,
            "reasons": list(report.reasons),
            "metrics": [
                {
                    "key": each.key,
                    "tier": each.tier.value,
                    "verdict": each.verdict.value,
                    "reasons": list(each.reasons),
                    "evaluator": each.evaluator,
                    "rests_on": each.rests_on,
                    "n": each.n,
                    "metrics": dict(each.metrics.values),
                }
                for each in report.metrics
            ],
        }
    )


def junit(report: GateResponse, baseline_id: str, candidate_id: str) -> bytes:
    """The report as JUnit XML: a test case for each metric.

    A failure is a metric that blocks, a skipped test one that is inconclusive; warnings are output of a test.
    """
    counts = {verdict: sum(each.verdict is verdict for each in report.metrics) for verdict in GateVerdict}
    suite = {
        "name": f"gate of {candidate_id} against {baseline_id}",
        "tests": str(len(report.metrics)),
        "failures": str(counts[GateVerdict.BLOCK]),
        "errors": "0",
        "skipped": str(counts[GateVerdict.INCONCLUSIVE]),
    }
    root = ET.Element("testsuites")
    element = ET.SubElement(root, "testsuite", {name: _xml(value) for name, value in suite.items()})
    for each in report.metrics:
        _test_case(element, each, candidate_id)
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _test_case(suite: ET.Element, each: GatedMetric, candidate_id: str) -> None:
    case = ET.SubElement(suite, "testcase", {"classname": _xml(f"gate.{candidate_id}"), "name": _xml(each.key)})
    text = _xml("\n".join(each.reasons))
    first = _xml(each.reasons[0] if each.reasons else "")
    if each.verdict is GateVerdict.BLOCK:
        ET.SubElement(case, "failure", {"message": first, "type": "BLOCK"}).text = text
    elif each.verdict is GateVerdict.INCONCLUSIVE:
        ET.SubElement(case, "skipped", {"message": f"INCONCLUSIVE: {first}"})
    if each.verdict is not GateVerdict.BLOCK:
        ET.SubElement(case, "system-out").text = f"{each.verdict.name}: {text}"


def github_lines(report: GateResponse, candidate_id: str) -> Iterator[str]:
    """A line for each metric that GitHub Actions shows with the run.

    An error for BLOCK, a warning for WARN and INCONCLUSIVE, a notice for PASS. The escapes are those of the commands of
    workflows: of "%" and line ends, and in a title of ":" and "," too.
    """
    for each in report.metrics:
        title = _in_title(f"{each.verdict.name}: {each.key} of {candidate_id}")
        yield f"::{_ANNOTATIONS[each.verdict]} title={title}::{_in_message(' '.join(each.reasons))}"


def _in_message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _in_title(text: str) -> str:
    return _in_message(text).replace(":", "%3A").replace(",", "%2C")


def _xml(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
