"""Data sets of the hub as one text: what is written is read again, and what names none is refused."""

import pytest
from hypothesis import given

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Dataset, HubDataset, format_hub, parse_hub
from tests.tables import rows
from tests.unit.bridge import strategies as some

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("acme/sums?split=test", HubDataset("acme/sums", split="test")),
        (
            f"acme/sums?split=test&config=hard&revision={COMMIT}&input=a%26b&metadata.level=level",
            HubDataset(
                "acme/sums",
                split="test",
                config="hard",
                revision=COMMIT,
                columns={"input": "a&b", "metadata.level": "level"},
            ),
        ),
    ],
)
def test_a_data_set_is_one_text(text, source):
    """Reading and writing are each other's inverse; a request takes the text as it is."""
    assert parse_hub(text) == source
    assert format_hub(source) == text
    assert Dataset.of(f"hub:{text}").source == source


@given(some.hub_datasets)
def test_every_data_set_is_one_text(source):
    """Whatever its names hold, what is written is read again."""
    assert parse_hub(format_hub(source)) == source


@rows(
    ("text", "field"),
    [
        ("sums?split=test", "repo_id"),
        ("acme/sums/more?split=test", "repo_id"),
        ("../sums?split=test", "repo_id"),
        ("acme/..?split=test", "repo_id"),
        ("/etc?split=test", "repo_id"),
        ("acme/sums?split=", "split"),
        ("acme/sums?split=test[:10]", "split"),
        ("acme/sums?split=test&config=", "config"),
        ("acme/sums?split=test&config=..", "config"),
        ("acme/sums?split=test&config=a/b", "config"),
        ("acme/sums?split=test&revision=main", "revision"),
        ("acme/sums?split=test&answer=a", "columns"),
        ("acme/sums?split=test&metadata.=a", "columns"),
        ("acme/sums?split=test&target=a&targets=b", "columns"),
        ("acme/sums?split=test&input=", 'columns["input"]'),
    ],
)
def test_what_cannot_be_a_data_set_is_refused(text, field):
    """Paths, slices, branches and unknown keys are none; the error names the part."""
    with pytest.raises(InvalidField) as caught:
        Dataset.of(f"hub:{text}")

    assert caught.value.field == f"dataset.{field}"


@pytest.mark.parametrize(
    ("text", "meant"),
    [("acme/sums", "acme/sums?split=test"), ("acme/sums?input=a", "acme/sums?split=test&input=a")],
)
def test_a_data_set_without_a_split_is_shown_with_one(text: str, meant: str):
    """A newcomer copies the name alone: the refusal shows it as it was typed, and as it has to be."""
    with pytest.raises(InvalidField) as caught:
        Dataset.of(f"hub:{text}")

    assert str(caught.value) == f"dataset is 'hub:{text}', which names no split: write hub:{meant}"
