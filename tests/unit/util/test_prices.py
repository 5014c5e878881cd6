"""Prices: how they are read, and what tokens cost by them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import ModelPrice, ModelUsage, OpenAIModel, Usage
from crucible_worker.config import SettingsError, load_settings
from crucible_worker.config.sources import read_prices
from crucible_worker.util.prices import priced
from tests.tables import rows

LAB = OpenAIModel("lab", "gpt-x")
PRICE = ModelPrice(pattern="openai:lab/gpt-*", prompt=2.5, output=10.0, cached=1.25)
TEXT = "openai:lab/gpt-*=prompt:2.5,cached:1.25,output:10"


def test_prices_are_read_from_every_source(tmp_path: Path):
    """By flag, by variable with blanks between them, and as a table or a list of the file, in their order."""
    other = ModelPrice(pattern="local:a?dtype=x", prompt=0.0, output=1.0)
    texts = [TEXT, "local:a?dtype=x=output:1,prompt:0"]
    both = (PRICE, other)
    assert load_settings({"prices": texts}, {}).prices == both
    assert load_settings({}, {"CRUCIBLE_PRICE": " ".join(texts)}).prices == both
    table = """[prices."openai:lab/gpt-*"]
prompt = 2.5
cached = 1.25
output = 10
[prices."local:a?dtype=x"]
prompt = 0
output = 1.0
"""
    for content in (table, f"prices = {texts!r}"):
        (tmp_path / "worker.toml").write_text(content)
        assert load_settings({}, {}, tmp_path / "worker.toml").prices == both


WRONG = [
    ("openai:*", "PATTERN=prompt:NUMBER"),
    ("=prompt:1,output:2", "PATTERN=prompt:NUMBER"),
    ("a=prompt:1", "the price of a lacks output"),
    ("a=output:1", "the price of a lacks prompt"),
    ("a=prompt:1,output:x", "output of a is 'x', not a number from 0"),
    ("a=prompt:-1,output:1", "prompt of a is '-1', not a number from 0"),
    ("a=prompt:nan,output:1", "prompt of a is 'nan', not a number from 0"),
    ("a=prompt:inf,output:1", "prompt of a is 'inf', not a number from 0"),
    ("a=prompt:1,output:1,input:2", "the price of a has the unknown part 'input'"),
    ("a=prompt:1,prompt:2,output:1", "a has a part twice"),
    ("a=prompt:1,output:1 a=prompt:1,output:1", "a is given twice"),
]


@rows(("text", "why"), WRONG)
def test_what_is_no_price_is_refused(text: str, why: str):
    """The error names the setting as it was typed, and what is wrong with it."""
    with pytest.raises(SettingsError) as caught:
        load_settings({}, {"CRUCIBLE_PRICE": text})
    assert str(caught.value).startswith("CRUCIBLE_PRICE is ")
    assert why in str(caught.value)


def test_a_wrong_flag_is_shown_as_it_was_typed():
    """A repeatable flag shows its values, not a list of Python."""
    with pytest.raises(SettingsError) as caught:
        load_settings({"prices": ["lab/*=2.5"]}, {})
    assert str(caught.value) == (
        "--price is 'lab/*=2.5', not PATTERN=prompt:NUMBER,output:NUMBER, cached:NUMBER optional: "
        "the price of lab/* has the unknown part '2.5'"
    )


@pytest.mark.parametrize("value", [{"a": 1}, {"a": {"prompt": True, "output": 1}}, 7, [7]])
def test_a_table_of_something_else_is_refused(value: object):
    """So is what is no table and no list of texts."""
    with pytest.raises(ValueError, match="prompt"):
        read_prices(value, Path())


COSTS = [
    (Usage(prompt_tokens=1_000_000, output_tokens=1_000_000, calls=1), 12.5),
    (Usage(prompt_tokens=1_000_000, cached_prompt_tokens=400_000, output_tokens=0, calls=1), 0.6 * 2.5 + 0.4 * 1.25),
    (Usage(output_tokens=100_000, calls=1, unreported_calls=1), 1.0),
    (Usage(calls=1, unreported_calls=1), None),
]


@rows(("usage", "cost"), COSTS)
def test_tokens_have_their_price(usage: Usage, cost: float | None):
    """Cached tokens cost their own; what nobody reported has no cost."""
    found = priced(usage, LAB, (PRICE,))
    assert found is not None
    assert found.cost == (None if cost is None else pytest.approx(cost, rel=1e-12))


def test_the_first_pattern_that_fits_counts_and_each_model_has_its_own():
    """A model without a price has no cost; judges are priced by their own names; without `cached` all cost the same."""
    cheap = ModelPrice(pattern="*", prompt=1.0, output=1.0)
    own = Usage(prompt_tokens=2_000_000, cached_prompt_tokens=1_000_000, output_tokens=0, calls=1)
    usage = Usage(
        prompt_tokens=2_000_000, output_tokens=0, calls=1, judges=(ModelUsage(model="embedded:j", usage=own),)
    )
    found = priced(usage, LAB, (PRICE, cheap))
    assert found is not None
    assert (found.cost, found.judges[0].usage.cost) == (5.0, 2.0)
    found = priced(usage, LAB, (PRICE,))
    assert found is not None
    assert (found.cost, found.judges[0].usage.cost) == (5.0, None)
    assert priced(usage, LAB, ()) is usage
    assert priced(None, LAB, (PRICE,)) is None


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str):
    """Nothing but a ValueError comes of what is no price."""
    try:
        prices = read_prices(text, Path())
    except ValueError:
        return
    assert all(price.pattern and price.prompt >= 0 and price.output >= 0 for price in prices)
