"""The first lines of the README: what they grade has the verdicts that the README says."""

import asyncio
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

README = (Path(__file__).parents[2] / "README.md").read_text()


def first_lines() -> list[str]:
    """The commands after the first installation, to the one that grades."""
    lines = [line.strip().removeprefix("$ ") for line in README.splitlines()]
    begin = next(number for number, line in enumerate(lines) if line.endswith("pip install ."))
    end = next(number for number, line in enumerate(lines) if number > begin and "crucible-worker grade" in line)
    return [line for line in lines[begin + 1 : end + 1] if line and not line.startswith("```")]


async def test_the_first_file_is_graded_as_printed(tmp_path: Path):
    """Copied as they stand, with the command of this environment: the first answer is right, the second one wrong."""
    *made, graded = first_lines()
    program, *words = shlex.split(graded)
    assert program.endswith("crucible-worker")
    script = "\n".join(["set -e", *made, shlex.join([sys.executable, "-m", "crucible_worker", *words])])
    await asyncio.to_thread(subprocess.run, ["bash", "-c", script], cwd=tmp_path, check=True, capture_output=True)

    (output,) = [word for word in words if word.startswith("graded")]
    found = [json.loads(line) for line in (tmp_path / output).read_text().splitlines()]
    assert [grade["verdict"] for grade in found] == ["correct", "incorrect"]
    assert all(grade["method"] for grade in found)
