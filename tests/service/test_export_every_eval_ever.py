"""What the validator of Every Eval Ever says of exported evaluations.

It wants Python 3.12 or later, and libraries that the worker has in other versions: EVERY_EVAL_EVER_PYTHON names the
Python of an environment that has it. `make test-every-eval-ever` makes one.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.service.exports_kit import evaluate_into, exported

VARIABLE = "EVERY_EVAL_EVER_PYTHON"
pytestmark = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason="Every Eval Ever is missing (make test-every-eval-ever)"
)


def validated(folder: Path) -> subprocess.CompletedProcess[str]:
    """What the validator says of every file below a folder."""
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    command = [os.environ[VARIABLE], "-m", "every_eval_ever", "validate", "--format", "json", *files]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


async def test_the_validator_passes_an_exported_evaluation(tmp_path: Path):
    """Description and samples are valid, without a warning; unscored samples are counted, and not among them."""
    state_dir = await evaluate_into(tmp_path, ("e", "f"))
    output = tmp_path / "out"
    result = await exported(
        *("e", "f", "--format", "every-eval-ever", "--output", output, "--state-dir", state_dir),
        *("--organization", "The Lab"),
    )
    assert result.exit_code == 0, result.stderr

    done = validated(output)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stdout.replace('"warnings": []', "").lower(), done.stdout
    descriptions = [Path(line) for line in result.stdout.splitlines() if line.endswith(".json")]
    assert len(descriptions) == 2
    for path in descriptions:
        described = json.loads(path.read_text())
        assert described["source_metadata"]["source_organization_name"] == "The Lab"
        assert described["detailed_evaluation_results"]["total_rows"] == 2
        counts = {row["evaluation_name"]: row["score_details"]["details"] for row in described["evaluation_results"]}
        assert counts["exact"] == {"n": "3", "n_scored": "2", "n_unscored": "1"}


async def test_the_validator_finds_what_is_wrong(tmp_path: Path):
    """A file that was changed after the export is refused: the check is one that can fail."""
    state_dir = await evaluate_into(tmp_path)
    output = tmp_path / "out"
    result = await exported("e", "--format", "every-eval-ever", "--output", output, "--state-dir", state_dir)
    samples = next(Path(line) for line in result.stdout.splitlines() if line.endswith(".jsonl"))
    samples.write_text(samples.read_text().replace('"score": 1.0', '"score": null'))

    assert validated(output).returncode != 0
