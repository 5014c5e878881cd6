"""Models of the hub: from the worker's cache, and from a hub on this machine."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from crucible_bridge.errors import BridgeError, FailedPrecondition, NotFound, PermissionDenied, Unavailable
from crucible_bridge.types import EmbeddedModel, HubModel, ModelInput, SamplingParams
from crucible_worker.backends.local import hub_cache
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.embedded import registry
from tests import needs
from tests.service.hub_server import COMMIT, REPO_ID, hub

needs.modules("torch", "transformers")

CACHED = "0123456789abcdef0123456789abcdef01234567"
CHECKPOINT = registry.path("arithmetic@600")


def fill(root: Path, repo_id: str, *, commit: str = CACHED, ref: str | None = "main", leave_out: str = "") -> Path:
    """Put a checkpoint into a cache, as the library leaves it; its snapshot."""
    repository = root / f"models--{repo_id.replace('/', '--')}"
    snapshot, blobs = repository / "snapshots" / commit, repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir(exist_ok=True)
    for file in CHECKPOINT.iterdir():
        if file.name != leave_out:
            shutil.copyfile(file, blobs / f"{commit[:4]}{file.name}")
            (snapshot / file.name).symlink_to(Path("..", "..", "blobs", f"{commit[:4]}{file.name}"))
    if ref is not None:
        named = repository / "refs" / ref
        named.parent.mkdir(parents=True, exist_ok=True)
        named.write_text(commit)
    return snapshot


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the library keeps what it has fetched; empty."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home" / "hub"


@pytest.fixture
def files() -> dict[str, bytes]:
    """A repository of a model, with what nobody needs."""
    there = {file.name: file.read_bytes() for file in CHECKPOINT.iterdir()}
    return {**there, "README.md": b"# It adds", "training.log": b"x" * 100, "onnx/model.json": b"{}"}


async def opened(model: HubModel, *, network: bool = False) -> tuple[str, str]:
    """The fingerprint of a model, and that of the embedded one which it is a copy of."""
    backend = LocalBackend(device="cpu", hub_network=network)
    try:
        await backend.check(model)
        found = await backend.open(model)
        same = await backend.open(EmbeddedModel("arithmetic@600"))
        return found.fingerprint, same.fingerprint
    finally:
        await backend.aclose()


async def test_a_model_of_the_cache_is_a_local_model(cache: Path) -> None:
    """By its main branch, another one, a tag or its commit; it samples, and has the fingerprint of its content."""
    fill(cache, REPO_ID)
    fill(cache, "acme/branches", ref="step/100")
    backend = LocalBackend(device="cpu")
    try:
        model = await backend.open(HubModel(REPO_ID))
        branch = await backend.open(HubModel("acme/branches", revision="step/100"))
        commit = await backend.open(HubModel("acme/branches", revision=CACHED))
        assert model.sampling is not None
        await model.load()
        assert model.tokenizer is not None
        prompt = ModelInput.of(await model.tokenizer.encode("17+25="))
        (answer,) = await model.sampling.sample(prompt, SamplingParams(max_tokens=4))
        embedded = await backend.open(EmbeddedModel("arithmetic@600"))
    finally:
        await backend.aclose()

    assert answer.text.startswith("42")
    assert model.fingerprint == branch.fingerprint == commit.fingerprint == embedded.fingerprint


def _outside(snapshot: Path, tmp_path: Path) -> None:
    (snapshot / "config.json").unlink()
    shutil.copyfile(CHECKPOINT / "config.json", tmp_path / "config.json")
    (snapshot / "config.json").symlink_to(tmp_path / "config.json")


def _pickled(snapshot: Path, tmp_path: Path) -> None:
    (snapshot / "model.safetensors").rename(snapshot / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [(_outside, PermissionDenied, "PATH_OUT_OF_ROOT"), (_pickled, FailedPrecondition, "PICKLED_WEIGHTS_REFUSED")],
)
async def test_a_model_of_the_cache_is_checked_as_a_local_one(cache, tmp_path, change, kind, reason) -> None:
    """Its files lie within its repository's folder, and are safetensors."""
    change(fill(cache, REPO_ID), tmp_path)

    with pytest.raises(kind) as caught:
        await LocalBackend(device="cpu").check(HubModel(REPO_ID))

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "model",
    [
        HubModel("acme/other"),
        HubModel(REPO_ID, revision="v2"),
        HubModel(REPO_ID, revision="f" * 40),
        HubModel("acme/odd"),
    ],
    ids=["repository", "branch", "commit", "odd"],
)
async def test_what_the_cache_has_not_is_named(cache: Path, model: HubModel) -> None:
    """The error says that the hub is not asked; a ref that holds no commit is none."""
    fill(cache, REPO_ID)
    fill(cache, "acme/odd")
    (cache / "models--acme--odd" / "refs" / "main").write_text("../../../etc")

    with pytest.raises(NotFound, match="not in the worker's cache; the worker does not ask the hub") as caught:
        await LocalBackend(device="cpu").open(model)

    assert (caught.value.reason, caught.value.field) == ("NOT_CACHED", "model.hub")


async def test_a_model_is_fetched_where_the_worker_may(cache, monkeypatch, files) -> None:
    """What it needs is in the cache from then on, and nothing else; a commit that is there is not asked for again."""
    asked: list[str] = []
    with hub(files, kind="models", asked=asked) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        found, embedded = await opened(HubModel(REPO_ID), network=True)
        assert found == embedded
        count = len(asked)
        assert (await opened(HubModel(REPO_ID, revision=COMMIT), network=True))[0] == embedded
        assert len(asked) == count

    there = cache / "models--acme--sums" / "snapshots" / COMMIT
    assert {file.name for file in there.iterdir()} == {file.name for file in CHECKPOINT.iterdir()}
    assert (await opened(HubModel(REPO_ID)))[0] == embedded
    with pytest.raises(Unavailable) as lost:
        await opened(HubModel(REPO_ID), network=True)
    assert (lost.value.reason, lost.value.retryable) == ("HUB_UNREACHABLE", True)


async def test_a_model_that_is_not_whole_in_the_cache_is_fetched(cache, monkeypatch, files) -> None:
    """A download that was broken off goes on, also of a commit."""
    fill(cache, REPO_ID, commit=COMMIT, leave_out="model.safetensors")
    with hub(files, kind="models") as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        found, embedded = await opened(HubModel(REPO_ID, revision=COMMIT), network=True)

    assert found == embedded


@pytest.mark.parametrize(
    ("model", "names", "status", "reason"),
    [
        (HubModel("acme/other"), {}, 200, "MODEL_NOT_FOUND"),
        (HubModel(REPO_ID, revision="v2"), {}, 200, "MODEL_NOT_FOUND"),
        (HubModel(REPO_ID), {"config.json": b"{}", "pytorch_model.bin": b"x"}, 200, "PICKLED_WEIGHTS_REFUSED"),
        (HubModel(REPO_ID), {"config.json": b"{}"}, 200, "NO_SAFETENSORS"),
        (HubModel(REPO_ID), {}, 503, "HUB_UNREACHABLE"),
    ],
    ids=["repository", "revision", "pickled", "no weights", "trouble"],
)
async def test_what_cannot_be_fetched_says_why(cache, monkeypatch, model, names, status, reason) -> None:
    """Nothing is fetched of what is refused."""
    asked: list[str] = []
    with hub(names, kind="models", status=status, asked=asked) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        with pytest.raises(BridgeError) as caught:
            await LocalBackend(device="cpu", hub_network=True).open(model)

    assert (caught.value.reason, caught.value.field) == (reason, "model.hub")
    assert not any("/resolve/" in path for path in asked)


async def test_offline_in_the_environment_goes_before_the_setting(cache, monkeypatch) -> None:
    """HF_HUB_OFFLINE has the last word."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    with pytest.raises(NotFound) as caught:
        await LocalBackend(device="cpu", hub_network=True).open(HubModel(REPO_ID))

    assert caught.value.reason == "NOT_CACHED"


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have another program than ours fetch models, which tells its process id and stays."""
    pid = tmp_path / "pid"
    (tmp_path / "a_scripted_fetcher.py").write_text(
        f"import os, signal\nopen({str(pid)!r} + '.new', 'w').write(str(os.getpid()))\n"
        f"os.rename({str(pid)!r} + '.new', {str(pid)!r})\nsignal.pause()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(hub_cache, "_FETCHER", "a_scripted_fetcher")
    return pid


async def _written(pid: Path) -> int:
    while not pid.exists():
        await asyncio.sleep(0.01)
    return int(pid.read_text())


async def test_a_fetch_that_nobody_waits_for_ends(cache: Path, scripted: Path) -> None:
    """A cancelled open leaves no child behind."""
    task = asyncio.create_task(LocalBackend(device="cpu", hub_network=True).open(HubModel(REPO_ID)))
    pid = await _written(scripted)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not Path(f"/proc/{pid}").exists()


async def test_a_fetch_that_dies_may_be_tried_again(cache: Path, scripted: Path) -> None:
    """It is no refusal of the model."""
    task = asyncio.create_task(LocalBackend(device="cpu", hub_network=True).open(HubModel(REPO_ID)))
    os.kill(await _written(scripted), 9)
    with pytest.raises(Unavailable) as caught:
        await task

    assert caught.value.reason == "HUB_READER_DIED"


def test_finding_a_model_imports_no_library() -> None:
    """The worker itself never imports what asks the hub."""
    code = "import crucible_worker.backends.local, sys; assert 'huggingface_hub' not in sys.modules"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0
