"""tinker-cookbook's RLTestSetEvaluator and the evaluator `rl_test_set`: equal, but where theirs is wrong."""

import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.types import EvaluationState, EvaluatorSpec, Sample, SamplingParams
from crucible_worker.evaluators.environments.entry_points import GROUP
from crucible_worker.testing import ScriptedModel
from tests.cases.cookbook_environments import PROBLEMS, TAGS, makers
from tests.distributions import install, lay_out
from tests.service.evaluation_kit import asked, rig, samples_of
from tests.service.originals_kit import SamplingClient, originals

SAMPLING = SamplingParams(max_tokens=16, temperature=1.0)


@pytest.fixture(scope="module")
def modules():
    """The modules of the original."""
    names = ("metric_util", "types", "rollout_strategy", "problem_env", "rollout_limits")
    with originals(*(f"rl.{name}" for name in names)) as found:
        yield types.SimpleNamespace(**dict(zip(names, found, strict=True)))


@pytest.fixture
def made(modules: Any) -> Mapping[str, Callable[..., Any]]:
    """What makes builders of their classes."""
    return makers(modules.types, modules.problem_env, modules.rollout_limits)


@pytest.fixture
def shouts(made: Any) -> Callable[..., Any]:
    """Makes builders of two turns each, a reward for each capital letter and one for the group."""
    return made["shouts"]


@pytest.fixture
def theirs(modules: Any) -> Callable[..., Any]:
    """The original over builders, with a strategy."""

    class Dataset(modules.types.RLDataset):
        def __init__(self, builders: Sequence[Any]) -> None:
            self.builders = builders

        def get_batch(self, index):
            return [self.builders[index]]

        def __len__(self):
            return len(self.builders)

    def create(builders: Sequence[Any], strategy: Any = None) -> Any:
        return modules.metric_util.RLTestSetEvaluator(Dataset(builders), max_tokens=16, strategy=strategy)

    return create


@pytest.fixture
def ours(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., EvaluatorSpec]:
    """Specifications whose environment makes the same builders, in processes that find it as a distribution."""
    folder = tmp_path / "installed"
    source = """
import importlib.util, sys, types
if importlib.util.find_spec("blobfile") is None:
    sys.modules["blobfile"] = types.ModuleType("blobfile")
from tinker_cookbook.rl import problem_env, rollout_limits
from tinker_cookbook.rl import types as rl_types
from tests.cases.cookbook_environments import makers

class Table:
    description = "Builders by name."
    options_schema = {
        "type": "object",
        "properties": {"make": {"type": "string"}, "of": {"type": "object"}},
        "additionalProperties": False,
    }
    makers = makers(rl_types, problem_env, rollout_limits)

    def group(self, sample, options, size):
        return self.makers[options["make"]](sample.input, size, **options["of"].get(sample.input, {}))

TABLE = Table()
"""
    lay_out(folder, "users_table", source, GROUP, {"table": "users_table:TABLE"})
    install(monkeypatch, Path(__file__).parents[2], folder)

    def specify(make: str = "shouts", of: dict[str, Any] | None = None, **options: Any) -> EvaluatorSpec:
        chosen = {"make": make, "of": of or {}}
        return EvaluatorSpec(
            kind="rl_test_set",
            name="test",
            options={"environment": "table", "environment_options": chosen, **options},
        )

    return specify


def _samples(texts: Sequence[str]) -> list[Sample]:
    return [Sample(id=text, input=text) for text in texts]


def _but_cached(found: dict[str, float]) -> dict[str, float]:
    """Without what no backend of ours tells: tokens of prompts that a service had at hand."""
    return {key: value for key, value in found.items() if not key.endswith("/total_cached_ob_tokens")}


async def test_equal_keys_and_values(shouts: Any, theirs: Any, ours: Any) -> None:
    """Environments of their classes, unchanged: the same keys and values under every tag."""
    model = ScriptedModel()
    expected = _but_cached(await theirs([shouts(text, 3) for text in TAGS])(SamplingClient(model)))

    async with rig(model) as r:
        found = await r.evaluation.evaluate(
            asked(evaluators=[ours(group_size=3)], dataset=_samples(list(TAGS)), sampling=SAMPLING)
        )

    assert found.metrics.undefined == {}
    assert found.metrics.values == pytest.approx(expected, rel=1e-12)
    assert found.metrics.values.keys() == expected.keys()
    assert found.metrics.values["test/env/words/total_turns"] == 6


@pytest.mark.parametrize(
    ("max_tokens", "limits"),
    [
        (1, {}),
        (16, {"max_turns": 1}),
        (16, {"max_turn_tokens": 1}),
        (16, {"max_trajectory_tokens": 4}),
        (16, {"max_trajectory_tokens": 3}),
        (16, {"max_sampled_tokens": 4}),
        (16, {"max_sampled_tokens": 1}),
    ],
)
async def test_equal_limits(shouts: Any, theirs: Any, ours: Any, max_tokens: int, limits: dict[str, int]) -> None:
    """Answers that are cut and gone on from, and episodes that end by what an environment brings along."""
    model = ScriptedModel()
    evaluator = theirs([shouts(text, 2, limits=limits) for text in TAGS])
    evaluator.max_tokens = max_tokens
    expected = _but_cached(await evaluator(SamplingClient(model)))
    of = {text: {"limits": limits} for text in TAGS}
    async with rig(model) as r:
        sampling = SamplingParams(max_tokens=max_tokens, temperature=1.0)
        found = await r.evaluation.evaluate(
            asked(evaluators=[ours(of=of, group_size=2)], dataset=_samples(list(TAGS)), sampling=sampling)
        )

    assert found.metrics.values == pytest.approx(expected, rel=1e-12)
    assert any("/stop/" in key or "num_truncations" in key for key in expected)


@pytest.mark.parametrize(
    ("strategy", "name", "options", "failures"),
    [
        ("RetryOnFailure", "retry", {"max_retries": 2}, {"a": 2, "bb": 0, "ccc": 1}),
        ("MinViableGroup", "min_viable_group", {"max_retries": 0, "min_successful": 1}, {"a": 2, "bb": 0, "ccc": 1}),
    ],
)
async def test_equal_strategies(
    modules: Any, shouts: Any, theirs: Any, ours: Any, strategy: str, name: str, options: Any, failures: Any
) -> None:
    """Rollouts that fail, and are made again or left out, are counted alike."""
    model = ScriptedModel()
    evaluator = theirs(
        [shouts(text, 3, count) for text, count in failures.items()],
        getattr(modules.rollout_strategy, strategy)(**options),
    )
    expected = _but_cached(await evaluator(SamplingClient(model)))

    of = {text: {"fails": count} for text, count in failures.items()}
    async with rig(model) as r:
        found = await r.evaluation.evaluate(
            asked(
                evaluators=[ours(of=of, group_size=3, strategy=name, **options)],
                dataset=_samples(list(TAGS)),
                sampling=SAMPLING,
            )
        )

    assert found.metrics.values == pytest.approx(expected, rel=1e-12)
    assert found.metrics.values["test/rollout_errors/ValueError"] == 3


async def test_theirs_forgets_the_errors_of_a_group_that_falls(
    modules: Any, shouts: Any, theirs: Any, ours: Any
) -> None:
    """Theirs counts the group alone; ours its failed rollouts, too, and the sample says why."""
    model = ScriptedModel()
    strategy = modules.rollout_strategy.RetryOnFailure(max_retries=1)
    lost = await theirs([shouts("a", 2, 9), shouts("bb", 2)], strategy)(SamplingClient(model))

    async with rig(model) as r:
        found = await r.evaluation.evaluate(
            asked(
                evaluators=[ours(of={"a": {"fails": 9}}, group_size=2, strategy="retry", max_retries=1)],
                dataset=_samples(["a", "bb"]),
                sampling=SAMPLING,
            )
        )
        fallen = (await samples_of(r.worker.bridge))[0]

    assert (lost["test/rollout_errors/total"], lost["test/rollout_errors/groups_skipped"]) == (0, 1)
    assert found.metrics.values["test/rollout_errors/ValueError"] == 2
    assert found.metrics.values["test/rollout_errors/groups_skipped"] == 1
    assert found.metrics.values["test/env/all/total_episodes"] == lost["test/env/all/total_episodes"] == 2
    assert fallen.problem is not None
    assert (fallen.problem.reason, fallen.score) == ("ValueError", None)


async def test_theirs_ends_with_the_first_failure_unless_told_otherwise(shouts: Any, theirs: Any, ours: Any) -> None:
    """Theirs loses every group by default; ours makes the rollout again, and fails fast where that is asked for."""
    model = ScriptedModel()
    with pytest.raises(ValueError, match="no luck"):
        await theirs([shouts("a", 2, 1), shouts("bb", 2)])(SamplingClient(model))

    async def evaluated(**options: Any) -> Any:
        async with rig(model) as r:
            return await r.evaluation.evaluate(
                asked(
                    evaluators=[ours(of={"a": {"fails": 1}}, group_size=2, **options), "accuracy"],
                    dataset=_samples(["a", "bb"]),
                    sampling=SAMPLING,
                )
            )

    by_default, fast = await evaluated(), await evaluated(strategy="fail_fast")
    assert by_default.metrics.values["test/env/all/total_episodes"] == 4
    assert by_default.metrics.values["test/rollout_errors/total"] == 1
    assert fast.state is EvaluationState.COMPLETED
    assert [result.problem and result.problem.reason for result in fast.results] == ["ROLLOUT_FAILED", None]
    assert not any(key.startswith("test/") for key in fast.metrics.values)


async def test_theirs_begins_every_group_at_once(shouts: Any, theirs: Any, ours: Any) -> None:
    """Theirs has a call under way for every rollout of the data set; ours for those of so many samples."""
    count, size = 24, 2
    unbounded = ScriptedModel(latency=0.3)
    await theirs([shouts("a", size) for _ in range(count)])(SamplingClient(unbounded))

    bounded = ScriptedModel(latency=0.01)
    async with rig(bounded, default_concurrency=3) as r:
        samples = [Sample(id=str(index), input="a") for index in range(count)]
        found = await r.evaluation.evaluate(
            asked(evaluators=[ours(group_size=size)], dataset=samples, sampling=SAMPLING)
        )

    assert unbounded.counts["peak"] == count * size
    assert bounded.counts["peak"] <= 3 * size
    assert found.metrics.values["test/env/all/total_episodes"] == count * size


async def test_theirs_lets_a_metric_take_the_place_of_a_built_in_one(made: Any, theirs: Any, ours: Any) -> None:
    """Theirs reports the environment's number as the count of turns; ours says that the environment is wrong."""
    overwritten = await theirs([made["liars"]("a", 1)])(SamplingClient(ScriptedModel()))
    async with rig() as r:
        found = await r.evaluation.evaluate(
            asked(evaluators=[ours("liars")], dataset=_samples(["a"]), sampling=SAMPLING)
        )
        (sample,) = await samples_of(r.worker.bridge)

    assert overwritten["test/env/all/total_turns"] == 1_000
    assert sample.problem is not None
    assert sample.problem.reason == "BAD_ENVIRONMENT"
    assert "'total_turns'" in sample.problem.message
    assert found.metrics.undefined["test/env/all/total_turns"] == "no group succeeded"


@pytest.mark.parametrize("max_tokens", [2, 16])
async def test_equal_rewards_of_problems(made: Any, theirs: Any, ours: Any, max_tokens: int) -> None:
    """The problems of one turn that come with the worker earn what their ProblemEnv earns, there and as it is here."""
    builders = [made["problems"](text, 2, max_tokens) for text in PROBLEMS]
    model = ScriptedModel(answer=lambda text: "XYZ" if text == "bb" else text.upper())
    evaluator = theirs(builders)
    evaluator.max_tokens = max_tokens
    expected = _but_cached(await evaluator(SamplingClient(model)))
    spec = EvaluatorSpec(
        kind="rl_test_set",
        name="test",
        options={
            "group_size": 2,
            "format_coef": 0.25,
            "format_grader": "format",
            "format_options": {"form": "marks", "marks": ["A"]},
        },
    )
    of = {text: {"max_tokens": max_tokens} for text in PROBLEMS}
    sampling = SamplingParams(max_tokens=max_tokens, temperature=1.0)
    dataset = [Sample(id=text, input=text, targets=(right,)) for text, right in PROBLEMS.items()]
    async with rig(model) as r:
        found = await r.evaluation.evaluate(asked(evaluators=[spec], dataset=dataset, sampling=sampling))
        unchanged = await r.evaluation.evaluate(
            asked(
                evaluation_id="unchanged",
                evaluators=[ours("problems", of, group_size=2)],
                dataset=dataset,
                sampling=sampling,
            )
        )

    assert found.metrics.values == pytest.approx(expected, rel=1e-12)
    assert unchanged.metrics.values == pytest.approx(expected, rel=1e-12)
