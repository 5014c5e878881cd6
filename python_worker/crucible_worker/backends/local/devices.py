"""Checks whether this machine can have CUDA, before the import of PyTorch, which takes seconds."""

from __future__ import annotations

import ctypes
import importlib.util
import re
from pathlib import Path

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason

__all__ = ["refuse_absent_cuda"]

_DRIVER = "libcuda.so.1"


def refuse_absent_cuda(device: str) -> None:
    """Refuse "cuda" and "cuda:N" if PyTorch is built without CUDA or the machine has no driver.

    Only PyTorch knows how many devices there are: the host refuses those that do not exist.

    Raises:
        FailedPrecondition: there is no CUDA here (DEVICE_NOT_FOUND).
    """
    if device.startswith("cuda") and (why := _absent()):
        raise FailedPrecondition(
            f"the device {device!r} cannot be used: {why}; without it, models compute on the CPU",
            reason=Reason.DEVICE_NOT_FOUND,
        )


def _absent() -> str:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""  # the missing extra is the better reason
    version = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    built_with = {name: value != "None" for name, value in re.findall(r"^(cuda|hip)\b.*= (.+)$", version, re.MULTILINE)}
    if not any(built_with.values()):
        return "the PyTorch installed here is built without CUDA"
    if built_with.get("hip"):
        return ""  # ROCm uses the same device names, with another driver
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return "this machine has no NVIDIA driver"
    return ""
