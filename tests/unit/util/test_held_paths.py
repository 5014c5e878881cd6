"""Users see the path at which a trainer saved a checkpoint, and not the one at which it is held."""

import pytest

from crucible_bridge.types import EmbeddedModel, HubModel, LocalModel, ModelRef
from crucible_worker.util.model_refs import original_model, original_path


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/m/sums/.crucible/run/step-9", "/m/sums/step-9"),
        ("sums/.crucible/run/step-9", "sums/step-9"),
        (".crucible/run/step-9", "step-9"),
        ("/m/sums/step-9", "/m/sums/step-9"),
        ("/m/.crucible/step-9", "/m/.crucible/step-9"),
        ("/m/.crucible/a/b/step-9", "/m/.crucible/a/b/step-9"),
        ("./sums//step-9", "./sums//step-9"),
        ("", ""),
    ],
)
def test_a_held_path_becomes_the_trainers(path: str, own: str):
    """Another path is not changed."""
    assert original_path(path) == own


@pytest.mark.parametrize(
    ("model", "own"),
    [
        (LocalModel("/m/.crucible/r/s-1", dtype="float32"), LocalModel("/m/s-1", dtype="float32")),
        (LocalModel("base", adapter_path="/m/.crucible/r/s-1"), LocalModel("base", adapter_path="/m/s-1")),
        (HubModel("owner/name", adapter_path="/m/.crucible/r/s-1"), HubModel("owner/name", adapter_path="/m/s-1")),
        (HubModel("owner/name"), HubModel("owner/name")),
        (EmbeddedModel("m"), EmbeddedModel("m")),
    ],
)
def test_a_model_has_the_trainers_path(model: ModelRef, own: ModelRef):
    """The path of an adapter is such a path too; the rest of the model stays."""
    assert original_model(model) == own
