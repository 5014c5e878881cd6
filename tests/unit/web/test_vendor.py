"""The one file that others wrote: unmodified, with its licence and its version."""

import hashlib
import json
from importlib.resources import files

VENDOR = files("crucible_worker") / "web" / "vendor"
RECORDED = json.loads((VENDOR / "versions.json").read_text("utf-8"))


def test_files_are_as_they_were_published():
    """Each has the digest that is recorded for it."""
    found = {name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() for name in RECORDED["sha256"]}

    assert found == RECORDED["sha256"]


def test_nothing_else_is_there():
    """A file that others wrote has a digest, and the licence is among them."""
    others = {"renew.py", "versions.json", "__pycache__"}

    assert {file.name for file in VENDOR.iterdir()} - others == set(RECORDED["sha256"])
    assert "MIT" in (VENDOR / "uPlot.LICENSE").read_text("utf-8") or RECORDED["license"] == "MIT"


def test_the_version_is_the_one_recorded():
    """As the file itself says, at its beginning."""
    assert f"v{RECORDED['version']}" in (VENDOR / "uPlot.iife.min.js").read_text("utf-8")[:300]
