"""What a worker is told: flags before environment before file, read into one frozen Settings.

The file is TOML with the fields of Settings as keys, and a table `limits`. In the environment a field is CRUCIBLE_ and
its name, and so is a limit; lists of folders are separated as in PATH, and an empty variable says nothing. A list has
the name of its option too, model_root for model_roots. Paths in the file are relative to the file. What is unknown in
the file, or in the environment below CRUCIBLE_, is refused.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

from crucible_worker.backends.openai.servers import OpenAIServer, read_servers
from crucible_worker.limits import WorkerLimits

__all__ = ["DEFAULT_PORT", "ENVIRONMENT_PREFIX", "LogFormat", "Settings", "SettingsError", "load_settings"]

DEFAULT_PORT = 50051
"""Where a worker listens unless told otherwise."""

ENVIRONMENT_PREFIX = "CRUCIBLE_"
"""Before the name of a field in the environment."""

CONFIG_VARIABLE = "CRUCIBLE_CONFIG"
"""Names the file where no flag does."""

LogFormat = Literal["json", "console"]

LOG_LEVELS = ("debug", "info", "warning", "error")

_T = TypeVar("_T")

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
_TOKEN = re.compile(r"[\x21-\x7e]+")


class SettingsError(Exception):
    """The worker is told something that cannot be, or that would not be safe; the text is for the operator."""


def _default_state_dir() -> Path:
    given = os.environ.get("XDG_STATE_HOME", "")
    # The base directory specification: a relative path there is to be ignored.
    base = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    return base / "crucible-bridge"


def _default_log_format() -> LogFormat:
    return "console" if sys.stderr.isatty() else "json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a worker is told at its start."""

    host: str = "127.0.0.1"
    """Name or address to listen on."""
    port: int = DEFAULT_PORT
    """Port to listen on; 0 picks one."""
    unix_socket: Path | None = None
    """Unix socket to listen on, in place of host and port."""
    token_file: Path | None = None
    """File with the token that callers must show."""
    tls_cert: Path | None = None
    """Certificate chain, PEM."""
    tls_key: Path | None = None
    """Its key, PEM."""
    insecure_no_tls: bool = False
    """Let other machines call without TLS, where something else encrypts; the token is still needed."""
    ready_file: Path | None = None
    """Where to write `host:port` once the worker serves."""
    state_dir: Path = dataclasses.field(default_factory=_default_state_dir)
    """Folder of the journal, shared by the workers of a machine."""
    model_roots: tuple[Path, ...] = ()
    """Folders below which local models may lie."""
    data_roots: tuple[Path, ...] = ()
    """Folders below which data sets may lie."""
    device: str = "auto"
    """Where local models compute: "auto", "cpu", "cuda" or "cuda:N"."""
    grading_processes: int | None = None
    """Child processes that grade math; one a core, from 2 to 4, if None; with 0 the worker grades no math."""
    openai_servers: tuple[OpenAIServer, ...] = ()
    """OpenAI-compatible servers that models may be asked of."""
    log_format: LogFormat = dataclasses.field(default_factory=_default_log_format)
    """Lines for machines or for people; for people where stderr is a terminal."""
    log_level: str = "info"
    """The least severe that is logged."""
    limits: WorkerLimits = WorkerLimits()
    """Bounds."""

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """Files of the certificate chain and of its key; None for plain text."""
        return None if self.tls_cert is None or self.tls_key is None else (self.tls_cert, self.tls_key)

    @property
    def token(self) -> str | None:
        """The token, read from its file; None where callers need none.

        Raises:
            SettingsError: the file is missing, empty or not a token, or everybody on this machine could read it.
        """
        return None if self.token_file is None else _read_token(self.token_file)

    @property
    def reachable_by_others(self) -> bool:
        """Whether other machines could call."""
        return self.unix_socket is None and not _is_loopback(self.host)

    def validate(self) -> Settings:
        """Return itself, or refuse what cannot work and what would not be safe.

        Raises:
            SettingsError: the first thing that is wrong.
        """
        if not 0 <= self.port <= 65535:
            raise SettingsError(f"port is {self.port}, not 0 to 65535")
        _check_grading_processes(self.grading_processes)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise SettingsError("TLS needs both --tls-cert and --tls-key")
        for path in self.tls or ():
            if not path.is_file():
                raise SettingsError(f"TLS file {path} does not exist")
        _ = self.token  # refuses a bad one
        if self.reachable_by_others:
            _check_exposure(self)
        for kind, roots in (("model root", self.model_roots), ("data root", self.data_roots)):
            for root in roots:
                if not root.is_dir():
                    raise SettingsError(f"{kind} {root} is not a folder")
        for server in self.openai_servers:
            _told(server.check)
        _check_limits(self.limits)
        return self


def load_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], config_file: Path | None = None
) -> Settings:
    """Read settings from where they are given, the first of these that has a field: flags, environment, file.

    Args:
        flags: by field, None where not given; `limits` is a sequence of "NAME=VALUE".
        environment: such as os.environ; CRUCIBLE_CONFIG names the file where `config_file` does not.
        config_file: TOML, or None.

    Returns:
        Validated settings.

    Raises:
        SettingsError: a source is unreadable, a name unknown, a value of the wrong kind, or the whole is refused.
    """
    if config_file is None and (named := environment.get(CONFIG_VARIABLE)):
        config_file = _path(named, Path.cwd())
    fields, limits = _from_file(config_file) if config_file is not None else ({}, {})
    fields_there, limits_there = _from_environment(environment)
    fields.update(fields_there)
    limits.update(limits_there)
    for name, value in flags.items():
        if name != "limits" and value is not None:
            fields[name] = _read(_FIELDS, name, value, f"--{_OPTIONS.get(name, name).replace('_', '-')}")
    for setting in flags.get("limits") or ():
        name, separator, value = setting.partition("=")
        if not separator:
            raise SettingsError(f"--limit {setting!r} is not NAME=VALUE")
        limits[name] = _read(_LIMITS, name, value, "--limit")
    return Settings(**fields, limits=WorkerLimits(**limits)).validate()


def _from_environment(environment: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    fields: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == CONFIG_VARIABLE:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        field = _FIELD_OF.get(name, name)
        if (field not in _FIELDS and field not in _LIMITS) or variable != variable.upper():
            known = sorted((*_FIELDS, *_OPTIONS.values(), *_LIMITS, "config"))
            raise SettingsError(
                f"there is no variable {variable}; there are {', '.join(ENVIRONMENT_PREFIX + k.upper() for k in known)}"
            )
        if not value:
            continue
        if field in _LIMITS:
            limits[field] = _read(_LIMITS, field, value, variable)
        else:
            _refuse_twice(field, fields, variable)
            fields[field] = _read(_FIELDS, field, value, variable)
    return fields, limits


def _from_file(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise SettingsError(f"{path} is not TOML: {error}") from error
    limits = document.pop("limits", {})
    if not isinstance(limits, dict):
        raise SettingsError(f"{path}: limits is not a table")
    base = path.absolute().parent
    fields: dict[str, Any] = {}
    for name, value in document.items():
        field = _FIELD_OF.get(name, name)
        _refuse_twice(field, fields, f"{path}: {name}")
        fields[field] = _read(_FIELDS, field, value, f"{path}: {name}", base)
    return fields, {name: _read(_LIMITS, name, value, f"{path}: limits.{name}") for name, value in limits.items()}


def _refuse_twice(field: str, taken: Mapping[str, Any], origin: str) -> None:
    """One source may call a list by either name, not by both."""
    if field in taken:
        raise SettingsError(f"{origin}: {_OPTIONS[field]} and {field} are one setting, and both are given")


_Reader = Callable[[Any, Path], Any]
"""Reads a flag's or variable's text, or TOML's value; paths are relative to the folder. ValueError: what it wants."""


def _read(readers: Mapping[str, _Reader], name: str, value: Any, origin: str, base: Path | None = None) -> Any:
    reader = readers.get(name)
    if reader is None:
        raise SettingsError(f"{origin}: there is no {name!r}; there are {', '.join(sorted(readers))}")
    try:
        return reader(value, Path.cwd() if base is None else base)
    except ValueError as error:
        raise SettingsError(f"{origin} is {value!r}, not {error}") from None


def _text(value: Any, base: Path) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def _host(value: Any, base: Path) -> str:
    return _text(value, base).removeprefix("[").removesuffix("]")


def _whole(value: Any, base: Path) -> int:
    text = str(value) if not isinstance(value, bool | float) else ""
    if not re.fullmatch(r"-?\d[\d_]*", text):
        raise ValueError("a whole number")
    return int(text)


def _number(value: Any, base: Path) -> float:
    try:
        return float(value) if not isinstance(value, bool) else float("bool")
    except (TypeError, ValueError):
        raise ValueError("a number") from None


def _flag(value: Any, base: Path) -> bool:
    known = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if str(value).lower() not in known:
        raise ValueError("true or false")
    return known[str(value).lower()]


def _path(value: Any, base: Path) -> Path:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError("a path")
    return base / Path(cast("str", value)).expanduser()


def _paths(value: Any, base: Path) -> tuple[Path, ...]:
    parts = [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("a list of paths")
    return tuple(_path(part, base) for part in parts)


def _one_of(*choices: str) -> _Reader:
    def read(value: Any, base: Path) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return value

    return read


def _device(value: Any, base: Path) -> str:
    if not isinstance(value, str) or not _DEVICE.fullmatch(value):
        raise ValueError("auto, cpu, cuda or cuda:N")
    return value


def _openai_servers(value: Any, base: Path) -> tuple[OpenAIServer, ...]:
    return _told(lambda: read_servers(value, base))


def _told(read: Callable[[], _T]) -> _T:
    """What it returns; its ValueError, which repeats no secret, is a SettingsError that repeats no value either."""
    try:
        return read()
    except ValueError as error:
        raise SettingsError(str(error)) from None


_FIELDS: Mapping[str, _Reader] = {
    "host": _host,
    "port": _whole,
    "unix_socket": _path,
    "token_file": _path,
    "tls_cert": _path,
    "tls_key": _path,
    "insecure_no_tls": _flag,
    "ready_file": _path,
    "state_dir": _path,
    "model_roots": _paths,
    "data_roots": _paths,
    "device": _device,
    "grading_processes": _whole,
    "openai_servers": _openai_servers,
    "log_format": _one_of(*get_args(LogFormat)),
    "log_level": _one_of(*LOG_LEVELS),
}

_OPTIONS: Mapping[str, str] = {
    "model_roots": "model_root",
    "data_roots": "data_root",
    "openai_servers": "openai_server",
}
"""Fields that hold several values, and the names of the options that give one each."""

_FIELD_OF: Mapping[str, str] = {option: field for field, option in _OPTIONS.items()}

_LIMITS: Mapping[str, _Reader] = {
    field.name: _whole if field.type == "int" else _number for field in dataclasses.fields(WorkerLimits)
}


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name may come to mean another address at any time


def _check_exposure(settings: Settings) -> None:
    where = f"other machines can reach {settings.host}"
    if settings.token_file is None:
        raise SettingsError(f"{where}: --token-file is needed, and TLS (or --insecure-no-tls)")
    if settings.tls is None and not settings.insecure_no_tls:
        raise SettingsError(f"{where}: --tls-cert and --tls-key are needed, or --insecure-no-tls where others encrypt")


def _read_token(path: Path) -> str:
    try:
        if path.stat().st_mode & stat.S_IROTH:
            raise SettingsError(f"token file {path} is readable by everybody: chmod 600 {path}")
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingsError(f"cannot read token file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        token = "not ASCII"
    if not token:
        raise SettingsError(f"token file {path} is empty")
    if not _TOKEN.fullmatch(token):
        raise SettingsError(f"token file {path} holds more than one word of printable ASCII")
    return token


def _check_grading_processes(count: int | None) -> None:
    if not count:
        return
    from crucible_worker.grading.pool import MAX_CHILDREN, MIN_CHILDREN  # no other setting needs it

    if not MIN_CHILDREN <= count <= MAX_CHILDREN:
        raise SettingsError(f"grading_processes is {count}, neither 0 nor {MIN_CHILDREN} to {MAX_CHILDREN}")


def _check_limits(limits: WorkerLimits) -> None:
    for name, value in dataclasses.asdict(limits).items():
        if not 0 < value < float("inf"):
            raise SettingsError(f"limit {name} is {value}, not above zero")
    if limits.default_concurrency > limits.max_concurrency:
        raise SettingsError(
            f"limit default_concurrency is {limits.default_concurrency}, above max_concurrency {limits.max_concurrency}"
        )
