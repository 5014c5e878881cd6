"""The table of the backends in the box, and the interface by which each of them registers."""

from pathlib import Path
from typing import Any, get_args

import pytest

from crucible_bridge import types
from crucible_worker.backends.base import Backend
from crucible_worker.backends.builtin import BUILTIN, ENDPOINTS, BuiltinBackend
from crucible_worker.config import Settings


def test_each_form_of_reference_has_its_backends():
    """Every form has one backend, but for references with a scheme, which several may have."""
    kinds = [entry.load() for entry in BUILTIN]
    forms = [form for kind in kinds for form in kind.opens if form is not types.InstalledModel]

    assert sorted(form.__name__ for form in (*forms, types.InstalledModel)) == sorted(
        form.__name__ for form in get_args(types.ModelRef)
    )


@pytest.mark.parametrize("entry", BUILTIN, ids=lambda entry: entry.name)
def test_each_is_made_of_a_worker_s_settings_alone(entry: BuiltinBackend, tmp_path: Path):
    """The interface is that of an installed backend, and the names that it shows include its own."""
    kind = entry.load()

    made = kind.create(Settings(state_dir=tmp_path))

    assert isinstance(made, Backend)
    assert entry.name in [info.name for info in made.infos()]
    assert made.fleets() == ()


def test_a_kind_of_servers_has_one_setting():
    """No two have one name, neither as a table nor as an option."""
    names = [name for kind in ENDPOINTS for name in (kind.setting, kind.option) if name]

    assert len(set(names)) == len(names)


def test_an_installed_backend_without_more_is_made_without_arguments(tmp_path: Path):
    """A class that defines `open` alone is a backend: it opens references of its scheme, and needs no settings."""

    class Plain(Backend[types.InstalledModel]):
        async def open(self, model: types.InstalledModel) -> Any:
            raise NotImplementedError

    made = Plain.create(Settings(state_dir=tmp_path))

    assert (made.opens, made.extras, made.libraries, made.checks()) == ((types.InstalledModel,), (), (), ())
