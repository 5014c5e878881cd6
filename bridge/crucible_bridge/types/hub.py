"""Data sets of the Hugging Face hub."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types.columns import check_columns
from crucible_bridge.types.spelling import read_spelling, write_spelling

__all__ = ["REPO_ID", "HubDataset", "format_hub", "parse_hub"]

_PLACES = ("split", "config", "revision")
REPO_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95}")
"""OWNER/NAME."""
_SPLIT = re.compile(r"\w+(\.\w+)*")
_CONFIG = re.compile(r"(?!\.{1,2}$)[^<>:/\\|?*\0]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclasses.dataclass(frozen=True, slots=True)
class HubDataset:
    """A split of a data set of the Hugging Face hub, or of the worker's cache of it.

    As one text: "hub:OWNER/NAME?split=SPLIT", then "&config=", "&revision=" and columns, such as "&input=question".
    """

    repo_id: str
    """"OWNER/NAME"."""
    split: str = dataclasses.field(kw_only=True)
    """"test"."""
    config: str | None = dataclasses.field(default=None, kw_only=True)
    """Its configuration, needed if there are several."""
    revision: str | None = dataclasses.field(default=None, kw_only=True)
    """Commit of the repository, 40 hexadecimal digits; if None, the latest: of the hub, or of the worker's cache."""
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict, kw_only=True)
    """Which column is what: keys are "input", "target" or "targets" or "index", "choices", "labels", "id", "tools"
    and "metadata.NAME" for what an evaluator's options name; values are columns, a field of one after a dot
    ("choices.text"). If empty, the columns called "input", "target", "targets", "choices" and "id", as far as they
    exist."""

    def checked(self, field: str) -> HubDataset:
        """Itself, if it is valid.

        Raises:
            InvalidField: names the invalid field, below `field`.
        """
        if not REPO_ID.fullmatch(self.repo_id) or ".." in self.repo_id:
            raise InvalidField(f"{field}.repo_id", f"is {clipped(self.repo_id)}, not OWNER/NAME")
        if not _SPLIT.fullmatch(self.split):
            raise InvalidField(f"{field}.split", f"is {clipped(self.split)}, not the name of a split")
        if self.config is not None and not _CONFIG.fullmatch(self.config):
            raise InvalidField(f"{field}.config", f"is {clipped(self.config)}, not the name of a configuration")
        if self.revision is not None and not _COMMIT.fullmatch(self.revision):
            raise InvalidField(
                f"{field}.revision", f"is {clipped(self.revision)}, not a commit's 40 hexadecimal digits"
            )
        check_columns(self.columns, field)
        return self


def parse_hub(text: str) -> HubDataset:
    """Read "OWNER/NAME?split=SPLIT&...".

    Raises:
        InvalidField: it names no split, or a part of it is invalid.
    """
    repo_id, options = read_spelling(text, "dataset")
    places = {key: options.pop(key) for key in _PLACES if key in options}
    if "split" not in places:
        named = "&".join([f"hub:{repo_id[:200]}?split=test", *text.partition("?")[2].split("&")]).rstrip("&")
        raise InvalidField("dataset", f"is {f'hub:{text[:200]}'!r}, which names no split: write {named[:300]}")
    return HubDataset(repo_id, **places, columns=options).checked("dataset")


def format_hub(source: HubDataset) -> str:
    """Write the text that `parse_hub` reads."""
    places = {key: value for key in _PLACES if (value := getattr(source, key)) is not None}
    return write_spelling(source.repo_id, {**places, **source.columns})
