"""The metadata that samples have, so that people choose among fields and values in place of typing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crucible_bridge.types import SampleResult
from crucible_worker.reports.plain import replace_surrogates

__all__ = ["MAX_FIELDS", "MAX_VALUES", "MAX_VALUE_CHARS", "MetadataFields"]

MAX_FIELDS = 50
"""Fields to choose from; those that come later are not offered."""
MAX_VALUES = 50
"""Values of a field to choose from; a field with more of them is offered without values."""
MAX_VALUE_CHARS = 100
"""A field with a longer value is offered without values, too."""


class MetadataFields:
    """Takes the results of an evaluation one by one.

    fields = MetadataFields()
    fields.add(result)
    fields.as_data()                    # {"level": ["1", "2"], "source": None}
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._values: dict[str, dict[str, None] | None] = {}

    def add(self, result: SampleResult) -> None:
        """Count a result; one without a record has no metadata."""
        if result.sample is None:
            return
        for key, value in result.sample.metadata.items():
            # What filters by metadata reads "field=value".
            if not key or "=" in key or len(key) > MAX_VALUE_CHARS:
                continue
            if key not in self._values:
                if len(self._values) == MAX_FIELDS:
                    continue
                self._values[key] = {}
            values = self._values[key]
            if values is None or value in values:
                continue
            if len(values) == MAX_VALUES or len(value) > MAX_VALUE_CHARS:
                self._values[key] = None
            else:
                values[value] = None

    def as_data(self) -> Mapping[str, Sequence[str] | None]:
        """The values by field, both in order; None where they are too many or too long to choose from."""
        return {
            replace_surrogates(key): None if values is None else sorted(map(replace_surrogates, values))
            for key, values in sorted(self._values.items())
        }
