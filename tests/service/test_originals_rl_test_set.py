"""tinker-cookbook's RLTestSetEvaluator and the evaluator `rl_test_set`: equal, but where theirs is wrong."""

import importlib
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from crucible_bridge.types import EvaluationState, EvaluatorSpec, Sample, SamplingParams
from crucible_worker.evaluators.environments.entry_points import GROUP
from crucible_worker.testing import ScriptedModel
from tests.distributions import lay_out
from tests.service.evaluation_kit import asked, rig, samples_of
from tests.service.originals_kit import SamplingClient, originals

SAMPLING = SamplingParams(max_tokens=16, temperature=1.0)

TAGS = {"a": ["math", "short"], "bb": ["math"], "ccc": ["words"]}
"""Of the groups that are asked these."""


@pytest.fixture(scope="module")
def modules():
    """The modules of the original."""
    names = ("metric_util", "types", "rollout_strategy", "problem_env", "rollout_limits")
    with originals(*(f"rl.{name}" for name in names)) as found:
        yield types.SimpleNamespace(**dict(zip(names, found, strict=True)))


@pytest.fixture
def shouts(modules: Any) -> Callable[..., Any]:
    """Makes builders of their classes: two turns each, a reward for each capital letter and one for the group."""
    import tinker

    base = modules.types

    class Shout(base.Env):
        rollout_limits = None

        def __init__(self, text: str, fails: Callable[[], bool]) -> None:
            self.text, self.fails, self.turn = text, fails, 0

        async def initial_observation(self):
            return tinker.ModelInput.from_ints([ord(each) for each in self.text]), []

        async def step(self, action, *, extra=None):
            if self.fails():
                raise ValueError("no luck")
            self.turn += 1
            said = "".join(map(chr, action))
            metrics = {"upper": sum(map(str.isupper, said)) / 3, f"turn_{self.turn}": 1}
            return base.StepResult(
                reward=0.1 * len(said),
                episode_done=self.turn == 2,
                next_observation=tinker.ModelInput.from_ints([ord(each) for each in self.text + said]),
                next_stop_condition=[],
                metrics=metrics if self.turn == 1 else {**metrics, "late": 0.7},
            )

    class Shouts(base.EnvGroupBuilder):
        def __init__(self, text: str, size: int, fails: Callable[[], bool]) -> None:
            self.text, self.size, self.fails = text, size, fails

        async def make_envs(self):
            return [Shout(self.text, self.fails) for _ in range(self.size)]

        async def compute_group_rewards(self, trajectory_group, env_group):
            assert len(trajectory_group) == len(env_group)
            turns = [len(each.transitions) for each in trajectory_group]
            lengths = [trajectory.transitions[0].ob.length for trajectory in trajectory_group]
            return [(turn / 7, {"seen": length}) for turn, length in zip(turns, lengths, strict=True)]

        def logging_tags(self):
            return TAGS[self.text]

    def made(text: str, size: int, fails: Callable[[], bool] = lambda: False) -> Any:
        return Shouts(text, size, fails)

    return made


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
    """Specifications whose environment takes a sample's builder from a table, as an installed distribution would."""
    folder = tmp_path / "installed"
    monkeypatch.syspath_prepend(folder)
    source = """
class Table:
    description = "A table of builders."
    options_schema = {"type": "object", "properties": {}, "additionalProperties": False}
    builders = {}

    def group(self, sample, options, size):
        return self.builders[sample.input](size)

TABLE = Table()
"""
    lay_out(folder, "users_table", source, GROUP, {"table": "users_table:TABLE"})
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "users_table", raising=False)

    def specify(builders: dict[str, Callable[[int], Any]], **options: Any) -> EvaluatorSpec:
        importlib.import_module("users_table").TABLE.builders = builders
        return EvaluatorSpec(kind="rl_test_set", name="test", options={"environment": "table", **options})

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

    builders = {text: lambda size, text=text: shouts(text, size) for text in TAGS}
    async with rig(model) as r:
        found = await r.evaluation.evaluate(
            asked(evaluators=[ours(builders, group_size=3)], dataset=_samples(list(TAGS)), sampling=SAMPLING)
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
async def test_equal_limits(
    modules: Any, shouts: Any, theirs: Any, ours: Any, max_tokens: int, limits: dict[str, int]
) -> None:
    """Answers that are cut and gone on from, and episodes that end by what an environment brings along."""
    brought = modules.rollout_limits.RolloutLimits(**limits) if limits else None

    def limited(text: str) -> Any:
        group = shouts(text, 2)
        make = group.make_envs

        async def make_envs() -> Any:
            envs = await make()
            for env in envs:
                env.rollout_limits = brought
            return envs

        group.make_envs = make_envs
        return group

    model = ScriptedModel()
    evaluator = theirs([limited(text) for text in TAGS])
    evaluator.max_tokens = max_tokens
    expected = _but_cached(await evaluator(SamplingClient(model)))
    builders = {text: lambda size, text=text: limited(text) for text in TAGS}
    async with rig(model) as r:
        sampling = SamplingParams(max_tokens=max_tokens, temperature=1.0)
        found = await r.evaluation.evaluate(
            asked(evaluators=[ours(builders)], dataset=_samples(list(TAGS)), sampling=sampling)
        )

    assert found.metrics.values == pytest.approx(expected, rel=1e-12)
    assert any("/stop/" in key or "num_truncations" in key for key in expected)


def _failing_first(count: int) -> Callable[[], bool]:
    """True for so many calls."""
    left = [count]

    def fails() -> bool:
        left[0] -= 1
        return left[0] >= 0

    return fails


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
        [shouts(text, 3, _failing_first(count)) for text, count in failures.items()],
        getattr(modules.rollout_strategy, strategy)(**options),
    )
    expected = _but_cached(await evaluator(SamplingClient(model)))

    fails = {text: _failing_first(count) for text, count in failures.items()}
    builders = {text: lambda size, text=text: shouts(text, size, fails[text]) for text in TAGS}
    async with rig(model) as r:
        found = await r.evaluation.evaluate(
            asked(
                evaluators=[ours(builders, group_size=3, strategy=name, **options)],
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
    lost = await theirs([shouts("a", 2, _failing_first(9)), shouts("bb", 2)], strategy)(SamplingClient(model))

    fails = {"a": _failing_first(9), "bb": lambda: False}
    builders = {text: lambda size, text=text: shouts(text, size, fails[text]) for text in fails}
    async with rig(model) as r:
        found = await r.evaluation.evaluate(
            asked(
                evaluators=[ours(builders, group_size=2, strategy="retry", max_retries=1)],
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
        await theirs([shouts("a", 2, _failing_first(1)), shouts("bb", 2)])(SamplingClient(model))

    async def evaluated(**options: Any) -> Any:
        fails = {"a": _failing_first(1), "bb": lambda: False}
        builders = {text: lambda size, text=text: shouts(text, size, fails[text]) for text in fails}
        async with rig(model) as r:
            return await r.evaluation.evaluate(
                asked(
                    evaluators=[ours(builders, group_size=2, **options), "accuracy"],
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
        builders = {"a": lambda size: shouts("a", size)}
        found = await r.evaluation.evaluate(
            asked(evaluators=[ours(builders, group_size=size)], dataset=samples, sampling=SAMPLING)
        )

    assert unbounded.counts["peak"] == count * size
    assert bounded.counts["peak"] <= 3 * size
    assert found.metrics.values["test/env/all/total_episodes"] == count * size


async def test_theirs_lets_a_metric_take_the_place_of_a_built_in_one(modules: Any, theirs: Any, ours: Any) -> None:
    """Theirs reports the environment's number as the count of turns; ours says that the environment is wrong."""
    import tinker

    base = modules.types

    class Liar(base.Env):
        async def initial_observation(self):
            return tinker.ModelInput.from_ints([97]), []

        async def step(self, action, *, extra=None):
            return base.StepResult(1.0, True, tinker.ModelInput.empty(), [], metrics={"total_turns": 1_000})

    class Liars(base.EnvGroupBuilder):
        async def make_envs(self):
            return [Liar()]

    overwritten = await theirs([Liars()])(SamplingClient(ScriptedModel()))
    async with rig() as r:
        found = await r.evaluation.evaluate(
            asked(evaluators=[ours({"a": lambda size: Liars()})], dataset=_samples(["a"]), sampling=SAMPLING)
        )
        (sample,) = await samples_of(r.worker.bridge)

    assert overwritten["test/env/all/total_turns"] == 1_000
    assert sample.problem is not None
    assert sample.problem.reason == "BAD_ENVIRONMENT"
    assert "'total_turns'" in sample.problem.message
    assert found.metrics.undefined["test/env/all/total_turns"] == "no group stands"


@pytest.mark.parametrize("max_tokens", [2, 16])
async def test_equal_rewards_of_problems(modules: Any, theirs: Any, ours: Any, max_tokens: int) -> None:
    """The problems of one turn that come with the worker earn what their ProblemEnv earns, there and as it is here."""
    problems = {"a": "A", "bb": "XYZ", "ccc": "CCC", "abc": "no"}

    class Renderer:
        def get_stop_sequences(self):
            return []

        def build_generation_prompt(self, convo):
            import tinker

            return tinker.ModelInput.from_ints([ord(each) for each in convo[-1]["content"]])

        def parse_response(self, action):
            whole = len(action) < max_tokens  # what was cut has no end
            ending = types.SimpleNamespace(is_stop_sequence=whole, is_clean=whole)
            return {"role": "assistant", "content": "".join(map(chr, action))}, ending

    class Problem(modules.problem_env.ProblemEnv):
        def __init__(self, question: str) -> None:
            super().__init__(Renderer(), format_coef=0.25)
            self.question = question

        def get_question(self):
            return self.question

        def check_answer(self, sample_str):
            return sample_str == self.get_reference_answer()

        def check_format(self, sample_str):
            return "A" in sample_str

        def get_reference_answer(self):
            return problems[self.question]

    builders = [
        modules.problem_env.ProblemGroupBuilder(env_thunk=lambda text=text: Problem(text), num_envs=2)
        for text in problems
    ]
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
    table = {text: lambda size, builder=builder: builder for text, builder in zip(problems, builders, strict=True)}
    sampling = SamplingParams(max_tokens=max_tokens, temperature=1.0)
    dataset = [Sample(id=text, input=text, targets=(right,)) for text, right in problems.items()]
    async with rig(model) as r:
        found = await r.evaluation.evaluate(asked(evaluators=[spec], dataset=dataset, sampling=sampling))
        unchanged = await r.evaluation.evaluate(
            asked(evaluation_id="unchanged", evaluators=[ours(table)], dataset=dataset, sampling=sampling)
        )

    assert found.metrics.values == pytest.approx(expected, rel=1e-12)
    assert unchanged.metrics.values == pytest.approx(expected, rel=1e-12)
