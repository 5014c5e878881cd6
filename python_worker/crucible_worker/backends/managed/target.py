"""What a managed server is to serve: a checkpoint, or an adapter on one; and what of it a running server can take over.

Weights can be loaded in place if everything else is the same: the configuration, the tokenizer, the chat template.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from crucible_worker.backends.local.checkpoint import Checkpoint, CheckpointIdentity, Fingerprints
from crucible_worker.backends.local.paths import model_files

__all__ = ["Target", "identify"]

VERSION_CHARS = 16
"""Characters of a key in names and versions."""

_UNIMPORTANT = frozenset({"_name_or_path", "transformers_version"})
"""Keys of config.json that no server acts on."""
_WEIGHTS = (".safetensors", ".safetensors.index.json")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A checkpoint as its files were when it was identified."""

    checkpoint: Checkpoint
    """Its directories."""
    whole: CheckpointIdentity
    """Of all of it."""
    base: CheckpointIdentity
    """Of the checkpoint without the adapter."""
    form: str
    """Of all files that are no weights: equal forms differ in weights alone."""

    @property
    def version(self) -> str:
        """A name of the checkpoint without the adapter, for servers that report the version of their weights."""
        return self.base.key[:VERSION_CHARS]

    @property
    def adapter_name(self) -> str | None:
        """A name of the adapter: other files have another name."""
        return None if self.checkpoint.adapter is None else f"adapter-{self.whole.key[:VERSION_CHARS]}"

    def continues(self, now: Target) -> bool:
        """Whether a later moment shows the same content."""
        return self.whole.continues(now.whole) and self.base.continues(now.base) and self.form == now.form


def identify(checkpoint: Checkpoint, fingerprints: Fingerprints) -> Target:
    """Read what a checkpoint is. Reads files: call it in a thread.

    Raises:
        NotFound: a directory or a file is gone.
    """
    base = dataclasses.replace(checkpoint, adapter=None)
    return Target(
        checkpoint=checkpoint,
        whole=fingerprints.identify(checkpoint),
        base=fingerprints.identify(base),
        form=_form(checkpoint.directory),
    )


def _form(directory: Path) -> str:
    total = hashlib.sha256()
    for file in model_files(directory):
        if file.name.endswith(_WEIGHTS):
            continue
        content = file.read_bytes()
        if file.name == "config.json":
            content = _without_unimportant(content)
        for part in (file.name.encode(), content):
            total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()


def _without_unimportant(content: bytes) -> bytes:
    try:
        config: Any = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if not isinstance(config, dict):
        return content
    return json.dumps({key: config[key] for key in sorted(config) if key not in _UNIMPORTANT}).encode()
