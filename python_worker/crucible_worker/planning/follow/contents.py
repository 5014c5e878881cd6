"""Whether a folder contains a whole model or adapter: all its files, each safetensors file as long as its header says.

A trainer writes a checkpoint file by file, and deletes it so. Names, lengths and the headers of weights show what is
missing; weights themselves are not read. A whole checkpoint is a model: the folder, or its adapter on another model.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from crucible_bridge.errors import clipped
from crucible_bridge.types import HubModel, LocalModel, ModelRef, format_model, parse_model
from crucible_bridge.types.hub import REPO_ID
from crucible_worker.backends.local.paths import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    INDEX,
    PICKLED_SUFFIXES,
    RELEVANT_SUFFIXES,
)
from crucible_worker.util.model_refs import ManagedRef, as_managed

__all__ = [
    "MAX_VALUE_CHARS",
    "TRAINER_STATE",
    "FileSignature",
    "FolderContents",
    "Incomplete",
    "JsonReader",
    "NoBaseModel",
    "examine",
    "model_of",
    "step_of_trainer_state",
    "takes_adapter",
]

MODEL_CONFIG = "config.json"
"""Of a model that is no adapter."""
MODEL_WEIGHTS = "model.safetensors"
"""Of a model in one file."""
TRAINER_STATE = "trainer_state.json"
"""Written by trainers of Hugging Face; its global_step is the step."""

MAX_HEADER_BYTES = 100_000_000
"""Of a safetensors file, by its format."""
MAX_INDEX_BYTES = 64 * 1024 * 1024
"""Of the index of a sharded model: about 600,000 tensors."""
MAX_CONFIG_BYTES = 4 * 1024 * 1024
"""Of config.json and adapter_config.json."""
MAX_TRAINER_STATE_BYTES = 16 * 1024 * 1024
"""Of trainer_state.json, which grows with each line of the trainer's log. Its global_step comes before that log."""
MAX_SHARDS = 10_000
"""Files of a sharded model."""

_LENGTH_BYTES = 8
_METADATA = "__metadata__"
_NO_WEIGHTS = ("optimizer", "scheduler", "scaler", "rng_state", "training_args")


@dataclasses.dataclass(frozen=True, slots=True)
class FileSignature:
    """What changes when a file is written again."""

    size: int
    """Bytes."""
    mtime_ns: int
    """When it was last written to."""
    inode: int
    """Changes when another file takes its name."""

    @classmethod
    def of(cls, status: os.stat_result) -> FileSignature:
        """From the answer of `os.stat`."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FolderContents:
    """What was found in the folder of a whole model or adapter."""

    adapter: bool
    """Whether it is an adapter, which needs its model."""
    weights: tuple[str, ...]
    """Paths of its safetensors files in the folder, sorted."""
    files: Mapping[str, FileSignature]
    """All files that loading reads: configuration, tokenizer, weights."""
    last: FileSignature | None
    """Of the file that its trainer writes at the end: the marker, or a complete trainer_state.json; None without it."""

    @property
    def identity(self) -> str:
        """Hexadecimal digits that change when the weights are written again."""
        stamps = [(name, *dataclasses.astuple(self.files[name])) for name in self.weights]
        return hashlib.blake2b(json.dumps(stamps).encode(), digest_size=16).hexdigest()

    @property
    def written_at(self) -> float:
        """When the last of its files was written, in Unix seconds by the clock of the file system."""
        return max(stamp.mtime_ns for stamp in self.files.values()) / 1e9


class Incomplete(Exception):
    """Something is missing."""

    def __init__(self, reason: str, *, by_names: bool = False) -> None:
        """Say what, in one sentence without a subject. `by_names`: names of files alone have shown it."""
        super().__init__(reason)
        self.reason = reason
        self.by_names = by_names


def examine(path: Path, marker: str | None = None) -> FolderContents:
    """Look into a folder. Reads headers of weights: call it in a thread.

    Args:
        path: the folder.
        marker: a file that has to be there.

    Raises:
        Incomplete: it contains no whole model or adapter, or cannot be read.
    """
    names = _names(path)
    if marker is not None and marker not in names:
        raise Incomplete(f"waits for its marker {marker!r}", by_names=True)
    adapter = ADAPTER_CONFIG in names
    if adapter:
        config, weights = ADAPTER_CONFIG, (ADAPTER_WEIGHTS,)
    else:
        config, weights = MODEL_CONFIG, _model_weights(path, names)
    for name in (*weights, config):
        if "/" not in name and name not in names:
            raise Incomplete(_without(name, names), by_names=name in (MODEL_CONFIG, MODEL_WEIGHTS, ADAPTER_WEIGHTS))
    _check_config(path, config)
    for name in weights:
        _check_length(path, name)
    needed = {config, *weights}
    # Files next to an adapter do not belong to it: see `adapter_files` of the local models.
    others = set() if adapter else {name for name in names if Path(name).suffix in RELEVANT_SUFFIXES}
    files = _stamps(path, needed | others, needed)
    return FolderContents(adapter=adapter, weights=weights, files=files, last=_last(path, names, marker))


def step_of_trainer_state(path: Path) -> int | None:
    """The global_step of the trainer_state.json in a folder; None if there is no such file.

    Raises:
        Incomplete: the file has no such number, or not yet.
    """
    if not os.path.isfile(path / TRAINER_STATE):
        return None
    try:
        reader = JsonReader(_read(path, TRAINER_STATE, MAX_TRAINER_STATE_BYTES).decode())
        for name in reader.members():
            if name != "global_step":
                reader.pass_over()
            else:
                value = reader.value()
                if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
                    return value
                break
    except (ValueError, RecursionError) as error:
        _malformed(TRAINER_STATE, error)
    raise Incomplete(f"has no step: its name has none, and its {TRAINER_STATE} has no global_step")


def _last(path: Path, names: Collection[str], marker: str | None) -> FileSignature | None:
    name = marker or TRAINER_STATE
    if name not in names or (marker is None and not _is_complete(path, name)):
        return None
    return _stamps(path, {name}, {name}).get(name)


def _is_complete(path: Path, name: str) -> bool:
    """Whether a file is a JSON object to its end."""
    try:
        reader = JsonReader(_read(path, name, MAX_TRAINER_STATE_BYTES).decode())
        for _ in reader.members():
            reader.pass_over()
        return reader.ended()
    except (ValueError, RecursionError, Incomplete):
        return False


def _names(path: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(path))
    except FileNotFoundError:
        raise Incomplete("is gone") from None
    except OSError as error:
        raise Incomplete(f"cannot be read ({error.strerror})") from None


def _model_weights(path: Path, names: Collection[str]) -> tuple[str, ...]:
    """Names of the files of a model's weights: of one file, if it is there. Loading refuses it next to shards."""
    if MODEL_WEIGHTS in names or INDEX not in names:
        return (MODEL_WEIGHTS,)
    shards: set[str] = set()
    try:
        reader = JsonReader(_read(path, INDEX, MAX_INDEX_BYTES).decode())
        for name in reader.members():
            if name != "weight_map":
                reader.value()
                continue
            for _tensor in reader.members():
                shards.add(_shard(reader.value()))
                if len(shards) > MAX_SHARDS:
                    raise Incomplete(f"has an index of more than {MAX_SHARDS:,} files")
        if not reader.ended():
            raise ValueError("text follows the object")
    except (ValueError, RecursionError) as error:
        _malformed(INDEX, error)
    if not shards:
        raise Incomplete(f"has an index {INDEX!r} that names no file")
    return tuple(sorted(shards))


def _shard(name: Any) -> str:
    parts = name.split("/") if isinstance(name, str) else [""]
    if "\0" in parts[-1] or any(part in ("", ".", "..") for part in parts) or not name.endswith(".safetensors"):
        raise ValueError(f"{clipped(str(name))} is not the name of a safetensors file")
    return name


def _without(name: str, names: Collection[str]) -> str:
    """What to say of a folder without one of its files."""
    if not name.endswith(".safetensors"):
        return f"has no {name}"
    pickled = sorted(n for n in names if Path(n).suffix in PICKLED_SUFFIXES and not n.startswith(_NO_WEIGHTS))
    if pickled:
        return f"has only pickled weights ({pickled[0]!r}), which can run code; save them as safetensors"
    if any(n.endswith(".distcp") for n in names):
        return "has only weights of a distributed checkpoint (*.distcp); save them as safetensors"
    if name == ADAPTER_WEIGHTS:
        return f"has no {name}"
    if name == MODEL_WEIGHTS and ADAPTER_WEIGHTS in names:
        return f"has {ADAPTER_WEIGHTS}, and no {ADAPTER_CONFIG}"
    if name == MODEL_WEIGHTS:
        return f"has neither {name} nor {INDEX}"
    return f"has no {name}, which its index names"


def _check_config(path: Path, name: str) -> None:
    try:
        reader = JsonReader(_read(path, name, MAX_CONFIG_BYTES).decode())
        for _ in reader.members():
            reader.pass_over()
        if not reader.ended():
            raise ValueError("text follows the object")
    except (ValueError, RecursionError) as error:
        _malformed(name, error)


def _check_length(path: Path, name: str) -> None:
    """Compare a safetensors file with its header: 8 bytes with the header's length, JSON, the tensors.

    Source: https://huggingface.co/docs/safetensors/index#format
    """
    with _opened(path, name) as stream:
        size = os.fstat(stream.fileno()).st_size
        start = stream.read(_LENGTH_BYTES)
        length = int.from_bytes(start, "little")
        if len(start) < _LENGTH_BYTES or size < _LENGTH_BYTES + length <= _LENGTH_BYTES + MAX_HEADER_BYTES:
            raise Incomplete(f"has {size:,} bytes of {name}, which end in its header")
        if length > MAX_HEADER_BYTES:
            raise Incomplete(f"has a {name} with a header of {length:,} bytes; at most {MAX_HEADER_BYTES:,} are valid")
        header = stream.read(length)
    try:
        expected = _LENGTH_BYTES + length + _end_of_tensors(header.decode())
    except (ValueError, RecursionError) as error:
        _malformed(name, error)
    if size != expected:
        raise Incomplete(f"has {size:,} bytes of {name}; its header says {expected:,}")


def _end_of_tensors(header: str) -> int:
    end = 0
    reader = JsonReader(header)
    for name in reader.members():
        if name == _METADATA:
            for _ in reader.members():
                reader.text()
            continue
        tensor = reader.value()
        offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
        if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(offset) is int for offset in offsets)):
            raise ValueError(f"the tensor {clipped(name)} has no data_offsets")
        if not 0 <= offsets[0] <= offsets[1]:
            raise ValueError(f"the tensor {clipped(name)} ends before it begins")
        end = max(end, offsets[1])
    if not reader.ended():
        raise ValueError("text follows the object")
    return end


def _stamps(path: Path, names: Collection[str], needed: Collection[str]) -> dict[str, FileSignature]:
    """Stamps of regular files; a file that is not needed may be gone meanwhile, or be none."""
    stamps: dict[str, FileSignature] = {}
    for name in sorted(names):
        try:
            status = os.stat(path / name)
        except OSError as error:
            if name in needed:
                _unreadable(name, error)
            continue
        if stat.S_ISREG(status.st_mode):
            stamps[name] = FileSignature.of(status)
    return stamps


def _read(path: Path, name: str, limit: int) -> bytes:
    with _opened(path, name) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > limit:
            raise Incomplete(f"has a {name} of {size:,} bytes; at most {limit:,} are read")
        return stream.read(limit)


def _opened(path: Path, name: str) -> BinaryIO:
    """A regular file, opened for reading; a pipe of that name would make its reader wait."""
    try:
        stream = open(path / name, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    except OSError as error:
        _unreadable(name, error)
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise Incomplete(f"has no {name} that is a file")
    return stream


def _without_waiting(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK)


def _unreadable(name: str, error: OSError) -> NoReturn:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        raise Incomplete(f"has no {name}") from None
    raise Incomplete(f"has a {name} that cannot be read ({error.strerror})") from None


def _malformed(name: str, error: Exception) -> NoReturn:
    text = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    raise Incomplete(f"has a malformed {name}: {text}") from None


# The model that a checkpoint is: its directory, or the adapter in it on the model that it belongs to.

MAX_ADAPTER_CONFIG_BYTES = 1 << 20
"""Largest adapter_config.json that is read."""


class NoBaseModel(Exception):
    """The model of an adapter is not known; the text says why."""


def takes_adapter(model: ModelRef) -> bool:
    """Whether a model can be the one of adapters."""
    managed = as_managed(model)
    if managed is not None:
        return managed.adapter is None
    return isinstance(model, LocalModel | HubModel) and model.adapter_path is None


def model_of(path: Path, *, adapter: bool, base_model: str) -> str:
    """The model as text, as `parse_model` reads it. Reads a file.

    Args:
        path: the absolute path of the checkpoint's directory.
        adapter: whether it is an adapter.
        base_model: the model of adapters; if empty, the one that the adapter's configuration names. A managed server,
            "managed:vllm", serves whole checkpoints, too.

    Raises:
        NoBaseModel: it is an adapter, and its model is not known, or takes no adapter.
    """
    given = parse_model(base_model) if base_model else None
    server = None if given is None else as_managed(given)
    if server is not None:
        return format_model(_managed(path, server, adapter=adapter).to_model())
    if not adapter:
        return format_model(LocalModel(str(path)))
    base = given or _named_by(path)
    if not isinstance(base, LocalModel | HubModel):
        raise NoBaseModel(f"the base model {base_model!r} is neither local:, hub: nor managed:, and takes no adapter")
    return format_model(dataclasses.replace(base, adapter_path=str(path)))


def _managed(path: Path, server: ManagedRef, *, adapter: bool) -> ManagedRef:
    """The checkpoint at a managed server.

    Raises:
        NoBaseModel: it is an adapter, and its model is not known, or is no folder.
    """
    if not adapter:
        return dataclasses.replace(server, path=str(path))
    if not server.path:
        named = _named_by(path)
        if not isinstance(named, LocalModel):
            raise NoBaseModel(
                f"the base model {format_model(named)!r} is no folder, as a managed server needs: name one by "
                f"--base-model managed:{server.server}/PATH (base_model of FollowRun)"
            )
        server = dataclasses.replace(server, path=named.path)
    return dataclasses.replace(server, adapter=str(path))


def _named_by(path: Path) -> LocalModel | HubModel:
    cure = "name its model by --base-model (base_model of FollowRun)"
    try:
        with (path / ADAPTER_CONFIG).open("rb") as file:
            config = json.loads(file.read(MAX_ADAPTER_CONFIG_BYTES))
        name = config["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NoBaseModel(f"{ADAPTER_CONFIG} names no base model ({type(error).__name__}): {cure}") from None
    if not isinstance(name, str) or not name or "\0" in name:
        raise NoBaseModel(f"{ADAPTER_CONFIG} names no base model: {cure}")
    if REPO_ID.fullmatch(name) and "/" in name and ".." not in name:
        return HubModel(name)
    return LocalModel(name)


# Reading a large JSON object member by member.
#
# Python's parser lets no other thread run until it has read its whole text: seconds and gigabytes for the 100 MB of
# `[[],[],[],...]`. Here it reads at most `MAX_VALUE_CHARS` at once, and between two values other threads run.

MAX_VALUE_CHARS = 256 * 1024
"""Of a value that is read as a whole. The worst ones of this length take 20 ms."""
_USUAL_VALUE_CHARS = 2 * 1024
"""Tried first: a part of the text is copied before it is parsed."""
_END_OF_NUMBER = 4
"""Characters at the end of a part that may belong to a number which ends before them: `1` of `1e-5`."""
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


class JsonReader:
    """A position in a JSON text.

    Example: `for name in reader.members(): sizes[name] = reader.value()`.

    Raises:
        ValueError, RecursionError: by its methods, if the text is not JSON, or too deep.
    """

    def __init__(self, text: str) -> None:
        """Begin at the start of a text."""
        self._text = text
        self._at = 0
        self._skip()

    def members(self) -> Iterator[str]:
        """The names of the object at the position.

        After each name the caller reads its value, by `value`, or by `members` to the end.
        """
        self._expect("{")
        if self._sign() == "}":
            self._expect("}")
            return
        while True:
            name = self.value()
            if not isinstance(name, str):
                raise ValueError(f"character {self._at:,} follows a name that is no string")
            self._expect(":")
            yield name
            if self._sign() == "}":
                self._expect("}")
                return
            self._expect(",")

    def items(self) -> Iterator[None]:
        """The list at the position: after each step the caller reads one of its values, as after `members`."""
        self._expect("[")
        if self._sign() == "]":
            self._expect("]")
            return
        while True:
            yield
            if self._sign() == "]":
                self._expect("]")
                return
            self._expect(",")

    def value(self) -> Any:
        """The value at the position, as `json.loads` returns it; a ValueError if it is long."""
        for limit in (_USUAL_VALUE_CHARS, MAX_VALUE_CHARS):
            part = self._text[self._at : self._at + limit]
            whole = len(self._text) - self._at <= limit
            try:
                value, length = _DECODER.raw_decode(part)
            except ValueError:
                if whole:
                    raise
                continue
            if whole or length < limit - _END_OF_NUMBER:
                self._at += length
                self._skip()
                return value
        raise ValueError(f"character {self._at:,} begins no value of at most {MAX_VALUE_CHARS:,} characters")

    def text(self) -> str:
        """The text at the position, whatever its length."""
        if self._sign() != '"':
            raise ValueError(f"character {self._at:,} begins no text")
        value, self._at = _DECODER.raw_decode(self._text, self._at)
        self._skip()
        return value

    def pass_over(self) -> None:
        """Go to the end of the value at the position, whatever its length."""
        sign = self._sign()
        if sign == '"':
            self.text()
            return
        try:
            self.value()
        except ValueError:
            if sign not in ("{", "["):
                raise
        else:
            return
        for _ in self.members() if sign == "{" else self.items():
            self.pass_over()

    def ended(self) -> bool:
        """Whether nothing but space follows."""
        return self._at == len(self._text)

    def _sign(self) -> str:
        return self._text[self._at : self._at + 1]

    def _expect(self, sign: str) -> None:
        if self._sign() != sign:
            raise ValueError(f"character {self._at:,} is not {sign!r}")
        self._at += 1
        self._skip()

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        assert space is not None  # it matches nothing, too
        self._at = space.end()
