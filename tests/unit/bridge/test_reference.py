"""The reference of the protocol has everything that the protos have."""

from __future__ import annotations

import re
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor

from crucible_bridge.v1 import (
    evaluation_pb2,
    events_pb2,
    experiments_pb2,
    grading_pb2,
    metrics_pb2,
    models_pb2,
    orchestrator_pb2,
    rendering_pb2,
    types_pb2,
    worker_pb2,
)

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
FILES: dict[str, FileDescriptor] = {
    "evaluation": evaluation_pb2.DESCRIPTOR,
    "events": events_pb2.DESCRIPTOR,
    "experiments": experiments_pb2.DESCRIPTOR,
    "grading": grading_pb2.DESCRIPTOR,
    "metrics": metrics_pb2.DESCRIPTOR,
    "models": models_pb2.DESCRIPTOR,
    "rendering": rendering_pb2.DESCRIPTOR,
    "orchestrator": orchestrator_pb2.DESCRIPTOR,
    "types": types_pb2.DESCRIPTOR,
    "worker": worker_pb2.DESCRIPTOR,
}


def test_every_call_message_and_field_is_described():
    """Each call and message has a heading on its proto's page, and each field and value of an enum an entry."""
    missing = []
    for name, file in FILES.items():
        page = (REFERENCE / f"{name}.md").read_text()
        wanted = [f"\n## {method.name}\n" for service in file.services_by_name.values() for method in service.methods]
        for message in file.message_types_by_name.values():
            section = page.partition(f"\n### {message.name}\n")[2].partition("\n### ")[0]
            missing += [
                f"{message.name}.{field.name}" for field in message.fields if f"- `{field.name}` (" not in section
            ]
        for enum in file.enum_types_by_name.values():
            wanted += [f"- `{value.name}` ({value.number}): " for value in enum.values]
        missing += [f"{name}: {text}" for text in wanted if text not in page]

    assert not missing


def test_links_lead_to_a_heading():
    """A type that a field has is linked to its message, on whichever page that is."""
    headings = {
        path.name: {line.lstrip("# ").lower() for line in path.read_text().splitlines() if line.startswith("#")}
        for path in REFERENCE.glob("*.md")
    }
    broken = [
        f"{path.name}: {page}#{anchor}"
        for path in REFERENCE.glob("*.md")
        for page, anchor in re.findall(r"\]\(([\w.]*)#(\w+)\)", path.read_text())
        if anchor not in headings.get(page or path.name, ())
    ]

    assert not broken


def test_bounds_and_defaults_are_said():
    """What the protos' options say of a field stands at it."""
    page = (REFERENCE / "evaluation.md").read_text()

    assert "- `max_listed` (int32, 0 to 1,000, default 100): " in page
    assert "- `run_id` (string, at most 200 bytes): " in page
