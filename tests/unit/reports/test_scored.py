"""Which values of a metric may be ranked, by the number of scores that they are made of."""

from crucible_bridge.types import EvaluatorResult, EvaluatorSpec, Metrics, ScoredCount
from crucible_worker.reports.ranking import enough_scored, scored_by_key, scored_in_words
from tests.tables import rows


def of(scored: int, n: int = 100) -> ScoredCount:
    """A count."""
    return ScoredCount(n=n, n_scored=scored)


@rows(
    ("counts", "share", "enough"),
    [
        ([of(100), of(95), of(94)], 0.95, [True, True, False]),
        ([of(16), of(100)], 0.95, [False, True]),
        ([of(16), of(100)], 0.0, [True, True]),
        ([of(0)], 0.95, [True]),
        ([None, of(16), None], 0.95, [True, True, True]),
        ([], 0.95, []),
    ],
)
def test_a_value_of_far_fewer_scores_than_another_is_not_ranked(counts, share, enough):
    """Fewer than the share of the largest count; what is not known is ranked."""
    assert enough_scored(counts, share) == enough


def test_counts_are_those_of_the_evaluator_with_the_key():
    """Each key has its evaluator's; strict variants have none, nor has an evaluator of an earlier release."""
    spec = EvaluatorSpec(kind="accuracy")
    results = [
        EvaluatorResult(
            evaluator=spec, metrics=Metrics({"a": 1.0, "a_strict": 0.5, "b": 2.0}, {"c": "why"}), n=4, n_scored=3
        ),
        EvaluatorResult(evaluator=spec, metrics=Metrics({"d": 1.0}, {})),
    ]
    assert scored_by_key(results) == {"a": of(3, 4), "b": of(3, 4)}


@rows(("count", "words"), [(of(16), "16 of 100 scored"), (of(100), ""), (None, "")])
def test_words_say_what_is_missing_alone(count, words):
    """Nothing is said of a value over all samples."""
    assert scored_in_words(count) == words
