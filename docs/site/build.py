"""Builds the site of docs/ into build/site/html: `make docs`, or `python docs/site/build.py`.

Zensical reads one folder alone. This script copies the pages there, and turns each file outside of docs/ that a page
links to into a page as well, so that every link works without a network. A broken link, an anchor that no page has, and
a page that the navigation lacks or names twice are errors.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCES = "source"
"""Folder of the site with the pages of files outside of docs/."""
TOOLS = (".py", ".toml", ".txt")
"""Files of docs/ that make pages: they are sources."""
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"
"""Begins the pages of sources: the search finds what is written for readers."""
LANGUAGES = {".py": "python", ".ex": "elixir", ".exs": "elixir", ".toml": "toml", ".yaml": "yaml", ".jsonl": "json"}
LANGUAGES |= {".proto": "protobuf", "Dockerfile": "docker"}

STRICT = "Aborted because --strict flag is set"
"""Zensical's last words after warnings, below a traceback of its own."""

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})")
_ESCAPED = re.compile(r"(?P<marks>`+).+?(?P=marks)|\\[<>]")
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)(?P<path>[^()\s#]+)")


def main(arguments: Sequence[str]) -> int:
    """Build the site; the exit status."""
    parser = argparse.ArgumentParser(description="Builds the site of docs/, strictly.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project; default: the one of this file")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site", help="default: build/site")
    chosen = parser.parse_args(arguments)
    problems = [*astray(chosen.root / "docs"), *stage(chosen.root.resolve(), chosen.output)]
    if problems:
        sys.stderr.writelines(f"{problem}\n" for problem in problems)
        return 1
    zensical = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    ended = subprocess.run(zensical, cwd=chosen.output, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = _ESCAPE.sub("", ended.stdout)
    if said.rstrip().endswith(STRICT):
        said = said.partition("Traceback (most recent call last)")[0]
    sys.stderr.write(said)
    return ended.returncode


def astray(docs: Path) -> list[str]:
    """What is wrong with the navigation: pages that it lacks, names twice, or that do not exist."""
    named = Counter(pages_of(tomllib.loads((docs / "site" / "zensical.toml").read_text())["project"]["nav"]))
    there = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    return [
        *(f"docs/{page} is not in the navigation: docs/site/zensical.toml" for page in sorted(there - set(named))),
        *(f"the navigation names docs/{page}, which does not exist" for page in sorted(set(named) - there)),
        *(f"the navigation names docs/{page} {times} times" for page, times in named.items() if times > 1),
    ]


def pages_of(nav: Any) -> Iterator[str]:
    """The pages that a part of the navigation names, in order."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_of(part)


def stage(root: Path, output: Path) -> list[str]:
    """Write what Zensical reads: its configuration, the pages, and a page of each other file that they link to.

    Args:
        root: the project.
        output: a folder, which is emptied.

    Returns:
        The links to files that do not exist: Zensical misses those to pictures and to sources.
    """
    if output.exists():
        shutil.rmtree(output)
    pages = output / "docs"
    shutil.copytree(
        root / "docs", pages, ignore=shutil.ignore_patterns(*(f"*{suffix}" for suffix in TOOLS), "__pycache__")
    )
    shutil.copy(root / "docs" / "site" / "zensical.toml", output)
    waiting = {page: page.relative_to(root / "docs").as_posix() for page in sorted((root / "docs").rglob("*.md"))}
    written: set[Path] = set()
    problems: list[str] = []
    while waiting:
        source, name = waiting.popitem()
        written.add(source)
        text, linked, broken = linked_page(source, name, root)
        problems += broken
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        (pages / name).write_text(text)
        waiting |= {file: place for file, place in linked.items() if file not in written}
    return problems


def linked_page(source: Path, name: str, root: Path) -> tuple[str, dict[Path, str], list[str]]:
    """A page with its links as the site has them, the files outside of docs/ it links to, by place, and broken links.

    Args:
        source: a page, another file, or a folder.
        name: its place in the site.
        root: the project.
    """
    if source.is_dir():
        files = sorted(file.name for file in source.iterdir() if file.is_file())
        text = "".join([f"{UNSEARCHED}# {source.relative_to(root)}\n\n", *(f"- [{file}]({file})\n" for file in files)])
    elif source.suffix == ".md":
        text = source.read_text()
    else:
        marks = "`" * 8
        language = LANGUAGES.get(source.suffix, LANGUAGES.get(source.name, "text"))
        return f"{UNSEARCHED}# {source.relative_to(root)}\n\n{marks}{language}\n{source.read_text()}{marks}\n", {}, []
    linked: dict[Path, str] = {}
    broken: list[str] = []
    folder = source if source.is_dir() else source.parent

    def placed(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(folder / found["path"]))
        if not target.exists() or not target.is_relative_to(root):
            broken.append(f"{source.relative_to(root)} links to {found['path']}, which does not exist")
            return found[0]
        if target.is_dir():
            target = _opened(target, root)
        if target.is_relative_to(root / "docs") and target.suffix not in TOOLS:
            place = target.relative_to(root / "docs").as_posix()
        else:
            relative = target.relative_to(root).as_posix()
            place = f"{SOURCES}/{relative}" + ("/index.md" if target.is_dir() else ".md" * (target.suffix != ".md"))
            linked[target] = place
        return os.path.relpath(place, Path(name).parent)

    said: list[str] = []
    for line, fenced in _lines(text):
        before = said[-1] if said else "\n"
        said.append(line if fenced else _LINK.sub(placed, _ESCAPED.sub(_entity, _listed(line, before))))
    return "".join(said), linked, broken


def _entity(escaped: re.Match[str]) -> str:
    """What stands for an escaped `<` or `>`, which Python-Markdown does not know; a piece of code is left alone."""
    return {r"\<": "&lt;", r"\>": "&gt;"}.get(escaped[0], escaped[0])


def _listed(line: str, before: str) -> str:
    """A line as Python-Markdown wants it, which sees fewer lists than GitHub does.

    A list begins after a blank line there, and what belongs to an item is indented by four spaces.
    """
    inner = re.match(r" {2,3}(?=\S)", line)
    if inner and (not before.strip() or re.match(r"[-*] ", line[inner.end() :])):
        return f"    {line[inner.end() :]}"
    if re.match(r"[-*] ", line) and before.strip() and not re.match(r"\s|[-*] ", before):
        return f"\n{line}"
    return line


def _opened(folder: Path, root: Path) -> Path:
    """What a link to a folder opens: its page, the first of its pages in docs/, or a list of its files."""
    pages = [folder / "index.md", folder / "README.md"]
    if folder.is_relative_to(root / "docs"):
        pages += sorted(folder.glob("*.md"))
    return next((page for page in pages if page.is_file()), folder)


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, with whether it belongs to a fenced block."""
    closing = ""
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        if closing:
            yield line, True
            if found and line.strip().startswith(closing) and not line.strip().strip(closing[0]):
                closing = ""
        else:
            closing = found["marks"] if found else ""
            yield line, bool(closing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
