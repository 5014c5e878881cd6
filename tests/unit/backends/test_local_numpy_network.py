"""The weights of an embedded model are those of its configuration."""

import json
import shutil

import numpy as np
import pytest

from crucible_bridge.errors import FailedPrecondition
from crucible_worker.backends.local.numpy_host.engine import Network
from crucible_worker.embedded import registry
from tests import needs

LAYER = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def model(tmp_path):
    """A copy of an embedded model."""
    return shutil.copytree(registry.path("arithmetic@180"), tmp_path / "model")


def rewrite(model, change):
    """Change the weights of a model."""
    from safetensors import numpy

    weights = numpy.load_file(model / "model.safetensors")
    change(weights)
    numpy.save_file(weights, model / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda weights: weights.pop(LAYER), LAYER),
        (lambda weights: weights.update({LAYER: weights[LAYER][1:]}), LAYER),
        (lambda weights: weights.update({"lm_head.bias": np.zeros(3, np.float32)}), "lm_head.bias"),
    ],
    ids=["missing", "shape", "unused"],
)
def test_other_weights_are_refused(model, change, told):
    """None is dropped, and the error names one of them."""
    pytest.importorskip("safetensors", reason=needs.MISSING["safetensors"])
    rewrite(model, change)

    with pytest.raises(FailedPrecondition, match=told) as refused:
        Network(model)
    assert refused.value.reason == "MODEL_REFUSED"


def test_fewer_layers_than_the_file_has_are_refused(model):
    """They would be another model."""
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"num_hidden_layers": config["num_hidden_layers"] - 1}))

    with pytest.raises(FailedPrecondition, match=r"model\.layers\.\d+"):
        Network(model)
