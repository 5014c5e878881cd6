"""Values of a wrong type that a client refuses before it sends anything: the error has the form that is accepted."""

from types import SimpleNamespace
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.client.caller_parts import CallerParts
from crucible_bridge.errors import BackendError, InvalidField
from crucible_bridge.types import EnvironmentQuestion, OpenEpisode, Sample, Teacher

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
