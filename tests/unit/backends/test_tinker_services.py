"""Tinker services in a worker's settings: where they come from, what is refused, and that no key is told."""

from pathlib import Path

import pytest

from crucible_worker.backends.tinker.services import MAX_STALL_SECONDS, PRODUCTION_URL, TinkerService, default_service
from crucible_worker.config import SettingsError, load_settings
from tests.tables import rows

URL = "http://127.0.0.1:8000"
KEY = "tml-canary-0123456789"


@pytest.fixture(autouse=True)
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A key that its owner alone can read, and none in the environment."""
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_text(f"{KEY}\n")
    return path


def from_file(tmp_path: Path, text: str) -> tuple[TinkerService, ...]:
    """The services of a settings file."""
    config = tmp_path / "worker.toml"
    config.write_text(text)
    return load_settings({}, {}, config).endpoints_of(TinkerService)


def test_the_file_says_everything(tmp_path: Path, secret: Path):
    """A table by name, with every setting of a service; paths are relative to the file."""
    (service,) = from_file(
        tmp_path,
        f'[tinker_services.lab]\nbase_url = "{URL}"\nkey_file = "key"\nmax_in_flight = 8\nstall_seconds = 5\n'
        "insecure_no_tls = true\n",
    )
    assert service == TinkerService(
        name="lab", base_url=URL, key_file=secret, max_in_flight=8, stall_seconds=5.0, insecure_no_tls=True
    )
    assert service.key() == KEY


def test_a_table_with_a_key_alone_is_production(tmp_path: Path):
    """The address is that of the Tinker service unless another is given."""
    (service,) = from_file(tmp_path, '[tinker_services.default]\nkey_file = "key"')
    assert service.base_url == PRODUCTION_URL


def test_flags_and_variables_name_services_with_the_key_of_the_environment(monkeypatch: pytest.MonkeyPatch):
    """NAME=URL, several by several flags or separated by blanks in the variable; TINKER_API_KEY is their key."""
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    flags = load_settings({"tinker_services": ["a=http://localhost:1", "b=https://h"]}, {}).endpoints_of(TinkerService)
    variable = load_settings({}, {"CRUCIBLE_TINKER_SERVICE": "a=http://localhost:1  b=https://h"}).endpoints_of(
        TinkerService
    )
    assert flags == variable
    assert [(service.name, service.base_url, service.key()) for service in flags] == [
        ("a", "http://localhost:1", KEY),
        ("b", "https://h", KEY),
    ]


def test_the_default_service_is_that_of_the_environment():
    """Without settings: production, or where TINKER_BASE_URL says."""
    assert default_service({}) == TinkerService(name="default")
    assert default_service({"TINKER_BASE_URL": URL}) == TinkerService(name="default", base_url=URL)


@rows(
    ("text", "why"),
    [
        ('["tinker_services"."a b"]\nkey_file = "key"', "letters, digits"),
        ('[tinker_services]\na = "http://x"', "is no table"),
        ("tinker_services = 3", "no table of services"),
        ('[tinker_services.a]\nbase_url = "ftp://x"\nkey_file = "key"', "no http or https URL"),
        ('[tinker_services.a]\nbase_url = "http://u:canary@x"', "a key belongs into key_file"),
        ('[tinker_services.a]\nkey = "canary"', "there is no 'key'"),
        ('[tinker_services.a]\nkey_file = "key"\nmax_in_flight = 0', "at least 1"),
        ('[tinker_services.a]\nkey_file = "key"\nmax_in_flight = 1.5', "a whole number"),
        ('[tinker_services.a]\nkey_file = "key"\nstall_seconds = 0', "not above 0"),
        (f'[tinker_services.a]\nkey_file = "key"\nstall_seconds = {MAX_STALL_SECONDS + 1}', "not above 0"),
        ('[tinker_services.a]\nkey_file = "absent"', "cannot read key file"),
        ('[tinker_services.a]\nkey_file = "key"\nkey_env = "K"', "are one setting"),
        ("[tinker_services.a]", "has no key: set the variable TINKER_API_KEY"),
        ('[tinker_services.a]\nkey_env = "MY_KEY"', "has no key: set the variable MY_KEY"),
        ('[tinker_services.a]\nbase_url = "http://far.example"\nkey_file = "key"', "in the clear"),
    ],
)
def test_what_cannot_be_is_refused_without_its_value(tmp_path: Path, text: str, why: str):
    """The start fails with the reason, and repeats nothing that might be a key in the wrong place."""
    with pytest.raises(SettingsError, match=why) as caught:
        from_file(tmp_path, text)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("stall_seconds", [0.001, MAX_STALL_SECONDS])
def test_the_bounds_themselves_are_taken(secret: Path, stall_seconds: float):
    """One call at a time, and the shortest and longest stall."""
    TinkerService(name="a", base_url=URL, key_file=secret, max_in_flight=1, stall_seconds=stall_seconds).check()


def test_a_key_that_everybody_can_read_is_none(secret: Path):
    """It is refused before a service is asked."""
    secret.chmod(0o644)
    with pytest.raises(ValueError, match="readable by all users"):
        TinkerService(name="a", base_url=URL, key_file=secret).check()
