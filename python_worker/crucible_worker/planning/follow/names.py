"""Which folders are checkpoints by their names, and of which step; where they are followed, and where they are held.

`checkpoint-500` of Hugging Face, Axolotl, TRL or LLaMA-Factory is of step 500, `epoch_2` of torchtune of step 2. A user
names others by a pattern: `ckpt-{step}`, or `global_step_{step}/actor/huggingface` where the model lies deeper.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from crucible_bridge.errors import FailedPrecondition, InvalidField, PermissionDenied, clipped
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.paths import ADAPTER_CONFIG

__all__ = [
    "KEPT_RECORD",
    "RELEASED_SUFFIX",
    "Candidate",
    "InvalidNaming",
    "Naming",
    "candidates",
    "directory_below",
    "folder_name",
    "hold_name",
    "is_below",
    "natural_order",
    "unnamed",
    "unnamed_line",
]


STEP = "{step}"
"""Where a pattern has the number of the step."""
MAX_PATTERN_PARTS = 4
"""Folders of a pattern, from the followed one down."""
MAX_NAME_CHARS = 255
"""Of a part of a pattern, and of a marker's name."""
MAX_STARS = 2
"""In a part of a pattern: matching takes time that grows with each."""

_NUMBER = "([0-9]{1,18})"
"""A step, below 2^63."""
_KNOWN = re.compile(
    rf"(?:checkpoint|ckpt|global_?step|step|iter|epoch)[-_]?{_NUMBER}|epoch[-_]?[0-9]+[-_]step[-_]?{_NUMBER}"
)
_TEMPORARY = re.compile(r"\..*|~.*|te?mp[-_.].*|.*[-_.]te?mp|.*\.(?:part|partial|incomplete)|.*~")
_DIGITS = re.compile("([0-9]+)")


class InvalidNaming(ValueError):
    """A pattern or a marker that can match nothing, or leads out of the followed folder."""

    def __init__(self, field: Literal["pattern", "marker"], problem: str) -> None:
        """Name the field, and what is wrong with its value."""
        super().__init__(problem)
        self.field: Literal["pattern", "marker"] = field
        self.problem = problem


@dataclasses.dataclass(frozen=True, slots=True)
class Naming:
    """How a trainer names its checkpoints, and says that one is whole.

    Raises:
        InvalidNaming: the pattern or the marker is none.
    """

    pattern: str | None = None
    """A name with {step}, such as `ckpt-{step}`; `*` is any text. Parts between `/` are folders in each other. Without
    {step}, the step is that of trainer_state.json. None: the names of the known trainers."""
    marker: str | None = None
    """The name of a file that a trainer writes into a checkpoint at the end, such as `DONE`. None: none."""

    def __post_init__(self) -> None:
        """Refuse what can match nothing."""
        if self.pattern is not None:
            _check_pattern(self.pattern)
        if self.marker is not None and not _is_name(self.marker):
            raise InvalidNaming("marker", f"is {self.marker!r}, not the name of a file in a checkpoint")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A folder with the name of a checkpoint, whatever it contains."""

    name: str
    """A single name: of a pattern with several parts, those parts that vary, joined by `+`."""
    path: str
    """Of the folder."""
    step: int | None
    """By the name; None if the name has no step."""
    expected: bool
    """Whether the name alone makes it a checkpoint. If not, trainer_state.json does."""
    link: bool
    """Whether it is a symbolic link."""


def candidates(directory: Path, naming: Naming) -> Iterator[Candidate]:
    """Folders below a directory that may be checkpoints, in any order; none if the directory is not there.

    Raises:
        OSError: the directory cannot be read.
    """
    if naming.pattern is None:
        yield from _known(directory)
    else:
        parts = [(part, _expression(part)) for part in naming.pattern.split("/")]
        yield from _matching(directory, parts, (), None)


def natural_order(name: str) -> tuple[tuple[str | int, ...], str]:
    """A key by which `step-9` comes before `step-10`, and `step-09` before `step-9`."""
    return tuple(int(part) if index % 2 else part for index, part in enumerate(_DIGITS.split(name))), name


def _known(directory: Path) -> Iterator[Candidate]:
    for entry in _folders(directory):
        match = _KNOWN.fullmatch(entry.name)
        if match is None and (entry.is_symlink() or _TEMPORARY.fullmatch(entry.name)):
            continue
        yield Candidate(
            name=entry.name,
            path=entry.path,
            step=_step(match) if match else None,
            expected=match is not None,
            link=entry.is_symlink(),
        )


def _matching(
    directory: Path, parts: list[tuple[str, re.Pattern[str]]], varying: tuple[str, ...], step: int | None
) -> Iterator[Candidate]:
    (part, expression), *deeper = parts
    for entry in _folders(directory):
        match = expression.fullmatch(entry.name)
        if match is None or ("*" in part and _TEMPORARY.fullmatch(entry.name)):
            continue
        names = (*varying, entry.name) if STEP in part or "*" in part else varying
        found = _step(match) if STEP in part else step
        if not deeper or entry.is_symlink():
            name = "+".join(names) or entry.name
            yield Candidate(name=name, path=entry.path, step=found, expected=True, link=entry.is_symlink())
            continue
        try:
            yield from _matching(Path(entry.path), deeper, names, found)
        except OSError:  # it cannot be read, and a look into it says why
            name = "+".join(names) or entry.name
            yield Candidate(name=name, path=entry.path, step=found, expected=True, link=False)


def _folders(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Folders in a directory, and symbolic links, which may lead to folders."""
    try:
        entries = os.scandir(directory)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            if entry.is_symlink() or entry.is_dir(follow_symlinks=False):
                yield entry


def _step(match: re.Match[str]) -> int:
    return int(next(group for group in match.groups() if group is not None))


def _expression(part: str) -> re.Pattern[str]:
    """What a part of a pattern matches. Next to a star, {step} is all digits that are there."""
    text = re.escape(part).replace(r"\*", ".*").replace(re.escape(STEP), _NUMBER)
    text = text.replace(f".*{_NUMBER}", f".*(?<![0-9]){_NUMBER}").replace(f"{_NUMBER}.*", f"{_NUMBER}(?![0-9]).*")
    return re.compile(text, re.DOTALL)


def _check_pattern(pattern: str) -> None:
    parts = pattern.split("/")
    if not all(_is_name(part) for part in parts):
        raise InvalidNaming("pattern", f"is {pattern!r}, not names of folders below the followed one")
    if len(parts) > MAX_PATTERN_PARTS:
        raise InvalidNaming("pattern", f"has {len(parts)} parts; at most {MAX_PATTERN_PARTS} are allowed")
    if pattern.count(STEP) > 1:
        raise InvalidNaming("pattern", f"has {STEP} twice")
    if "{" in pattern.replace(STEP, "") or "}" in pattern.replace(STEP, ""):
        raise InvalidNaming("pattern", f"is {pattern!r}; the only placeholder is {STEP}")
    if any(part.count("*") > MAX_STARS for part in parts):
        raise InvalidNaming("pattern", f"has a part with more than {MAX_STARS} stars")


def _is_name(name: str) -> bool:
    """Whether it is the name of a file or folder that is not hidden."""
    return 0 < len(name) <= MAX_NAME_CHARS and not name.startswith(".") and "/" not in name and "\0" not in name


# Folders with a model whose names are those of no checkpoint: `iter-100-hf` needs the pattern `iter-{step}-hf`.

_CONFIGS = ("config.json", ADAPTER_CONFIG)
"""A folder with one of these files has a model, or an adapter."""
_ANY_NUMBER = re.compile("[0-9]+")


def unnamed(directory: Path, naming: Naming) -> list[str]:
    """Names of folders that have a model, but not the name of a checkpoint; in order.

    None if the directory cannot be read. Reads folders: call it in a thread.
    """
    try:
        taken = {each.path for each in candidates(directory, naming) if each.expected}
        with os.scandir(directory) as entries:
            others = [each for each in entries if each.is_dir() and each.path not in taken]
    except OSError:
        return []
    return sorted(each.name for each in others if each.name[0] != "." and _has_model(each.path))


def unnamed_line(names: list[str]) -> str:
    """What to say of such folders: how many there are, and a pattern by which they may be checkpoints."""
    shown = names[0].encode("utf-8", "replace").decode()
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    numbers = len(_ANY_NUMBER.findall(shown))
    pattern = _ANY_NUMBER.sub(STEP, shown) if numbers == 1 and "{" not in shown and "}" not in shown else f"ckpt-{STEP}"
    return (
        f"{shown}{more}: with a model, but not with the name of a checkpoint; "
        f"say how checkpoints are named, as in --name-pattern {shlex.quote(pattern)}"
    )


def _has_model(path: str) -> bool:
    return any(os.path.exists(os.path.join(path, name)) for name in _CONFIGS)


KEPT_RECORD = ".kept"
"""A file in a copy of a checkpoint that is kept, which is no checkpoint to evaluate."""

# The directory that is followed, and the folder in which its checkpoints are held: both below a model root.

RELEASED_SUFFIX = ".released"
"""Ends the name of the file that says that a checkpoint was released; in a checkpoint it is the whole name."""
MAX_NAME_BYTES = 200
"""Longest name of a run's folder; longer ones are shortened to a digest."""

DIGEST_DIGITS = 12
"""Hexadecimal digits of the digest that tells state directories apart."""


def directory_below(roots: Sequence[Path], text: str, field: str) -> Path:
    """The absolute path of a directory below the first model root that has it; it need not exist.

    Without one that exists, it is below the first root.

    Args:
        roots: the model roots.
        text: relative to one of them, or absolute.
        field: of the text in the request.

    Raises:
        FailedPrecondition: there is no model root.
        InvalidField: it is no path.
        PermissionDenied: it leads out of the roots.
    """
    if not roots:
        message = "the worker has no model root; start it with --model-root"
        raise FailedPrecondition(message, reason=Reason.NO_MODEL_ROOT, field=field)
    if not text or "\0" in text:
        raise InvalidField(field, f"is {text!r}, not the path of a directory")
    candidates: list[Path] = []
    for root in roots:
        try:
            real = root.resolve()
            found = (real / text).resolve()
        except (OSError, RuntimeError):  # a name that is too long, or a loop of links
            continue
        if found.is_relative_to(real):
            candidates.append(found)
    try:
        existing = [path for path in candidates if path.is_dir()]
    except OSError as error:
        problem = f"is {clipped(text)}, which cannot be a directory: {error.strerror}"
        raise InvalidField(field, problem) from error
    if not candidates:
        message = f"is {text!r}, which is outside of the model roots: name a folder above it by --model-root"
        raise PermissionDenied(message, reason=Reason.PATH_OUT_OF_ROOT, field=field)
    return (existing or candidates)[0]


def is_below(roots: Sequence[Path], path: str) -> bool:
    """Whether an absolute path is below one of the roots."""
    try:
        real = Path(path).resolve()
        return any(real.is_relative_to(root.resolve()) for root in roots)
    except (OSError, RuntimeError):
        return False


def hold_name(run_id: str, state_dir: Path) -> str:
    """The name of the folder in which a run's checkpoints are held for the worker of a state directory.

    Workers of two state directories may follow one directory by one run id: none releases what the other holds.
    """
    digest = hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()
    return f"{folder_name(run_id)}@{digest[:DIGEST_DIGITS]}"  # a quoted id has no @


def folder_name(run_id: str) -> str:
    """The name of a run's folder: the run's id where that can be a name."""
    name = quote(run_id, safe="")
    if len(name) > MAX_NAME_BYTES or name.startswith("."):
        return hashlib.sha256(run_id.encode()).hexdigest()
    return name
