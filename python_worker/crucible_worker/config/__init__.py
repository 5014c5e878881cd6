"""A worker's configuration: flags before environment before file, read into one frozen Settings."""

from crucible_worker.config.settings import (
    DEFAULT_PORT,
    EXPIRING_DAYS,
    LogFormat,
    Settings,
    SettingsError,
    read_tokens,
)
from crucible_worker.config.sources import (
    ENVIRONMENT_PREFIX,
    REPEATED,
    evaluate_table,
    load_settings,
    read_settings,
    set_in,
)

__all__ = [
    "DEFAULT_PORT",
    "ENVIRONMENT_PREFIX",
    "EXPIRING_DAYS",
    "REPEATED",
    "LogFormat",
    "Settings",
    "SettingsError",
    "evaluate_table",
    "load_settings",
    "read_settings",
    "read_tokens",
    "set_in",
]
