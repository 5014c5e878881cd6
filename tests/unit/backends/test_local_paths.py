"""What a model reference may lead to."""

import json

import pytest

from crucible_bridge.errors import FailedPrecondition, InvalidField, NotFound, PermissionDenied
from crucible_worker.backends.local import paths
from crucible_worker.backends.local.paths import check_adapter, check_files, resolve
from tests.tables import rows


@pytest.fixture
def root(tmp_path):
    """A model root with one model in it, beside a directory that is none of its business."""
    model = tmp_path / "root" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "model.safetensors").write_bytes(b"secret")
    return tmp_path / "root"


def test_a_path_is_relative_to_a_root(root):
    """The first root that has the directory wins."""
    assert resolve([root], "model") == (root / "model").resolve()
    assert resolve([root / "model", root], "model") == (root / "model").resolve()


@rows("path", ["../outside", "model/../../outside", "/etc", "..", "../does-not-exist"])
def test_a_path_that_leads_out_is_denied(root, path):
    """Whether something exists outside of the roots is not told."""
    with pytest.raises(PermissionDenied) as caught:
        resolve([root], path)

    assert caught.value.reason == "PATH_OUT_OF_ROOT"


def test_a_link_that_leads_out_is_denied(root):
    """Symbolic links are followed before they are judged."""
    (root / "link").symlink_to(root.parent / "outside")

    with pytest.raises(PermissionDenied):
        resolve([root], "link")


def test_a_link_within_the_roots_is_followed(root):
    """A link such as `latest` is fine as long as it stays inside."""
    (root / "latest").symlink_to("model")

    assert resolve([root], "latest") == (root / "model").resolve()


def test_a_missing_directory_is_not_found(root):
    """Below the root, what is missing is said to be."""
    with pytest.raises(NotFound):
        resolve([root], "nothing")
    with pytest.raises(NotFound):
        resolve([root], "model/config.json")


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_cannot_be_a_path_is_invalid(root, path):
    """The error names the field."""
    with pytest.raises(InvalidField, match=r"^model\.path"):
        resolve([root], path)


def test_without_roots_nothing_opens():
    """Local models are an offer of whoever starts the worker."""
    with pytest.raises(FailedPrecondition, match="--model-root"):
        resolve([], "model")


def test_a_checkpoint_of_safetensors_passes(root):
    """Configuration and safetensors are all it takes."""
    check_files(root / "model", [root])


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth", "model.ckpt", "model.pkl"])
def test_pickled_weights_are_refused(root, name):
    """Unpickling runs code: weights that exist as a pickle alone are never loaded."""
    (root / "model" / "model.safetensors").rename(root / "model" / name)

    with pytest.raises(FailedPrecondition) as caught:
        check_files(root / "model", [root])

    assert caught.value.reason == "PICKLED_WEIGHTS_REFUSED"


@pytest.mark.parametrize(
    ("missing", "reason"), [("model.safetensors", "NO_SAFETENSORS"), ("config.json", "NO_MODEL_CONFIG")]
)
def test_an_incomplete_checkpoint_is_refused(root, missing, reason):
    """The error says what is missing."""
    (root / "model" / missing).unlink()

    with pytest.raises(FailedPrecondition) as caught:
        check_files(root / "model", [root])

    assert caught.value.reason == reason


def test_an_adapter_is_no_model(root):
    """It is asked for beside its model, whose name in its configuration is not followed."""
    (root / "model" / "adapter_config.json").write_text('{"base_model_name_or_path": "/etc"}')

    with pytest.raises(FailedPrecondition) as caught:
        check_files(root / "model", [root])

    assert caught.value.reason == "ADAPTER_REFUSED"


def test_a_linked_file_that_lies_outside_is_denied(root):
    """A directory inside does not make its links harmless."""
    (root / "model" / "model-2.safetensors").symlink_to(root.parent / "outside" / "model.safetensors")

    with pytest.raises(PermissionDenied, match=r"model-2\.safetensors"):
        check_files(root / "model", [root])


def test_a_shard_that_lies_outside_is_denied(root):
    """The index of a sharded checkpoint cannot name a file outside of the roots."""
    index = {"weight_map": {"a": "model.safetensors", "b": "../../outside/model.safetensors"}}
    (root / "model" / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(PermissionDenied):
        check_files(root / "model", [root])


@pytest.mark.parametrize(
    ("indexed", "there", "told"),
    [
        (
            ["model-00001-of-00001.safetensors"],
            ["model.safetensors", "model-00001-of-00001.safetensors"],
            "'model.safetensors' is next to 'model-00001-of-00001.safetensors': remove the older weights",
        ),
        (
            None,
            ["model.safetensors", "model-00001-of-00001.safetensors"],
            "'model.safetensors' is next to 'model-00001-of-00001.safetensors': remove the older weights",
        ),
        (
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
            ["model.safetensors", "model-00001-of-00002.safetensors"],
            "names 'model-00002-of-00002.safetensors', which is not there: copy it, or remove "
            "model.safetensors.index.json if 'model.safetensors' is the checkpoint",
        ),
        (
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
            ["model-00001-of-00002.safetensors"],
            "model.safetensors.index.json names 'model-00002-of-00002.safetensors', which is not there: copy it",
        ),
        (
            None,
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
            "is there without model.safetensors.index.json: copy that, too",
        ),
        (
            ["model-00001-of-00001.safetensors"],
            ["model-00001-of-00001.safetensors", *(f"model-0000{n}-of-00005.safetensors" for n in range(1, 6))],
            "model.safetensors.index.json does not name 'model-00001-of-00005.safetensors', "
            "'model-00002-of-00005.safetensors', 'model-00003-of-00005.safetensors' and 2 more: remove",
        ),
    ],
    ids=["old file", "old file without an index", "old index", "missing shard", "no index", "shards of another save"],
)
def test_files_of_several_checkpoints_are_refused(root, indexed, there, told):
    """Programs differ in which of them they read. The error names them, and says what to do."""
    (root / "model" / "model.safetensors").unlink()
    for name in there:
        (root / "model" / name).write_bytes(b"")
    if indexed is not None:
        index = {"weight_map": {str(number): name for number, name in enumerate(indexed)}}
        (root / "model" / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(FailedPrecondition) as caught:
        check_files(root / "model", [root])

    assert caught.value.reason == "MODEL_REFUSED"
    assert told in str(caught.value)


@pytest.mark.parametrize(
    "names",
    [
        ["model.safetensors"],
        ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
        ["weights/a.safetensors", "weights/b.safetensors"],
    ],
    ids=["one file", "shards", "shards in a folder"],
)
def test_an_index_of_all_files_passes(root, names):
    """Other safetensors, such as those of another format, may be there: no program reads them with these."""
    (root / "model" / "model.safetensors").unlink()
    (root / "model" / "weights").mkdir()
    for name in (*names, "consolidated.safetensors"):
        (root / "model" / name).write_bytes(b"")
    index = {"weight_map": {str(number): name for number, name in enumerate(names)}}
    (root / "model" / "model.safetensors.index.json").write_text(json.dumps(index))

    check_files(root / "model", [root])


def test_an_index_has_bounded_size(root, monkeypatch):
    """It is counted before it is parsed."""
    monkeypatch.setattr(paths, "_MAX_INDEX_BYTES", 10)
    (root / "model" / "model.safetensors.index.json").write_text('{"weight_map": {}}')

    with pytest.raises(FailedPrecondition, match="more than 10 bytes"):
        check_files(root / "model", [root])


@pytest.fixture
def adapter(root):
    """A directory with an adapter's files."""
    directory = root / "adapter"
    directory.mkdir()
    (directory / "adapter_config.json").write_text('{"base_model_name_or_path": "/etc"}')
    (directory / "adapter_model.safetensors").write_bytes(b"")
    return directory


def test_an_adapter_of_safetensors_passes(root, adapter):
    """A pickle beside them is not read."""
    (adapter / "adapter_model.bin").write_bytes(b"")

    check_adapter(adapter, [root])


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("adapter_config.json", None), "NO_ADAPTER_CONFIG"),
        (("adapter_model.safetensors", None), "NO_SAFETENSORS"),
        (("adapter_model.safetensors", "adapter_model.bin"), "PICKLED_WEIGHTS_REFUSED"),
    ],
)
def test_an_incomplete_adapter_is_refused(root, adapter, names, reason):
    """The error says what is missing, and pickles are never loaded."""
    missing, instead = names
    (adapter / missing).rename(adapter / instead if instead else root / "elsewhere")

    with pytest.raises(FailedPrecondition) as caught:
        check_adapter(adapter, [root])

    assert caught.value.reason == reason


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_an_adapters_file_that_lies_outside_is_denied(root, adapter, name):
    """A directory inside does not make its links harmless."""
    (adapter / name).unlink()
    (adapter / name).symlink_to(root.parent / "outside" / "model.safetensors")

    with pytest.raises(PermissionDenied, match=name.replace(".", r"\.")):
        check_adapter(adapter, [root])


@rows(
    "index",
    [
        "",
        "[]",
        "{}",
        '{"weight_map": 3}',
        '{"weight_map": {"a": 3}}',
        '{"weight_map": {"a": "\\u0000"}}',
        "[" * 100_000,
    ],
)
def test_a_malformed_index_is_refused(root, index):
    """Garbage in the index is an error of the files, not a crash."""
    (root / "model" / "model.safetensors.index.json").write_text(index)

    with pytest.raises(FailedPrecondition, match="malformed"):
        check_files(root / "model", [root])


def test_a_path_that_the_file_system_cannot_have_is_not_found(tmp_path):
    """A name beyond the file system's length, or links that go round, lead to no model."""
    (tmp_path / "round").symlink_to("round")

    for path in ("x" * 300, "round"):
        with pytest.raises(NotFound):
            resolve((tmp_path,), path)
