"""Where a run is followed, and the names of its folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import FailedPrecondition, InvalidField, PermissionDenied
from crucible_bridge.types import HubModel, LocalModel, parse_model
from crucible_worker.planning.follow.contents import NoBaseModel, model_of
from crucible_worker.planning.follow.names import directory_below, folder_name, hold_name, is_below
from tests.tables import rows


def test_a_directory_is_below_the_root_that_has_it(tmp_path: Path):
    """The first root, if none has it yet; a path out of all of them is refused."""
    roots = [tmp_path / "a", tmp_path / "b"]
    (tmp_path / "b" / "run").mkdir(parents=True)
    (tmp_path / "a").mkdir()
    assert directory_below(roots, "run", "directory") == tmp_path / "b" / "run"
    assert directory_below(roots, str(tmp_path / "b" / "later"), "directory") == tmp_path / "b" / "later"
    assert directory_below(roots, "later", "directory") == tmp_path / "a" / "later"
    (tmp_path / "a" / "out").symlink_to(tmp_path)
    for text in ("..", str(tmp_path), "out"):
        with pytest.raises(PermissionDenied) as caught:
            directory_below(roots[:1], text, "directory")
        assert (caught.value.reason, caught.value.field) == ("PATH_OUT_OF_ROOT", "directory")
    for text in ("", "a\0b", "a" * 256):
        with pytest.raises(InvalidField):
            directory_below(roots, text, "directory")
    with pytest.raises(FailedPrecondition):
        directory_below([], "run", "directory")
    assert is_below(roots, str(tmp_path / "a" / "x"))
    assert not is_below(roots, str(tmp_path / "a" / "out"))


@given(st.text(min_size=1, max_size=200))
def test_every_run_has_a_folder_of_its_own(run_id: str):
    """Whatever its id is: one name, short, and neither hidden nor a path."""
    name = folder_name(run_id.encode("utf-8", "replace").decode())
    assert 0 < len(name.encode()) <= 255
    assert "/" not in name
    assert not name.startswith(".")


@given(st.text(min_size=1, max_size=200))
def test_every_state_directory_has_a_folder_of_its_own(run_id: str):
    """The folder is the same after a restart, and no other run's."""
    run_id = run_id.encode("utf-8", "replace").decode()
    names = {hold_name(run_id, Path("/a")), hold_name(run_id, Path("/b")), folder_name(run_id)}
    assert len(names) == 3
    assert hold_name(run_id, Path("/a/")) in names
    assert all(len(name.encode()) <= 255 for name in names)


def test_known_names_stay_as_they_are():
    """People look for them."""
    assert folder_name("run-7_b.1") == "run-7_b.1"
    assert folder_name("a/b") == "a%2Fb"
    assert folder_name("..") != ".."


@rows(
    ("config", "base_model", "expected"),
    [
        ({"base_model_name_or_path": "o/n"}, "", HubModel("o/n")),
        ({"base_model_name_or_path": "/models/base"}, "", LocalModel("/models/base")),
        ({"base_model_name_or_path": "base"}, "", LocalModel("base")),
        ({"base_model_name_or_path": "../base"}, "", LocalModel("../base")),
        ({"base_model_name_or_path": "o/n"}, "hub:p/m?revision=main&dtype=float32", None),
    ],
)
def test_an_adapter_names_its_model(config: dict, base_model: str, expected: object, tmp_path: Path):
    """A name of the hub, or a path; what is given counts in its place."""
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    found = parse_model(model_of(tmp_path, adapter=True, base_model=base_model))
    wanted = parse_model(base_model) if expected is None else expected
    assert isinstance(wanted, LocalModel | HubModel)
    assert isinstance(found, LocalModel | HubModel)
    assert found == type(wanted)(
        *((wanted.path,) if isinstance(wanted, LocalModel) else (wanted.repo_id,)),
        adapter_path=str(tmp_path),
        dtype=wanted.dtype,
        **({"revision": wanted.revision} if isinstance(wanted, HubModel) else {}),
    )


@rows("content", ["", "[]", "{}", '{"base_model_name_or_path": 3}', '{"base_model_name_or_path": ""}', "[" * 100_000])
def test_an_adapter_without_a_model_is_told(content: str, tmp_path: Path):
    """With the cure."""
    (tmp_path / "adapter_config.json").write_text(content)
    with pytest.raises(NoBaseModel, match="--base-model"):
        model_of(tmp_path, adapter=True, base_model="")
