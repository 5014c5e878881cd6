"""Problems carry what errors say, in bounds."""

from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import BackendError, BridgeError, Code, InvalidField, NotFound, clipped
from crucible_bridge.problems import MAX_PROBLEM_BYTES, at_field, error_of, problem_of, shorten
from crucible_bridge.types import Problem
from tests.tables import rows


@rows(
    "error",
    [
        InvalidField("prompt", "is longer than the context", reason="PROMPT_TOO_LONG"),
        BackendError("timed out", reason="BACKEND_TIMEOUT", retryable=False),
        NotFound("is gone"),
        BridgeError("is odd", reason="ODD", retryable=True),
    ],
)
def test_an_error_comes_back_from_its_problem(error: BridgeError):
    """Class, reason, message, field and whether to retry survive."""
    problem = problem_of(error)

    assert problem == Problem(reason=error.reason, message=error.message, field=error.field, retryable=error.retryable)
    restored = error_of(problem)
    assert (type(restored), restored.reason, str(restored), restored.retryable) == (
        type(error),
        error.reason,
        str(error),
        error.retryable,
    )


def test_a_message_at_the_limit_is_whole():
    """One byte more is cut, with an ellipsis, to the limit."""
    assert problem_of(BridgeError("x" * MAX_PROBLEM_BYTES)).message == "x" * MAX_PROBLEM_BYTES
    cut = problem_of(BridgeError("x" * (MAX_PROBLEM_BYTES + 1), field="f" * 2_000))

    assert cut.message == "x" * (MAX_PROBLEM_BYTES - 3) + "..."
    assert len(cut.field) == MAX_PROBLEM_BYTES


@given(st.text(st.characters(), max_size=40), st.integers(3, 50))
def test_text_is_cut_at_a_character(text: str, limit: int):
    """Whatever the text, what is left can be encoded, fits, and begins as the text did."""
    cut = shorten(text, limit)

    assert len(cut.encode()) <= limit
    clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert cut == clean or (cut.endswith("...") and clean.startswith(cut[:-3]))


@rows(
    ("field", "own", "path"),
    [
        ("", "", "items[3]"),
        ("", "prompt", "items[3]"),
        ("prompt", "", "items[3].prompt"),
        ("prompt", "prompt", "items[3]"),
        ("prompt[5]", "prompt", "items[3][5]"),
        ("prompt.chunks[0]", "prompt", "items[3].chunks[0]"),
        ("prompts", "prompt", "items[3].prompts"),
    ],
)
def test_an_error_is_at_its_place_in_the_request(field: str, own: str, path: str):
    """What the error calls the item itself is replaced, all else lies below the item."""
    found = at_field(InvalidField(field, "is odd", reason="ODD"), "items[3]", own=own)

    assert isinstance(found, InvalidField)
    assert (found.field, found.reason, found.message) == (path, "ODD", "is odd")


def test_an_error_keeps_what_it_says():
    """Class, code, whether and when to come again, and further facts."""
    error = BackendError(
        "is busy", reason="BACKEND_BUSY", code=Code.RESOURCE_EXHAUSTED, retry_after=2.0, metadata={"k": "v"}
    )

    found = at_field(error, "items[0]")

    assert isinstance(found, BackendError)
    assert vars(found) == {**vars(error), "field": "items[0]"}


@rows(
    ("value", "shown"),
    [
        ("it's", '"it\'s"'),
        ("x" * 198, f"'{'x' * 198}'"),
        ("x" * 199, f"'{'x' * 199}..."),
        ("x" * 10_000_000, f"'{'x' * 199}..."),
        (b"x" * 10_000_000, f"b'{'x' * 198}..."),
        ("\U0010ffff" * 200, "'" + ("\\U0010ffff" * 20)[:199] + "..."),
        ([1.5, None], "[1.5, None]"),
        ([1] * 100, f"{[1] * 100}"[:200] + "..."),
    ],
)
def test_an_error_repeats_the_begin_of_a_value(value: object, shown: str):
    """In quotes if it is text, and with an ellipsis if something is left out."""
    assert clipped(value) == shown
