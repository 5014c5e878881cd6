"""The fingerprint of a checkpoint: SHA-256 over the names and contents of its files.

A file above 64 MiB counts by its size and 64 blocks of 1 MiB, evenly spaced, the first and the last included: hashing
all of a 16 GB model would take half a minute. Training changes every weight, so the blocks change with the weights; an
edit of a few bytes between two blocks is not detected.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from crucible_bridge.errors import NotFound
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.checkpoint import Checkpoint
from crucible_worker.backends.local.paths import adapter_files, model_files

__all__ = ["Fingerprints"]

_FULL_BYTES = 64 << 20
_BLOCK_BYTES = 1 << 20
_BLOCKS = 64
_MAX_CACHED_FILES = 4_096

_Key = tuple[str, int, int, int]


class Fingerprints:
    """Fingerprints of directories; a file is read again only if its size, time of change or inode differs."""

    def __init__(self) -> None:
        self._digests: dict[_Key, bytes] = {}

    def of(self, checkpoint: Checkpoint) -> str:
        """The fingerprint of a checkpoint, 64 hexadecimal digits. Reads files: call it in a thread.

        An adapter or a requested type gives another fingerprint; the device and a default type do not.

        Raises:
            NotFound: a directory, or a file while it was read, no longer exists.
        """
        total = self._of_files(checkpoint.directory, model_files(checkpoint.directory))
        if checkpoint.adapter is not None:
            total.update(b"adapter" + self._of_files(checkpoint.adapter, adapter_files(checkpoint.adapter)).digest())
        if checkpoint.dtype is not None:
            total.update(b"dtype" + checkpoint.dtype.encode())
        return total.hexdigest()

    def _of_files(self, directory: Path, files: Sequence[Path]) -> hashlib._Hash:
        total = hashlib.sha256()
        for file in files:
            try:
                digest = self._digest(file)
            except (FileNotFoundError, NotADirectoryError):
                raise NotFound(f"{file.name!r} of {directory.name!r} is gone", reason=Reason.MODEL_NOT_FOUND) from None
            # A name may be any bytes.
            total.update(len(file.name).to_bytes(4, "little") + os.fsencode(file.name) + digest)
        return total

    def _digest(self, file: Path) -> bytes:
        status = file.stat()
        key = (str(file), status.st_size, status.st_mtime_ns, status.st_ino)
        digest = self._digests.get(key)
        if digest is None:
            digest = _hash_file(file, status.st_size)
            if len(self._digests) >= _MAX_CACHED_FILES:
                self._digests.clear()
            self._digests[key] = digest
        return digest


def _hash_file(file: Path, size: int) -> bytes:
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    with file.open("rb", buffering=0) as stream:
        if size <= _FULL_BYTES:
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
            return digest.digest()
        for index in range(_BLOCKS):
            offset = (size - _BLOCK_BYTES) * index // (_BLOCKS - 1)
            digest.update(os.pread(stream.fileno(), _BLOCK_BYTES, offset))
    return digest.digest()
