"""tinker-cookbook's ProblemEnv and the problems of `rl_test_set`: messages before the question, and required stops."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Dataset,
    EvaluatorSpec,
    InlineDataset,
    ModelInput,
    Prompt,
    Sample,
    SampledSequence,
    SamplingParams,
)
from crucible_worker.testing import ScriptedModel
from tests.service.evaluation_kit import asked, rig
from tests.service.originals_kit import CodePoints, SamplingClient, originals

EOS = 0x1F
"""The end-of-sequence token of the model here."""
STOP = "\n\nUser:"
ANSWERS = {"2+2": (" 4", STOP), "2+3": (" 5", chr(EOS)), "2+4": (" 7", STOP), "2+5": (" 7 and so on", "")}
"""What the model says to each question, and what ends it; nothing ends one that is truncated."""
SAMPLING = SamplingParams(max_tokens=12, temperature=1.0)
PREFIX = (("user", "1+1"), ("assistant", "2"))


@dataclasses.dataclass(kw_only=True)
class Ending(ScriptedModel):
    """Ends its answers by a stop sequence or by its end-of-sequence token; the text is without either."""

    eos_token_id = EOS
    prompts: list[str] = dataclasses.field(default_factory=list)

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        text = "".join(map(chr, prompt.tokens().tolist()))
        self.prompts.append(text)
        said, end = next(answer for question, answer in ANSWERS.items() if question in text)
        tokens = tuple(map(ord, said + end))
        return [
            SampledSequence(
                text=said, tokens=tokens, logprobs=(-1.0,) * len(tokens), stop_reason="stop" if end else "length"
            )
        ] * num_samples


class WithEnd(CodePoints):
    """Its end-of-sequence token is the model's."""

    eos_token_id = EOS


@pytest.fixture(scope="module")
def modules():
    """The modules of the original."""
    with originals("rl.metric_util", "rl.types", "rl.problem_env", "renderers.role_colon") as found:
        yield found


def _theirs(modules: Any, strict: bool) -> Any:
    metric_util, base, problem_env, role_colon = modules

    class Sum(problem_env.ProblemEnv):
        """A sum of digits."""

        def __init__(self, question: str) -> None:
            prefix = [{"role": role, "content": content} for role, content in PREFIX]
            renderer = role_colon.RoleColonRenderer(WithEnd())
            super().__init__(renderer, prefix, format_coef=0.5, require_stop_sequence_for_format=strict)
            self.question = question

        def get_question(self):
            return self.question

        def check_answer(self, sample_str):
            return sample_str == self.get_reference_answer()

        def check_format(self, sample_str):
            return True

        def get_reference_answer(self):
            return str(sum(map(int, self.question.split("+"))))

    class Sums(base.RLDataset):
        """One group for each question."""

        def get_batch(self, index):
            question = list(ANSWERS)[index]
            return [problem_env.ProblemGroupBuilder(env_thunk=lambda: Sum(question), num_envs=2)]

        def __len__(self):
            return len(ANSWERS)

    return metric_util.RLTestSetEvaluator(Sums(), max_tokens=SAMPLING.max_tokens)


@pytest.mark.parametrize("strict", [True, False])
async def test_equal_rewards_and_prompts(modules: Any, strict: bool) -> None:
    """With a required stop sequence the end-of-sequence token earns no form, neither there nor here."""
    model = Ending()
    values = await _theirs(modules, strict)(SamplingClient(model))
    expected = {key: value for key, value in values.items() if "cached" not in key}
    questions, model.prompts = set(model.prompts), []
    options = {
        "renderer": "role_colon",
        "group_size": 2,
        "format_coef": 0.5,
        "require_stop_sequence_for_format": strict,
    }
    samples = [Sample(id=text, input=text, targets=(str(sum(map(int, text.split("+")))),)) for text in ANSWERS]
    prompt = Prompt(prefix=Conversation(tuple(ChatMessage(role, content) for role, content in PREFIX)))
    async with rig(model) as r:
        found = await r.evaluation.evaluate(
            asked(
                evaluators=[EvaluatorSpec(kind="rl_test_set", name="test", options=options)],
                dataset=Dataset(source=InlineDataset(tuple(samples)), prompt=prompt),
                sampling=SAMPLING,
            )
        )

    assert found.metrics.values == pytest.approx(expected, rel=1e-12)
    assert set(model.prompts) == questions
    assert found.metrics.values["test/env/all/format"] == (0.5 if strict else 0.75)
