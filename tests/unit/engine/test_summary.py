"""From results to metrics: counts, keys, what fails an evaluator, and in which order results are read."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from crucible_bridge.errors import BackendError
from crucible_bridge.types import EvaluatorSpec, Limits, Metrics, Problem, SampleResult, Verdict
from crucible_worker.engine.evaluator_progress import merged, summarise, unless_taken
from crucible_worker.evaluators import registry
from crucible_worker.metrics.scores import Reduce
from tests.tables import rows
from tests.unit.evaluators.test_registry import REQUIRED, SAMPLING
from tests.unit.journal.journals import claim, commit, open_journal, owner_locks

FOUR = (Verdict.CORRECT, Verdict.INCORRECT, Verdict.UNDECIDED, Verdict.ERROR)


@dataclasses.dataclass
class Counting:
    """An evaluator that hands its results to a function."""

    made: Callable[[list[SampleResult]], Metrics]
    repeats: int = 1

    def check(self, model) -> None:
        raise AssertionError("not asked here")

    async def run(self, sample, context):
        raise AssertionError("not asked here")

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        return self.made(list(results))


def length(results):
    """How many results there are."""
    return Metrics.of({"count": float(len(results))})


def raising(error):
    """An aggregate that fails."""

    def made(results):
        raise error

    return made


@pytest.fixture
async def found(tmp_path):
    """A function that summarises results of four samples by evaluators that end in this order."""
    async with summarising(tmp_path, FOUR) as summarised:
        yield summarised


@pytest.fixture
async def unscored(tmp_path):
    """The same of samples without a score."""
    async with summarising(tmp_path, (Verdict.UNDECIDED, Verdict.ERROR) * 2) as summarised:
        yield summarised


@contextlib.asynccontextmanager
async def summarising(tmp_path, verdicts):
    """A function that summarises results of samples with these verdicts."""
    async with open_journal(tmp_path) as journal:
        with owner_locks(tmp_path) as locks:
            row = (await claim(journal, locks)).row
            for position in reversed(range(len(verdicts))):
                await commit(journal, row, position, verdicts[position])

            async def summarised(*evaluators, samples=4, refused=None, prefix="", limits=None):
                results = []
                for index, (specification, evaluator) in enumerate(evaluators):
                    result = await journal.read(
                        summarise,
                        row.number,
                        index,
                        specification,
                        evaluator,
                        refused=(refused or {}).get(index),
                        samples=samples,
                        prefix=prefix,
                        limits=limits or Limits(max_unscored_share=1.0),
                    )
                    results.append(unless_taken(result, results))
                return merged(results), results

            yield summarised


def spec(name=None):
    """A specification."""
    return EvaluatorSpec(kind="x", name=name)


async def test_counts_and_keys(found):
    """n, scored, unscored and errors are counted by verdict; keys bear prefix and name."""
    metrics, (result,) = await found((spec("a"), Counting(length)), prefix="p/")
    assert metrics == result.metrics == Metrics({"p/a/count": 4.0}, {})
    assert (result.n, result.n_scored, result.n_unscored, result.n_errors) == (4, 2, 2, 1)
    assert result.problem is None


async def test_results_come_in_the_order_of_the_data_set(found):
    """Whatever the order of completion, aggregate sees the data set's."""
    seen = []
    await found((spec(), Counting(lambda results: seen.extend(results) or Metrics({}))))
    assert [result.sample_id for result in seen] == ["0", "1", "2", "3"]


@rows("read", [0, 1, 2, 4])
async def test_results_that_an_evaluator_does_not_read_are_counted(found, read):
    """An aggregate may return early, or close what it reads: every result was there, and none is missing."""

    class Early(Counting):
        def aggregate(self, results):
            values: Any = iter(results)
            count = sum(1 for _ in itertools.islice(values, read))
            if read == 2:
                values.close()
            return Metrics.of({"count": float(count)})

    _, (result,) = await found((spec(), Early(length)))
    assert (result.problem, result.metrics.values) == (None, {"count": float(read)})
    assert (result.n, result.n_scored, result.n_unscored, result.n_errors) == (4, 2, 2, 1)


async def test_results_are_counted_if_aggregate_fails(found):
    """The counts are those of the samples, whatever the evaluator made of them."""

    class Failing(Counting):
        def aggregate(self, results):
            next(iter(results))
            raise ZeroDivisionError

    _, (result,) = await found((spec(), Failing(length)))
    assert result.problem is not None
    assert result.problem.reason == "EVALUATOR_FAILED"
    assert (result.n_scored, result.n_unscored, result.n_errors) == (2, 2, 1)


@rows("reduce", [None, *Reduce])
@rows("kind", registry.EVALUATORS)
async def test_no_evaluator_loses_samples(unscored, kind, reduce):
    """Every evaluator finishes, with every value of its option `reduce`."""
    properties = registry.info(kind).options_schema["properties"]
    if reduce is not None and "reduce" not in properties:
        return
    options = {**REQUIRED.get(kind, {}), **({} if reduce is None else {"reduce": reduce.value})}
    if kind == "pass_at_k":
        options["samples_per_prompt"] = 4
    specification = EvaluatorSpec(kind=kind, options=options)
    evaluator = registry.create(specification, 0, SAMPLING)
    _, (result,) = await unscored((specification, evaluator), samples=4 // evaluator.repeats)
    assert (result.problem, result.n_unscored) == (None, 4)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ZeroDivisionError("a secret"), "EVALUATOR_FAILED"), (BackendError("x", reason="BACKEND_X"), "BACKEND_X")],
)
async def test_aggregate_that_fails_fails_its_evaluator(found, error, reason):
    """The others stand; an unforeseen error's text stays in the log."""
    metrics, (broken, sound) = await found((spec("a"), Counting(raising(error))), (spec("b"), Counting(length, 0)))
    assert broken.problem is not None
    assert broken.problem.reason == reason
    assert "secret" not in broken.problem.message
    assert sound.problem is None
    assert metrics == sound.metrics


async def test_missing_results_fail_the_evaluator(found):
    """Fewer results than samples are no result: a lost sample must never pass unseen."""
    metrics, (result,) = await found((spec(), Counting(length)), samples=5)
    assert result.problem is not None
    assert (result.problem.reason, metrics) == ("SAMPLES_MISSING", Metrics({}))


async def test_refused_evaluators_count_as_unscored(found):
    """An evaluator that could not run has its problem, and all of its samples unscored; no key of it is there."""
    problem = Problem(reason="MISSING_CLIENT", message="x")
    metrics, (refused, sound) = await found(
        (spec("a"), Counting(raising(AssertionError()), 3)), (spec("b"), Counting(length, 0)), refused={0: problem}
    )
    assert (refused.problem, refused.n, refused.n_unscored) == (problem, 12, 12)
    assert metrics == sound.metrics


@pytest.mark.parametrize(
    ("limits", "failed"),
    [
        (Limits(max_unscored=2), False),
        (Limits(max_unscored=1), True),
        (Limits(max_unscored_share=0.5), False),
        (Limits(max_unscored_share=0.4999), True),
        (Limits(max_unscored=2, max_unscored_share=0.0), True),
    ],
)
async def test_bounds_on_unscored(found, limits, failed):
    """More than either bound fails the evaluator; its own metrics can still be read, the evaluation has none."""
    metrics, (result,) = await found((spec(), Counting(length)), limits=limits)
    assert (result.problem is not None) is failed
    assert result.metrics.values == {"count": 4.0}
    assert metrics.values == ({} if failed else {"count": 4.0})


async def test_values_that_are_not_finite_are_undefined(found):
    """A NaN of an evaluator never becomes a value."""
    metrics, _ = await found((spec(), Counting(lambda results: Metrics({"x": float("nan")}, {"y": "why"}))))
    assert metrics.values == {}
    assert metrics.undefined.keys() == {"x", "y"}


async def test_a_key_of_two_fails_the_one_that_ends_later(found):
    """Known only once it is there: what has ended is kept as it is, and the others have their metrics."""
    metrics, results = await found(
        (spec(), Counting(lambda results: Metrics({"a/b": 1.0}))),
        (spec("a"), Counting(lambda results: Metrics({"b": 2.0}), 0)),
        (spec("a"), Counting(lambda results: Metrics({"c": 4.0}, {"b": "nothing was counted"}), 0)),
        (spec("c"), Counting(lambda results: Metrics({"b": 3.0}), 0)),
    )

    assert metrics == Metrics({"a/b": 1.0, "c/b": 3.0})
    problems = [None if result.problem is None else result.problem.reason for result in results]
    assert problems == [None, "EQUAL_KEYS", "EQUAL_KEYS", None]
