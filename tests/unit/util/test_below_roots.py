"""Paths of callers lead nowhere but below the folders that the operator named."""

from pathlib import Path

import pytest

from crucible_worker.util.files import LeadsOut, find_below


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Two of them, the second with more, and a secret beside them."""
    for place in ("first/both", "second/both", "second/only", "secret"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(place)
    return [tmp_path / "first", tmp_path / "second"]


def test_the_first_root_that_has_it_wins(roots: list[Path]):
    """What none has, or what is something else there, is None."""
    assert find_below(roots, "both", Path.is_file) == roots[0] / "both"
    assert find_below(roots, "only", Path.is_file) == roots[1] / "only"
    assert find_below(roots, "both", Path.is_dir) is None
    assert find_below(roots, "neither", Path.is_file) is None


def test_a_link_within_a_root_is_followed(roots: list[Path]):
    """The answer is the real path, of a root that is a link as well."""
    (roots[0] / "link").symlink_to("both")
    alias = roots[0].with_name("alias")
    alias.symlink_to(roots[0])

    assert find_below([alias], "link", Path.is_file) == roots[0] / "both"


@pytest.mark.parametrize("path", ["../secret", "../absent", "both/../../secret", "/etc/passwd", "link", "../firstborn"])
def test_what_leads_out_is_not_even_looked_at(path: str, roots: list[Path]):
    """Whether it is there or not, nothing is asked about it, and the answer is the same."""
    (roots[0] / "link").symlink_to("../secret")
    roots[0].with_name("firstborn").touch()
    looked_at: list[Path] = []

    with pytest.raises(LeadsOut):
        find_below(roots[:1], path, lambda found: bool(looked_at.append(found)))

    assert looked_at == []


def test_a_root_that_has_it_stands_in_for_one_that_it_leads_out_of(roots: list[Path]):
    """Roots are searched one by one."""
    (roots[0] / "only").symlink_to("../secret")

    assert find_below(roots, "only", Path.is_file) == roots[1] / "only"


@pytest.mark.parametrize("path", ["loop", "x" * 5_000])
def test_what_cannot_be_a_path_is_not_there(path: str, roots: list[Path]):
    """Links that go round, and names that are too long."""
    (roots[0] / "loop").symlink_to("loop")

    assert find_below(roots, path, Path.is_file) is None
