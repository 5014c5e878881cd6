"""Every block of docs/python_client.md runs as it stands, against a worker."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
import trustme

from crucible_worker.config import Settings
from crucible_worker.server import Worker

PAGE = Path(__file__).parents[2] / "docs" / "python_client.md"
TOKEN = "t0ken-of-the-page"

pytestmark = pytest.mark.docs

SAYS = {
    "Connect": [[r"version \S+ draining False"], ["serving True", "CLIENT_CLOSED"]],
    "Several workers": [[r"worker [0-9a-f]{32}"]],
    "Token and TLS": [[r"calls \d+"]],
    "Evaluate": [[r"completed 0\.7\d+"]],
    "Handle errors": [["UNKNOWN_EVALUATION False", r"\w+ evaluators\[0\]\.kind"]],
    "Retry": [["1.0"]],
    "Follow events": [[r"\w+ docs-events", r"after it \[.*\]"]],
    "The likeliest tokens of a model": [
        [r"\(\d, 3\) \(\d, 3\)", r"likeliest first \[\d+(, \d+){4}\] of rows \d"],
    ],
    "Read samples, write reports": [[r"\d+ of \d+ are wrong", "# .*"]],
}
"""What each block prints, by the heading above it."""


def blocks() -> dict[str, list[str]]:
    """The page's Python, by the heading above it."""
    sections = re.split(r"^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    found = {
        heading: re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        for heading, text in zip(sections[::2], sections[1::2], strict=True)
    }
    return {heading: snippets for heading, snippets in found.items() if snippets}


def test_every_block_has_its_output():
    """None is left out here."""
    assert {heading: len(snippets) for heading, snippets in blocks().items()} == {
        heading: len(outputs) for heading, outputs in SAYS.items()
    }


async def printed(snippet: str, address: str, folder: Path) -> list[str]:
    """What a block prints, with another address alone."""
    assert "127.0.0.1:50051" in snippet
    (folder / "snippet.py").write_text(snippet.replace("127.0.0.1:50051", address))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "snippet.py", cwd=folder, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b""), errors.decode()
    return output.decode().splitlines()


async def test_every_block_prints_what_it_should(tmp_path: Path):
    """One worker for all of them, in the page's order; that with a token has TLS as well."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    ca.issue_cert("worker.example").private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    (tmp_path / "token.txt").write_text(TOKEN + "\n")
    (tmp_path / "token.txt").chmod(0o600)
    plain = Settings(port=0, state_dir=tmp_path / "state").validate()
    guarded = Settings(
        port=0,
        state_dir=tmp_path / "guarded",
        token_file=tmp_path / "token.txt",
        tls_cert=tmp_path / "both.pem",
        tls_key=tmp_path / "both.pem",
    ).validate()
    async with Worker(plain) as worker, Worker(guarded) as other:
        for heading, snippets in blocks().items():
            address = other.address if heading == "Token and TLS" else worker.address
            for snippet, expected in zip(snippets, SAYS[heading], strict=True):
                lines = await printed(snippet, address, tmp_path)
                assert len(lines) == len(expected), lines
                for line, wanted in zip(lines, expected, strict=True):
                    assert re.fullmatch(wanted, line), (heading, line)
