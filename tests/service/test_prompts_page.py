"""The snippets of docs/prompts.md are read."""

import re
from pathlib import Path

import pytest

from crucible_bridge.suites import parse_suite
from crucible_bridge.types import ChatMessage, Conversation, Dataset, FewShot, Prompt, Sample
from crucible_worker.rendering.templates import columns_of, rendered

pytestmark = pytest.mark.docs

PAGE = (Path(__file__).parents[2] / "docs" / "prompts.md").read_text()


def blocks(language: str) -> list[str]:
    """The page's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


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
