"""What importing a package costs: a pool starts many workers, so that nothing heavy is loaded before it is needed.

And no two modules need each other.
"""

import ast
import graphlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.tables import rows

_ROOT = Path(__file__).parents[2]
SOURCES = (_ROOT / "bridge" / "crucible_bridge", _ROOT / "python_worker" / "crucible_worker")

HEAVY = {
    "aiohttp",
    "datasets",
    "flint",
    "httpx2",
    "huggingface_hub",
    "lightning",
    "mpmath",
    "nltk",
    "openai",
    "pandas",
    "peft",
    "polars",
    "pyarrow",
    "re2",
    "rouge_score",
    "sacrebleu",
    "sympy",
    "tinker",
    "tinker_cookbook",
    "torch",
    "transformers",
}

MODULES = [
    "crucible_bridge",
    "crucible_bridge.frames",
    "crucible_bridge.integrations",
    "crucible_bridge.integrations.reporting",
    "crucible_bridge.rewards",
    "crucible_worker",
    "crucible_worker.cli",
    "crucible_worker.server",
    "crucible_worker.grading.math.grader",
    "crucible_worker.rpc.grading",
    "crucible_worker.snakepit.service",
]


@pytest.mark.long
@rows("module", MODULES)
def test_importing_loads_nothing_heavy(module: str):
    """A fresh interpreter that imports a package of ours has not loaded a heavy library."""
    program = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert module.partition(".")[0] in loaded
    assert HEAVY.isdisjoint(loaded)


def test_the_process_of_the_embedded_models_loads_numpy_and_little_else():
    """The first evaluation of a worker waits for its start; the modules of the worker's side take twice that time."""
    program = "import sys, crucible_worker.backends.local.numpy_host.__main__; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert "numpy" in loaded
    assert "crucible_worker.backends.local.backend" not in loaded
    assert {"asyncio", "crucible_bridge.types", "google", "grpc", "jsonschema", "rich", "structlog"}.isdisjoint(loaded)
    assert HEAVY.isdisjoint(loaded)


_EVALUATING = """
import sys
from crucible_worker.cli import main

try:
    main(sys.argv[1:])
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_an_evaluation_by_command_loads_no_server(tmp_path: Path):
    """Nor what checks options where none are given, nor what draws tables: that is half of a small evaluation."""
    model = ["--model", "embedded:arithmetic@320", "--data", "builtin:arithmetic", "--samples", "1"]
    command = ["evaluate", *model, "--evaluator", "accuracy", "--max-tokens", "2", "--state-dir", str(tmp_path)]

    done = subprocess.run([sys.executable, "-c", _EVALUATING, *command], capture_output=True, text=True, check=True)

    assert "1 of 1 scored" in done.stdout
    loaded = done.stderr.splitlines()[-1].split()
    assert "crucible_worker.server.parts" in loaded
    assert {"crucible_worker.server.process", "crucible_worker.rpc"}.isdisjoint(loaded)
    assert {"grpc", "jsonschema", "pygments", "rich"}.isdisjoint(loaded)
    assert HEAVY.isdisjoint(loaded)


_GRADING = """
import asyncio, sys
from crucible_bridge.types import GradeItem
from crucible_worker.grading.math.grader import MathGrader
from crucible_worker.grading.pool import GradingPool

async def grade():
    pool = GradingPool(2)
    await pool.start()
    try:
        item = GradeItem(answer=r"\\sqrt{5+2\\sqrt6}", targets=(r"\\sqrt2+\\sqrt3",))
        return await MathGrader(pool).grade_batch([item])
    finally:
        await pool.aclose()

if __name__ == "__main__":
    print(asyncio.run(grade())[0].verdict.value, *sorted({"flint", "mpmath", "sympy"} & set(sys.modules)))
"""


def test_mathematics_stays_in_the_processes_of_the_grader(tmp_path: Path):
    """A worker that has graded mathematics has loaded none of its libraries: their calls hold the GIL."""
    program = tmp_path / "grade.py"
    program.write_text(_GRADING, encoding="utf-8")

    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["correct"]


def _imported(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """Modules that a file names in imports, wherever they stand: in functions, and for type checkers too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names):
                both = ((module, f"{module}.{alias.name}") for alias in names)
                found |= {below if below in modules else package for package, below in both}
            case _:
                pass
    return found & modules.keys()


def test_no_modules_import_each_other():
    """No circle, not even of imports within functions or for type checkers: a file is read after what it needs."""
    modules: dict[str, Path] = {}
    for source in SOURCES:
        for path in source.rglob("*.py"):
            parts = path.relative_to(source.parent).with_suffix("").parts
            modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph = {name: _imported(path, modules) - {name} for name, path in modules.items()}

    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")
    assert len(graph) > 300


def test_the_command_line_loads_no_library_but_its_own():
    """So `--help` of each command answers at once: what a command needs is imported when it runs."""
    program = "import sys, crucible_worker.cli; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert "typer" in loaded
    assert {"crucible_bridge", "google", "grpc", "jinja2", "msgspec", "numpy", "rich", "structlog"}.isdisjoint(loaded)
