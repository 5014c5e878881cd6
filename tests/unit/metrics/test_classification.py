"""Classification metrics: by label, macro means, and labels without support."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_worker.metrics.classification import MAX_LABEL_CHARS, MAX_LABELS, classification_metrics


def test_the_formulas() -> None:
    """Hits over predicted, hits over true, their harmonic mean, and macro means of each."""
    metrics = classification_metrics(["a", "a", "b", "b", "b"], ["a", "b", "b", "b", "a"])

    assert metrics.undefined == {}
    assert metrics.values == pytest.approx(
        {
            "accuracy": 3 / 5,
            "precision/a": 1 / 2,
            "precision/b": 2 / 3,
            "recall/a": 1 / 2,
            "recall/b": 2 / 3,
            "f1/a": 1 / 2,
            "f1/b": 2 / 3,
            "precision": 7 / 12,
            "recall": 7 / 12,
            "f1": 7 / 12,
        }
    )


def test_a_positive_label_gives_the_binary_metrics() -> None:
    """Its precision, recall and f1 are those without a label."""
    values = classification_metrics(["y", "n", "y"], ["y", "y", "n"], positive="y").values

    assert (values["precision"], values["recall"], values["f1"]) == (0.5, 0.5, 0.5)


def test_a_label_that_is_predicted_and_never_right_counts_as_0() -> None:
    """In precision and f1, as scikit-learn's zero_division=0 has it; it has no recall, and is left out of that mean."""
    metrics = classification_metrics(["a", "x"], ["a", "a"])

    assert metrics.values == {
        "accuracy": 0.5,
        "precision": 0.5,
        "recall": 0.5,
        "f1": pytest.approx(1 / 3),
        "precision/a": 1.0,
        "precision/x": 0.0,
        "recall/a": 0.5,
        "f1/a": pytest.approx(2 / 3),
        "f1/x": 0.0,
    }
    assert metrics.undefined == {"recall/x": "no target is 'x'"}


def test_a_positive_label_without_support_is_undefined() -> None:
    """Even where nothing predicts it."""
    metrics = classification_metrics(["n"], ["n"], positive="y")

    assert metrics.values["accuracy"] == 1.0
    assert {key for key, reason in metrics.undefined.items() if reason == "no target is 'y'"} == {
        *("precision", "recall", "f1"),
        *("precision/y", "recall/y", "f1/y"),
    }


def test_a_label_that_is_never_predicted_has_no_precision() -> None:
    """Its recall and f1 are honest zeros."""
    metrics = classification_metrics(["a", "a"], ["a", "b"])

    assert metrics.undefined == {"precision/b": "'b' is never predicted"}
    assert (metrics.values["recall/b"], metrics.values["f1/b"]) == (0.0, 0.0)
    assert metrics.values["precision"] == 0.5
    assert metrics.values["f1"] == pytest.approx((2 / 3 + 0) / 2)


def test_the_empty_text_is_a_label() -> None:
    """As any other, and may be the positive one."""
    values = classification_metrics(["", "a"], ["", ""], positive="").values

    assert (values["precision"], values["recall"], values["recall/"]) == (1.0, 0.5, 0.5)


def test_columns_that_do_not_fit_name_the_field() -> None:
    """At least one sample, as many predictions as targets."""
    with pytest.raises(InvalidField, match="targets is empty"):
        classification_metrics([], [])
    with pytest.raises(InvalidField, match="predictions has 1 labels for 2 targets"):
        classification_metrics(["a"], ["a", "b"])


def test_too_many_labels_that_differ_are_refused() -> None:
    """As many as the limit are answered; each has three keys."""
    labels = [str(number) for number in range(MAX_LABELS + 1)]

    assert len(classification_metrics(labels[1:], labels[1:]).values) == 4 + 3 * MAX_LABELS
    with pytest.raises(InvalidField, match="targets and predictions have 10,001 labels"):
        classification_metrics(labels[1:], labels[:-1])


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1))
def test_agrees_with_the_definitions(rows) -> None:
    """By counting over again, and by two identities: mean recall by support is accuracy, f1 is the harmonic mean."""
    predictions, targets = [row[0] for row in rows], [row[1] for row in rows]

    metrics = classification_metrics(predictions, targets)

    support = Counter(targets)
    by_support = sum(metrics.values[f"recall/{label}"] * count for label, count in support.items()) / len(rows)
    assert metrics.values["accuracy"] == pytest.approx(by_support)
    for label in support:
        precision, recall = metrics.values.get(f"precision/{label}"), metrics.values[f"recall/{label}"]
        if precision:
            assert metrics.values[f"f1/{label}"] == pytest.approx(2 * precision * recall / (precision + recall))
        else:
            assert metrics.values[f"f1/{label}"] == 0.0


def test_labels_have_a_limited_length() -> None:
    """Each is in several keys of the answer."""
    assert classification_metrics(["a" * MAX_LABEL_CHARS], ["b"]).values["accuracy"] == 0
    with pytest.raises(InvalidField, match="predictions has a label of 1,001 characters"):
        classification_metrics(["a" * (MAX_LABEL_CHARS + 1)], ["b"])
