"""Options of graders: unknown graders and unknown options are refused by name."""

import pytest

from crucible_bridge.errors import InvalidField
from crucible_worker.grading import registry
from tests.tables import rows


def test_an_unknown_grader_is_refused_with_those_that_are_known() -> None:
    """The error names the field and every grader that there is."""
    with pytest.raises(InvalidField, match="exact_match, contains, numeric, multiple_choice, math") as caught:
        registry.create("oracle", {}, name_field="grader", options_field="options")

    assert (caught.value.field, caught.value.reason) == ("grader", "UNKNOWN_GRADER")


@rows("name", registry.GRADERS)
def test_every_grader_refuses_unknown_options(name: str) -> None:
    """A misspelt option is an error, not a grader with other rules than its user thinks."""
    with pytest.raises(InvalidField) as caught:
        registry.create(name, {"fold_csae": True}, name_field="grader", options_field="grader_options")

    assert (caught.value.field, caught.value.reason) == ('grader_options["fold_csae"]', "UNKNOWN_OPTION")
