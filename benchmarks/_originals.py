"""tinker-cookbook's own metric functions, as installed, without what their packages import on the way.

tinker-cookbook 0.6.1 requires a release of tml-renderers that Python 3.11 cannot install, and what its packages import
(datasets, tiktoken, pillow ...) is not needed by its metrics. So it is installed alone (`pip install --no-deps`), the
modules with the metrics run unchanged, and any other module of the package is a placeholder whose attributes are
empty classes. Only this import sees the placeholders: the package is restored once the
metrics are loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["Originals", "SamplingClient", "load_originals", "missing_packages"]

_PACKAGE = "tinker_cookbook"
_NEEDED = (
    "completers",
    "distillation.train_on_policy",
    "exceptions",
    "preference.train_dpo",
    "rl.metric_util",
    "rl.metrics",
    "rl.types",
)
_NEEDED_PREFIXES = ("utils", "supervised.common", "_version")
_PACKAGES = {"tinker_cookbook": "tinker-cookbook", "tinker": "tinker", "chz": "chz", "torch": "torch"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Originals:
    """The originals, by name, and the types that they accept."""

    compute_kl_sample_train: Callable[..., dict[str, float]]
    compute_post_kl: Callable[..., Any]
    incorporate_kl_penalty: Callable[..., Any]
    incorporate_teacher_kl: Callable[..., Any]
    """incorporate_kl_penalty of tinker_cookbook.distillation."""
    compute_mean_nll: Callable[..., float]
    compute_trajectory_metrics: Callable[..., dict[str, float]]
    compute_dpo_loss: Callable[..., tuple[Any, dict[str, float]]]
    compute_sampling_client_metrics: Callable[..., dict[str, Any]]
    types: types.ModuleType
    """tinker_cookbook.rl.types."""
    TokensWithLogprobs: Callable[..., Any]


def missing_packages() -> str:
    """What must be installed for `load_originals`, in a sentence; empty if nothing is missing."""
    missing = [name for module, name in _PACKAGES.items() if importlib.util.find_spec(module) is None]
    if not missing:
        return ""
    return f"{', '.join(missing)} not installed: the dev extra, and pip install --no-deps tinker-cookbook==0.6.1"


@functools.cache
def load_originals() -> Originals:
    """Import them, once.

    Raises:
        ModuleNotFoundError: tinker-cookbook, tinker, chz or torch is not installed.
    """
    with _placeholders():
        rl = importlib.import_module(f"{_PACKAGE}.rl.metrics")
        return Originals(
            compute_kl_sample_train=rl.compute_kl_sample_train,
            compute_post_kl=rl.compute_post_kl,
            incorporate_kl_penalty=rl.incorporate_kl_penalty,
            incorporate_teacher_kl=importlib.import_module(
                f"{_PACKAGE}.distillation.train_on_policy"
            ).incorporate_kl_penalty,
            compute_mean_nll=importlib.import_module(f"{_PACKAGE}.supervised.common").compute_mean_nll,
            compute_trajectory_metrics=importlib.import_module(f"{_PACKAGE}.rl.metric_util").compute_trajectory_metrics,
            compute_dpo_loss=importlib.import_module(f"{_PACKAGE}.preference.train_dpo").compute_dpo_loss,
            compute_sampling_client_metrics=rl.compute_sampling_client_metrics,
            types=importlib.import_module(f"{_PACKAGE}.rl.types"),
            TokensWithLogprobs=importlib.import_module(f"{_PACKAGE}.completers").TokensWithLogprobs,
        )


class SamplingClient:
    """A stand-in for the model of the originals: returns given log-probabilities, by the sequence's last token.

    Args:
        logprobs: per sequence, those of its tokens except the first.
    """

    def __init__(self, logprobs: Sequence[Sequence[float]]) -> None:
        self._answers = iter([[None, *values] for values in logprobs])

    def sample(self, **_: object) -> SamplingClient._Future:
        """The next sequence's, in the order of the data."""
        return self._Future(next(self._answers))

    def compute_logprobs(self, _: object) -> SamplingClient._Scored:
        """The next sequence's, in the order of the data."""
        return self._Scored(next(self._answers))

    class _Scored:
        def __init__(self, answer: list[float | None]) -> None:
            self._answer = answer

        async def coroutine(self) -> list[float | None]:
            return self._answer

    class _Future:
        def __init__(self, answer: list[float | None]) -> None:
            self._answer = answer

        async def coroutine(self) -> types.SimpleNamespace:
            return types.SimpleNamespace(prompt_logprobs=self._answer, prompt_cache_hit_tokens=0, sequences=())


@contextlib.contextmanager
def _placeholders() -> Iterator[None]:
    """The package with placeholders, restored afterwards."""
    before = _loaded()
    for name in before:
        del sys.modules[name]
    finder = _Placeholders()
    try:
        importlib.import_module(_PACKAGE)
        sys.meta_path.insert(0, finder)
        yield
    finally:
        with contextlib.suppress(ValueError):  # not there yet: the package itself could not be imported
            sys.meta_path.remove(finder)
        for name in _loaded():
            del sys.modules[name]
        sys.modules.update(before)


def _loaded() -> dict[str, types.ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == _PACKAGE}


class _Placeholders(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for every module of the package that the metrics do not need."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != _PACKAGE or name in _NEEDED or name.startswith(_NEEDED_PREFIXES):
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Placeholder(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        # The real folder, so that a needed module below a placeholder is found.
        folder = os.path.join(*module.__name__.split(".")[1:])
        module.__path__ = [os.path.join(path, folder) for path in sys.modules[_PACKAGE].__path__]


class _Placeholder(types.ModuleType):
    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})
