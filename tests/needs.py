"""What a test needs of the machine, and why it is skipped without it: each reason is written here alone.

    torch = pytest.importorskip("torch", reason=needs.MISSING["torch"])
    compiler = needs.program("cc")
    needs.modules("torch", "transformers")
    pytestmark = needs.installed("torch", "accelerate")
    pytest.skip(needs.MISSING["faketime"])

A reason is what is missing, with its cure in brackets at its end: a run prints one line for each (tests/skips.py).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

__all__ = [
    "ANOTHER_FILE_SYSTEM",
    "CUDA",
    "LABELLED",
    "MISSING",
    "NO_CUDA",
    "NO_ROOT",
    "RECORDING",
    "ROOT",
    "installed",
    "modules",
    "program",
]

MISSING: Mapping[str, str] = {
    # Libraries, by their modules.
    "accelerate": "accelerate is missing (pip install -e '.[dev-all]')",
    "aiohttp": "aiohttp is missing (pip install -e '.[openai]')",
    "datasets": "datasets is missing (pip install -e '.[datasets]')",
    "fastapi": "fastapi is missing (pip install -e '.[dev-all]')",
    "grpc_tools": "grpcio-tools is missing (pip install -e '.[dev]')",
    "kubernetes_validate": "kubernetes-validate is missing (pip install -e '.[dev-all]')",
    "inspect_ai": "Inspect AI is missing (pip install -e '.[inspect]')",
    "litellm": "LiteLLM is missing (make test-endpoint)",
    "lm_eval": "lm-evaluation-harness is missing (make test-endpoint)",
    "lightning": "Lightning is missing (make test-loggers)",
    "openai": "openai is missing (pip install -e '.[dev-all]')",
    "pandas": "pandas is missing (pip install -e '.[frames]')",
    "peft": "peft is missing (pip install -e '.[lora]')",
    "polars": "polars is missing (pip install -e '.[dev-all]')",
    "psycopg": "psycopg is missing (pip install -e '.[postgres]')",
    "pyarrow": "pyarrow is missing (pip install -e '.[datasets]')",
    "ray": "Ray is missing (pip install -e '.[ray]')",
    "safetensors": "safetensors is missing (pip install -e '.[local]')",
    "tinker": "tinker is missing (pip install -e '.[tinker]')",
    "tinker_cookbook": "tinker-cookbook or a library that it imports is missing (pip install -e '.[dev-all,local]' && "
    "pip install --no-deps tinker-cookbook)",
    "tokenizers": "tokenizers is missing (pip install -e '.[local]')",
    "torch": "PyTorch is missing (pip install -e '.[local]')",
    "transformers": "transformers is missing (pip install -e '.[local]')",
    "trustme": "trustme is missing (pip install -e '.[dev]')",
    "uvicorn": "uvicorn is missing (pip install -e '.[dev-all]')",
    # Programs, by the names of their files.
    "buf": "buf is missing (pip install -e '.[dev]')",
    "bwrap": "bubblewrap is missing (apt install bubblewrap)",
    "cc": "a C compiler is missing (apt install gcc libc6-dev)",
    "elixir": "Elixir is missing (apt install elixir)",
    "kubectl": "kubectl is missing (https://kubernetes.io/docs/tasks/tools)",
    "mix": "Elixir is missing (apt install elixir)",
    "openssl": "openssl is missing (apt install openssl)",
    "shellcheck": "shellcheck is missing (pip install -e '.[dev-all]')",
    # Others.
    "axe-core": "axe-core is missing (make test-pages, with npm installed)",
    "chromium": "Chromium is missing (apt install chromium)",
    "faketime": "libfaketime is missing (apt install libfaketime)",
    "python3": "/usr/bin/python3 is missing (apt install python3)",
    "postgresql": "PostgreSQL's server is missing (apt install postgresql)",
}
"""Why a test is skipped, by what is missing."""

CUDA = "there is no CUDA device (run on a machine with an NVIDIA GPU)"
NO_CUDA = "there is a CUDA device (CUDA_VISIBLE_DEVICES='' hides it)"
ROOT = "the user is not root (run as root)"
NO_ROOT = "the user is root (run as another user)"
ANOTHER_FILE_SYSTEM = "/dev/shm is missing, or no other file system than the tests' folder (set --basetemp)"
RECORDING = "the recording of Snakepit is missing (put it into ../shared/data/snakepit)"
LABELLED = "labelled responses are missing (GRADING_DATA names their folder)"


def program(name: str) -> str:
    """The path of a program; what calls this is skipped if it is missing."""
    __tracebackhide__ = True
    # Next to Python lie those that pip installs.
    folders = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    return shutil.which(name, path=os.pathsep.join(folders)) or pytest.skip(MISSING[name])


def installed(*modules: str) -> pytest.MarkDecorator:
    """A mark of tests that need libraries, but import none."""
    missing = [MISSING[module] for module in modules if importlib.util.find_spec(module) is None]
    return pytest.mark.skipif(bool(missing), reason="".join(missing[:1]))


def modules(*names: str) -> None:
    """Skip the test module that calls this if one is not installed; imports none, which may take seconds."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(MISSING[name], allow_module_level=True)
