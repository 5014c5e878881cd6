"""Checkpoints as trainers write them, with a few bytes of weights."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

LONG_AGO_SECONDS = 60.0
"""Before now: no rule about recent changes applies."""


def safetensors(size: int = 16, tensors: int = 2) -> bytes:
    """A file with tensors of some bytes each."""
    header = {"__metadata__": {"format": "pt"}} | {
        f"layer.{n}": {"dtype": "U8", "shape": [size], "data_offsets": [n * size, (n + 1) * size]}
        for n in range(tensors)
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size * tensors)


def model_files() -> dict[str, bytes]:
    """Of a model in one file, in the order in which transformers writes them."""
    return {"config.json": b"{}", "model.safetensors": safetensors(), "tokenizer.json": b"{}"}


def sharded_files(shards: int = 2) -> dict[str, bytes]:
    """Of a model in several files, with an index."""
    names = [f"model-{n + 1:05}-of-{shards:05}.safetensors" for n in range(shards)]
    index = {"metadata": {"total_size": 1}, "weight_map": {f"layer.{n}": name for n, name in enumerate(names)}}
    weights = {name: safetensors(size=8 * (n + 1)) for n, name in enumerate(names)}
    return {"config.json": b"{}"} | weights | {"model.safetensors.index.json": json.dumps(index).encode()}


def adapter_files() -> dict[str, bytes]:
    """Of an adapter, in the order in which peft writes them."""
    return {"adapter_model.safetensors": safetensors(), "adapter_config.json": b'{"peft_type": "LORA"}'}


def write(folder: Path, files: Mapping[str, bytes], *, old: bool = True) -> Path:
    """Write files into a folder, which is made. `old`: as if that was long ago."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    if old:
        age(folder)
    return folder


def age(folder: Path) -> None:
    """Set the times of a folder and of all in it to long ago, each file at another time."""
    for n, path in enumerate(_inside(folder)):
        when = time.time() - LONG_AGO_SECONDS + n / 1_000
        os.utime(path, (when, when), follow_symlinks=False)


def _inside(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.rglob("*"))
    yield folder
