"""Conversations that hold their answer: the assistant's last message is the target of an evaluator that wants one."""

from crucible_bridge.types import ChatMessage, Conversation, EmbeddedModel, Sample, SamplingParams, Verdict
from crucible_worker.evaluators.base import as_asked
from crucible_worker.testing import ScriptedModel, run_worker
from tests.tables import rows

SYSTEM, USER = {"role": "system", "content": "Add."}, {"role": "user", "content": "2+2?"}
RIGHT, WRONG = {"role": "assistant", "content": "4"}, {"role": "assistant", "content": "5"}


async def test_the_answer_is_asked_for_and_compared() -> None:
    """What is asked ends before it, the model never sees it; likelihood is measured of the whole, as ever."""
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return "4"

    async with run_worker({"scripted": ScriptedModel(answer=answer)}) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(
            model=EmbeddedModel("scripted"),
            evaluators={"accuracy": {"grader": "exact_match"}, "nll": {}},
            dataset=[{"messages": [SYSTEM, USER, RIGHT]}, {"messages": [USER, WRONG]}],
            sampling=SamplingParams(max_tokens=8),
        )
        samples = [each async for each in worker.bridge.evaluation.all_samples(evaluation.evaluation_id)]

    assert evaluation.metrics.values["accuracy"] == 0.5
    verdicts = {(each.evaluator, each.sample_id): each.verdict for each in samples}
    assert verdicts == {
        ("accuracy", "0"): Verdict.CORRECT,
        ("accuracy", "1"): Verdict.INCORRECT,
        ("nll", "0"): Verdict.MEASURED,
        ("nll", "1"): Verdict.MEASURED,
    }
    assert len(prompts) == 2
    assert all("2+2?" in prompt and "4" not in prompt and "5" not in prompt for prompt in prompts)


async def test_a_target_next_to_messages_is_what_is_compared() -> None:
    """The model does not see the answer in the messages; likelihood is that of the messages."""
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return "four"

    async with run_worker({"scripted": ScriptedModel(answer=answer)}) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(
            model=EmbeddedModel("scripted"),
            evaluators={"accuracy": {"grader": "exact_match"}},
            dataset=[{"messages": [USER, RIGHT], "target": "four"}, {"messages": [USER], "target": "4"}],
            sampling=SamplingParams(max_tokens=8),
        )

    assert evaluation.metrics.values["accuracy"] == 0.5
    assert len(prompts) == 2
    assert all("2+2?" in prompt and "4" not in prompt for prompt in prompts)


def _sample(*messages: dict[str, str], targets: tuple[str, ...] = ()) -> Sample:
    return Sample(
        input=Conversation(tuple(ChatMessage(message["role"], message["content"]) for message in messages)),
        targets=targets,
    )


@rows(
    ("sample", "asked"),
    [
        (_sample(USER, RIGHT), _sample(USER, targets=("4",))),
        (_sample(USER, WRONG, USER, RIGHT), _sample(USER, WRONG, USER, targets=("4",))),
        (_sample(USER, RIGHT, targets=("four",)), _sample(USER, targets=("four",))),
        (_sample(USER, targets=("four",)), _sample(USER, targets=("four",))),
        (_sample(RIGHT, targets=("four",)), _sample(RIGHT, targets=("four",))),
        (_sample(USER), _sample(USER)),
        (_sample(RIGHT), _sample(RIGHT)),
        (Sample(input="text"), Sample(input="text")),
    ],
)
def test_the_answer_in_a_conversation_is_no_part_of_the_question(sample: Sample, asked: Sample) -> None:
    """It is the target unless the sample has targets; a conversation that ends with a question is asked unchanged."""
    assert as_asked(sample) == asked
