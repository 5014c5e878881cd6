"""The headers of safetensors files, read without the library."""

import json
import shutil

import pytest

from crucible_worker.backends.local.paths import MAX_HEADER_BYTES
from crucible_worker.embedded import registry
from tests import needs
from tests.tables import rows

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
safetensors = pytest.importorskip("safetensors.torch", reason=needs.MISSING["safetensors"])
needs.modules("transformers")

from crucible_worker.backends.local.host import weight_checks  # noqa: E402 (needs torch)

WEIGHT = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def header(value):
    """A file with this header, and 24 bytes of weights."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return len(text).to_bytes(8, "little") + text + bytes(24)


@rows(
    "content",
    [
        b"",
        b"\x02\0\0",
        b"\xff" * 8,
        (MAX_HEADER_BYTES + 1).to_bytes(8, "little"),
        header(b"no JSON"),
        header(b"[" * 100_000),
        header([]),
        header({"w": []}),
        header({"w": {"shape": [2, 3]}}),
        header({"w": {**WEIGHT, "shape": [2.0, 3]}}),
        header({"w": {**WEIGHT, "shape": [-2, -3]}}),
        header({"w": {**WEIGHT, "shape": [2, 1 << 62]}}),
        header({"w": {**WEIGHT, "data_offsets": [0]}}),
        header({"w": {**WEIGHT, "data_offsets": [24, 0]}}),
        header({"w": {**WEIGHT, "data_offsets": [-24, 0]}}),
        header({"w": {**WEIGHT, "data_offsets": [1, 25]}}),
    ],
    ids=lambda content: str(content[:40]),
)
def test_a_damaged_file_is_refused(content, tmp_path):
    """Whatever is in it, the error names the file."""
    folder = tmp_path / "model"
    shutil.copytree(registry.path("arithmetic@180"), folder, dirs_exist_ok=True)
    (folder / "model.safetensors").write_bytes(content)

    with pytest.raises(ValueError, match=r"'model\.safetensors' is damaged"):
        weight_checks.check_sizes(folder)


def test_shapes_are_those_that_the_library_reads(tmp_path):
    """Of every type that PyTorch saves, of scalars, and of tensors without elements."""
    types = (torch.float64, torch.bfloat16, torch.int8, torch.bool, torch.float8_e4m3fn, torch.complex64)
    tensors = {str(dtype): torch.zeros(3, 2).to(dtype) for dtype in types}
    tensors |= {"scalar": torch.tensor(1.0), "none": torch.zeros(0, 4)}
    safetensors.save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})

    assert weight_checks.read_shapes(tmp_path) == {name: tuple(tensor.shape) for name, tensor in tensors.items()}
