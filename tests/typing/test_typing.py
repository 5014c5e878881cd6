"""What editors and type checkers know of both clients: pyright says it of the cases, which are never run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CASES = sorted((HERE / "cases").glob("*.py"))
KNOWN = re.compile(r"  # (error: )?(.+)$")
REVEALED = re.compile(r'Type of ".*" is "(.*)"', re.DOTALL)


@pytest.fixture(scope="module")
def diagnostics() -> list[dict[str, Any]]:
    """All that pyright has to say of the cases."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "--project", str(HERE)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode in (0, 1), answer.stderr
    return json.loads(answer.stdout)["generalDiagnostics"]


def expected(case: Path) -> Iterator[tuple[int, str, str]]:
    """Of each line that tells it: its number, the severity, and the type or the error's text."""
    for number, line in enumerate(case.read_text().splitlines()):
        if (found := KNOWN.search(line)) is not None:
            yield number, "error" if found[1] else "information", found[2]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_types_and_mistakes_are_known(case: Path, diagnostics: list[dict[str, Any]]):
    """Every type is the one told beside it, every mistake is found, and nothing else is complained of."""
    said = {
        diagnostic["range"]["start"]["line"]: diagnostic
        for diagnostic in diagnostics
        if Path(diagnostic["file"]) == case
    }
    wanted = {number: (severity, text) for number, severity, text in expected(case)}
    wrong = [f"{case.name}:{line + 1}: {said[line]['message']}" for line in sorted(said.keys() - wanted.keys())]
    for line, (severity, text) in wanted.items():
        message = said[line]["message"] if line in said else "nothing"
        found = REVEALED.fullmatch(message) if severity == "information" else None
        right = found is not None and found[1] == text if severity == "information" else text in message
        if not right or said[line]["severity"] != severity:
            wrong.append(f"{case.name}:{line + 1}: {message!r} in place of {text!r}")

    assert len(wanted) > 40
    assert not wrong, "\n".join(wrong)
