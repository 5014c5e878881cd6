"""Metadata to choose from: every field with its values, as long as people can choose among them."""

from collections.abc import Mapping

from crucible_worker.reports.distributions import MAX_FIELDS, MAX_VALUE_CHARS, MAX_VALUES, MetadataFields


def fields_of(*samples: Mapping[str, str]) -> Mapping[str, object]:
    """The fields of samples with these metadata."""
    fields = MetadataFields()
    for metadata in samples:
        fields.add(metadata)
    return fields.as_data()


def test_fields_and_values_are_in_order() -> None:
    """Each value once, sorted, whatever order the samples have."""
    assert fields_of({"level": "2", "art": "x"}, {"level": "1"}, {"level": "2"}) == {"art": ["x"], "level": ["1", "2"]}


def test_values_that_are_too_many_or_too_long_are_typed() -> None:
    """The field is still offered, without its values; further samples do not change that."""
    many = [{"n": str(n)} for n in range(MAX_VALUES + 2)]

    assert len(fields_of(*many[:MAX_VALUES])["n"]) == MAX_VALUES  # pyright: ignore[reportArgumentType] - a list
    assert fields_of(*many) == {"n": None}
    assert fields_of({"t": "x" * (MAX_VALUE_CHARS + 1)}, {"t": "x"}) == {"t": None}


def test_fields_that_cannot_be_asked_for_are_not_offered() -> None:
    """A field with "=" in its name cannot be told from its value; those after the fiftieth are left out."""
    assert fields_of({"a=b": "1", "": "1"}) == {}
    assert len(fields_of({f"f{n:03}": "1" for n in range(MAX_FIELDS + 5)})) == MAX_FIELDS
