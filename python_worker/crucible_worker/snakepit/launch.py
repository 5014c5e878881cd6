"""Settings from Snakepit's start of a worker: our flags and variables, its own arguments and variables.

Snakepit appends its own arguments to those of the pool's configuration. An unknown argument of the pool's configuration
is refused, as it is a mistake. An unknown one of Snakepit is ignored, because a newer Snakepit may have more of them.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from crucible_worker.config import ENVIRONMENT_PREFIX, REPEATED, Settings, SettingsError, load_settings

__all__ = ["LaunchError", "own_session", "read_launch"]

LOOPBACK = "127.0.0.1"
"""Where Snakepit's pool connects to its workers."""

_SNAKEPIT_OPTIONS = (
    "--elixir-address",
    "--snakepit-run-id",
    "--snakepit-instance-name",
    "--snakepit-instance-token",
)
"""Arguments that Snakepit appends besides the port; it finds its processes by them. This worker never calls Elixir."""

_PASSED_OVER = "passed_over"

_PATHS = {
    "--config": "config",
    "--log-dir": "log_dir",
    "--state-dir": "state_dir",
    "--token-file": "token_file",
}
_TEXTS = {
    "--code-sandboxes": "code_sandboxes",
    "--device": "device",
    "--fanout": "fanout",
    "--grading-processes": "grading_processes",
    "--journal": "journal",
    "--log-format": "log_format",
    "--log-level": "log_level",
}
_FLAGS = ("--hub-network", "--share-work")
_REPEATED = {
    "--log-to": "log_to",
    **{f"--{option.replace('_', '-')}": field for field, option in REPEATED.items()},
    "--limit": "limits",
}

_LOG_LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "none": "error"}
"""Snakepit's and our names of log levels."""

_FOLDERS_AND_FILES = {
    **_PATHS,
    "--model-root": "model_roots",
    "--data-root": "data_roots",
    "--inspect-root": "inspect_roots",
}

_YES = frozenset({"1", "true", "yes", "on"})


class LaunchError(Exception):
    """The worker's arguments are wrong; the text is for the operator."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise LaunchError(message)


def read_launch(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> Settings:
    """Read how Snakepit starts the worker.

    Args:
        arguments: those after the script's name.
        environment: such as os.environ; CRUCIBLE_ variables are read as for `serve`.
        folder: the folder in which Snakepit starts the script; no path may be relative to it.

    Returns:
        Validated settings; the worker listens on loopback without TLS, whatever the configuration file says for others.

    Raises:
        LaunchError: an argument is unknown or lacks its value.
        SettingsError: see `load_settings`.
    """
    given = vars(_parsed(arguments))
    del given[_PASSED_OVER]
    for option, name in _FOLDERS_AND_FILES.items():
        for path in _listed(given[name]):
            _refuse_relative(option, Path(path).expanduser(), folder)
    for image in given["code_images"] or ():
        _refuse_relative("--code-image", Path(image.partition("=")[2]).expanduser(), folder)
    for plan in given["plans"] or ():
        _refuse_relative("--plan", Path(plan.partition("=")[2]).expanduser(), folder)
    config, port = given.pop("config"), given.pop("port")
    flags: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    level = _LOG_LEVELS.get(environment.get("SNAKEPIT_LOG_LEVEL", ""))
    if level is not None and not environment.get(f"{ENVIRONMENT_PREFIX}LOG_LEVEL"):
        environment = {**environment, f"{ENVIRONMENT_PREFIX}LOG_LEVEL": level}
    ready_file = environment.get("SNAKEPIT_READY_FILE")
    flags |= {"host": LOOPBACK, "port": port, "ready_file": ready_file or None}
    settings = load_settings(flags, environment, None if config is None else Path(config).expanduser())
    if settings.state_dir.is_relative_to(folder):
        _refuse_relative("the state directory", settings.state_dir.relative_to(folder), folder)
    return dataclasses.replace(settings, unix_socket=None, tls_cert=None, tls_key=None).validate()


def own_session(environment: Mapping[str, str]) -> bool:
    """Whether the process must lead a separate session, and so a process group, to which Snakepit sends signals."""
    return environment.get("SNAKEPIT_PROCESS_GROUP", "").lower() in _YES


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="grpc_server.py", allow_abbrev=False, add_help=False)
    parser.add_argument("--port", default="0")
    for option in _SNAKEPIT_OPTIONS:
        parser.add_argument(option, dest=_PASSED_OVER)
    for option, name in (_PATHS | _TEXTS).items():
        parser.add_argument(option, dest=name)
    for option, name in _REPEATED.items():
        parser.add_argument(option, dest=name, action="append")
    for flag in _FLAGS:
        parser.add_argument(flag, dest=flag.removeprefix("--").replace("-", "_"), action="store_true", default=None)
    ours = _configured(arguments)
    _, unknown = parser.parse_known_args(ours)
    if unknown:
        known = sorted((*_FLAGS, "--port", *_PATHS, *_TEXTS, *_REPEATED))
        raise LaunchError(f"there is no argument {unknown[0]}; there are {', '.join(known)}")
    parsed, _ = parser.parse_known_args(arguments)
    return parsed


def _configured(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments before the first one that only Snakepit appends: the pool's configuration, and the port."""
    for index, argument in enumerate(arguments):
        if argument.partition("=")[0] in _SNAKEPIT_OPTIONS:
            return arguments[:index]
    return arguments


def _listed(value: str | Sequence[str] | None) -> Sequence[str]:
    return () if value is None else (value,) if isinstance(value, str) else value


def _refuse_relative(what: str, path: Path, folder: Path) -> None:
    if not path.is_absolute():
        raise SettingsError(f"{what} is {path}, and Snakepit starts workers in {folder}: give the whole path")
