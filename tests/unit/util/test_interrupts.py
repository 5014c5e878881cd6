"""Ctrl-C is heard quietly from as early on as our own code can."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
before = set(sys.modules)
import crucible_worker.util.interrupts
print(*sorted(set(sys.modules) - before))
"""


def test_what_hears_ctrl_c_imports_nothing_that_takes_time():
    """Until it is imported Ctrl-C prints a traceback: enum alone would take 20 times as long as all the rest."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert set(done.stdout.split()) <= {
        "__future__",
        "crucible_worker",
        "crucible_worker.util",
        "crucible_worker.util.interrupts",
    }
