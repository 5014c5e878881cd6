"""Texts of fingerprints: which kinds of digests they have, and how two of them compare."""

from crucible_worker.util.fingerprints import is_full, map_digests, same
from tests.tables import rows

A, B = "a" * 64, "b" * 64


@rows(
    ("first", "second", "expected"),
    [
        ("scripted", "scripted", True),
        ("scripted", "another", False),
        (A, B, False),
        (f"full:{A}", f"full:{A}", True),
        (f"full:{A}", f"full:{B}", False),
        (f"tensors:{A}", f"tensors:{B}", False),
        (f"tensors:{A},full:{A}", f"tensors:{A}", True),
        (f"tensors:{A},full:{A}", f"tensors:{B}", False),
        (f"tensors:{A},full:{A}", f"tensors:{A},full:{B}", False),
        (f"tensors:{A},full:{A}", f"tensors:{B},full:{A}", False),
        # A file has grown above the size from which only some bytes count.
        (f"tensors:{A}", f"full:{A}", False),
        # Earlier releases recorded no kind: of small checkpoints the same digits, of large ones a sample.
        (A, f"full:{A}", True),
        (A, f"full:{B}", None),
        (A, f"tensors:{A}", None),
        (f"{A}+{B}", f"full:{A}+{B}", True),
        (f"{A}+{B}", f"tensors:{A}+{B}", None),
        (f"{A}+{A}", f"tensors:{A}+{B}", False),
        (f"full:{A}", f"full:{A}+{B}", False),
        ("scripted", f"full:{A}", False),
    ],
)
def test_kinds_are_compared_with_their_like(first, second, expected):
    """What is recorded in both decides; without that, neither "equal" nor "changed" is said."""
    assert same(first, second) is expected
    assert same(second, first) is expected


def test_a_fingerprint_says_whether_every_byte_counts():
    """Of each checkpoint on disk; a server has no such digest."""
    assert all(map(is_full, ("scripted", A, f"full:{A}", f"tensors:{A},full:{A}", f"full:{A}+scripted")))
    assert not any(map(is_full, (f"tensors:{A}", f"full:{A}+tensors:{A}")))


def test_what_is_made_of_a_model_keeps_the_kinds():
    """Its digests are made of those of the model."""
    assert (
        map_digests(f"tensors:{A},full:{B}", lambda digest: digest[:1] * 63 + "c")
        == f"tensors:{A[:63]}c,full:{B[:63]}c"
    )
    assert map_digests(A, lambda digest: f"{digest}, served") == f"{A}, served"
