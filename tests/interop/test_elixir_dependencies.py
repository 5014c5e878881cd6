"""What the Elixir client depends on, and that it compiles from a folder of dependencies where there is no Hex."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests import needs

CLIENT = Path(__file__).resolve().parents[2] / "elixir_client_example"
ON_HEX = {"castore", "grpc", "gun", "jason", "mint", "nx", "phoenix_pubsub", "protobuf", "telemetry"}
"""Published, and each version asked for fits to the others'."""

MIX_EXS = """
defmodule {module}.MixProject do
  use Mix.Project
  def project, do: [app: :{app}, version: "{version}", deps: [{deps}]]
end
"""


def test_dependencies_are_published_and_fit_together() -> None:
    """`mix deps.get` resolves optional ones, too; Kitchen is not on Hex and excludes Snakepit 0.13."""
    assert set(re.findall(r"\{:(\w+), \"", (CLIENT / "mix.exs").read_text())) == ON_HEX


def test_a_folder_of_dependencies_is_enough_for_a_clean_build(tmp_path: Path) -> None:
    """BRIDGE_ELIXIR_DEPS compiles sources in the order of their needs, and takes compiled ones as they are."""
    mix = needs.program("mix")
    folder, project = tmp_path / "deps", tmp_path / "project"
    # In the order of their names the first would be compiled before what it needs. Its tool for developers is nowhere.
    source(
        folder / "grpc", "0.11.5", ['{:protobuf, "~> 0.15"}', '{:ex_doc, ">= 0.0.0", only: :dev}'], "Protobuf.twice(21)"
    )
    source(folder / "protobuf", "0.17.0", [], "nil", "defmacro twice(n), do: n * 2")
    compiled(folder / "gun", "2.4.1")
    (project / "lib").mkdir(parents=True)
    shutil.copy(CLIENT / "mix.exs", project)
    (project / "lib" / "used.ex").write_text(
        "defmodule Used do\n  require Grpc\n  @answer Grpc.value()\n  def answer, do: @answer\nend"
    )

    run(project, {"BRIDGE_ELIXIR_DEPS": str(folder)}, mix, "deps.get")
    said = run(
        project,
        {"BRIDGE_ELIXIR_DEPS": str(folder)},
        mix,
        "run",
        "-e",
        "IO.inspect({Used.answer(), Application.spec(:gun, :vsn)})",
    )

    assert said.endswith(("{42, '2.4.1'}\n", '{42, ~c"2.4.1"}\n')), said


def source(folder: Path, version: str, deps: list[str], value: str, more: str = "") -> None:
    """A dependency as it is published: its own dependencies are asked of Hex."""
    module = folder.name.capitalize()
    (folder / "lib").mkdir(parents=True)
    (folder / "mix.exs").write_text(
        MIX_EXS.format(module=module, app=folder.name, version=version, deps=", ".join(deps))
    )
    needs = "require Protobuf" if value != "nil" else ""
    (folder / "lib" / "it.ex").write_text(f"defmodule {module} do\n{needs}\n{more}\ndef value, do: {value}\nend")


def compiled(folder: Path, version: str) -> None:
    """A dependency of Erlang's own build tools, compiled; these tools need not be there."""
    (folder / "ebin").mkdir(parents=True)
    (folder / "rebar.config").write_text("{deps, []}.")
    (folder / "ebin" / f"{folder.name}.app").write_text(
        f'{{application, {folder.name}, [{{vsn, "{version}"}}, {{modules, []}}, {{applications, [kernel, stdlib]}}]}}.'
    )


def run(cwd: Path, variables: Mapping[str, str], *command: str) -> str:
    """What a command prints, in a home without Hex."""
    variables = {
        "PATH": os.pathsep.join([str(Path(command[0]).parent), "/usr/local/bin:/usr/bin:/bin"]),
        "LANG": "C.UTF-8",
        "HOME": str(cwd),
        "MIX_HOME": str(cwd),
        **variables,
    }
    done = subprocess.run(
        command, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
