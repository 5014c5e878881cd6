"""tinker-cookbook's SDFT: the targets, weights and advantages that it makes of a teacher with a demonstration."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.distillation import distillation_datum
from crucible_bridge.types import ChatMessage, Conversation, Datum, LogprobsItem, ModelInput, SequenceLogprobs
from crucible_worker.embedded import registry
from crucible_worker.testing import ScriptedModel, run_worker
from tests import needs
from tests.service.originals_kit import CodePoints, originals
from tests.service.serving import serving

tinker = pytest.importorskip("tinker", reason=needs.MISSING["tinker"])
torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
transformers = pytest.importorskip("transformers", reason=needs.MISSING["transformers"])
pytestmark = pytest.mark.asyncio(loop_scope="module")

TEACHER = "arithmetic@320"
CLOSE = 1e-4
"""Most nats between two computations: each rounds to float32 in its own order."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rollout:
    """What a student answered to a question, and the question as the teacher sees it."""

    question: tuple[int, ...]
    shown: tuple[int, ...]
    """With a demonstration before it."""
    answer: tuple[int, ...]
    mask: tuple[int, ...]
    """1 for each token of the answer that the student wrote; the others came from its environment."""

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Arrays of a Datum: entry i belongs to token i + 1."""
        before = len(self.question) - 1
        mask = np.array([0] * before + list(self.mask), np.float32)
        return {
            "target_tokens": np.array([*self.question, *self.answer][1:]),
            "logprobs": np.linspace(-2.0, -0.25, mask.size, dtype=np.float32) * mask,
            "mask": mask,
            "advantages": np.zeros(mask.size, np.float32),
        }

    @property
    def tokens(self) -> list[int]:
        """The input of a Datum."""
        return [*self.question, *self.answer][:-1]


SUM = (4, 5, 13, 6, 7, 14)
ROLLOUTS = (
    Rollout(SUM, (*SUM, 7, 9, 2, *SUM), (7, 9, 1, 4, 5, 13), (1,) * 6),
    Rollout((8, 13, 6, 14), (8, 13, 6, 14, 11, 2, 8, 13, 6, 14), (11, 1, 8, 13, 6, 14, 11), (1, 1, 0, 0, 1, 1, 1)),
    Rollout((3, 13, 4, 14), (3, 13, 4, 14, 4, 2, 3, 13, 4, 14), (4, 1), (1, 1)),
    Rollout((3, 13, 4, 14), (3, 13, 4, 14, 4, 2, 3, 13, 4, 14), (4, 1), (0, 0)),
)
"""One turn; two turns with an observation between; fewer tokens than are skipped; nothing that the student wrote."""


class Teacher:
    """A model's whole distribution, by transformers itself, as a SamplingClient of tinker returns it."""

    def __init__(self) -> None:
        self._model = transformers.AutoModelForCausalLM.from_pretrained(registry.path(TEACHER), dtype=torch.float32)

    def table(self, tokens: list[int]) -> np.ndarray:
        """Log-probabilities of every token after each but the last, shape (n - 1, vocabulary)."""
        with torch.no_grad():
            logits = self._model(input_ids=torch.tensor([tokens])).logits[0, :-1]
        return torch.log_softmax(logits.double(), 1).numpy()

    def sample(self, prompt: Any, topk_prompt_logprobs: int, **_: Any) -> Any:
        """The likeliest tokens in place of each token of the prompt; none for the first."""
        rows = self.table(prompt.to_ints())
        likeliest = np.argsort(-rows, axis=1, kind="stable")[:, :topk_prompt_logprobs]
        for values in np.take_along_axis(rows, likeliest, 1):  # no ties that rounding could break
            assert np.all(-np.diff(values) > CLOSE), values
        entries = [[(int(token), float(row[token])) for token in best] for row, best in zip(rows, likeliest)]
        return _Future(types.SimpleNamespace(topk_prompt_logprobs=[None, *entries]))

    def compute_logprobs(self, prompt: Any) -> Any:
        """Of every token but the first."""
        tokens = prompt.to_ints()
        return _Future([None, *self.table(tokens)[np.arange(len(tokens) - 1), tokens[1:]].tolist()])


class _Future:
    def __init__(self, value: Any) -> None:
        self._value = value

    async def coroutine(self) -> Any:
        return self._value


@pytest.fixture(scope="module")
def modules() -> Iterator[list[Any]]:
    """The modules of the original: SDFT, and a renderer."""
    with originals("distillation.sdft", "renderers.role_colon") as found:
        yield found


@pytest.fixture(scope="module")
def sdft(modules: list[Any]) -> Any:
    """The original of SDFT."""
    return modules[0]


@pytest.fixture(scope="module")
def teacher() -> Teacher:
    """The teacher of the original."""
    return Teacher()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridge(tmp_path_factory: Any) -> AsyncIterator[Bridge]:
    """The client of a worker in a process of its own."""
    async with serving(tmp_path_factory.mktemp("worker"), "") as worker:
        await worker.ready()
        async with crucible_bridge.connect(worker.address) as bridge:
            yield bridge


def theirs() -> dict[str, Any]:
    """The first arguments of the original: a prompt of the teacher for each datum."""
    data = [
        tinker.Datum(
            model_input=tinker.ModelInput.from_ints(each.tokens),
            loss_fn_inputs={name: tinker.TensorData.from_numpy(array) for name, array in each.inputs.items()},
        )
        for each in ROLLOUTS
    ]
    return {
        "data_D": data,
        "metadata_D": [{"group_idx": index} for index in range(len(ROLLOUTS))],
        "teacher_prompts_P": [tinker.ModelInput.from_ints(list(each.shown)) for each in ROLLOUTS],
    }


def arrays(data: list[Any], name: str) -> list[np.ndarray]:
    """An input of the original's data."""
    return [datum.loss_fn_inputs[name].to_torch().numpy() for datum in data]


def equal(found: list[Datum], expected: list[Any]) -> None:
    """The same tokens, with the same weights up to rounding."""
    for name in ("target_tokens", "weights"):
        for ours, original in zip(found, arrays(expected, name), strict=True):
            array = np.asarray(ours.loss_fn_inputs[name])
            assert (array.dtype, array.shape) == (original.dtype, original.shape)
            np.testing.assert_allclose(array, original, atol=CLOSE)


async def measured(bridge: Bridge, top_k: int | None, context: int = 32) -> list[SequenceLogprobs]:
    """What one call finds: the answers of the student after the prompts of the teacher, within its context."""
    items = [
        LogprobsItem(prompt=ModelInput.of(each.shown), continuation=each.answer[: context - len(each.shown)])
        for each in ROLLOUTS
    ]
    return list((await bridge.models.compute_logprobs(f"embedded:{TEACHER}", items, top_k=top_k)).sequences)


def own_data() -> list[Datum]:
    """The same data."""
    return [Datum(model_input=each.tokens, loss_fn_inputs=each.inputs) for each in ROLLOUTS]


@pytest.mark.parametrize(
    ("builder", "top_k", "options"),
    [
        ("build_topk_distillation_datums", 8, {}),
        ("build_topk_distillation_datums", 1, {"skip_first_n_tokens": 0}),
        ("build_topk_distillation_datums", 8, {"skip_first_n_tokens": 0, "vocab_size": 9}),
        ("build_reverse_kl_datums", 6, {"skip_first_n_tokens": 1}),
    ],
)
async def test_equal_targets_and_weights(
    sdft: Any, bridge: Bridge, teacher: Teacher, builder: str, top_k: int, options: dict[str, int]
) -> None:
    """For the cross entropy as for the reverse KL, with tokens skipped and tokens beyond the student's vocabulary."""
    expected, _ = await getattr(sdft, builder)(**theirs(), teacher_client=teacher, topk=top_k, **options)

    found = [
        distillation_datum(datum, each, **options)
        for datum, each in zip(own_data(), await measured(bridge, top_k), strict=True)
    ]

    equal(found, expected)
    assert [datum.model_input.tokens().tolist() for datum in found] == [each.tokens for each in ROLLOUTS]
    assert any(np.asarray(datum.loss_fn_inputs["weights"]).any() for datum in found)


async def test_equal_targets_of_a_truncated_answer(sdft: Any, bridge: Bridge, teacher: Teacher) -> None:
    """Tokens of the answer beyond the teacher's context are not measured, and have no weight."""
    expected, metrics = await sdft.build_topk_distillation_datums(
        **theirs(), teacher_client=teacher, topk=4, max_context_length=16
    )

    found = [
        distillation_datum(datum, each)
        for datum, each in zip(own_data(), await measured(bridge, 4, context=16), strict=True)
    ]

    assert metrics["sdft/teacher_truncated_count"] == 2
    equal(found, expected)


async def test_equal_advantages(sdft: Any, bridge: Bridge, teacher: Teacher) -> None:
    """They are the reverse KL to the teacher with its demonstration, negated: those of incorporate_kl_penalty."""
    given = theirs()
    metrics = await sdft.compute_sdft_advantages(**given, teacher_client=teacher)

    logprobs = []
    for datum, found in zip(own_data(), await measured(bridge, None), strict=True):
        assert found.logprobs is not None
        values = np.array(datum.loss_fn_inputs["logprobs"])
        values[values.size - found.logprobs.size :] = found.logprobs
        logprobs.append(values)
    penalty = await bridge.metrics.incorporate_kl_penalty(own_data(), logprobs, coef=1.0, reverse_kl=True)

    for ours, original in zip(penalty.advantages, arrays(given["data_D"], "advantages"), strict=True):
        np.testing.assert_allclose(ours, original, atol=CLOSE)
    assert penalty.metrics.values["teacher_kl"] == pytest.approx(-metrics["sdft/mean_advantage"], abs=CLOSE)


async def test_equal_prompts_with_a_demonstration(modules: list[Any]) -> None:
    """The teacher's prompt is a conversation with the question and its answer in one message, rendered as there."""
    sdft, role_colon = modules
    renderer = role_colon.RoleColonRenderer(CodePoints())
    expected = sdft.build_sdft_teacher_prompt("2+2?", "4", renderer, system_prompt="Add.")
    shown = sdft.DEFAULT_DEMO_TEMPLATE.format(question="2+2?", golden_answer="4")
    conversation = Conversation((ChatMessage("system", "Add."), ChatMessage("user", shown)))

    async with run_worker({"m": ScriptedModel()}) as worker:
        answer = await worker.bridge.rendering.build_generation_prompt(
            "embedded:m", [conversation], renderer="role_colon"
        )

    assert list(answer.items[0].tokens) == expected.to_ints()
