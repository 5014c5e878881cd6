"""The likeliest tokens, and given ones, in place of each token: as a whole forward pass has them, ties by id."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crucible_bridge.errors import BackendError
from crucible_worker.backends.distributions import NO_TOKEN, columns_of, ordered
from crucible_worker.backends.local.numpy_host.engine import likeliest as likeliest_of_numpy
from crucible_worker.backends.local.protocol import floats_from_bytes, tokens_from_bytes, tokens_to_bytes
from tests import needs
from tests.unit.backends.conftest import ARCHITECTURES

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
needs.modules("transformers")

from crucible_worker.backends.local.host.scoring import likeliest  # noqa: E402 (needs torch)
from tests.unit.backends.local_scheduler import Run  # noqa: E402

FEW_VALUES = st.sampled_from([-np.inf, -2.0, -1.0, 0.0, 1.0])
LOGITS = hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=FEW_VALUES)


def by_hand(row: np.ndarray, count: int) -> list[int]:
    """The likeliest tokens of one row, by sorting pairs."""
    return [token for _, token in sorted((-value, token) for token, value in enumerate(row.tolist()))][:count]


@given(LOGITS, st.integers(1, 14))
def test_ties_go_to_the_lowest_id(logits: np.ndarray, count: int):
    """In torch and in numpy alike, with few values and with impossible tokens."""
    expected = [by_hand(row, count) for row in logits]

    values, tokens = likeliest(torch.tensor(logits), count)

    assert tokens.tolist() == expected == likeliest_of_numpy(logits, count)[0].tolist()
    assert values.tolist() == [row[order].tolist() for row, order in zip(logits, expected)]


@given(LOGITS, st.randoms(use_true_random=False))
def test_tokens_of_a_server_are_put_in_order(logits: np.ndarray, random: Any):
    """As columns or as pairs in any order: by falling log-probability, then by id; what is no token comes last."""
    width = logits.shape[1]
    order = list(range(width))
    random.shuffle(order)
    given = np.full(logits.shape, 0) + order

    tokens, logprobs = ordered(
        np.column_stack([np.full(len(logits), NO_TOKEN), given]), np.column_stack([logits[:, 0], logits[:, order]])
    )
    listed, values = columns_of([[(token, row[token]) for token in order] for row in logits], width)

    assert tokens[:, :-1].tolist() == [by_hand(row, width) for row in logits] == listed.tolist()
    assert (tokens[:, -1] == NO_TOKEN).all()
    assert logprobs[:, :-1].tolist() == values.tolist()


def asked(run: Run, tokens: list[int], last: int, top_k: int, targets: list[list[int]]) -> dict[str, np.ndarray]:
    """What the scheduler answers about the last tokens."""
    message = {
        "tokens": tokens_to_bytes(np.array(tokens[:-1])),
        "own": tokens_to_bytes(np.array(tokens[-last:])),
        "top_k": top_k,
        "targets": tokens_to_bytes(np.array(targets, np.int64)),
    }
    run.scheduler.add_distributions(77, message)
    run.finish()
    answer = run.answers[77]
    if isinstance(answer, Exception):
        raise answer
    (found,) = answer
    return {
        "logprobs": floats_from_bytes(found["logprobs"]),
        "targets": floats_from_bytes(found["targets"]).reshape(last, -1),
        "top_tokens": tokens_from_bytes(found["top_tokens"]).reshape(last, -1),
        "top_logprobs": floats_from_bytes(found["top_logprobs"]).reshape(last, -1),
    }


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@torch.inference_mode()
def test_columns_equal_a_whole_forward_pass(architecture: str, make_model: Any):
    """Whatever part of the sequence is measured; a target of -1 is NaN."""
    run = Run.of_files(make_model(architecture))
    tokens = [(7 * index) % 39 + 1 for index in range(20)]
    whole = run.scheduler.loaded.model(input_ids=torch.tensor([tokens])).logits[0].double().log_softmax(1).numpy()

    for last in (1, 5, 19):
        rows = whole[-last - 1 : -1]
        found = asked(run, tokens, last, 3, [[1, NO_TOKEN, 5]] * last)

        np.testing.assert_allclose(found["logprobs"], rows[np.arange(last), tokens[-last:]], atol=1e-4)
        np.testing.assert_allclose(found["top_logprobs"], -np.sort(-rows, axis=1)[:, :3], atol=1e-4)
        np.testing.assert_allclose(np.take_along_axis(rows, found["top_tokens"], 1), found["top_logprobs"], atol=1e-4)
        np.testing.assert_allclose(found["targets"][:, [0, 2]], rows[:, [1, 5]], atol=1e-4)
        assert np.isnan(found["targets"][:, 1]).all()


def test_logits_that_are_no_distribution_are_an_error(make_model: Any, monkeypatch: pytest.MonkeyPatch):
    """By the reason LOGITS_NOT_FINITE, and never columns of NaN."""
    run = Run.of_files(make_model("llama"))
    forward = run.scheduler.loaded.model.forward

    def spoiled(**given: Any) -> Any:
        output = forward(**given)
        output.logits[..., 3] = float("nan")
        return output

    monkeypatch.setattr(run.scheduler.loaded.model, "forward", spoiled)
    with pytest.raises(BackendError) as caught:
        asked(run, [1, 2, 3], 2, 2, [[1], [2]])
    assert caught.value.reason == "LOGITS_NOT_FINITE"


def test_a_sample_has_the_likeliest_tokens_of_each_step(make_model: Any):
    """Of a greedy one the first is the token itself, with its log-probability; other rows of the batch have none."""
    run = Run.of_files(make_model("llama"))
    with_top = run.sample([3, 4, 5], top=4)
    without = run.sample([3, 4, 5])
    run.finish()

    (found,), (plain,) = run.answers[with_top], run.answers[without]
    tokens = tokens_from_bytes(found["top_tokens"]).reshape(-1, 4)
    logprobs = floats_from_bytes(found["top_logprobs"]).reshape(-1, 4)
    assert tokens[:, 0].tolist() == found["tokens"] == plain["tokens"]
    assert logprobs[:, 0].tolist() == found["logprobs"]
    assert (np.diff(logprobs, axis=1) <= 0).all()
    assert (plain["top_tokens"], plain["top_logprobs"]) == (b"", b"")
