"""Values of a wrong type that a client refuses before it sends anything: the error has the form that is accepted."""

from types import SimpleNamespace
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.client.caller_parts import CallerParts
from crucible_bridge.errors import BackendError, InvalidField
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    EnvironmentQuestion,
    OpenEpisode,
    Sample,
    Teacher,
    ToolCall,
    message_from_json,
)

NOWHERE = "unix:/nonexistent/worker.sock"


@pytest.mark.parametrize("teachers", [["embedded:a"], [("embedded:a", 3)]])
async def test_teachers_without_their_type_learn_how_one_is_made(teachers: Any):
    """A name, or a name with a weight, is no teacher."""
    async with crucible_bridge.connect(NOWHERE) as bridge:
        with pytest.raises(InvalidField, match=r"not a Teacher: write Teacher\.of\(MODEL, weight=WEIGHT\)"):
            await bridge.models.compute_logprobs(teachers, ["1+1=2"])


async def test_a_penalty_of_several_teachers_takes_their_numbers():
    """The call queries one model alone; the error names the call that queries several."""
    teachers: Any = [Teacher.of("embedded:a"), Teacher.of("embedded:b")]
    async with crucible_bridge.connect(NOWHERE) as bridge:
        with pytest.raises(InvalidField, match=r"is a Teacher.*bridge\.models\.compute_logprobs") as refused:
            await bridge.metrics.incorporate_kl_penalty([], teachers, coef=1.0)
    assert refused.value.field == "base_logprobs[0]"


@pytest.mark.parametrize("field", ["graders", "environments"])
def test_a_function_without_a_name_is_refused(field: str):
    """Evaluators name graders and environments, so each needs a name."""
    given: Any = {"graders": {}, "environments": {}, field: print}
    with pytest.raises(InvalidField, match=rf'must be a mapping, such as {field}={{"NAME": print}}') as refused:
        CallerParts(**given, threads=1)
    assert refused.value.field == field


@pytest.mark.parametrize("begun", ["12+34=", None])
async def test_an_observation_alone_is_no_answer_of_an_environment(begun: Any):
    """An environment that returns its text learns what to return."""
    environment: Any = SimpleNamespace(initial_observation=lambda: begun)
    parts = CallerParts({}, {"e": lambda opened: environment}, 1)
    opened = OpenEpisode(sample=Sample(input="1+1="), evaluator="rl_test_set", seed=1)
    try:
        with pytest.raises(BackendError, match="return an AnsweredEnvironment"):
            await parts.follow(EnvironmentQuestion(environment="e", episode=1, question=opened))
    finally:
        parts.close()


async def test_a_pair_of_texts_learns_that_it_needs_conversations():
    """The example has the type of each answer, not the text that was given in its place."""
    pairs: Any = [{"chosen": "4", "rejected": "5"}]
    wanted = r"such as PreferencePair\(chosen=Conversation\(\.\.\.\), rejected="
    async with crucible_bridge.connect(NOWHERE) as bridge:
        with pytest.raises(InvalidField, match=wanted) as refused:
            await bridge.metrics.compute_dpo_metrics_of_models(pairs, "embedded:a", "embedded:b", beta=0.1)
    assert refused.value.field == "pairs[0]"


async def test_what_cannot_be_forwarded_is_named_as_it_was_given():
    """By the argument, which is the same for Datums, text and conversations."""
    call: Any = ToolCall(name="f", arguments={})  # type: ignore[arg-type]
    said = Conversation((ChatMessage("user", "q"), ChatMessage("assistant", "", tool_calls=(call,))))
    async with crucible_bridge.connect(NOWHERE) as bridge:
        with pytest.raises(InvalidField) as refused:
            await bridge.models.forward("embedded:a", ["text", said])
    assert refused.value.field.startswith("data[1]")


async def test_arguments_of_a_tool_that_are_nested_too_deeply_have_a_path():
    """Of a row with messages, as data sets have them."""
    arguments: Any = {}
    for _ in range(5_000):
        arguments = {"a": arguments}
    call = {"function": {"name": "f", "arguments": arguments}}
    rows = [{"messages": [{"role": "assistant", "tool_calls": [call]}, {"role": "user", "content": "x"}]}]
    async with crucible_bridge.connect(NOWHERE) as bridge:
        with pytest.raises(InvalidField) as refused:
            await bridge.evaluation.evaluate(model="embedded:a", evaluators=["accuracy"], dataset=rows, timeout=5)
    assert refused.value.field == 'dataset.inline.samples[0]["messages"]'
    assert refused.value.message == "is nested too deeply"


def test_arguments_of_a_call_that_are_nested_too_deeply_have_a_path():
    """Of one message."""
    arguments: Any = {}
    for _ in range(100_000):
        arguments = {"a": arguments}
    call = {"function": {"name": "f", "arguments": arguments}}
    with pytest.raises(InvalidField) as refused:
        message_from_json({"role": "assistant", "tool_calls": [call]})
    assert refused.value.field == "tool_calls[0].function.arguments"
