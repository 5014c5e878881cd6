"""Names of checkpoints: which folders are checkpoints, and of which step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.planning.follow.names import MAX_STARS, InvalidNaming, Naming, candidates, natural_order

KNOWN = {
    "checkpoint-500": 500,  # Hugging Face, Axolotl, TRL, LLaMA-Factory
    "checkpoint_500": 500,
    "checkpoint500": 500,
    "ckpt-7": 7,
    "global_step_50": 50,
    "global_step50": 50,
    "globalstep50": 50,
    "step_0": 0,
    "step-00000100": 100,
    "step10": 10,
    "iter_0000010": 10,
    "epoch_2": 2,  # torchtune
    "epoch2": 2,
    "epoch_1_step_900": 900,
    "epoch-1-step-900": 900,
}
NOT_EXPECTED = [
    "runs",
    "checkpoint",
    "checkpoint-",
    "checkpoint-best",
    "checkpoint-1-2",
    "my-checkpoint-1",
    "step_1_old",
    "checkpoint-1234567890123456789",
    "checkpoint-\N{FULLWIDTH DIGIT ONE}",
]
TEMPORARY = [
    ".crucible",
    ".checkpoint-5",
    "tmp-checkpoint-5",
    "tmp_5",
    "temp-5",
    "checkpoint-5.tmp",
    "checkpoint-5-tmp",
    "checkpoint-5.part",
    "checkpoint-5.partial",
    "checkpoint-5.incomplete",
    "checkpoint-5~",
    "~checkpoint-5",
]


@pytest.mark.parametrize(("name", "step"), KNOWN.items())
def test_the_names_of_the_known_trainers_have_steps(name: str, step: int, tmp_path: Path):
    """The number is the step, with or without zeros before it."""
    (tmp_path / name).mkdir()

    (found,) = candidates(tmp_path, Naming())

    assert (found.name, found.step, found.expected, found.link) == (name, step, True, False)


@pytest.mark.parametrize("name", NOT_EXPECTED)
def test_any_other_folder_is_a_checkpoint_by_its_contents_alone(name: str, tmp_path: Path):
    """`checkpoint-best` may have a trainer_state.json; so it is looked into."""
    (tmp_path / name).mkdir()

    (found,) = candidates(tmp_path, Naming())

    assert (found.name, found.step, found.expected) == (name, None, False)


@pytest.mark.parametrize("naming", [Naming(), Naming("*{step}*")], ids=str)
@pytest.mark.parametrize("name", TEMPORARY)
def test_temporary_and_hidden_folders_are_none(name: str, naming: Naming, tmp_path: Path):
    """Trainers rename them when they are complete."""
    (tmp_path / name).mkdir()

    assert list(candidates(tmp_path, naming)) == []


def test_files_are_none_and_a_missing_directory_has_none(tmp_path: Path):
    """`step_5` may be a file of a log."""
    (tmp_path / "step_5").touch()

    assert list(candidates(tmp_path, Naming())) == []
    assert list(candidates(tmp_path / "absent", Naming())) == []


@pytest.mark.parametrize(
    ("pattern", "folder", "name", "step"),
    [
        ("ckpt-{step}", "ckpt-9", "ckpt-9", 9),
        ("{step}", "0012", "0012", 12),
        ("v2{step}", "v217", "v217", 17),
        ("*{step}", "model120", "model120", 120),
        ("{step}*", "120-final", "120-final", 120),
        ("*_s{step}_*", "run_s5_bf16", "run_s5_bf16", 5),
        ("a.b{step}", "a.b1", "a.b1", 1),
        ("final", "final", "final", None),
        ("best-*", "best-loss", "best-loss", None),
        ("tmp-{step}", "tmp-3", "tmp-3", 3),
        ("global_step_{step}/actor/huggingface", "global_step_5/actor/huggingface", "global_step_5", 5),
        ("epoch_*/step_{step}", "epoch_0/step_7", "epoch_0+step_7", 7),
        ("*/final", "run-a/final", "run-a", None),
        ("a/b", "a/b", "b", None),
    ],
)
def test_a_pattern_names_other_checkpoints(pattern: str, folder: str, name: str, step: int | None, tmp_path: Path):
    """Of several parts, those that vary are its name."""
    (tmp_path / folder).mkdir(parents=True)

    (found,) = candidates(tmp_path, Naming(pattern))

    assert (found.name, found.step, found.expected, Path(found.path)) == (name, step, True, tmp_path / folder)


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [
        ("ckpt-{step}", "ckpt-x"),
        ("ckpt-{step}", "ckpt-5x"),
        ("ckpt-{step}", "xckpt-5"),
        ("a.b{step}", "axb1"),
        ("*m{step}", "model"),
        ("a/{step}", "a"),
        ("a/{step}", "5"),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, folder: str, tmp_path: Path):
    """What it does not match is no checkpoint; known names are none either."""
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "checkpoint-5").mkdir()

    assert list(candidates(tmp_path, Naming(pattern))) == []


def test_a_folder_on_the_way_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It does not hide the others."""

    def scandir(path: Path):
        if path.name == "epoch_1":
            raise PermissionError
        return original(path)

    original = os.scandir
    monkeypatch.setattr(os, "scandir", scandir)
    for name in ("epoch_0/step_1", "epoch_1/step_2"):
        (tmp_path / name).mkdir(parents=True)

    found = {one.name: one.step for one in candidates(tmp_path, Naming("epoch_*/step_{step}"))}

    assert found == {"epoch_0+step_1": 1, "epoch_1": None}


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("", "names of folders"),
        ("/tmp/{step}", "names of folders"),
        ("../{step}", "names of folders"),
        ("a/./{step}", "names of folders"),
        ("{step}/", "names of folders"),
        (".hidden-{step}", "names of folders"),
        ("a\0{step}", "names of folders"),
        ("x" * 256, "names of folders"),
        ("a/b/c/d/e", "has 5 parts; at most 4"),
        ("{step}-{step}", "has {step} twice"),
        ("ckpt-{steps}", "the only placeholder is {step}"),
        ("ckpt-{step", "the only placeholder is {step}"),
        ("*" * (MAX_STARS + 1), "more than 2 stars"),
    ],
)
def test_a_pattern_that_can_match_nothing_is_refused(pattern: str, problem: str):
    """The message says what is wrong."""
    with pytest.raises(InvalidNaming, match=problem) as raised:
        Naming(pattern)

    assert raised.value.field == "pattern"


@pytest.mark.parametrize("marker", ["", "a/b", "..", ".done", "x\0", "x" * 256])
def test_a_marker_is_a_name_in_the_checkpoint(marker: str):
    """It leads nowhere else."""
    with pytest.raises(InvalidNaming, match="not the name of a file") as raised:
        Naming(marker=marker)

    assert raised.value.field == "marker"


def test_limits_of_patterns_can_be_reached():
    """Each bound is inclusive."""
    Naming("a/b/c/{step}")
    Naming("*" * MAX_STARS)
    Naming("x" * 255, "y" * 255)


letters = st.text("abcXYZ_-.+ü", min_size=1, max_size=10).filter(lambda text: not text.startswith("."))


@given(letters, st.integers(0, 10**18 - 1), st.integers(0, 3), st.text("abc-_.", max_size=5))
def test_the_step_is_the_number_that_was_formatted(tmp_path_factory, before: str, step: int, zeros: int, after: str):
    """Whatever text is around {step}."""
    directory = tmp_path_factory.mktemp("names")
    number = str(step).zfill(min(zeros + len(str(step)), 18))
    (directory / f"{before}{number}{after}").mkdir()

    (found,) = candidates(directory, Naming(f"{before}{{step}}{after}"))

    assert found.step == step


@given(st.lists(st.text("a1-²", max_size=6)))
def test_natural_order_orders_any_names(names: list[str]):
    """Numbers of any kind, or none, can be compared."""
    assert sorted(names, key=natural_order) == sorted(sorted(names), key=natural_order)


def test_natural_order_counts():
    """9 comes before 10."""
    assert sorted(["step-10", "step-9", "step-9b"], key=natural_order) == ["step-9", "step-9b", "step-10"]
