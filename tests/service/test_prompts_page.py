"""What docs/prompts.md shows is what its commands print, and its snippets are read."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from crucible_bridge.suites import parse_suite
from crucible_bridge.types import ChatMessage, Conversation, Dataset, FewShot, Prompt, Sample
from crucible_worker.rendering.jinja_work import rendered
from crucible_worker.rendering.templates import columns_of

PAGE = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text()
COMMAND_SECONDS = 240.0

pytest.importorskip("aiohttp", reason="aiohttp is not installed: the page's server is not known")
pytest.importorskip("torch", reason="torch is not installed: embedded models have no prompt")


def blocks(language: str) -> list[str]:
    """The page's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def _parted(part: str) -> tuple[str, str]:
    """A command, which a backslash at the end of a line continues, and what it prints."""
    lines = part.split("\n")
    last = next(index for index, line in enumerate(lines) if not line.endswith("\\"))
    return "\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :])


def test_commands_print_what_the_page_shows(tmp_path: Path):
    """In its order, in one folder, with the worker's command on the PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    shown = [part for block in blocks("console") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    for part in shown:
        command, output = _parted(part)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stdout.rstrip()) == (0, output.rstrip()), done.stderr
    assert len(shown) == 6


def test_snippets_are_what_they_seem():
    """The Python makes a data set, the TOML is a part of a suite, and the template lists choices."""
    (python,), (toml,), (template,) = blocks("python"), blocks("toml"), blocks("jinja")
    names: dict[str, object] = {}
    exec(python, names)
    few_shot = FewShot(source="jsonl:train.jsonl", count=1)
    prompt = Prompt(system="Answer with a number.", template="{input} In {unit}.", few_shot=few_shot)

    (member,) = parse_suite(toml).members

    assert isinstance(names["dataset"], Dataset)
    assert names["dataset"].prompt == prompt
    greeting = Conversation((ChatMessage("user", "Hello."), ChatMessage("assistant", "Hello!")))
    assert member.evaluation.dataset.prompt == Prompt(
        system=prompt.system, template=prompt.template, prefix=greeting, few_shot=few_shot
    )
    row = columns_of(Sample(input="Capital?", choices=("Rome", "Paris")))
    assert rendered((template, row)) == (True, "Capital?\n(1) Rome\n(2) Paris\n")
