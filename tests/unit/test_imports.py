"""What importing a package costs: a pool starts many workers, so that nothing heavy is loaded before it is needed."""

import subprocess
import sys

from tests.tables import rows

HEAVY = {
    "aiohttp",
    "datasets",
    "httpx2",
    "huggingface_hub",
    "mpmath",
    "nltk",
    "openai",
    "peft",
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
    "crucible_worker",
    "crucible_worker.cli",
    "crucible_worker.server",
    "crucible_worker.grading.math.grader",
    "crucible_worker.services.grading",
    "crucible_worker.snakepit.service",
]


@rows("module", MODULES)
def test_importing_loads_nothing_heavy(module: str):
    """A fresh interpreter that imports a package of ours has not loaded a heavy library."""
    program = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"

    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert module.partition(".")[0] in loaded
    assert HEAVY.isdisjoint(loaded)
