"""What is public is importable, documented, and light."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

import crucible_bridge
from tests.tables import rows


def modules() -> Iterator[str]:
    """Every module of the bridge that is written by hand."""
    yield "crucible_bridge"
    for module in pkgutil.walk_packages(crucible_bridge.__path__, "crucible_bridge."):
        if not module.name.startswith("crucible_bridge.v1"):
            yield module.name


@rows("name", list(modules()))
def test_public_names_exist_and_are_documented(name: str):
    """`__all__` lists what is there, without doubles, and every class, function and module says what it is."""
    module = importlib.import_module(name)

    assert inspect.getdoc(module)
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        member = getattr(module, public)
        if inspect.isclass(member) or inspect.isroutine(member) or inspect.ismodule(member):
            assert inspect.getdoc(member), f"{name}.{public} has no docstring"


def test_the_package_lists_what_it_loads_lazily():
    """`dir()` shows lazy names; an unknown one is an AttributeError like any other."""
    assert set(crucible_bridge.__all__) <= set(dir(crucible_bridge))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = crucible_bridge.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import crucible_bridge", ("grpc", "google.protobuf", "numpy", "torch")),
        ("import crucible_bridge.types, crucible_bridge.events, crucible_bridge.problems", ("grpc", "google.protobuf")),
        ("import crucible_bridge; crucible_bridge.connect", ("torch", "sympy", "transformers", "tinker")),
    ],
)
def test_imports_stay_light(statement: str, absent: tuple[str, ...]):
    """A fresh interpreter loads no more than what is used needs."""
    program = f"import sys; {statement}; print([name for name in {absent!r} if name in sys.modules])"

    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout

    assert output.strip() == "[]"
