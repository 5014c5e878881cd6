"""Environments of users: found by entry point in installed distributions, and refused where they are none."""

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import EvaluatorSpec, SamplingParams
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.environments import entry_points, processes
from crucible_worker.evaluators.registry import EvaluatorParts
from tests import distributions
from tests.distributions import (
    ENVIRONMENT_PACKAGE,
    lay_out,
    lay_out_environment_package,
    lay_out_packages_of_before,
)

DOCS = Path(__file__).parents[4] / "docs"

Install = Callable[[str], None]

IT = """
class Environment:
    description = "It."
    options_schema = {"type": "object", "properties": {}, "additionalProperties": False}
    def group(self, sample, options, size): pass

"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install an environment `it`, as pip lays it out."""

    def distribution(source: str) -> None:
        lay_out(tmp_path, "users_it", IT + textwrap.dedent(source), entry_points.GROUP, {"it": "users_it:IT"})
        distributions.install(monkeypatch, tmp_path)

    return distribution


def _create(environment: str) -> object:
    spec = EvaluatorSpec(kind="rl_test_set", options={"environment": environment})
    return registry.create(spec, 0, SamplingParams(max_tokens=4))


def test_the_example_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, when it is asked for; it is imported by a process that tells of it, and not by this one."""
    lay_out_environment_package(tmp_path)
    distributions.install(monkeypatch, tmp_path)
    spec = EvaluatorSpec(kind="rl_test_set", options={"environment": "chain"})

    assert entry_points.names() == ["chain"]
    parts = EvaluatorParts()
    assert registry.is_installed(spec, parts)
    registry.load_installed([spec], parts)
    assert (parts.environments.find("chain") or {})["properties"] == {
        "bonus": {
            "type": "number",
            "default": 0.0,
            "description": "What a rollout earns that comes to the end of its chain.",
        }
    }
    assert "chain" not in sys.modules
    assert not registry.is_installed(EvaluatorSpec(kind="rl_test_set"), parts)


def test_an_environment_of_the_release_before_loads_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the schema that it writes by hand."""
    lay_out_packages_of_before(tmp_path)
    distributions.install(monkeypatch, tmp_path)

    found = EvaluatorParts().environments.find("chain")

    assert (found or {})["properties"] == {"bonus": {"type": "number", "default": 0.0}}


def test_the_page_shows_the_example_package() -> None:
    """What a user copies from the page is what is tested."""
    page = (DOCS / "environments.md").read_text()

    assert (ENVIRONMENT_PACKAGE / "chain.py").read_text() in page
    assert 'chain = "chain:CHAIN"' in page
    assert 'chain = "chain:CHAIN"' in (ENVIRONMENT_PACKAGE / "pyproject.toml").read_text()


def test_one_that_is_not_announced_is_unknown(install: Install) -> None:
    """The error names those that there are, and imports none."""
    install("raise RuntimeError('loaded')")

    with pytest.raises(InvalidField, match="'nowhere', known are: problems, it") as caught:
        _create("nowhere")

    assert (caught.value.field, caught.value.reason) == ('evaluators[0].options["environment"]', "UNKNOWN_ENVIRONMENT")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; os._exit(3)", "its import ended (exit status 3)"),
        ("import os; os.kill(os.getpid(), 9)", "its import ended (signal 9)"),
        ("IT = Environment", "is the class Environment"),
        ("IT = 3", "is a int"),
        ("IT = Environment(); IT.group = None", "without a description"),
        ("IT = Environment(); IT.description = 3", "without a description"),
        ("IT = Environment(); IT.options_schema = []", "without a description"),
        ("IT = Environment(); IT.options_schema = {'type': object}", "no JSON schema"),
        ("IT = Environment(); IT.options_schema = {'type': 'x'}", "not of the type object"),
        ("IT = Environment(); IT.options_schema = {'type': 'object'}", "additionalProperties"),
        ("Environment.description = property(lambda self: 1 / 0); IT = Environment()", "ZeroDivisionError"),
    ],
)
def test_one_that_is_none_is_refused(install: Install, source: str, told: str) -> None:
    """With what is wrong with it."""
    install(source)

    with pytest.raises(FailedPrecondition) as caught:
        _create("it")

    assert caught.value.reason == "BAD_ENVIRONMENT"
    assert told in caught.value.message


@pytest.mark.parametrize("before", ["", "import os; os.closerange(3, 100); "])
def test_an_import_that_does_not_end_is_ended(install: Install, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    """With its process, also where that has closed all that it could say something by."""
    monkeypatch.setattr(processes, "DESCRIBE_SECONDS", 3.0)
    install(f"{before}import time; time.sleep(600)")

    with pytest.raises(FailedPrecondition, match="its import did not end within 3 s"):
        _create("it")


def test_a_library_that_is_missing_is_named(install: Install) -> None:
    """It is not the environment that is bad."""
    install("import surely_not_installed")

    with pytest.raises(FailedPrecondition, match="'surely_not_installed', which is not installed") as caught:
        _create("it")

    assert caught.value.reason == "EXTRA_NOT_INSTALLED"
