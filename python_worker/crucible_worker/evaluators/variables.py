"""The environment variables that processes of foreign code get from the worker."""

from __future__ import annotations

import os

__all__ = ["passed_variables"]

_PASSED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "XDG_CACHE_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


def passed_variables(*further: str) -> dict[str, str]:
    """The variables for such a process: none of them is ever a secret, except perhaps those of `further`."""
    return {name: os.environ[name] for name in (*_PASSED, *further) if name in os.environ}
