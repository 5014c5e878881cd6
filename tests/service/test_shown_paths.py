"""Reports and exports of an evaluation whose model and data lie below a home directory: it is nowhere in the files."""

from __future__ import annotations

import dataclasses
import json
import urllib.parse
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_bridge.types import LocalModel, ReportFormat, SamplingParams
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from crucible_worker.util.limits import WorkerLimits
from tests.commands import run
from tests.service.follow_kit import CheckpointBackend, checkpoint_build, save


class Homely(CheckpointBackend):
    """Its errors have paths, as those of many libraries do."""

    async def open(self, model: LocalModel) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
        found = await super().open(model)
        assert isinstance(model, LocalModel)
        message = f"OSError: {model.path}/tokenizer.json is broken; see {Path.home()}/.cache/log"
        fault = BackendError(message, reason=Reason.BACKEND_FAILED, retryable=False)
        return dataclasses.replace(found, fault=lambda call: fault if "1" in call.text else None)


def decoded(files: Sequence[Path]) -> str:
    """The texts of files, of archives, and of strings that JSON or URLs escape."""
    texts: list[str] = []
    for file in files:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                texts += [archive.read(name).decode() for name in archive.namelist()]
        else:
            texts.append(file.read_text())
    text = "\n".join(texts)
    return "\n".join((text, urllib.parse.unquote(text), text.replace("\\/", "/"), text.replace("\\u002f", "/")))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with checkpoints and data."""
    home = tmp_path / "home" / "ann.lee"
    (home / "data").mkdir(parents=True)
    rows = [{"input": f"{n}", "target": "even"} for n in range(4)]
    (home / "data" / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    save(home / "models" / "sums", 2)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    return home


async def evaluate(home: Path, state_dir: Path, log_dir: Path, *, roots: bool) -> list[str]:
    """Evaluate into a journal; reports in each format that needs no page, by the worker."""
    settings = Settings(
        state_dir=state_dir,
        unix_socket=state_dir / "worker",
        log_dir=log_dir,
        model_roots=(home / "models",) if roots else (),
        data_roots=(home / "data",),
        limits=WorkerLimits(),
    )
    async with (
        Worker(settings, build=checkpoint_build(Homely())) as worker,
        crucible_bridge.connect(worker.address) as bridge,
    ):
        for step in (1, 2):
            await bridge.evaluation.evaluate(
                evaluation_id=f"e{step}",
                model=LocalModel(str(home / "models" / "sums" / "checkpoint-2")),
                evaluators=["accuracy"],
                dataset="jsonl:qa.jsonl",
                sampling=SamplingParams(max_tokens=8),
                run_id="run",
                step=step,
                labels={"from": f"{home}/notes"},
            )
        return [await bridge.evaluation.generate_report(["e1", "e2"], report_format=one) for one in ReportFormat]


@pytest.mark.parametrize("roots", [True, False])
async def test_no_file_has_the_home_directory(home: Path, tmp_path: Path, roots: bool):
    """With the model root known the path is relative to it; else it begins at the home, by no name."""
    state_dir, out = tmp_path / "state", tmp_path / "out"
    state_dir.mkdir()
    out.mkdir()
    texts = await evaluate(home, state_dir, out / "logs", roots=roots)
    for number, text in enumerate(texts):
        (out / f"worker-{number}").write_text(text)
    place = ("--state-dir", state_dir)
    for kind in ("html", "markdown", "json"):
        done = run("report", "--run", "run", "--format", kind, "--output", out / f"report.{kind}", *place)
        assert done.returncode == 0, done.stderr
    for kind in ("inspect", "jsonl", "every-eval-ever"):
        done = run("export", "e1", "e2", "--format", kind, "--output", out / f"export-{kind}", *place)
        assert done.returncode == 0, done.stderr

    files = [file for file in out.rglob("*") if file.is_file()]
    assert len(files) >= 3 + 3 + 2 + 2 + 1 + 4
    for file in files:
        text = decoded([file])
        assert "ann.lee" not in text, file
        assert str(tmp_path) not in text, file
    shown = decoded([out / f"worker-{number}" for number in range(len(texts))])
    assert ("local:sums/checkpoint-2" if roots else "local:~/models/sums/checkpoint-2") in shown
    assert "qa.jsonl" in shown
    assert "tokenizer.json is broken; see ~/.cache/log" in shown
    assert "local:models/sums/checkpoint-2" in decoded([out / "report.html"])
