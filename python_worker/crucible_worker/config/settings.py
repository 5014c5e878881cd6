"""The settings of a worker, with plans for runs to come, and checks for what is impossible or not safe."""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from crucible_worker.backends.builtin import ENDPOINTS
from crucible_worker.backends.endpoints import BackendSettings, is_loopback
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.util.limits import KEEP_FOREVER, MIN_MESSAGE_BYTES, WorkerLimits

if TYPE_CHECKING:
    from crucible_bridge.types import ModelPrice
    from crucible_worker.planning.plans import PatternPlan

__all__ = [
    "DEFAULT_PORT",
    "EXPIRING_DAYS",
    "LogFormat",
    "RunPlan",
    "Setting",
    "Settings",
    "SettingsError",
    "read_plans",
    "read_tokens",
]

# Plans for runs that are not known yet, in settings: "lab-*=plan.toml", or a table with the keys `runs` and `file`.

MAX_PATTERN = 200
"""Characters of a pattern."""

_WANTED = "RUNS=FILE, such as lab-*=plan.toml"
_KEYS = ("runs", "file")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What is evaluated of every run whose id fits a pattern."""

    runs: str
    """The pattern: "*" stands for any text."""
    file: Path
    """A plan's file, or a suite's: its evaluations are then due at every step."""

    def load(self) -> PatternPlan:
        """Read the file.

        Raises:
            ValueError: it cannot be read, or is no plan; the message has the file.
        """
        # Probes read settings as well, and should not import what this imports.
        from crucible_bridge.errors import InvalidField
        from crucible_bridge.suites import load_plan
        from crucible_worker.planning.plans import PatternPlan

        try:
            return PatternPlan(runs=self.runs, plan=load_plan(self.file, plan_id="run", run_id="run"))
        except OSError as error:
            raise ValueError(f"{self.file} cannot be read: {error.strerror}") from None
        except InvalidField as error:
            raise ValueError(f"{self.file}: {error}") from None


def read_plans(value: Any, base: Path) -> tuple[RunPlan, ...]:
    """Read plans from a TOML list of tables, from texts "RUNS=FILE", or from such texts separated as in PATH.

    Args:
        value: what the operator gave.
        base: folder that paths are relative to.

    Raises:
        ValueError: the value cannot be used; the message says what is expected.
    """
    plans: dict[str, RunPlan] = {}
    for table in _tables(value):
        if unknown := sorted(set(table) - set(_KEYS)):
            raise ValueError(f"a table with {', '.join(_KEYS)}: {unknown[0]!r} is unknown")
        runs = table.get("runs")
        if not isinstance(runs, str) or not 0 < len(runs) <= MAX_PATTERN:
            raise ValueError(f"{_WANTED}: runs is a pattern of 1 to {MAX_PATTERN} characters")
        if runs in plans:
            raise ValueError(f"one plan for each pattern: {runs} is given twice")
        if "file" not in table:
            raise ValueError(f"{_WANTED}: {runs} lacks its file")
        plans[runs] = RunPlan(runs=runs, file=_file(table["file"], base))
    return tuple(plans.values())


def _tables(value: Any) -> Iterator[Mapping[str, Any]]:
    parts = [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError(f"a list of {_WANTED}")
    for part in parts:
        if isinstance(part, Mapping):
            yield part
            continue
        runs, separator, file = part.partition("=") if isinstance(part, str) else ("", "", "")
        if not separator:
            raise ValueError(_WANTED)
        yield {"runs": runs, "file": file}


def _file(value: Any, base: Path) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{_WANTED}: file is the path of a plan or a suite")
    return base / Path(value).expanduser()


DEFAULT_PORT = 50051
"""The default port."""

EXPIRING_DAYS = 14.0
"""A certificate that expires within so many days is reported."""
LogFormat = Literal["json", "console"]

_TOKEN = re.compile(r"[\x21-\x7e]+")
_PACKAGE = re.compile(r"[\w-]+")
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Setting(str):
    """The name of a setting in an error: "port", "limits.max_streams"."""

    __slots__ = ()


class SettingsError(Exception):
    """A setting is impossible, or would not be safe; the text is for the operator."""

    def __init__(self, *parts: str | Setting) -> None:
        """Make an error from parts that form one text."""
        super().__init__(*parts)
        self._parts = parts

    def __str__(self) -> str:
        """The text, with settings by their names."""
        return self.named({})

    def named(self, origins: Mapping[str, str]) -> str:
        """The text, with settings by the flag, the variable or the key of a file that gave them."""
        return "".join(origins.get(part, part) if isinstance(part, Setting) else part for part in self._parts)


def _default_state_dir() -> Path:
    given = os.environ.get("XDG_STATE_HOME", "")
    # The XDG base directory specification: a relative path there must be ignored.
    base = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    return base / "crucible-bridge"


def _default_log_format() -> LogFormat:
    return "console" if sys.stderr.isatty() else "json"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings(BackendSettings):
    """The settings of a worker."""

    host: str = "127.0.0.1"
    """Name or address to listen on."""
    port: int = DEFAULT_PORT
    """Port to listen on; 0 picks one."""
    unix_socket: Path | None = None
    """Unix socket to listen on, instead of host and port."""
    openai_listen: tuple[str, int] | None = None
    """Address of this machine and port at which the endpoint of OpenAI's API listens, 0 for any; there is none if
    None."""
    token_file: Path | None = None
    """File with the token that callers must show."""
    tls_cert: Path | None = None
    """Certificate chain, PEM."""
    tls_key: Path | None = None
    """Its key, PEM."""
    insecure_no_tls: bool = False
    """Let other machines call without TLS, if something else encrypts; the token is still needed."""
    ready_file: Path | None = None
    """File to write `host:port` to once the worker serves."""
    state_dir: Path = dataclasses.field(default_factory=_default_state_dir)
    """Folder of the journal, shared by the workers of a machine."""
    journal: str | None = dataclasses.field(default=None, repr=False)
    """URL of a PostgreSQL database with the journal, shared by workers of several machines; the state directory if
    None. It may have a password."""
    share_work: bool = False
    """Has no effect any more: one worker runs the whole of an evaluation. The log says so at the start."""
    resume_interrupted: bool = True
    """Resume evaluations whose worker was stopped or has died, without a call for them."""
    log_dir: Path | None = None
    """Folder for an Inspect log (.eval) of each evaluation when it ends; none is written if None."""
    log_to: tuple[str, ...] = ()
    """Loggers of evaluations and experiments that name none; requests may name them too, whatever they write to."""
    data_roots: tuple[Path, ...] = ()
    """Folders with data sets."""
    inspect_roots: tuple[Path, ...] = ()
    """Folders with files of Inspect tasks: code that requests may run."""
    inspect_packages: tuple[str, ...] = ()
    """Installed packages with Inspect tasks that requests may run."""
    environment_variables: tuple[str, ...] = ()
    """Variables of the worker that processes of custom environments get, in addition to those that are never secret."""
    grading_processes: int | None = None
    """Child processes that grade math; if None one per core, from 2 to 4; with 0 the worker grades no math."""
    code_sandboxes: int | None = None
    """Programs that run at once; if None one per core, at most 4; with 0 the worker runs none."""
    code_images: tuple[CodeImage, ...] = ()
    """Folders of packages that programs and their tests may import if a request names them."""
    fanout: str | None = None
    """Ray cluster that grades answers and runs programs: ray://HOST:PORT, "auto" or "local"; the worker itself if
    None."""
    prices: tuple[ModelPrice, ...] = ()
    """Prices of tokens, by patterns of models; the first pattern that fits counts."""
    plans: tuple[RunPlan, ...] = ()
    """Plans of runs that register none, by patterns of run ids; the first pattern that fits counts."""
    log_format: LogFormat = dataclasses.field(default_factory=_default_log_format)
    """Log lines for programs or for people; if None, for people if stderr is a terminal."""
    log_level: str = "info"
    """The lowest level that is logged."""

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """Files of the certificate chain and of its key; None for plain text."""
        return None if self.tls_cert is None or self.tls_key is None else (self.tls_cert, self.tls_key)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens, read from their file; none if callers need none.

        Raises:
            SettingsError: see `read_tokens`.
        """
        return () if self.token_file is None else read_tokens(self.token_file)

    @property
    def key_variables(self) -> set[str]:
        """Environment variables with keys of servers."""
        return {variable for part in (*ENDPOINTS, *self.endpoints) for variable in part.key_variables}

    @property
    def reachable_by_others(self) -> bool:
        """Whether other machines could call."""
        return self.unix_socket is None and not is_loopback(self.host)

    def validate(self) -> Settings:
        """Return itself, or refuse settings that cannot work or would not be safe.

        Raises:
            SettingsError: the first thing that is wrong.
        """
        if not 0 <= self.port <= 65535:
            raise SettingsError(Setting("port"), f" is {self.port}, not 0 to 65535")
        if self.openai_listen is not None and not is_loopback(self.openai_listen[0]):
            raise SettingsError(
                Setting("openai_listen"),
                f" is {self.openai_listen[0]}, which other machines can reach: it serves this one alone, by HTTP; put "
                "a proxy with TLS before it",
            )
        _check_grading_processes(self.grading_processes)
        _check_code_sandboxes(self.code_sandboxes)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise SettingsError("TLS needs both --tls-cert and --tls-key")
        for name, path in zip(("tls_cert", "tls_key"), self.tls or ()):
            if not path.is_file():
                raise SettingsError(Setting(name), f" {path} does not exist")
        _ = self.tokens  # refuses a bad one
        if self.reachable_by_others:
            _check_exposure(self)
        for name in ("model_roots", "data_roots", "inspect_roots"):
            for root in getattr(self, name):
                if not root.is_dir():
                    raise SettingsError(Setting(name), f" {root} is not a folder")
        for package in self.inspect_packages:
            if not _PACKAGE.fullmatch(package):
                raise SettingsError(Setting("inspect_packages"), f" {package!r} is not the name of a package")
        for variable in self.environment_variables:
            if not _VARIABLE.fullmatch(variable):
                # The value is not in the message: it may be NAME=VALUE.
                raise SettingsError(
                    Setting("environment_variables"), " has an entry that is not a variable's name: give only the name"
                )
        for image in self.code_images:
            try:
                image.check()
            except ValueError as error:
                raise SettingsError(Setting("code_images"), f" {error}") from None
        for plan in self.plans:
            try:
                plan.load()
            except ValueError as error:
                raise SettingsError(Setting("plans"), f" {error}") from None
        _check_log_to(self.log_to)
        for endpoint in self.endpoints:
            try:
                endpoint.check()
            except ValueError as error:  # its text has no secret
                raise SettingsError(str(error)) from None
        _check_limits(self.limits)
        return self


def _check_exposure(settings: Settings) -> None:
    where = f"other machines can reach {settings.host}"
    if settings.token_file is None:
        raise SettingsError(f"{where}: --token-file is needed, and TLS (or --insecure-no-tls)")
    if settings.tls is None and not settings.insecure_no_tls:
        raise SettingsError(
            f"{where}: --tls-cert and --tls-key are needed, or --insecure-no-tls if something else encrypts"
        )


def read_tokens(path: Path) -> tuple[str, ...]:
    """The tokens of a file, one a line; blank lines do not count.

    Raises:
        SettingsError: the file is missing, has none or something else, or everybody on this machine could read it.
    """
    name = Setting("token_file")
    try:
        if path.stat().st_mode & stat.S_IROTH:
            raise SettingsError(name, f" {path} is readable by all users: chmod 600 {path}")
        tokens = tuple(filter(None, map(str.strip, path.read_text(encoding="ascii").splitlines())))
    except OSError as error:
        raise SettingsError(name, f" {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        tokens = ("not ASCII",)
    if not tokens:
        raise SettingsError(name, f" {path} is empty")
    if not all(map(_TOKEN.fullmatch, tokens)):
        raise SettingsError(name, f" {path} has a line of more than one word of printable ASCII")
    return tokens


def _check_grading_processes(count: int | None) -> None:
    if not count:
        return
    from crucible_worker.grading.pool import MAX_CHILDREN, MIN_CHILDREN  # no other setting needs it

    if not MIN_CHILDREN <= count <= MAX_CHILDREN:
        raise SettingsError(
            Setting("grading_processes"), f" is {count}, neither 0 nor {MIN_CHILDREN} to {MAX_CHILDREN}"
        )


def _check_code_sandboxes(count: int | None) -> None:
    if not count:
        return
    from crucible_worker.grading.code.sandbox import MAX_PLACES  # no other setting needs it

    if not 0 < count <= MAX_PLACES:
        raise SettingsError(Setting("code_sandboxes"), f" is {count}, not 0 to {MAX_PLACES}")


def _check_log_to(log_to: tuple[str, ...]) -> None:
    if not log_to:
        return
    from crucible_bridge.errors import BridgeError  # no other setting needs these
    from crucible_worker.loggers.registry import read

    for text in log_to:
        try:
            read(text, "log_to", by_operator=True)
        except BridgeError as error:
            raise SettingsError(Setting("log_to"), f" {error.message}") from None


def _check_limits(limits: WorkerLimits) -> None:
    for name, value in dataclasses.asdict(limits).items():
        may_be_zero = name in KEEP_FOREVER or name == "retention_grace_seconds"
        if not (0 < value < float("inf") or (may_be_zero and value == 0)):
            wanted = "zero or a finite number above zero" if may_be_zero else "a finite number above zero"
            raise SettingsError(Setting(f"limits.{name}"), f" is {value:g}, not {wanted}")
    if limits.max_message_bytes < MIN_MESSAGE_BYTES:
        raise SettingsError(
            Setting("limits.max_message_bytes"),
            f" is {limits.max_message_bytes}, below {MIN_MESSAGE_BYTES}, the least for a worker's description",
        )
    if limits.default_concurrency > limits.max_concurrency:
        raise SettingsError(
            Setting("limits.default_concurrency"),
            f" is {limits.default_concurrency}, above ",
            Setting("limits.max_concurrency"),
            f", which is {limits.max_concurrency}",
        )
