"""Lines that are made to be expensive, or to fail where nobody looks."""

import sys

from crucible_bridge.types import RowReader
from crucible_worker.datasets.jsonl import line_of

ROWS = RowReader({}, field="dataset.jsonl_path", cure="name the columns")


def test_a_key_that_is_there_twice_is_found_among_many() -> None:
    """The line is gone through once, not once for every key: one of 16 MB would hold a worker for hours."""
    keys = "".join(f'"{index}": 1, ' for index in range(200_000))

    assert line_of(1, f'{{{keys}"199999": 1}}'.encode(), ROWS).problem == "has the key '199999' twice"


def test_what_can_be_read_and_not_be_written_is_nested_too_deeply() -> None:
    """However deep a line is, it is a sample or malformed: between the two lies no depth that is an error of ours."""
    for depth in range(sys.getrecursionlimit()):
        metadata = b"[" * depth + b"]" * depth
        line = line_of(
            1,
            b'{"input": "\\u0041", "metadata": {"x": ' + (metadata or b"1") + b"}}",
            ROWS,
        )

        assert line.sample is not None or line.problem == "is nested too deeply"
