"""The README's Python snippet does what the README says."""

import asyncio
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from crucible_worker.config import Settings
from crucible_worker.server import Worker

README = Path(__file__).parents[2] / "README.md"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="the snippet asks an embedded model, which needs crucible-bridge[local]",
)


async def test_the_python_snippet_runs_as_it_stands(tmp_path):
    """Copied into a file, with the worker's address alone changed, it prints events and metrics."""
    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    async with Worker(Settings(port=0, state_dir=tmp_path / "state").validate()) as worker:
        script = tmp_path / "snippet.py"
        script.write_text(snippet.replace("127.0.0.1:50051", worker.address))

        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, errors = await process.communicate()

    assert process.returncode == 0, errors.decode()
    lines = output.decode().splitlines()
    assert lines[0].startswith("crucible_bridge.evaluation.start ")
    assert any(line.startswith("crucible_kitchen.evaluation.complete ") for line in lines)
    assert "'accuracy': 0.7" in lines[-1]
    assert lines[-1].endswith("{}")
