"""Train the embedded checkpoints: one run of a small Llama on two-digit addition.

    python -m crucible_worker.embedded.train

The checkpoints that ship were made by this script. The same machine, torch and number of threads give the same weights;
other processors may round differently, and accuracies then move by a few points.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from crucible_worker.embedded.arithmetic import held_out, training_problems

__all__ = ["main"]

CHECKPOINTS = (180, 240, 320, 600)
"""Steps that are saved; chosen by `--curve` for held-out accuracies of 11, 43, 76 and 97 %."""
CONTEXT = 32
"""Tokens. Problems need 10; the rest is room for tests of a full context."""

_SEED = 20
_BATCH = 256
_PEAK_RATE = 2e-3
_WARMUP_STEPS = 50
_THREADS = 2
_SPECIAL = ("<pad>", "<eos>", "<unk>")
_PAD, _EOS = 0, 1
_CHARACTERS = "0123456789+="


def main() -> None:
    """Train, save the checkpoints, print step, loss and held-out accuracy."""
    parser = argparse.ArgumentParser(description="Train the embedded arithmetic checkpoints.")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "checkpoints" / "arithmetic")
    parser.add_argument("--curve", type=int, metavar="STEPS", help="save nothing; print the accuracy every 20 steps")
    arguments = parser.parse_args()
    torch.manual_seed(_SEED)
    torch.set_num_threads(_THREADS)
    torch.use_deterministic_algorithms(True)
    tokenizer = _make_tokenizer()
    model = _make_model()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    stops = range(20, arguments.curve + 1, 20) if arguments.curve else CHECKPOINTS
    for step, loss in _train(model, tokenizer, max(stops)):
        if step not in stops:
            continue
        if not arguments.curve:
            _save(model, tokenizer, arguments.output / str(step))
        print(json.dumps({"step": step, "loss": round(loss, 4), "accuracy": _accuracy(model, tokenizer)}), flush=True)


def _make_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character; anything else is <unk>."""
    vocabulary = {token: index for index, token in enumerate((*_SPECIAL, *_CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def _make_model() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(_SPECIAL) + len(_CHARACTERS),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=_PAD,
        eos_token_id=_EOS,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)


def _train(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, steps: int) -> Iterator[tuple[int, float]]:
    """Yield (step, loss) after every step; the loss is on the answer and the end of sequence only."""
    inputs, labels = _encode_problems(tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_PEAK_RATE, weight_decay=0.1, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / _WARMUP_STEPS))
    order: list[int] = []
    generator = random.Random(_SEED)
    for step in range(1, steps + 1):
        if len(order) < _BATCH:
            order = generator.sample(range(len(inputs)), len(inputs))
        rows = torch.tensor([order.pop() for _ in range(_BATCH)])
        model.train()
        loss = model(input_ids=inputs[rows], labels=labels[rows]).loss
        if loss is None or not math.isfinite(loss.item()):
            raise RuntimeError(f"the loss of step {step} is not finite")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        yield step, loss.item()


def _encode_problems(tokenizer: PreTrainedTokenizerFast) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels of all training problems, shape (problems, 10); -100 for tokens without loss.

    Padding is on the right: causal attention ignores it without a mask.
    """
    problems = training_problems()
    width = max(len(question) + len(answer) + 1 for question, answer in problems)
    inputs = torch.full((len(problems), width), _PAD)
    labels = torch.full((len(problems), width), -100)
    for row, (question, answer) in enumerate(problems):
        ids = torch.tensor([*tokenizer.encode(question + answer), _EOS])
        inputs[row, : len(ids)] = ids
        labels[row, len(question) : len(ids)] = ids[len(question) :]
    return inputs, labels


@torch.inference_mode()
def _accuracy(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> float:
    """Share of held-out problems whose answer is generated greedily, in the half precision that is saved."""
    half: Any = LlamaForCausalLM(model.config)
    half.load_state_dict({name: weights.half().float() for name, weights in model.state_dict().items()})
    half.eval()
    samples = held_out()
    ids = torch.tensor([tokenizer.encode(str(sample.input)) for sample in samples])
    generated = half.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False)
    texts = tokenizer.batch_decode(generated[:, ids.shape[1] :], skip_special_tokens=True)
    return sum(text == sample.targets[0] for text, sample in zip(texts, samples, strict=True)) / len(samples)


def _save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    half = LlamaForCausalLM(model.config)
    half.load_state_dict(model.state_dict())
    half.half().save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    for file in directory.iterdir():  # safetensors writes files for their owner only; installed files are for all users
        file.chmod(0o644)


if __name__ == "__main__":
    main()
