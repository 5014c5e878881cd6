"""A message that joins the protos needs nothing by hand: `protos/generate.py` makes its type and its conversions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.project_copy import copy_project

PROTO = """
// How sure a probe is.
enum ProbeLevel {
  // Never sent.
  PROBE_LEVEL_UNSPECIFIED = 0;
  // Sure.
  PROBE_LEVEL_SURE = 1;
}

// Asks for a probe.
message ProbeRequest {
  // Which one.
  string name = 1 [(options.v1.bounds) = {required: true, max_bytes: 5}];
  // How often; 3 if absent.
  optional int32 times = 2 [(options.v1.bounds) = {least: 1, most: 9, default_value: "3"}];
  // What it looks at.
  repeated ProbePart parts = 3;
  // Further options.
  google.protobuf.Struct options = 4;
  // How sure it must be.
  ProbeLevel level = 5;
  // A word.
  string word = 6 [(options.v1.bounds) = {max_chars: 3, one_of: ["one", "two", ""]}];
  // At most so much.
  double share = 7 [(options.v1.bounds) = {most: 1.5}];
  // Above nothing, and a number.
  optional double factor = 8 [(options.v1.bounds) = {above: 0, finite: true}];
  // Each above nothing.
  repeated int32 counts = 9 [(options.v1.bounds) = {least: 1}];
  // Each short, and in ASCII.
  repeated string tags = 10 [(options.v1.bounds) = {max_bytes: 2, not_empty: true}];
  // What was recorded.
  bytes record = 11 [(options.v1.bounds) = {max_bytes: 4}];
  // How many there are; required, 0 included.
  optional int64 total = 12 [(options.v1.bounds) = {required: true, least: 0}];
}

// A part of a probe.
message ProbePart {
  // Numbers.
  Tensor values = 1 [(options.v1.bounds) = {required: true}];
  // Notes by name.
  map<string, string> notes = 2;
}
"""
PROGRAM = """
import numpy as np
from crucible_bridge import codec, types
from crucible_bridge.errors import InvalidField
from crucible_bridge.v1 import worker_pb2

part = types.ProbePart(values=np.array([1.0, 2.0]), notes={"a": "b"})
request = types.ProbeRequest(name="n", parts=(part,), options={"k": [1]}, level=types.ProbeLevel.SURE, total=0)
assert request.times == 3
sent = codec.probe_request_to_v1(request).SerializeToString()
found = codec.probe_request_from_v1(worker_pb2.ProbeRequest.FromString(sent))
assert (found.name, found.times, found.options, found.level) == ("n", 3, {"k": [1]}, "sure")
assert found.parts[0].values.tolist() == [1.0, 2.0] and found.parts[0].notes == {"a": "b"}
at_its_bounds = {"word": "two", "share": 1.5, "factor": 1e-9, "counts": [1], "tags": ["ab"], "record": b"abcd"}
assert codec.probe_request_from_v1(worker_pb2.ProbeRequest(name="n", total=0, **at_its_bounds)).counts == (1,)
for wrong, field in [
    ({"name": ""}, "name"),
    ({"name": "longer"}, "name"),
    ({"times": 10}, "times"),
    ({"parts": [worker_pb2.ProbePart()]}, "parts[0].values"),
    ({"word": "other"}, "word"),
    ({"word": "six"}, "word"),
    ({"share": 1.6}, "share"),
    ({"share": float("nan")}, "share"),
    ({"factor": 0.0}, "factor"),
    ({"factor": float("inf")}, "factor"),
    ({"counts": [1, 0]}, "counts[1]"),
    ({"tags": ["ab", "\u00e9\u00e9"]}, "tags[1]"),
    ({"tags": [""]}, "tags[0]"),
    ({"record": b"abcde"}, "record"),
    ({"total": -1}, "total"),
    ({"total": None}, "total"),
]:
    try:
        codec.probe_request_from_v1(worker_pb2.ProbeRequest(**{"name": "n", "total": 0, **wrong}))
    except InvalidField as error:
        assert error.field == field, error
    else:
        raise AssertionError(field)
try:
    codec.probe_request_to_v1(types.ProbeRequest(name=7, total=0))
except InvalidField as error:
    assert error.field == "name"
else:
    raise AssertionError("a number is sent as text")
"""


def test_a_message_that_joins_has_its_type_and_conversions(tmp_path: Path):
    """Its class, defaults, bounds and conversions are public, and the reference has it."""
    pytest.importorskip("grpc_tools", reason=needs.MISSING["grpc_tools"])
    copy_project(tmp_path)
    proto = tmp_path / "protos/crucible_bridge/v1/worker.proto"
    head, body = proto.read_text().split("package crucible_bridge.v1;\n")
    imports = (
        "crucible_bridge/options/v1/options.proto",
        "crucible_bridge/v1/types.proto",
        "google/protobuf/struct.proto",
    )
    lines = "".join(f'import "{name}";\n' for name in imports if name not in body)
    call = "service WorkerService {\n  // Probes.\n  rpc Probe(ProbeRequest) returns (DrainResponse);\n"
    body = body.replace("service WorkerService {\n", PROTO + call)
    proto.write_text(f"{head}package crucible_bridge.v1;\n\n{lines}{body}")

    made = subprocess.run([sys.executable, tmp_path / "protos/generate.py"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "bridge")}
    used = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert used.returncode == 0, used.stderr
    reference = (tmp_path / "docs/reference/worker.md").read_text()
    assert "- `times` (int32, 1 to 9, default 3): How often; 3 if absent." in reference
