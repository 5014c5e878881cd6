"""The committed code is what the protos say."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

PROTOS = Path(__file__).resolve().parents[3] / "protos"


def test_generated_code_is_current():
    """Generating again changes nothing."""
    pytest.importorskip("grpc_tools", reason=needs.MISSING["grpc_tools"])

    result = subprocess.run([sys.executable, PROTOS / "generate.py", "--check"], capture_output=True, text=True)

    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("kind", "zero", "least"),
    [("int32", "0", ""), ("double", "0", ", least: 1"), ("bool", "false", "")],
)
def test_a_plain_number_is_not_required(tmp_path, kind, zero, least):
    """A number or flag that is required without `optional` is refused, with what to write in its place."""
    pytest.importorskip("grpc_tools", reason=needs.MISSING["grpc_tools"])
    shutil.copytree(PROTOS, tmp_path / "protos", ignore=shutil.ignore_patterns("__pycache__"))
    proto = tmp_path / "protos/crucible_bridge/v1/metrics.proto"
    field = f"  // How many.\n  {kind} count = 1 [(options.v1.bounds) = {{required: true{least}}}];"
    proto.write_text(f"{proto.read_text()}\n// Asks for some.\nmessage CountRequest {{\n{field}\n}}\n")

    command = [sys.executable, tmp_path / "protos/generate.py", "--check"]
    result = subprocess.run(command, capture_output=True, text=True)

    assert result.returncode == 1
    assert f"CountRequest.count is a {kind} and required" in result.stderr
    assert f"cannot be told from {zero}: write `optional {kind} count`" in result.stderr


def test_protos_are_linted():
    """The linter of buf finds nothing: names, comments on every message and field."""
    result = subprocess.run([needs.program("buf"), "lint"], cwd=PROTOS, capture_output=True, text=True)

    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("before", "after", "finding"),
    [
        ("", "", None),
        ("int32 window = 2 ", "int32 window = 9 ", "Previously present field"),
        ("int32 window = 2 ", "int64 window = 2 ", "changed type"),
        ("string reason = 2;", "string cause = 2;", "changed name"),
        ("VERDICT_PARTIAL = 3", "VERDICT_PARTIAL = 9", "Previously present enum value"),
        ("rpc Drain(", "rpc Leave(", "Previously present RPC"),
        ("string reason = 2;", "string reason = 2;\n  // New.\n  string more = 9;", None),
    ],
)
def test_what_was_released_keeps_its_meaning(tmp_path, before, after, finding):
    """Numbers, names and types of the committed baseline stay; fields may join."""
    shutil.copytree(PROTOS, tmp_path / "protos")
    changed = 0
    for path in (tmp_path / "protos/crucible_bridge/v1").glob("*.proto"):
        text = path.read_text()
        changed += before in text
        path.write_text(text.replace(before, after))
    assert changed

    command = [needs.program("buf"), "breaking", "--against", PROTOS / "baseline/v1.binpb"]
    result = subprocess.run(command, cwd=tmp_path / "protos", capture_output=True, text=True)

    assert (result.returncode != 0) == (finding is not None), result.stdout + result.stderr
    assert finding is None or finding in result.stdout
