"""The checkpoints that ship: named, whole, small."""

import subprocess
import sys

import pytest

from crucible_bridge.errors import NotFound
from crucible_worker.embedded import registry
from tests.tables import rows


def test_names_are_ordered_by_step():
    """A training loop's checkpoints come in the order of training."""
    assert registry.names() == ("arithmetic@180", "arithmetic@240", "arithmetic@320", "arithmetic@600")


@rows("name", registry.names())
def test_every_checkpoint_is_whole(name):
    """A name leads to configuration, weights and tokenizer, and to no pickle."""
    files = {file.name for file in registry.path(name).iterdir()}

    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= files
    assert not any(file.endswith((".bin", ".pt", ".pth")) for file in files)


def test_checkpoints_stay_small():
    """All checkpoints together take at most 8 MB of the package."""
    total = sum(file.stat().st_size for name in registry.names() for file in registry.path(name).iterdir())

    assert total <= 8_000_000


@rows("name", ["arithmetic@181", "arithmetic", "", "../arithmetic@180", "arithmetic@../../180"])
def test_unknown_names_are_not_found(name):
    """Only exact names are known; the error lists them."""
    with pytest.raises(NotFound, match="arithmetic@600"):
        registry.path(name)


def test_asking_for_names_imports_nothing_heavy():
    """A worker without extras can say which models ship with it."""
    program = (
        "import sys; from crucible_worker.embedded import arithmetic, registry; registry.names(); "
        "arithmetic.held_out(1); print(sorted({'torch', 'transformers', 'grpc'} & set(sys.modules)))"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
