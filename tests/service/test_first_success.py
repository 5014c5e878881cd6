"""The README's file of answers: what it grades has the verdicts that the README says."""

import asyncio
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.test_console_blocks import commands_of

pytestmark = pytest.mark.docs

README = (Path(__file__).parents[2] / "README.md").read_text()


async def test_the_first_file_is_graded_as_printed(tmp_path: Path):
    """Copied as they stand, with the command of this environment: the first answer is right, the second one wrong."""
    section = README.partition("## Grade answers\n")[2].partition("\n## ")[0]
    *made, graded = [each.text for each in commands_of(section)]
    program, *words = shlex.split(graded)
    assert program == "crucible-worker"
    script = "\n".join(["set -e", *made, shlex.join([sys.executable, "-m", "crucible_worker", *words])])
    await asyncio.to_thread(subprocess.run, ["bash", "-c", script], cwd=tmp_path, check=True, capture_output=True)

    (output,) = [word for word in words if word.startswith("graded")]
    found = [json.loads(line) for line in (tmp_path / output).read_text().splitlines()]
    assert [grade["verdict"] for grade in found] == ["correct", "incorrect"]
    assert all(grade["method"] for grade in found)
