"""The committed code is what the protos say."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROTOS = Path(__file__).resolve().parents[3] / "protos"


def test_generated_code_is_current():
    """Generating again changes nothing."""
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")

    result = subprocess.run([sys.executable, PROTOS / "generate.py", "--check"], capture_output=True, text=True)

    assert result.returncode == 0, result.stderr


def test_protos_are_linted():
    """The linter of buf finds nothing: names, comments on every message and field."""
    buf = shutil.which("buf", path=str(Path(sys.executable).parent)) or shutil.which("buf")
    if buf is None:
        pytest.skip("buf is not installed: pip install buf-bin")

    result = subprocess.run([buf, "lint"], cwd=PROTOS, capture_output=True, text=True)

    assert result.returncode == 0, result.stdout
