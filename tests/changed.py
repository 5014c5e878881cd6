"""Check what was changed: its style, its types with those of its importers, and its tests. `make check` runs this.

    python -m tests.changed [FILE ...]      the files named; without any, those that git says are not committed

Tests of a module are those that import it, directly or through modules of the tests, those named as it is, and the unit
tests named as the modules that import it. Tests that reach it only through a running worker are found by name alone:
`make test` runs all tests.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath

__all__ = ["Project", "main"]

SOURCES = {"bridge": "", "python_worker": "", "tests": "tests.", "benchmarks": "", "protos": ""}
"""Folders with Python, and what precedes a module's name there."""
GENERATED = ("bridge/crucible_bridge/v1/*", "python_worker/crucible_worker/snakepit/wire/*")
"""Neither linted nor typed by anybody."""
PACKAGES = {"bridge/crucible_bridge": "bridge", "python_worker/crucible_worker": ""}
"""Where the unit tests of each package lie below tests/unit."""
OTHER_TESTS = ("service", "wire", "interop", "robustness")
PAGES = (
    "tests/unit/test_docs.py",
    "tests/unit/test_site.py",
    "tests/service/test_readme.py",
    "tests/service/test_one_line_each.py",
)
"""Tests of what README and docs say."""


class Project:
    """The files of a checkout and who imports whom; files are named from its root."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @cached_property
    def _files(self) -> Mapping[str, str]:
        """Modules by their names: files."""
        found: dict[str, str] = {}
        for folder, prefix in SOURCES.items():
            for path in sorted((self._root / folder).rglob("*.py")):
                parts = path.relative_to(self._root / folder).with_suffix("").parts
                parts = parts[:-1] if parts[-1] == "__init__" else parts
                found[(prefix + ".".join(parts)).rstrip(".")] = path.relative_to(self._root).as_posix()
        return found

    @cached_property
    def _imported(self) -> Mapping[str, Mapping[str, tuple[str, str]]]:
        """Of each module: the names that it imports, each with its module and its name there; "" for the module."""
        return {name: dict(self._imports_of(name, file)) for name, file in self._files.items()}

    def _imports_of(self, name: str, file: str) -> Iterator[tuple[str, tuple[str, str]]]:
        package = name if file.endswith("/__init__.py") else name.rpartition(".")[0]
        for node in ast.walk(ast.parse((self._root / file).read_text(encoding="utf-8"), file)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, (alias.name, "")
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                module = ".".join([*above, *filter(None, [node.module])])
                for alias in node.names:
                    yield alias.asname or alias.name, (module, alias.name)

    def _defining(self, module: str, name: str) -> str:
        """The module where a name that is imported from another one is written."""
        seen: set[str] = set()
        while f"{module}.{name}" not in self._files and module not in seen:
            seen.add(module)
            module, name = self._imported.get(module, {}).get(name, (module, name))
        return f"{module}.{name}" if f"{module}.{name}" in self._files else module

    @cached_property
    def _importers(self) -> Mapping[str, set[str]]:
        """Of each file: the files that import it, or a name that is written in it."""
        found: dict[str, set[str]] = {}
        for name, imported in self._imported.items():
            for module, taken in imported.values():
                for source in {module, self._defining(module, taken) if taken else module}:
                    if source in self._files:
                        found.setdefault(self._files[source], set()).add(self._files[name])
        return found

    def importers(self, files: Iterable[str]) -> set[str]:
        """The files that import one of these."""
        return {importer for file in files for importer in self._importers.get(file, ())}

    def tests_of(self, file: str) -> set[str]:
        """The test modules and folders of tests that a change of one file concerns."""
        path = PurePosixPath(file)
        if path.name == "conftest.py":
            return {path.parent.as_posix()}
        found = self._tests_named_as(path, {"unit", *OTHER_TESTS}) | self._tests_that_name(path)
        for importer in self._importers.get(file, ()):
            found |= self._tests_named_as(PurePosixPath(importer), {"unit"})
        found |= {file} if _is_test(file) and (self._root / file).exists() else set()
        seen, todo = {file}, [file]
        while todo:
            for importer in self._importers.get(todo.pop(), set()) - seen:
                seen.add(importer)
                if _is_test(importer):
                    found.add(importer)
                elif importer.startswith("tests/"):
                    todo.append(importer)
        return found

    def _tests_named_as(self, path: PurePosixPath, kinds: Collection[str]) -> set[str]:
        """The tests of these kinds that are named as a file is."""
        return {
            test.relative_to(self._root).as_posix()
            for pattern in _mirrors(path)
            if pattern.split("/")[1] in kinds
            for test in self._root.glob(pattern)
        }

    def _tests_that_name(self, path: PurePosixPath) -> set[str]:
        """The tests that read a file which is no module: cases, pages, or a benchmark that is loaded by its path."""
        if path.suffix == ".py" and path.parts[0] != "benchmarks":
            return set()
        wanted = [{f'"{path.name}"'}]
        if path.parts[:2] == ("tests", "cases"):
            wanted.append({'"cases"', f'"{path.parent.name}"'})
        sources = {
            file: (self._root / file).read_text(encoding="utf-8") for file in filter(_is_test, self._files.values())
        }
        return {
            file for file, source in sources.items() if any(all(text in source for text in texts) for texts in wanted)
        }

    def existing(self, files: Iterable[str], suffix: str = ".py") -> list[str]:
        """Those that are there, and are written by hand."""
        return sorted(
            file
            for file in files
            if file.endswith(suffix)
            and (self._root / file).exists()
            and not any(fnmatch.fnmatch(file, pattern) for pattern in GENERATED)
        )


def _is_test(file: str) -> bool:
    return file.startswith("tests/") and file.rpartition("/")[2].startswith("test_")


def _mirrors(path: PurePosixPath) -> Iterator[str]:
    """Patterns of the test modules that are named as a file is."""
    if path.suffix == ".md":
        yield from PAGES
    for package, folder in PACKAGES.items():
        if path.suffix == ".py" and path.is_relative_to(package):
            within = path.relative_to(package)
            if within.name == "__init__.py" and len(within.parts) == 1:
                continue  # what it exports is written elsewhere
            own = within.parent.name if within.stem == "__init__" else within.stem
            yield (PurePosixPath("tests/unit", folder) / within.parent / f"test_{own}*.py").as_posix()
            around = within.parts[0] if len(within.parts) > 1 else ""
            names = [f"{around}_{own}"] if around else [own]
            if around == "rpc":  # a service; its tests may have its name alone
                names.append(own)
            yield from (f"tests/{kind}/test_{name}*.py" for name in names for kind in OTHER_TESTS)


def changed(root: Path) -> list[str]:
    """What git says is not committed, with files that it does not know yet."""
    command = ["git", "-C", str(root), "ls-files", "--modified", "--others", "--exclude-standard", "-z"]
    staged = ["git", "-C", str(root), "diff", "--cached", "--name-only", "-z"]
    said = [subprocess.run(one, check=True, capture_output=True, text=True).stdout for one in (command, staged)]
    return sorted(set(filter(None, "".join(said).split("\0"))))


def main(arguments: Sequence[str] | None = None, root: Path = Path()) -> int:
    """Run the checks, all of them in any case; 1 if one fails."""
    parser = argparse.ArgumentParser(prog="make check", description="Check what was changed.")
    parser.add_argument("files", nargs="*", metavar="FILE", help="from the root; those that are not committed if none")
    parser.add_argument("--processes", type=int, default=1, help="of the tests, at most one for each test module")
    options = parser.parse_args(arguments)
    project, files = Project(root), options.files or changed(root)
    if strange := [file for file in options.files if not (root / file).exists()]:
        parser.error(f"FILES names {', '.join(strange)}, which is not there: name files from the root, as git does")
    if not files:
        print("Nothing is changed: name files with FILES=... to check them all the same.")
        return 0
    modules = project.existing(files)
    typed = project.existing({*modules, *project.importers(files)})
    tests = sorted(set().union(*map(project.tests_of, files)))
    print(*("Tests of " + ", ".join(files) + ":", *(f"  {test}" for test in tests or ["none"])), sep="\n", flush=True)
    processes = min(options.processes, len(tests)) if len(tests) > 1 else 0
    commands = [
        *([["ruff", "check", *modules], ["ruff", "format", "--check", *modules]] if modules else []),
        *([["pyright", *typed]] if typed else []),
        *([["pytest", "-q", f"--numprocesses={processes}", "--dist=worksteal", *tests]] if tests else []),
    ]
    failed = [command[0] for command in commands if not _passes(command, root)]
    print(f"Failed: {', '.join(failed)}" if failed else "All passed.")
    return int(bool(failed))


def _passes(command: Sequence[str], root: Path) -> bool:
    tools = Path(sys.executable).parent
    print(f"== {command[0]}", flush=True)
    return subprocess.run([tools / command[0], *command[1:]], cwd=root, env=os.environ, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
