"""Holding a checkpoint while it is read, so that its trainer may delete it.

A checkpoint is held by hard links to its files: a trainer that deletes the files takes its own names away, and not
the content. If links are refused, the files are copied. If that is not possible either, the checkpoint is read where it
is, and nothing protects it.

Links do not protect a file that a trainer writes again in place, as opposed to a new file of the same name: both names
are those of one content. `changed` finds that out by the file's time of change, so not of a file written through a
memory map, whose time may be set later.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from crucible_worker.planning.follow.checkpoints import FollowedCheckpoint, Naming
from crucible_worker.planning.follow.contents import FileSignature, FolderContents, Incomplete, examine
from crucible_worker.util.files import make_private_folder, open_private

__all__ = ["GivenUp", "Held", "Vanished", "changed", "hold", "left", "recovered", "release"]

_PARTIAL = ".crucible-partial"
_RECORD = ".held"
"""In the folder of a held checkpoint: what it holds, and how. Loading does not read it."""
_BLOCK_BYTES = 8 << 20
_TRIES = 3
"""If a file next to the weights, such as trainer_state.json, is written while the checkpoint is being held."""


class Vanished(Exception):
    """A checkpoint was deleted, or written again, before all of it was held. Nothing of it is held."""

    def __init__(self, reason: str) -> None:
        """Say what became of it, without a subject: `is gone`."""
        super().__init__(reason)
        self.reason = reason


class GivenUp(Exception):
    """The caller gave up a copy that was being made. Nothing of it is left."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Where to read a checkpoint."""

    path: Path
    """The folder to evaluate."""
    how: Literal["links", "copy", "nothing"]
    """What protects it."""
    why: str
    """Why not links; empty for links."""
    identity: str
    """Of the files at `path`, for `changed`."""


class _Refused(Exception):
    """The files cannot be put into a folder."""


class _Moved(Exception):
    """A file was deleted or written while it was being held; the checkpoint may be whole all the same."""


def hold(
    checkpoint: FollowedCheckpoint,
    folder: Path,
    *,
    max_copy_bytes: int,
    naming: Naming,
    copy_folder: Path | None = None,
    given_up: Callable[[], bool] = lambda: False,
) -> Held:
    """Hold a checkpoint, all of it or nothing. May copy gigabytes: call it in a thread.

    Called again for a checkpoint that is held already, it returns the same, even if the checkpoint itself is gone.

    Args:
        checkpoint: as `look` found it.
        folder: where its folder of links is made, on its file system. No one else may use this folder: names of
            checkpoints are the names in it.
        max_copy_bytes: of all its files together, if links are refused; 0 allows no copy.
        naming: of the checkpoint.
        copy_folder: where a copy is made if `folder` cannot be written; None: nowhere.
        given_up: queried between the blocks of a copy.

    Raises:
        Vanished: it was deleted, or written again, before all of it was held.
        GivenUp: `given_up` returned True.
    """
    places = [folder] if copy_folder is None else [folder, copy_folder]
    for place in places:
        if (held := _held_before(checkpoint, place)) is not None:
            return held
    reason = ""
    for _ in range(_TRIES):
        contents = _as_found(checkpoint, naming)
        outside = _link_outside(checkpoint, contents)
        if outside:
            return _not_held(checkpoint, f"{outside!r} is a symbolic link out of the followed folder")
        try:
            return _linked_or_copied(checkpoint, contents, places, max_copy_bytes, given_up)
        except _Moved as moved:
            reason = str(moved)
    raise Vanished(reason)


def release(folder: Path, name: str) -> None:
    """Let a held checkpoint go, and what a killed process left of it. Nothing happens if there is none.

    A folder of that name that `hold` did not make stays.

    Raises:
        OSError: its folder cannot be removed.
    """
    held, partial = _folders(folder, name)
    _remove(partial)
    if _is_held(held):
        held.rename(partial)  # whenever this process is killed, a folder is complete, or it has a partial one's name
        _remove(partial)
    with contextlib.suppress(OSError):  # others are held in it, or it is not there
        folder.rmdir()


def left(folder: Path) -> tuple[str, ...]:
    """Names of the checkpoints held in a folder, complete or not, sorted. Other folders in it are none.

    Raises:
        OSError: the folder is there, and cannot be read.
    """
    try:
        entries = os.listdir(folder)
    except FileNotFoundError:
        return ()
    partial = {name for name in entries if name.startswith(".") and name.endswith(_PARTIAL)}
    whole = {name for name in entries if not name.startswith(".") and _is_held(folder / name)}
    return tuple(sorted(whole | {name[1 : -len(_PARTIAL)] for name in partial}))


def recovered(folder: Path) -> tuple[FollowedCheckpoint, ...]:
    """Checkpoints that are held whole in a folder, by step, whatever has become of their own folders since.

    A process that is killed after it held a checkpoint, and before it noted that, leaves it to the next one: `hold`
    returns what is held. Reads files: call it in a thread.

    Raises:
        OSError: the folder is there, and cannot be read.
    """
    records = (_record(folder / name) for name in left(folder))
    return tuple(sorted((record[0] for record in records if record is not None), key=lambda one: one.step))


def changed(path: Path, identity: str) -> str:
    """What happened to the files of a held checkpoint since; empty if nothing did. Reads files: call it in a thread.

    Args:
        path: the `path` of what `hold` returned.
        identity: its `identity`.
    """
    try:
        return "" if examine(path).identity == identity else "was written again while it was read"
    except Incomplete as error:
        return error.reason


def _linked_or_copied(
    checkpoint: FollowedCheckpoint,
    contents: FolderContents,
    places: list[Path],
    max_copy_bytes: int,
    given_up: Callable[[], bool],
) -> Held:
    try:
        return _put(checkpoint, contents, places[0], "links", "", _link)
    except _Refused as refused:
        why = f"hard links are refused: {refused}"
    size = sum(stamp.size for stamp in contents.files.values())
    if size > max_copy_bytes:
        return _not_held(checkpoint, f"{why}; a copy of {size:,} bytes is above the bound of {max_copy_bytes:,}")
    refusals: list[str] = []
    try:
        with _opened(checkpoint, contents) as streams:
            copy = _Copy(streams, contents, given_up)
            for place in places:
                try:
                    return _put(checkpoint, contents, place, "copy", why, copy)
                except _Refused as refused:
                    refusals.append(str(refused))
    except OSError as error:
        refusals.append(f"{error.strerror} ({error.filename})")
    return _not_held(checkpoint, f"{why}; a copy is refused: {', '.join(refusals)}")


def _not_held(checkpoint: FollowedCheckpoint, why: str) -> Held:
    return Held(path=checkpoint.path, how="nothing", why=why, identity=checkpoint.identity)


def _held_before(checkpoint: FollowedCheckpoint, place: Path) -> Held | None:
    held, _ = _folders(place, checkpoint.name)
    record = _record(held)
    return record[1] if record is not None and record[0].identity == checkpoint.identity else None


def _record(held: Path) -> tuple[FollowedCheckpoint, Held] | None:
    """What a folder holds; None if it is no folder of a held checkpoint, or its files have changed since."""
    try:
        record = json.loads((held / _RECORD).read_bytes())
        checkpoint = dict(record["checkpoint"])
        found = FollowedCheckpoint(
            **checkpoint | {"path": Path(checkpoint["path"]), "files": tuple(checkpoint["files"])}
        )
        how = Held(path=held, how=record["how"], why=record["why"], identity=record["identity"])
        if found.name != held.name or type(found.step) is not int or type(found.written_at) is not float:
            return None
        return (found, how) if examine(held).identity == how.identity else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, Incomplete):
        return None


def _is_held(folder: Path) -> bool:
    return os.path.isfile(folder / _RECORD)


def _as_found(checkpoint: FollowedCheckpoint, naming: Naming) -> FolderContents:
    """What is in its folder now: the weights that were found, and no fewer files."""
    try:
        contents = examine(checkpoint.path, naming.marker)
    except Incomplete as error:
        if not checkpoint.path.is_dir():
            raise Vanished("is gone") from None
        raise Vanished(f"changed before all of it was held: it {error.reason}") from None
    if contents.identity != checkpoint.identity or contents.adapter != checkpoint.adapter:
        raise Vanished("was written again after it was found")
    missing = sorted(set(checkpoint.files) - set(contents.files))
    if missing:
        raise Vanished(f"lost its {missing[0]} before all of it was held")
    return contents


def _link_outside(checkpoint: FollowedCheckpoint, contents: FolderContents) -> str:
    """A file that is a symbolic link out of the folder around the checkpoint; empty if there is none.

    A hard link to its target would hide from the rules of model roots that it lies outside of them.
    """
    around = checkpoint.path.parent.resolve()
    for name in contents.files:
        if not (checkpoint.path / name).resolve().is_relative_to(around):
            return name
    return ""


def _put(
    checkpoint: FollowedCheckpoint,
    contents: FolderContents,
    place: Path,
    how: Literal["links", "copy"],
    why: str,
    put: Callable[[Path, Path, str], None],
) -> Held:
    """Fill a folder under a temporary name, verify it, then give it its name."""
    held, partial = _folders(place, checkpoint.name)
    for folder in (place.parent, place):
        if folder.is_symlink():  # it may lead out of the model root, and what is held there could not be read
            raise _Refused(f"{folder} is a symbolic link; name its target as the folder of held checkpoints")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)  # workers of other users may hold checkpoints there, too
        make_private_folder(place)
        _remove(partial)
        make_private_folder(partial)
        for name in contents.files:
            make_private_folder((partial / name).parent)
            put(checkpoint.path / name, partial / name, name)
        identity = _verified(partial, contents, how)
        found = dataclasses.asdict(checkpoint) | {"path": str(checkpoint.path)}
        record = {"checkpoint": found, "how": how, "why": why, "identity": identity}
        with os.fdopen(open_private(partial / _RECORD, os.O_WRONLY | os.O_EXCL), "w", encoding="utf-8") as file:
            json.dump(record, file)
        if _is_held(held):  # another checkpoint of this name, which is gone
            _, replaced = _folders(place, f"{checkpoint.name}.replaced")
            _remove(replaced)
            held.rename(replaced)
            _remove(replaced)
        partial.rename(held)  # refused if there is a folder of this name that was not made here
    except OSError as error:
        _give_back(place, partial)
        raise _Refused(f"{error.strerror or error} ({place})") from error
    except BaseException:
        _give_back(place, partial)
        raise
    return Held(path=held, how=how, why=why, identity=identity)


def _verified(partial: Path, contents: FolderContents, how: Literal["links", "copy"]) -> str:
    """The identity of what was put into a folder, which has to be what was found."""
    try:
        put = examine(partial)
    except Incomplete as error:
        raise _Moved(f"changed while it was being held: it {error.reason}") from None
    for name, stamp in contents.files.items():
        now = put.files[name]
        same = now == stamp if how == "links" else (now.size, now.mtime_ns) == (stamp.size, stamp.mtime_ns)
        if not same:
            raise _Moved(f"was written again while it was being held: its {name} changed")
    return put.identity


def _link(source: Path, target: Path, name: str) -> None:
    try:
        os.link(source.resolve(), target, follow_symlinks=False)
    except FileNotFoundError:
        if target.parent.exists():
            raise _Moved(f"lost its {name} while it was being held") from None
        raise


class _Copy:
    """Copies files that are open already: a deletion meanwhile removes their names alone."""

    def __init__(self, streams: dict[str, BinaryIO], contents: FolderContents, given_up: Callable[[], bool]) -> None:
        """Copy each stream from its start."""
        self._streams = streams
        self._contents = contents
        self._given_up = given_up

    def __call__(self, source: Path, target: Path, name: str) -> None:
        """Copy one file with its time of change."""
        stream = self._streams[name]
        stream.seek(0)
        with os.fdopen(open_private(target, os.O_WRONLY | os.O_EXCL), "wb") as copy:
            while block := stream.read(_BLOCK_BYTES):
                if self._given_up():
                    raise GivenUp
                copy.write(block)
        stamp = self._contents.files[name]
        if FileSignature.of(os.fstat(stream.fileno())) != stamp:
            raise _Moved(f"was written again while it was being copied: its {name} changed")
        os.utime(target, ns=(stamp.mtime_ns, stamp.mtime_ns))


@contextlib.contextmanager
def _opened(checkpoint: FollowedCheckpoint, contents: FolderContents) -> Iterator[dict[str, BinaryIO]]:
    """All its files, open for reading at once."""
    with contextlib.ExitStack() as stack:
        streams: dict[str, BinaryIO] = {}
        for name, stamp in contents.files.items():
            try:
                stream = stack.enter_context((checkpoint.path / name).open("rb"))
            except FileNotFoundError:
                raise _Moved(f"lost its {name} while it was being held") from None
            if FileSignature.of(os.fstat(stream.fileno())) != stamp:
                raise _Moved(f"was written again while it was being held: its {name} changed")
            streams[name] = stream
        yield streams


def _folders(folder: Path, name: str) -> tuple[Path, Path]:
    """The folder of a held checkpoint, and its temporary one."""
    if not name or name.startswith(".") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not the name of a checkpoint")
    return folder / name, folder / f".{name}{_PARTIAL}"


def _remove(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _give_back(place: Path, partial: Path) -> None:
    """Remove what was made of a folder that was not filled; a file system that refuses this refused that."""
    shutil.rmtree(partial, ignore_errors=True)
    with contextlib.suppress(OSError):  # others are held in it
        place.rmdir()
