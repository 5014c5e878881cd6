"""The argument by which a model takes its cache, as releases of transformers call it."""

import inspect

import pytest

from crucible_bridge.errors import FailedPrecondition
from crucible_worker.embedded import registry
from tests import needs

torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
needs.modules("transformers")

from crucible_worker.backends.local.host import loading  # noqa: E402 (needs torch)

DIRECTORY = registry.path("arithmetic@320")


@pytest.fixture
def renamed(monkeypatch):
    """Have models take their cache by another name."""
    read = loading._read

    def rename(to):
        def renaming(*given):
            model, tokenizer, missing = read(*given)
            forward = model.forward
            (name,) = inspect.signature(forward).parameters.keys() & {"past_key_values", "cache"}

            def renamed_forward(input_ids, attention_mask=None, position_ids=None, use_cache=None, **others):
                if to in others:
                    others[name] = others.pop(to)
                given = {"attention_mask": attention_mask, "position_ids": position_ids, "use_cache": use_cache}
                return forward(input_ids, **given, **others)

            parameters = [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY) for each in ("input_ids", to)]
            renamed_forward.__signature__ = inspect.Signature(parameters)
            model.forward = renamed_forward
            return model, tokenizer, missing

        monkeypatch.setattr(loading, "_read", renaming)
        return loading.load(DIRECTORY, torch.device("cpu"))

    return rename


@pytest.mark.parametrize("name", ["past_key_values", "cache_params", "cache"])
@torch.inference_mode()
def test_the_cache_is_given_by_the_name_that_the_model_has(renamed, name):
    """What was read before is in the cache, and the next token's logits are those of the whole text."""
    loaded = renamed(name)
    assert loaded.cache_argument == name
    tokens, cache = torch.tensor([[3, 4, 5, 6]]), loaded.new_cache()
    whole = loaded.model(input_ids=tokens).logits
    loaded.model(input_ids=tokens[:, :3], use_cache=True, **{name: cache})
    last = loaded.model(input_ids=tokens[:, 3:], use_cache=True, **{name: cache}).logits
    torch.testing.assert_close(last[:, -1], whole[:, -1])


def test_a_model_without_a_cache_is_refused(renamed):
    """It would treat the last token as the whole text."""
    with pytest.raises(FailedPrecondition, match="accepts no cache"):
        renamed("other")
