"""How one token is chosen."""

import math

import pytest

from tests import needs

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])

from crucible_worker.backends.local.host.sampling import Chooser, choose  # noqa: E402 (needs torch)
from tests.tables import rows  # noqa: E402


def chooser(**overrides):
    """A chooser with everything at its default but what is given."""
    return Chooser(**{"temperature": 1.0, "top_p": 1.0, "top_k": None, "seed": 0, "index": 0, **overrides})


def draws(logits, count=4_000, **overrides):
    """Shares of the tokens among many draws."""
    one = chooser(**overrides)
    tokens = [one.draw(torch.tensor(logits)) for _ in range(count)]
    return [tokens.count(token) / count for token in range(len(logits))]


LOGITS = [math.log(share) for share in (0.1, 0.4, 0.2, 0.3)]


@rows(
    ("parameters", "expected"),
    [
        ({}, [0.1, 0.4, 0.2, 0.3]),
        ({"temperature": 0.5}, [0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3]),
        ({"top_k": 2}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 1}, [0, 1, 0, 0]),
        ({"top_k": 99}, [0.1, 0.4, 0.2, 0.3]),
        ({"top_p": 0.69}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_p": 0.71}, [0, 4 / 9, 2 / 9, 3 / 9]),
        ({"top_p": 1e-9}, [0, 1, 0, 0]),
        ({"top_k": 3, "top_p": 0.5}, [0, 4 / 7, 0, 3 / 7]),
        ({"top_k": 99, "top_p": 0.69}, [0, 4 / 7, 0, 3 / 7]),
    ],
)
def test_draws_follow_the_distribution(parameters, expected):
    """Temperature, then top_k, then top_p of what is left; what is cut off is never drawn."""
    shares = draws(LOGITS, **parameters)

    assert shares == pytest.approx(expected, abs=0.03)
    assert [share == 0 for share in shares] == [share == 0 for share in expected]


@pytest.mark.parametrize("temperature", [1e-300, 1e-6])
def test_a_small_temperature_is_nearly_greedy(temperature):
    """It neither overflows nor draws anything but the likeliest."""
    assert draws(LOGITS, count=50, temperature=temperature) == [0, 1, 0, 0]


def test_a_seed_repeats_and_an_index_differs():
    """Sample i of a prompt draws from (seed, i)."""
    logits = torch.zeros(1_000)

    def tokens(**given):
        one = chooser(**given)
        return [one.draw(logits) for _ in range(8)]

    assert tokens(seed=5, index=1) == tokens(seed=5, index=1)
    assert tokens(seed=5, index=1) != tokens(seed=5, index=2)
    assert tokens(seed=5, index=1) != tokens(seed=6, index=1)
    assert tokens(seed=None) != tokens(seed=None)


def test_zero_temperature_is_greedy():
    """The likeliest token, with its log-probability."""
    (choice,) = choose(torch.tensor([LOGITS]), [chooser(temperature=0.0)])

    assert choice is not None
    assert choice.token == 1
    assert choice.logprob == pytest.approx(math.log(0.4), abs=1e-6)


def test_impossible_tokens_are_never_drawn():
    """A logit of minus infinity has no mass, and is no reason to fail."""
    assert draws([-math.inf, 0.0, -math.inf, 0.0], count=200)[::2] == [0, 0]


@pytest.mark.parametrize("row", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]])
def test_what_is_no_distribution_has_no_choice(row):
    """A row of nonsense yields None, and its neighbours their tokens."""
    choices = choose(torch.tensor([row, [0.0, 1.0]]), [chooser(), chooser(temperature=0.0)])

    assert choices[0] is None
    assert choices[1] is not None
    assert choices[1].token == 1


def test_a_row_draws_the_same_alone_and_among_others():
    """Rows with other parameters, greedy ones and rows that are no distribution change no token of a row."""
    torch.manual_seed(3)
    kinds = [{"temperature": 0.0}, {}, {"temperature": 2.0}, {"top_k": 5}, {"top_k": 9}, {"top_p": 0.7},
             {"top_k": 9, "top_p": 0.5}, {"top_k": 500, "top_p": 0.9}, {"temperature": 9.0, "top_p": 0.99}]  # fmt: skip
    given = [{**kind, "seed": seed} for seed in range(5) for kind in kinds]
    logits = torch.randn(len(given), 200) * 3
    logits[7] = math.nan

    together = choose(logits, [chooser(**one) for one in given])

    alone = [choose(row[None], [chooser(**one)])[0] for row, one in zip(logits, given)]
    assert together[7] is None
    assert together == alone
    assert len({choice.token for choice in together if choice is not None}) > 20
