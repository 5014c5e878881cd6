"""The cache of what was found: least recently used goes first, bounded by number and by size."""

from __future__ import annotations

from crucible_worker.grading.base import Cache


def test_what_was_used_last_is_kept():
    """Beyond its number of entries the cache drops the one that was not used for longest."""
    cache: Cache[str, int] = Cache(max_entries=2, max_size=100)
    cache.put("a", 1, 1)
    cache.put("b", 2, 1)
    assert cache.get("a") == 1

    cache.put("c", 3, 1)

    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_size_is_bounded():
    """At its size the cache keeps all, one more unit and it drops what is oldest."""
    cache: Cache[str, int] = Cache(max_entries=10, max_size=10)
    cache.put("a", 1, 5)
    cache.put("b", 2, 5)
    assert len(cache) == 2

    cache.put("c", 3, 1)

    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (None, 2, 3)


def test_what_is_larger_than_all_is_not_kept():
    """One entry cannot drive out every other."""
    cache: Cache[str, int] = Cache(max_entries=10, max_size=10)
    cache.put("a", 1, 10)
    cache.put("b", 2, 11)

    assert (cache.get("a"), cache.get("b")) == (1, None)


def test_an_entry_put_again_counts_once():
    """A key has one value, the last, and one size."""
    cache: Cache[str, int] = Cache(max_entries=10, max_size=10)
    cache.put("a", 1, 6)
    cache.put("a", 2, 6)
    cache.put("b", 3, 4)

    assert (cache.get("a"), cache.get("b"), len(cache)) == (2, 3, 2)
