"""Small models of several architectures, and a scheduler to run them in this process."""

import pytest

ARCHITECTURES = {
    "llama": {},
    "mistral": {"sliding_window": 4},
    "qwen3": {},
    "gemma3_text": {
        "sliding_window": 4,
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 48},
    "gpt_neox": {},
    "bloom": {"hidden_size": 16, "n_layer": 2, "n_head": 2},
    "opt": {"ffn_dim": 32, "word_embed_proj_dim": 16},
    "mamba": {"state_size": 4},
    "mamba2": {"state_size": 4, "num_heads": 4, "head_dim": 8, "n_groups": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
}
"""Architectures that differ in where positions come from and in what their cache holds."""

_SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 48,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}


@pytest.fixture(scope="session")
def make_model(tmp_path_factory):
    """A function from the name of an architecture to a directory with a random model of it, the same on every run."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    made = {}

    def make(name):
        if name not in made:
            torch.manual_seed(0)
            sizes = (
                {"vocab_size": 40} | ARCHITECTURES[name] if name in ("gpt2", "bloom") else _SIZES | ARCHITECTURES[name]
            )
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **sizes))
            for parameter in model.parameters():  # far apart: no ties that rounding could break
                parameter.data.mul_(8)
            made[name] = tmp_path_factory.mktemp(name)
            model.save_pretrained(made[name])
        return made[name]

    return make
