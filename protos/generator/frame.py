"""The outputs, and how they are written or compared."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from generator import (
    blocking,
    bounds,
    call_descriptions,
    conversions,
    elixir,
    field_schemas,
    messages,
    overview,
    plain_calls,
    reasons,
    reference,
    request_fields,
    snakepit,
    types,
)
from generator.python_types import MODULES
from generator.schema import PROTOS, Schema, load

__all__ = ["OUTPUTS", "Output", "formatted", "main"]

# Users need what this version's output needs, and no more: protobuf >= 6.31.1 and grpcio >= 1.76.
GRPCIO_TOOLS = "1.76.0"
ROOT = PROTOS.parent


@dataclasses.dataclass(frozen=True, kw_only=True)
class Output:
    """Files of one kind that are generated into one folder."""

    target: str
    """The folder, relative to the repository."""
    make: Callable[[Schema, Path], dict[str, str]]
    """From the schema and an empty folder to work in: the files' text by their path below the target."""
    owned: tuple[str, ...] = ("*.py", "*.pyi")
    """Which files of the folder are this output's: those that it no longer makes are removed."""
    format: bool = False
    """Whether the Python files are formatted as those that are written by hand."""


GENERATED = tuple(f"{module}.py" for module in MODULES)
OUTPUTS = (
    Output(target="bridge/crucible_bridge/v1", make=messages.make),
    Output(target="bridge/crucible_bridge/types", make=bounds.make, owned=("bounds.py",), format=True),
    Output(target="bridge/crucible_bridge/types", make=types.make, owned=GENERATED, format=True),
    Output(target="bridge/crucible_bridge/codec", make=conversions.make, owned=GENERATED, format=True),
    Output(target="docs/reference", make=reference.make, owned=tuple(f"{name}.md" for name in reference.PAGES)),
    Output(target="docs/reference", make=reasons.make, owned=("reasons.md",)),
    Output(target="python_worker/crucible_worker/snakepit/wire", make=snakepit.make),
    Output(target="bridge/crucible_bridge/client", make=request_fields.make, owned=("request_fields.py",), format=True),
    Output(target="bridge/crucible_bridge/client", make=plain_calls.make, owned=("plain_calls.py",), format=True),
    Output(
        target="python_worker/crucible_worker/snakepit",
        make=call_descriptions.make,
        owned=("call_descriptions.py",),
        format=True,
    ),
    Output(
        target="python_worker/crucible_worker/snakepit",
        make=field_schemas.make,
        owned=("field_schemas.py",),
        format=True,
    ),
    Output(target=".", make=overview.make, owned=("docs/overview.md",)),
    # After all that the asynchronous client is made of.
    Output(target="bridge/crucible_bridge/client", make=blocking.make, owned=("blocking_calls.py",), format=True),
    Output(target="elixir_client_example/lib/crucible_bridge/wire", make=elixir.make, owned=("bounds.ex",)),
    Output(target="elixir_client_example/lib/crucible_bridge/error", make=reasons.make_elixir, owned=("reason.ex",)),
)


def formatted(files: dict[str, str]) -> dict[str, str]:
    """The same files, with the Python ones formatted."""
    with tempfile.TemporaryDirectory() as directory:
        paths = {name: Path(directory) / name for name in files if name.endswith(".py")}
        for name, path in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[name])
        config = ROOT / "pyproject.toml"
        for command in (["check", "--fix-only", "--quiet", "--no-cache", "--select=I,F401"], ["format", "--quiet"]):
            subprocess.run(
                [sys.executable, "-m", "ruff", *command, f"--config={config}", directory], check=True, cwd=ROOT
            )
        return files | {name: path.read_text() for name, path in paths.items()}


def update(output: Output, wanted: dict[str, str], *, check: bool) -> bool:
    """Write what is not current, or only report it; whether everything was."""
    target = ROOT / output.target
    found = {
        str(path.relative_to(target)): path.read_text()
        for pattern in output.owned
        for path in target.glob(pattern)
        if path.is_file()
    }
    stale = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if check:
        if stale:
            print(f"{output.target} is not current, run `make generate`: {', '.join(stale)}", file=sys.stderr)
        return not stale
    for name in stale:
        path = target / name
        if name in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[name])
        else:
            path.unlink()
    print(f"{output.target}: {len(stale)} of {len(wanted)} files changed")
    return True


def main() -> int:
    """Write the generated files, or compare them."""
    parser = argparse.ArgumentParser(description="Generate what follows from the protos.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a committed file is stale")
    parser.add_argument(
        "--descriptors", type=Path, metavar="FILE", help="only write the protos' descriptors, for other compilers"
    )
    given = parser.parse_args()
    if (installed := importlib.metadata.version("grpcio-tools")) != GRPCIO_TOOLS:
        raise SystemExit(f"grpcio-tools is {installed}; the generated code is made with {GRPCIO_TOOLS}")
    schema = load()
    if given.descriptors is not None:
        given.descriptors.write_bytes(schema.without_options().SerializeToString())
        return 0
    current = True
    for output in OUTPUTS:
        with tempfile.TemporaryDirectory() as directory:
            wanted = output.make(schema, Path(directory))
        current &= update(output, formatted(wanted) if output.format else wanted, check=given.check)
    return 0 if current else 1
