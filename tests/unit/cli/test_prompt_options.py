"""Flags that say how models are asked, and what `crucible-worker prompt` makes of an answer."""

import json
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    FewShot,
    Problem,
    Prompt,
    RenderedPrompt,
    RenderSampleResponse,
)
from crucible_worker.cli import app
from crucible_worker.cli.evaluate import EvaluateOptions
from crucible_worker.cli.prompt import as_map, as_text
from crucible_worker.cli.refusals import in_flags
from crucible_worker.cli.requests import evaluations_to_run
from crucible_worker.cli.running import joint_as_text
from crucible_worker.config import Settings
from crucible_worker.journal.records import Joint
from tests.tables import rows


def request_of(**flags):
    """The request that flags make."""
    given = {"data": "builtin:arithmetic", "evaluator": ("accuracy", "nll"), **flags}
    _, (asked,) = evaluations_to_run(EvaluateOptions(model=("embedded:arithmetic@600",), **given))
    return asked.request


def test_flags_make_a_prompt(tmp_path: Path):
    """Text as it is typed, or that of a file; without any there is no prompt."""
    (tmp_path / "template.txt").write_text("Q: {input}\nA:")
    request = request_of(
        system="Be brief.", template=f"@{tmp_path}/template.txt", few_shot="3:jsonl:a:b.jsonl", few_shot_seed=7
    )
    assert request.dataset.prompt == Prompt(
        system="Be brief.",
        template="Q: {input}\nA:",
        few_shot=FewShot(source="jsonl:a:b.jsonl", count=3, seed=7),
    )
    assert request_of().dataset.prompt is None
    assert request_of(target_delimiter="").dataset.prompt == Prompt(target_delimiter="")
    assert not request_of().dataset.special_tokens
    assert request_of(special_tokens=True).dataset.special_tokens


@rows(
    ("flags", "flag", "says"),
    [
        ({"few_shot": "jsonl:train.jsonl"}, "--few-shot", "not COUNT:SOURCE"),
        ({"few_shot": "3"}, "--few-shot", "not COUNT:SOURCE"),
        ({"few_shot": "3:"}, "--few-shot", "not COUNT:SOURCE"),
        ({"few_shot": "-3:jsonl:a"}, "--few-shot", "not COUNT:SOURCE"),
        ({"few_shot": "0:jsonl:a"}, "--few-shot", "is 0, must be from 1 to 64"),
        ({"few_shot": "65:jsonl:a"}, "--few-shot", "is 65, must be from 1 to 64"),
        ({"few_shot": "²:jsonl:a"}, "--few-shot", "not COUNT:SOURCE"),
        ({"few_shot_seed": 1}, "--few-shot-seed", "--few-shot is not given"),
        ({"system": "@/no/such/file"}, "--system", "No such file"),
        ({"template": "@/"}, "--template", "Is a directory"),
        ({"target_delimiter": "x" * 401}, "--target-delimiter", "400"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_flag(flags, flag, says):
    """In the words of who typed it."""
    with pytest.raises(InvalidField, match=says) as caught:
        request_of(**flags)
    assert caught.value.field == flag


@rows(
    ("flags", "flag"),
    [
        ({"renderer": "raw"}, "--renderer"),
        ({"system": "x"}, "--system"),
        ({"template": "x"}, "--template"),
        ({"target_delimiter": ""}, "--target-delimiter"),
        ({"special_tokens": True}, "--special-tokens"),
        ({"few_shot": "1:x"}, "--few-shot"),
        ({"few_shot_seed": 1}, "--few-shot-seed"),
    ],
)
def test_a_suite_says_it_itself(flags, flag):
    """Its file has a place for each."""
    with pytest.raises(InvalidField, match="belongs in the suite's file") as caught:
        request_of(suite="math", data=None, evaluator=(), **flags)
    assert caught.value.field == flag


def test_a_renderer_is_of_every_evaluator():
    """An option of one goes before it."""
    request = request_of(renderer="raw", option=("nll.renderer=role_colon",))
    assert [spec.options for spec in request.evaluators] == [{"renderer": "raw"}, {"renderer": "role_colon"}]


@rows(
    ("field", "flag"),
    [
        ("dataset.prompt.system", "--system"),
        ("dataset.prompt.template", "--template"),
        ("dataset.prompt.few_shot.source", "--few-shot"),
        ("dataset.prompt.few_shot.count", "--few-shot"),
        ("dataset.prompt.few_shot.seed", "--few-shot-seed"),
        ("dataset.prompt.target_delimiter", "--target-delimiter"),
        ("dataset.special_tokens", "--special-tokens"),
        ("dataset.jsonl_path", "--data"),
        ("sample_id", "--sample"),
    ],
)
def test_errors_name_the_flag(field, flag):
    """And in a suite the place in its file."""
    error = InvalidField(field, "is wrong")
    assert in_flags(error, Settings(), ("accuracy",)) == f"{flag} is wrong"
    if field.startswith("dataset.prompt"):
        assert in_flags(error, Settings(), (), "evaluations[1]") == f"evaluations[1].{field} is wrong"


@rows(
    ("prompt", "target", "text"),
    [
        ("...of France?", " Paris", '"...of France?", target " Paris"'),
        ("A:\n", "b\tc", '"A:\\n", target "b\\tc"'),
        ('say "é"', "\u202eż", '"say \\"é\\"", target "\\u202e\\u017c"'),
    ],
)
def test_a_joint_is_one_line(prompt, target, text):
    """What a terminal would interpret, or not show, is escaped."""
    assert joint_as_text(Joint(prompt=prompt, target=target)) == text


SHOWN = RenderSampleResponse(
    sample_id="a",
    prompts=(
        RenderedPrompt(evaluator="text", renderer="raw", text="1+1=", tokens=(4, 5), stop=("\n\n",)),
        RenderedPrompt(
            evaluator="chat", renderer="chat_template", conversation=Conversation((ChatMessage("user", "hi"),))
        ),
        RenderedPrompt(evaluator="tokens", renderer="auto", tokens=(1, 2)),
        RenderedPrompt(evaluator="none", renderer="auto", problem=Problem(reason="NO_TOKENIZER", message="none")),
        RenderedPrompt(
            evaluator="long",
            renderer="raw",
            text="1+1=",
            tokens=(4, 5),
            problem=Problem(reason="PROMPT_TOO_LONG", message="the prompt has 2 tokens"),
        ),
    ),
)


def test_a_prompt_is_shown_as_text():
    """Text, messages with their roles, tokens where nobody knows their text, or why there is nothing."""
    assert as_text("suite", SHOWN) == (
        "suite: sample a\n\n"
        '--- text: renderer raw, 2 tokens, stops at "\\n\\n"\n1+1=\n\n'
        "--- chat: renderer chat_template\n[user]\nhi\n\n"
        "--- tokens: renderer auto, 2 tokens\n1 2\n\n"
        "--- none: renderer auto\nNO_TOKENIZER: none\n\n"
        "--- long: renderer raw, 2 tokens\nPROMPT_TOO_LONG: the prompt has 2 tokens\n1+1="
    )


def test_a_prompt_is_one_object():
    """For programs, with every field of the answer."""
    found = json.loads(json.dumps(as_map("", SHOWN)))
    assert found["sample_id"] == "a"
    assert found["prompts"][0] == {
        "evaluator": "text",
        "renderer": "raw",
        "messages": [],
        "text": "1+1=",
        "tokens": [4, 5],
        "stop": ["\n\n"],
        "problem": None,
    }
    assert found["prompts"][1]["messages"] == [{"role": "user", "content": "hi"}]
    assert found["prompts"][3]["problem"] == {"reason": "NO_TOKENIZER", "message": "none"}
    assert as_map("part", SHOWN)["evaluation"] == "part"


def test_prompt_takes_the_options_of_evaluate():
    """A command that evaluates can be typed again as one that shows the prompt, without tasks and places of results."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    commands = group.commands
    of_evaluate, of_prompt = (
        {flag for option in commands[name].params for flag in option.opts} for name in ("evaluate", "prompt")
    )
    tasks = {"--task", "--inspect-root", "--inspect-package"}
    results = {"--no-keep", "--output", "--log-dir", "--log-to", "--rerun", "--verbose", "-v"}
    assert of_evaluate - of_prompt == tasks | results
