"""How large the worker is, and how it is cut: files, lines of code, small modules, names that stand twice.

A line of code is one that is neither blank nor a comment, and is part of neither a docstring nor an import. Generated
files count as files of their packages.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import statistics
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

from _report import Claim, arguments, report

WORKER = Path(__file__).parent.parent / "python_worker" / "crucible_worker"


@dataclasses.dataclass(frozen=True, slots=True)
class Module:
    """One file."""

    name: str
    """With dots, without the worker's own name."""
    code: int
    """Its lines of code."""
    classes: tuple[str, ...]
    """At its top level."""
    imports: frozenset[str]
    """What it imports of the worker anywhere in it, as full names: modules, and names in them."""


def main() -> None:
    """Count and print."""
    options = arguments(__doc__)
    modules = {module.name: module for module in map(read, sorted(WORKER.rglob("*.py")))}
    code = [module.code for module in modules.values()]
    claims = [
        Claim(name="files of the worker", ours=[len(code)], unit="files", claim="at most as many", at_most=MOST_FILES),
        Claim(name="lines of code", ours=[sum(code)], unit="lines", claim="at most as many", at_most=MOST_LINES),
        Claim(
            name="lines of code a file",
            ours=[statistics.mean(code)],
            unit="lines",
            claim="150 to 250 is the aim",
        ),
        Claim(
            name="modules that one module alone imports, beside it",
            ours=[len(with_one_importer(modules))],
            unit="modules",
            claim="where the split makes an import lazy, or two ideas would share a file",
        ),
        Claim(
            name="class names that stand in two modules",
            ours=[len(names_that_stand_twice(modules))],
            unit="names",
            claim="none",
            at_most=0,
        ),
    ]
    report(claims, as_json=options.json)


MOST_FILES, MOST_LINES = 480, 75_000
"""Figures that were reached; a change that needs more says why, and raises them."""


def read(path: Path) -> Module:
    """A file of the worker."""
    parts = path.relative_to(WORKER).with_suffix("").parts
    tree = ast.parse(path.read_text())
    return Module(
        name=".".join(parts).removesuffix(".__init__"),
        code=lines_of_code(path, tree),
        classes=tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef)),
        imports=frozenset(imported(tree)),
    )


def lines_of_code(path: Path, tree: ast.Module) -> int:
    """Lines that have a token of code; not those of docstrings, below names included, and imports."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found: set[int] = set()
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type in _CODE:
                found.update(range(token.start[0], token.end[0] + 1))
    return len(found - left_out)


_CODE = frozenset((tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING))


def imported(tree: ast.Module) -> Iterator[str]:
    """What a module imports of the worker: "util.limits", and "util.limits.WorkerLimits" for a name in it."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("crucible_worker."):
                yield name.removeprefix("crucible_worker.")


def with_one_importer(modules: Mapping[str, Module]) -> list[str]:
    """Modules that a single module imports, which stands in the same folder."""
    importers: dict[str, set[str]] = collections.defaultdict(set)
    for module in modules.values():
        for name in module.imports & modules.keys() - {module.name}:
            importers[name].add(module.name)
    return [
        name
        for name, users in importers.items()
        if len(users) == 1 and next(iter(users)).rpartition(".")[0] == name.rpartition(".")[0]
    ]


def names_that_stand_twice(modules: Mapping[str, Module]) -> list[str]:
    """Top-level classes of one name."""
    counted = collections.Counter(name for module in modules.values() for name in module.classes)
    return [name for name, times in counted.items() if times > 1]


if __name__ == "__main__":
    main()
