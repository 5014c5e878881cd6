"""`--evaluator FILE.py:CLASS` and `--grader FILE.py:FUNCTION`: a user's own file; only the command line has this.

No call names a file: evaluators and graders of the file are added to this process's worker under their own names.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import EvaluatorInfo
from crucible_worker.cli.options import RequestOptions
from crucible_worker.evaluators.declared import BaseEvaluator
from crucible_worker.evaluators.installed import GuardedType, kind_of
from crucible_worker.evaluators.registry import EVALUATORS
from crucible_worker.grading.base import GraderType
from crucible_worker.grading.custom import declared_grader, guarded
from crucible_worker.grading.registry import GRADERS
from crucible_worker.server.parts import CustomFiles
from crucible_worker.util.entry_points import error_text
from crucible_worker.util.options import Undeclarable

__all__ = ["CustomFilesReader", "custom_files_of", "in_file"]

_IN_MODULE = re.compile(r"[\w./~-]+:\w+")
_IN_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<name>.*))?", re.DOTALL)

_Options = TypeVar("_Options", bound=RequestOptions)


def in_file(text: str) -> bool:
    """Whether a text names a file, FILE.py:NAME, and not a kind or grader."""
    return _IN_FILE.fullmatch(text) is not None


def custom_files_of(typed: _Options, address: str | None = None) -> tuple[_Options, CustomFiles]:
    """Flags with names in place of files, and the objects of the files by these names.

    Args:
        typed: the flags.
        address: of a worker that gets the request; it has no file of this one's.

    Raises:
        InvalidField: a file does not exist, or its object cannot be used; see `CustomFilesReader`.
    """
    files = CustomFilesReader()
    evaluators = tuple(map(files.evaluator, typed.evaluator))
    grader = None if typed.grader is None else files.grader(typed.grader)
    if address is not None and (files.evaluators or files.graders):
        raise InvalidField("--address", "runs what that worker has: a file of your own runs only in this process")
    found = typed.replace(evaluator=evaluators, grader=grader)
    return found, CustomFiles(evaluators=files.evaluators, graders=files.graders)


class CustomFilesReader:
    """The files that one command names, each imported once."""

    def __init__(self) -> None:
        self._modules: dict[Path, ModuleType] = {}
        self.evaluators: dict[str, GuardedType] = {}
        """Those that were read, by kind."""
        self.graders: dict[str, GraderType] = {}
        """Those that were read, by name."""

    def evaluator(self, text: str) -> str:
        """Read "[NAME=]FILE.py:CLASS"; a text that names no file is returned unchanged.

        Returns:
            "[NAME=]KIND", with the kind that the class has.

        Raises:
            InvalidField: there is no such file or class, it cannot be imported, or the class is not an evaluator.
        """
        name, separator, given = text.rpartition("=")
        if not in_file(given):
            _refuse_module("--evaluator", given, "evaluators")
            return text
        declared = self._declared("--evaluator", given, "CLASS")
        kind = _kind_in(declared)
        if not kind:
            shape = f"the class {declared.__name__}" if isinstance(declared, type) else f"a {type(declared).__name__}"
            message = (
                f"{given!r} is {shape}, not a class that extends crucible_worker.evaluators.declared.BaseEvaluator"
            )
            raise InvalidField("--evaluator", message)
        _refuse_ours("--evaluator", given, kind, EVALUATORS, 'name it otherwise, or give kind="..."')
        try:
            self.evaluators[kind] = kind_of(kind, given, declared)
        except FailedPrecondition as error:
            raise InvalidField("--evaluator", f"{given!r}: {error.message}") from error
        return f"{name}{separator}{kind}"

    def grader(self, text: str) -> str:
        """Read "FILE.py:FUNCTION", or a class; a text that names no file is returned unchanged.

        Returns:
            The name of the grader: that of the function or class.

        Raises:
            InvalidField: as for `evaluator`.
        """
        if not in_file(text):
            _refuse_module("--grader", text, "graders")
            return text
        declared, name = self._declared("--grader", text, "FUNCTION"), text.rpartition(":")[2]
        _refuse_ours("--grader", text, name, GRADERS, "name it otherwise")
        try:
            kind = declared if isinstance(declared, GraderType) else declared_grader(name, declared, text)
            self.graders[name] = guarded(name, kind)
        except (Undeclarable, FailedPrecondition) as error:
            raise InvalidField(
                "--grader", f"{name} {error}" if isinstance(error, Undeclarable) else error.message
            ) from None
        return name

    def _declared(self, flag: str, text: str, what: str) -> Any:
        """The object of a file by its name."""
        found = _IN_FILE.fullmatch(text)
        assert found is not None  # the caller has checked
        path, name = Path(found["path"]), found["name"]
        if not path.is_file():
            raise InvalidField(flag, f"{text!r}: there is no file {str(path)!r}")
        if not name:
            raise InvalidField(flag, f"{text!r} names no {what.lower()} of the file: {path}:{what}")
        module = self._module(flag, path)
        if not hasattr(module, name):
            near = difflib.get_close_matches(name, _names_of(module), n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(_names_of(module)) or 'nothing'}"
            raise InvalidField(flag, f"{text!r}: the file has no {name!r}; {hint}")
        return getattr(module, name)

    def _module(self, flag: str, path: Path) -> ModuleType:
        place = path.resolve()
        if place not in self._modules:
            # Two files of one name are two modules.
            name = f"{path.stem}_{hashlib.sha256(bytes(place)).hexdigest()[:8]}"
            spec = importlib.util.spec_from_file_location(name, place)
            assert spec is not None
            assert spec.loader is not None  # as the name ends with .py
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module  # where annotations are read
            try:
                with _importable(place):
                    spec.loader.exec_module(module)
            except (Exception, SystemExit) as error:  # whatever a user's file does
                del sys.modules[name]
                raise InvalidField(flag, f"{str(path)!r} cannot be imported: {error_text(error)}") from error
            self._modules[place] = module
        return self._modules[place]


def _refuse_module(flag: str, text: str, listing: str) -> None:
    """Refuse "brevity:Brevity", which is how entry points name a class: no kind has a colon."""
    if _IN_MODULE.fullmatch(text):
        module, _, name = text.partition(":")
        raise InvalidField(
            flag,
            f"{text!r} names no file: write {module.replace('.', '/')}.py:{name} for your own, or a name that"
            f" `crucible-worker {listing}` lists",
        )


def _kind_in(declared: Any) -> str:
    """The kind of a class, or of an object that describes itself; empty if it is not an evaluator."""
    if isinstance(declared, type):
        return declared.kind if issubclass(declared, BaseEvaluator) else ""
    info = getattr(declared, "info", None)
    return info.kind if isinstance(info, EvaluatorInfo) and isinstance(info.kind, str) else ""


@contextlib.contextmanager
def _importable(path: Path) -> Iterator[None]:
    """Let a file import modules of its folder, as when Python runs it."""
    sys.path.insert(0, str(path.parent))
    try:
        yield
    finally:
        sys.path.remove(str(path.parent))


def _names_of(module: ModuleType) -> Sequence[str]:
    """The names that a module defines itself."""
    own = vars(module).items()
    return [name for name, value in own if getattr(value, "__module__", None) == module.__name__]


def _refuse_ours(flag: str, text: str, name: str, ours: Any, cure: str) -> None:
    if name in ours:
        raise InvalidField(flag, f"{text!r} is called {name!r}, like one that comes with the worker: {cure}")
