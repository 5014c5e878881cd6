"""A checkpoint, and what identifies it: the state of its files on disk, and digests of their content.

An open model is known by the paths and the state of its files, never by a digest. The digest is for what lasts longer
than a process: an evaluation resumes only with equal weights.

A model of 16 GB takes half a minute to hash. So of a safetensors file above 64 MiB, its header and some of each tensor
count: all of a tensor up to 192 KiB, else three blocks, the first, the middle and the last one. A block has 64 KiB, or
less if there are many: about 16 MiB of a file count, and at least 4 KiB of each block. On two busy cores, without the
time of a disk, a dense model of 16 GB took 0.1 s, and 18,000 tensors of 60 GB took 3 s. A digest of every byte is
computed later, in the background.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import structlog

from crucible_bridge.errors import BridgeError, FailedPrecondition, NotFound
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.paths import Tensor, adapter_files, model_files, read_header
from crucible_worker.children.lifetime import lower_priority
from crucible_worker.util.fingerprints import FULL, TENSORS

__all__ = ["Checkpoint", "CheckpointIdentity", "Fingerprints", "changed", "key_of_files"]

# What is opened as one model: weights, an adapter on them, element type, device.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Directories that passed the safety checks, and how to load them."""

    directory: Path
    """The model's."""
    adapter: Path | None = None
    """Directory of the LoRA adapter, if any."""
    dtype: str | None = None
    """Requested element type of the weights. Another type is another model."""
    default_dtype: str | None = None
    """Element type if none is requested; if None, float32 on a CPU, and that of the files on CUDA."""
    device: str | None = None
    """"cpu", "cuda" or "cuda:N", or several of one kind, separated by commas; the host's own if None."""
    target_delimiter: str | None = None
    """Text between a prompt and its answer in one text, if it is known for this model; see `Tokenizer`."""

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that each have a replica; none if there are not several."""
        devices = () if self.device is None else tuple(self.device.split(","))
        return devices if len(devices) > 1 else ()


_WHOLE_FILE_BYTES = 64 << 20
"""Of smaller files every byte counts."""
_BLOCKS = 3
_BLOCK_BYTES = 64 << 10
_LEAST_BLOCK_BYTES = 4 << 10
_WHOLE_TENSOR_BYTES = _BLOCKS * _BLOCK_BYTES
_BLOCKS_BYTES = 16 << 20
"""About as many bytes of a file have all its blocks together."""
_READ_BYTES = 1 << 20
_MAX_CACHED_FILES = 4_096
_MAX_READINGS = 8
"""So often a checkpoint is read while only the times of change of its files change."""

_BACKGROUND_BYTES_PER_SECOND = 256 << 20
"""Most that a digest of every byte reads in the background: loading and computing come first."""
_MIN_CORES = 2
"""A machine with fewer computes no such digest."""
_NICENESS = 19

_log = structlog.get_logger(__name__)

_Stamp = tuple[int, int, int, int, int]
"""Device, inode, size in bytes, time of writing, and time of change of a file, both in ns."""
_State = Sequence[tuple[Path, Sequence[tuple[Path, _Stamp]]]]
"""Of each directory of a checkpoint, its files."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointIdentity:
    """A checkpoint at one moment."""

    key: str
    """Names its paths, its requested type and the state of its files: another one if a file was touched."""
    lasting: str
    """Likewise without the time of change, which is also that of a hard link to a file."""
    fingerprint: str
    """Digest of its content, see `crucible_worker.util.fingerprints`."""

    def continues(self, now: CheckpointIdentity) -> bool:
        """Whether a later moment shows the same content."""
        return self.key == now.key or (self.lasting == now.lasting and self.fingerprint == now.fingerprint)


class Fingerprints:
    """Identities of checkpoints; a file is read again only if its state has changed."""

    def __init__(self) -> None:
        self._digests: dict[tuple[str, Path, _Stamp], bytes] = {}

    def of(self, checkpoint: Checkpoint) -> str:
        """The fingerprint of a checkpoint's present files; see `identify`."""
        return self.identify(checkpoint).fingerprint

    def identify(self, checkpoint: Checkpoint) -> CheckpointIdentity:
        """The identity of a checkpoint's present files. Reads files: call it in a thread.

        An adapter or a requested type gives another fingerprint; the device and a default type do not.

        Raises:
            NotFound: a directory, or a file while it was read, no longer exists.
            FailedPrecondition: a file is damaged (MODEL_REFUSED), or files changed while they were read
                (CHECKPOINT_CHANGED).
        """
        state = _state_of(checkpoint)
        lasting = _key_of(state, checkpoint.dtype, lasting=True)
        for _ in range(_MAX_READINGS):
            kind = TENSORS if any(_is_large(*each) for _, files in state for each in files) else FULL
            digest = self._total(checkpoint, state, self._quick_digest)
            before, state = state, _state_of(checkpoint)
            if state == before:
                return CheckpointIdentity(
                    key=_key_of(state, checkpoint.dtype), lasting=lasting, fingerprint=f"{kind}:{digest}"
                )
            # Another evaluation may have made or removed a hard link meanwhile. Only a new reading tells
            # that from a file that was written again.
            if _key_of(state, checkpoint.dtype, lasting=True) != lasting:
                break
        raise changed(checkpoint)

    async def full(self, checkpoint: Checkpoint, key: str) -> str | None:
        """The fingerprint with a digest of every byte, computed at a low priority; gives up when it is cancelled.

        Args:
            checkpoint: the checkpoint.
            key: of its identity when it was opened.

        Returns:
            None if its files have changed since then or cannot be read, or if this machine has only one core.
        """
        if len(os.sched_getaffinity(0)) < _MIN_CORES:
            return None
        given_up = threading.Event()
        work = self._background.submit(self._full, checkpoint, key, _Pace(given_up))
        try:
            return await asyncio.wrap_future(work)
        except (BridgeError, OSError) as error:  # a trainer may have removed it; what is loaded can be evaluated
            _log.info("no_full_digest", checkpoint=checkpoint.directory.name, error=str(error))
            return None
        finally:
            given_up.set()

    def _full(self, checkpoint: Checkpoint, key: str, pace: _Pace) -> str | None:
        state = _state_of(checkpoint)
        if _key_of(state, checkpoint.dtype) != key:
            return None
        digest = self._total(checkpoint, state, functools.partial(self._full_digest, pace=pace))
        return f"{FULL}:{digest}" if _state_of(checkpoint) == state else None

    @functools.cached_property
    def _background(self) -> concurrent.futures.ThreadPoolExecutor:
        return concurrent.futures.ThreadPoolExecutor(
            1, "digest of a checkpoint", functools.partial(lower_priority, _NICENESS)
        )

    def _total(self, checkpoint: Checkpoint, state: _State, digest_of: Callable[[Path, _Stamp], bytes]) -> str:
        (folder, files), *others = state
        total = _sum(folder, files, digest_of)
        for other in others:
            total.update(b"adapter" + _sum(*other, digest_of).digest())
        if checkpoint.dtype is not None:
            total.update(b"dtype" + checkpoint.dtype.encode())
        return total.hexdigest()

    def _quick_digest(self, file: Path, stamp: _Stamp) -> bytes:
        if not _is_large(file, stamp):
            return self._full_digest(file, stamp)
        return self._cached(TENSORS, file, stamp, lambda: _hash_tensors(file, stamp[2]))

    def _full_digest(self, file: Path, stamp: _Stamp, pace: Callable[[int], None] = lambda count: None) -> bytes:
        return self._cached(FULL, file, stamp, lambda: _hash_whole(file, stamp[2], pace))

    def _cached(self, kind: str, file: Path, stamp: _Stamp, make: Callable[[], bytes]) -> bytes:
        key = (kind, file, stamp)
        digest = self._digests.get(key)
        if digest is None:
            digest = make()
            if len(self._digests) >= _MAX_CACHED_FILES:
                self._digests.clear()
            self._digests[key] = digest
        return digest


def changed(checkpoint: Checkpoint) -> FailedPrecondition:
    """The error about a checkpoint that is no longer what was opened."""
    return FailedPrecondition(
        f"the checkpoint {checkpoint.directory.name!r} has changed", reason=Reason.CHECKPOINT_CHANGED
    )


def key_of_files(directory: Path, files: Sequence[Path]) -> str:
    """Names the present state of some files of a directory: another one if one of them was touched.

    Raises:
        NotFound: a file is gone.
    """
    return _key_of([(directory, _stamped(directory, files))])


class _Pace:
    """Keeps background work below its rate, and to half of one core."""

    def __init__(self, given_up: threading.Event) -> None:
        self._given_up = given_up
        self._since = time.monotonic()

    def __call__(self, count: int) -> None:
        """Wait after `count` bytes.

        Raises:
            CancelledError: no one waits for the result.
        """
        taken = time.monotonic() - self._since
        if self._given_up.wait(max(taken, count / _BACKGROUND_BYTES_PER_SECOND - taken)):
            raise concurrent.futures.CancelledError
        self._since = time.monotonic()


def _state_of(checkpoint: Checkpoint) -> _State:
    directories = [(checkpoint.directory, model_files(checkpoint.directory))]
    if checkpoint.adapter is not None:
        directories.append((checkpoint.adapter, adapter_files(checkpoint.adapter)))
    return [(directory, _stamped(directory, files)) for directory, files in directories]


def _stamped(directory: Path, files: Sequence[Path]) -> Sequence[tuple[Path, _Stamp]]:
    with _refusing(directory):
        return [
            (file, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
            for file in files
            for found in (file.stat(),)
        ]


def _key_of(state: _State, dtype: str | None = None, *, lasting: bool = False) -> str:
    parts: list[Any] = [
        (
            str(directory.resolve()),
            [(str(file.relative_to(directory)), stamp[:-1] if lasting else stamp) for file, stamp in files],
        )
        for directory, files in state
    ]
    return hashlib.sha256(json.dumps([*parts, dtype]).encode()).hexdigest()


def _is_large(file: Path, stamp: _Stamp) -> bool:
    """Whether only some bytes of each of its tensors count."""
    return file.suffix == ".safetensors" and stamp[2] > _WHOLE_FILE_BYTES


def _sum(
    directory: Path, files: Sequence[tuple[Path, _Stamp]], digest_of: Callable[[Path, _Stamp], bytes]
) -> hashlib._Hash:
    total = hashlib.sha256()
    for file, stamp in files:
        with _refusing(directory):
            digest = digest_of(file, stamp)
        name = os.fsencode(file.relative_to(directory))  # it may be any bytes
        total.update(len(name).to_bytes(4, "little") + name + digest)
    return total


@contextlib.contextmanager
def _refusing(directory: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        name = Path(error.filename).name
        raise NotFound(f"{name!r} of {directory.name!r} is gone", reason=Reason.MODEL_NOT_FOUND) from None


def _hash_whole(file: Path, size: int, pace: Callable[[int], None]) -> bytes:
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    with file.open("rb", buffering=0) as stream:
        while block := stream.read(_READ_BYTES):
            digest.update(block)
            pace(len(block))
    return digest.digest()


def _hash_tensors(file: Path, size: int) -> bytes:
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    with file.open("rb") as stream:
        try:
            header = read_header(stream)
        except ValueError as error:
            raise FailedPrecondition(
                f"{file.name!r} of {file.parent.name!r} is damaged: {error}", reason=Reason.MODEL_REFUSED
            ) from error
        digest.update(header.text)
        tensors = sorted(header.tensors.values(), key=lambda tensor: tensor.begin)
        large = sum(_length(tensor) > _WHOLE_TENSOR_BYTES for tensor in tensors)
        block = max(_LEAST_BLOCK_BYTES, min(_BLOCK_BYTES, _BLOCKS_BYTES // (_BLOCKS * max(1, large))))
        for tensor in tensors:
            for begin, length in _parts(tensor, block):
                digest.update(os.pread(stream.fileno(), length, begin))
    return digest.digest()


def _length(tensor: Tensor) -> int:
    return tensor.end - tensor.begin


def _parts(tensor: Tensor, block: int) -> Sequence[tuple[int, int]]:
    """Begin and length of the parts of a tensor that count."""
    length = _length(tensor)
    if length <= _WHOLE_TENSOR_BYTES:
        return [(tensor.begin, length)]
    begins = (tensor.begin, tensor.begin + (length - block) // 2, tensor.end - block)
    return [(begin, block) for begin in begins]
