"""Flags before environment before file, read into one Settings, with the prices of tokens.

The file is TOML with the fields of Settings as keys, tables of servers by their kind, and a table `limits`. Its table
`evaluate` has options of `crucible-worker evaluate`, which that command reads. In the environment a field is CRUCIBLE_
and its name, and so is a limit; lists of folders are separated as in PATH, and an empty variable counts as not set. A
list has the name of its option too, model_root for model_roots. Paths in the file are relative to the file. Unknown
names in the file, or in the environment after CRUCIBLE_, are refused.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from crucible_worker.backends.builtin import ENDPOINTS
from crucible_worker.backends.endpoints import EndpointSettings, read_one_of, read_text
from crucible_worker.config.settings import LogFormat, Setting, Settings, SettingsError, read_plans
from crucible_worker.grading.code.images import read_images
from crucible_worker.grading.fanout.address import read_fanout
from crucible_worker.util.limits import WorkerLimits

if TYPE_CHECKING:
    from crucible_bridge.types import ModelPrice

__all__ = [
    "ENVIRONMENT_PREFIX",
    "REPEATED",
    "evaluate_table",
    "load_settings",
    "read_prices",
    "read_settings",
    "set_in",
]

# Prices of tokens in settings: "openai:lab/*=prompt:2.5,cached:1.25,output:10", or a table of the file.

_WANTED = "PATTERN=prompt:NUMBER,output:NUMBER, cached:NUMBER optional"
_PARTS = ("prompt", "cached", "output")


def read_prices(value: Any, base: Path) -> tuple[ModelPrice, ...]:
    """Read prices from a TOML table of tables, or from texts "PATTERN=prompt:2.5,output:10", or one with spaces.

    Args:
        value: what the operator gave.
        base: where paths are relative to; there are none.

    Raises:
        ValueError: has the expected form.
    """
    # Probes read settings as well, and should not import what this imports.
    from crucible_bridge.types import ModelPrice

    prices: dict[str, ModelPrice] = {}
    for pattern, parts in _pairs(value):
        if not pattern or not isinstance(parts, Mapping):
            raise ValueError(_WANTED)
        if pattern in prices:
            raise ValueError(f"one price for each pattern: {pattern} is given twice")
        if unknown := sorted(set(parts) - set(_PARTS)):
            raise ValueError(f"{_WANTED}: the price of {pattern} has the unknown part {unknown[0]!r}")
        if missing := [name for name in ("prompt", "output") if name not in parts]:
            raise ValueError(f"{_WANTED}: the price of {pattern} lacks {missing[0]}")
        prices[pattern] = ModelPrice(
            pattern=pattern, **{name: _price_number(parts[name], name, pattern) for name in parts}
        )
    return tuple(prices.values())


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
        return
    texts = value.split() if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise ValueError(f"a table of prices by pattern, or a list of {_WANTED}")
    for text in texts:
        # A model's name may contain an equals sign; its price does not.
        pattern, _, said = text.rpartition("=") if isinstance(text, str) else ("", "", "")
        named = [part.partition(":") for part in said.split(",")]
        if len({name for name, _, _ in named}) < len(named):
            raise ValueError(f"{_WANTED}: the price of {pattern} has a part twice")
        yield pattern, {name: number for name, _, number in named}


def _price_number(value: Any, name: str, pattern: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{_WANTED}: {name} of {pattern} is {value!r}, not a number from 0")
    return number


ENVIRONMENT_PREFIX = "CRUCIBLE_"
"""The prefix of a field's name in the environment."""

CONFIG_VARIABLE = "CRUCIBLE_CONFIG"
"""The variable that names the file if no flag does."""

LOG_LEVELS = ("debug", "info", "warning", "error")

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")


def load_settings(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    config_file: Path | None = None,
    *,
    client_variables: bool = False,
) -> Settings:
    """Read settings; each field comes from the first of these that has it: flags, environment, file.

    Args:
        flags: by field or option, None if not given; `limits` is a sequence of "NAME=VALUE".
        environment: such as os.environ; CRUCIBLE_CONFIG names the file if `config_file` does not.
        config_file: TOML, or None.
        client_variables: whether the variables of a service's own clients, OPENAI_BASE_URL for example, count too.

    Returns:
        Validated settings.

    Raises:
        SettingsError: a source is unreadable, a name unknown, a value of the wrong kind, or the whole is refused.
    """
    settings, origins = _read_all(flags, environment, config_file, client_variables=client_variables)
    try:
        return settings.validate()
    except SettingsError as error:
        # The name that was typed, not the setting's name.
        raise SettingsError(error.named(origins)) from None


def read_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], config_file: Path | None = None
) -> Settings:
    """Like `load_settings`, for a process that only looks for a worker: files that a worker needs are not opened.

    Raises:
        SettingsError: a source is unreadable, a name unknown, or a value of the wrong kind.
    """
    return _read_all(flags, environment, config_file)[0]


def _read_all(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    config_file: Path | None,
    *,
    client_variables: bool = False,
) -> tuple[Settings, Mapping[str, str]]:
    """Settings, and by field the flag, the variable or the key of a file that gave it."""
    config_file, named_by = _named_file(environment, config_file)
    origins: dict[str, str] = {}
    fields, limits = _from_file(config_file, named_by, origins) if config_file is not None else ({}, {})
    fields_there, limits_there = _from_environment(environment, origins)
    fields.update(fields_there)
    limits.update(limits_there)
    for name, value in flags.items():
        if name != "limits" and value is not None:
            field = _FIELD_OF.get(name, name)
            origins[field] = f"--{REPEATED.get(field, field).replace('_', '-')}"
            fields[field] = _read(_FIELDS, field, value, origins[field])
    given: set[str] = set()
    for setting in flags.get("limits") or ():
        name, separator, value = setting.partition("=")
        if not separator:
            raise SettingsError(f"--limit {setting!r} is not NAME=VALUE")
        if name in given:
            raise SettingsError(f"--limit {name} is given twice; only one value can count")
        given.add(name)
        origin = origins[f"limits.{name}"] = f"--limit {name}" if name in _LIMITS else "--limit"
        limits[name] = _read(_LIMITS, name, value, origin)
    endpoints: list[EndpointSettings] = []
    for kind in ENDPOINTS:
        configured = fields.pop(kind.setting, ())
        if kind.complete is not None:
            keys, origin = fields.pop(kind.key_option, ()), origins.get(kind.key_option, "")
            try:
                configured = kind.complete(configured, keys, origin, environment if client_variables else {})
            except ValueError as error:
                raise SettingsError(str(error)) from None
        endpoints += configured
    return Settings(**fields, endpoints=tuple(endpoints), limits=WorkerLimits(**limits)), origins


def _from_environment(environment: Mapping[str, str], origins: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    fields: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == CONFIG_VARIABLE:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        field = _FIELD_OF.get(name, name)
        if (field not in _FIELDS and field not in _LIMITS) or variable != variable.upper():
            known = sorted((*_FIELDS, *REPEATED.values(), *_LIMITS, "config"))
            raise SettingsError(
                f"there is no variable {variable}; there are {', '.join(ENVIRONMENT_PREFIX + k.upper() for k in known)}"
            )
        if not value:
            continue
        if field in _LIMITS:
            origins[f"limits.{field}"] = variable
            limits[field] = _read(_LIMITS, field, value, variable)
        else:
            origins[field] = variable
            _refuse_twice(field, fields, variable)
            fields[field] = _read(_FIELDS, field, value, variable)
    return fields, limits


def evaluate_table(environment: Mapping[str, str], config_file: Path | None) -> tuple[Path | None, dict[str, Any]]:
    """The file of settings, and its table `evaluate`; None and an empty table without a file.

    Args:
        environment: CRUCIBLE_CONFIG names the file if `config_file` does not.
        config_file: TOML, or None.

    Raises:
        SettingsError: the file cannot be read, or `evaluate` is not a table.
    """
    path, named_by = _named_file(environment, config_file)
    return path, {} if path is None else _table(path, "evaluate", _document(path, named_by))


def set_in(environment: Mapping[str, str], option: str) -> bool:
    """Whether a variable sets what an option sets, by either name of a list."""
    names = {option, _FIELD_OF.get(option, option)} & {*_FIELDS, *_FIELD_OF}
    return any(environment.get(ENVIRONMENT_PREFIX + name.upper()) for name in names)


def _named_file(environment: Mapping[str, str], config_file: Path | None) -> tuple[Path | None, str]:
    """The file, and what names it."""
    if config_file is None and (named := environment.get(CONFIG_VARIABLE)):
        return _path(named, Path.cwd()), CONFIG_VARIABLE
    return config_file, "--config"


def _document(path: Path, named_by: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{named_by} {path} cannot be read: {error.strerror}") from error
    except RecursionError:
        raise SettingsError(f"{named_by} {path} is not TOML: its lists or tables are nested too deeply") from None
    except ValueError as error:  # not UTF-8, or not TOML
        raise SettingsError(f"{named_by} {path} is not TOML: {error}") from error


def _table(path: Path, name: str, document: dict[str, Any]) -> dict[str, Any]:
    """Take a table out of a document; an empty one if there is none."""
    table = document.pop(name, {})
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: {name} is not a table")
    return table


def _from_file(path: Path, named_by: str, origins: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    document = _document(path, named_by)
    _table(path, "evaluate", document)  # read by that command alone
    limits = _table(path, "limits", document)
    base = path.absolute().parent
    fields: dict[str, Any] = {}
    for name, value in document.items():
        field = _FIELD_OF.get(name, name)
        origin = origins[field] = f"{path}: {name}"
        _refuse_twice(field, fields, origin)
        fields[field] = _read(_FIELDS, field, value, origin, base)
    origins.update({f"limits.{name}": f"{path}: limits.{name}" for name in limits})
    return fields, {name: _read(_LIMITS, name, value, origins[f"limits.{name}"]) for name, value in limits.items()}


def _refuse_twice(field: str, taken: Mapping[str, Any], origin: str) -> None:
    """Refuse a source that uses both names of a list."""
    if field in taken:
        raise SettingsError(f"{origin}: {REPEATED[field]} and {field} are one setting, and both are given")


_Reader = Callable[[Any, Path], Any]
"""Reads a flag's or variable's text, or TOML's value; paths are relative to the folder. ValueError: what it expects."""


def _read(readers: Mapping[str, _Reader], name: str, value: Any, origin: str, base: Path | None = None) -> Any:
    reader = readers.get(name)
    if reader is None:
        raise SettingsError(f"{origin}: there is no {name!r}; there are {', '.join(sorted(readers))}")
    try:
        return reader(value, Path.cwd() if base is None else base)
    except ValueError as error:
        # The value of a repeatable flag is a list; its items are shown as they were typed.
        typed = ", ".join(map(repr, value)) if isinstance(value, list) else repr(value)
        raise SettingsError(f"{origin} is {typed}, not {error}") from None


def _host(value: Any, base: Path) -> str:
    return read_text(value, base).removeprefix("[").removesuffix("]")


def _listen(value: Any, base: Path) -> tuple[str, int]:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
        raise ValueError("HOST:PORT")
    return _host(host, base), int(port)


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


def _database(value: Any, base: Path) -> str:
    if not isinstance(value, str) or not value.startswith(("postgresql://", "postgres://")):
        # The value is not in the message: it may have a password.
        raise SettingsError(Setting("journal"), " is not a URL postgresql://[USER@]HOST[:PORT]/DATABASE")
    return value


def _paths(value: Any, base: Path) -> tuple[Path, ...]:
    parts = [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("a list of paths")
    return tuple(_path(part, base) for part in parts)


def _names(value: Any, base: Path) -> tuple[str, ...]:
    parts = [part for part in value.split(",") if part] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("a list of names")
    return tuple(read_text(part, base) for part in parts)


def _words(value: Any, base: Path) -> tuple[str, ...]:
    parts = value.split() if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("a list of texts")
    return tuple(read_text(part, base) for part in parts)


def _device(value: Any, base: Path) -> str:
    if not isinstance(value, str) or not _DEVICE.fullmatch(value):
        raise ValueError("auto, cpu, cuda or cuda:N")
    return value


def _endpoints(read: _Reader) -> _Reader:
    """Convert its ValueError, whose text has no secret, to a SettingsError without the value."""

    def told(value: Any, base: Path) -> Any:
        try:
            return read(value, base)
        except ValueError as error:
            raise SettingsError(str(error)) from None

    return told


_FIELDS: Mapping[str, _Reader] = {
    "host": _host,
    "port": _whole,
    "unix_socket": _path,
    "openai_listen": _listen,
    "token_file": _path,
    "tls_cert": _path,
    "tls_key": _path,
    "insecure_no_tls": _flag,
    "ready_file": _path,
    "state_dir": _path,
    "journal": _database,
    "share_work": _flag,
    "resume_interrupted": _flag,
    "log_dir": _path,
    "log_to": _names,
    "model_roots": _paths,
    "data_roots": _paths,
    "hub_network": _flag,
    "inspect_roots": _paths,
    "inspect_packages": _names,
    "environment_variables": _names,
    "device": _device,
    "grading_processes": _whole,
    "code_sandboxes": _whole,
    "code_images": read_images,
    "fanout": read_fanout,
    **{kind.setting: _endpoints(kind.read) for kind in ENDPOINTS},
    **{kind.key_option: _words for kind in ENDPOINTS if kind.key_option},
    "prices": read_prices,
    "plans": read_plans,
    "log_format": read_one_of(*get_args(LogFormat)),
    "log_level": read_one_of(*LOG_LEVELS),
}

REPEATED: Mapping[str, str] = {
    "model_roots": "model_root",
    "data_roots": "data_root",
    "inspect_roots": "inspect_root",
    "inspect_packages": "inspect_package",
    "environment_variables": "environment_variable",
    "code_images": "code_image",
    **{kind.setting: kind.option for kind in ENDPOINTS if kind.option},
    "prices": "price",
    "plans": "plan",
}
"""Fields with several values, and the names of the options that give one each."""

_FIELD_OF: Mapping[str, str] = {option: field for field, option in REPEATED.items()}

_LIMITS: Mapping[str, _Reader] = {
    field.name: _whole if field.type == "int" else _number for field in dataclasses.fields(WorkerLimits)
}
