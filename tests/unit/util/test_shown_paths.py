"""Paths in what people send on: below a root relative, and of no home directory anything but "~"."""

from __future__ import annotations

from pathlib import Path

import pytest

from crucible_bridge.types import (
    Dataset,
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    InlineDataset,
    LocalModel,
    Sample,
)
from crucible_worker.util.shown_paths import ShownPaths
from tests.tables import rows

ROOTS = [Path("/data/models"), Path("/data/models/mine"), Path("/sets"), Path("/")]


@rows(
    ("text", "shown"),
    [
        ("/data/models/a/step-6", "a/step-6"),
        ("local:/data/models/mine/step-6?device=cpu", "local:step-6?device=cpu"),
        ("jsonl:/sets/qa.jsonl", "jsonl:qa.jsonl"),
        ("the folder /sets is empty", "the folder . is empty"),
        ("/setsuna/x, x/sets/y and https://host/sets/z", "/setsuna/x, x/sets/y and https://host/sets/z"),
        ("managed:vllm//data/models/a", "managed:vllm/a"),
        ("file:///sets/qa.csv", "file://qa.csv"),
        ("there is no '/home/ann/a b' (/Users/Bob/x, /root/y)", "there is no '~/a b' (~/x, ~/y)"),
        ("/rooted/x and /home and 1/2", "/rooted/x and /home and 1/2"),
        ("/scratch/llama", "/scratch/llama"),
        ("(/mnt/people/ann.b/x)", "(~/x)"),
        ("/mnt/people/ann.bc/x", "/mnt/people/ann.bc/x"),
        ("'no such file:\\n/home/ann/x'", "'no such file:\\n~/x'"),
        ("-I/home/ann/inc and /var/home/ann/x", "-I~/inc and ~/x"),
        ("/home//ann/x", "~/x"),
    ],
)
def test_paths_are_shortened(monkeypatch: pytest.MonkeyPatch, text: str, shown: str):
    """Where a path begins and ends; the longest root counts, and the whole file system is none."""
    monkeypatch.setenv("HOME", "/mnt/people/ann.b")

    assert ShownPaths(ROOTS).text(text) == shown


def test_a_user_without_an_entry_has_the_home_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    """As in a container that runs as any number."""

    def unknown(uid: int):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setenv("HOME", "/mnt/people/ann.b")

    assert ShownPaths().text("/mnt/people/ann.b/x") == "~/x"


def test_a_root_below_a_link_is_known_by_both_paths(tmp_path: Path):
    """What a worker resolves is shortened as what was typed."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    shown = ShownPaths([tmp_path / "link"])

    assert [shown.text(f"{tmp_path}/{name}/m") for name in ("real", "link")] == ["m", "m"]


def test_samples_of_a_request_are_data():
    """Their texts stay, the paths beside them do not."""
    sample = Sample(id="1", input="cd /sets/x", targets=("/sets/y",))
    evaluation = Evaluation(
        evaluation_id="e",
        state=EvaluationState.RUNNING,
        request=EvaluateRequest(
            model=LocalModel("/data/models/a"), evaluators=(), dataset=Dataset(source=InlineDataset((sample,))),
            labels={"from": "/sets/z"},
        ),
    )  # fmt: skip
    found = ShownPaths(ROOTS).evaluation(evaluation).request

    assert (found.model, found.labels) == (LocalModel("a"), {"from": "z"})
    assert found.dataset == evaluation.request.dataset
