"""A device that is not there is refused before PyTorch is imported."""

import importlib.machinery
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from crucible_bridge.errors import FailedPrecondition
from crucible_worker.backends.local import backend
from crucible_worker.backends.local.backend import refuse_absent_cuda
from tests import needs

CPU = "cuda: Optional[str] = None\nhip: Optional[str] = None\n"
CUDA = "cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
ROCM = "cuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n"


def _built(version: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, driver: bool) -> None:
    """A PyTorch of this build; the driver is there if `driver`."""
    (folder / "version.py").write_text(f"__version__ = '2.9.0'\n{version}")
    spec = importlib.machinery.ModuleSpec("torch", None, origin=str(folder / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    # The C library is there on every machine, the other nowhere.
    monkeypatch.setattr(backend, "_DRIVER", "libc.so.6" if driver else "libnothing.so.1")


@pytest.mark.parametrize(
    ("version", "driver", "why"),
    [(CPU, True, "built without CUDA"), (CPU, False, "built without CUDA"), (CUDA, False, "no NVIDIA driver")],
)
def test_cuda_that_cannot_be_there_is_refused(
    version: str, driver: bool, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """By the build of PyTorch, or by the driver of the machine."""
    _built(version, tmp_path, monkeypatch, driver=driver)

    with pytest.raises(FailedPrecondition, match=f"'cuda:1' cannot be used: .*{why}") as caught:
        refuse_absent_cuda("cuda:1")

    assert caught.value.reason == "DEVICE_NOT_FOUND"


@pytest.mark.parametrize(("version", "driver"), [(CUDA, True), (ROCM, False)])
def test_cuda_that_may_be_there_is_left_to_the_host(
    version: str, driver: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """ROCm's devices are called cuda, too, and need another driver."""
    _built(version, tmp_path, monkeypatch, driver=driver)

    refuse_absent_cuda("cuda")


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_other_devices_are_not_looked_for(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """They are there on every machine."""
    _built(CPU, tmp_path, monkeypatch, driver=False)

    refuse_absent_cuda(device)


@needs.installed("torch")
def test_the_answer_is_that_of_pytorch_and_costs_no_import_of_it():
    """What PyTorch finds is never refused, and a build that can find none is; PyTorch stays out of the process."""
    code = (
        "import sys\n"
        "from crucible_bridge.errors import FailedPrecondition\n"
        "from crucible_worker.backends.local.backend import refuse_absent_cuda\n"
        "refused = False\n"
        "try:\n"
        "    refuse_absent_cuda('cuda')\n"
        "except FailedPrecondition:\n"
        "    refused = True\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\n"
        "assert not (refused and torch.cuda.is_available())\n"
        "assert refused or torch.backends.cuda.is_built()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
