"""First guesses of hyperparameters: the table that the Elixir client is tested with too, and the originals."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge import hyperparameters
from crucible_bridge.errors import InvalidField
from crucible_bridge.tinker_models import TINKER_MODELS
from tests import needs
from tests.tables import rows

ELIXIR = Path(__file__).parents[3] / "elixir_client_example"
LINES = (ELIXIR / "test" / "pure" / "hyperparameters.txt").read_text().splitlines()
CASES = [line.split() for line in LINES if not line.startswith("#")]
MODULE = ELIXIR / "lib" / "crucible_bridge" / "hyperparameters.ex"


def _options(text: str) -> dict[str, Any]:
    pairs = [option.split("=") for option in text.split(",")] if text != "-" else []
    return {key: {"true": True, "false": False}.get(value) if value.isalpha() else int(value) for key, value in pairs}


@rows(("function", "model", "options", "result"), CASES)
def test_each_row_of_the_table_has_its_result(function: str, model: str, options: str, result: str):
    """A number, or the field of an error."""

    def call() -> float:
        return getattr(hyperparameters, function)(model, **_options(options))

    if result.startswith("!"):
        with pytest.raises(InvalidField) as caught:
            call()
        assert caught.value.field == result[1:]
    else:
        assert math.isclose(call(), float(result), rel_tol=1e-12)


def test_lora_takes_ten_times_the_learning_rate():
    """Of full fine-tuning, for every model."""
    assert hyperparameters.get_lora_lr_over_full_finetune_lr() == 10.0


def test_the_elixir_client_has_the_same_models():
    """Name by name, number by number."""
    listed = re.findall(
        r'^    "(\S+)" => \{([\d_]+), ([\d_]+), ([\d_]+), ([\d_]+)\},?$', MODULE.read_text(), re.MULTILINE
    )

    assert {name: tuple(map(int, sizes)) for name, *sizes in listed} == {
        name: (size.hidden_size, size.mlp, size.attn, size.unembed) for name, size in TINKER_MODELS.items()
    }


def test_numbers_are_those_of_the_installed_originals():
    """For each model: its adapter of rank 32, and its learning rates where the family has one."""
    theirs = pytest.importorskip("tinker_cookbook.hyperparam_utils", reason=needs.MISSING["tinker_cookbook"])
    for name in TINKER_MODELS:
        assert hyperparameters.get_lora_param_count(name) == theirs.get_lora_param_count(name)
        if "llama" in name.lower() or "qwen" in name.lower():
            for is_lora in (True, False):
                ours = hyperparameters.get_lr(name, is_lora)
                assert math.isclose(ours, theirs.get_lr(name, is_lora), rel_tol=1e-12)
    factor = theirs.get_lora_lr_over_full_finetune_lr("Qwen/Qwen3-8B")
    assert factor == hyperparameters.get_lora_lr_over_full_finetune_lr()
    ours = hyperparameters.get_lora_lr_over_full_finetune_lr("Qwen/Qwen3-8B", lora_alpha=32)
    assert ours == theirs.get_lora_lr_over_full_finetune_lr("Qwen/Qwen3-8B", lora_alpha=32)
