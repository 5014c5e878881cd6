"""How a worker's modules are imported."""

import os
import subprocess
import sys

VARIABLE = "OPENBLAS_THREAD_TIMEOUT"


def said(program: str, **environment: str) -> list[str]:
    """What a fresh interpreter prints, with nothing but this said to OpenBLAS."""
    inherited = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-c", f"import gc, os\nfrom crucible_worker.util.loading import loading\n{program}"]
    run = subprocess.run(command, env={**inherited, **environment}, capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_what_is_loaded_is_never_looked_through_for_garbage() -> None:
    """Neither meanwhile nor later on; what comes afterwards is."""
    program = "with loading():\n    print(gc.isenabled())\nprint(gc.isenabled(), gc.get_freeze_count() > 0)"

    assert said(program) == ["False", "True", "True"]


def test_imports_that_fail_leave_everything_as_it_was() -> None:
    """A worker that cannot be imported says why by its traceback alone."""
    program = f"""
try:
    with loading():
        import crucible_worker.no_such_module
except ImportError:
    print(gc.isenabled(), {VARIABLE!r} in os.environ)"""

    assert said(program) == ["True", "False"]


def test_children_of_a_worker_do_not_inherit_what_its_imports_were_told() -> None:
    """What the environment says itself holds, for the worker and for them."""
    ours = f"os.environ.get({VARIABLE!r})"
    program = f"with loading():\n    print({ours})\nprint({ours})"

    assert said(program) == ["4", "None"]
    assert said(program, **{VARIABLE: "20"}) == ["20", "20"]
