"""Settings of the servers that a worker may call over the network: addresses, and where their keys are stored.

Also what a backend may know of all other settings.

Requests name an endpoint, never an address or a key. The errors here never repeat a value, because it might be a key in
the wrong place.
"""

from __future__ import annotations

import abc
import dataclasses
import ipaddress
import os
import re
import stat
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import SplitResult, urlsplit

from crucible_worker.util.limits import WorkerLimits

__all__ = [
    "BackendSettings",
    "EndpointSettings",
    "Kind",
    "Reader",
    "ServerPlace",
    "check_name",
    "check_way",
    "checked_url",
    "is_loopback",
    "read_flag",
    "read_key",
    "read_number",
    "read_one_of",
    "read_path",
    "read_text",
    "read_whole",
    "withdraw",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_KEY = re.compile(r"[\x21-\x7e]+")

Reader = Callable[[Any, Path], Any]
"""Reads a value of TOML; paths are relative to the folder. ValueError: what it wants."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings(abc.ABC):
    """A server or service that a worker may call: its settings."""

    name: str
    """Its name in requests: letters, digits, ".", "_" and "-"."""

    @abc.abstractmethod
    def check(self) -> None:
        """Refuse settings that cannot work or are not safe; reads the key as a test.

        Raises:
            ValueError: the first fault; it contains no secret.
        """

    @property
    def key_variables(self) -> tuple[str, ...]:
        """Environment variables with its key: the one that `key_env` names, if its kind has keys."""
        variable = getattr(self, "key_env", None)
        return () if variable is None else (variable,)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlace:
    """Where a server is whose models are known by its name alone."""

    name: str
    """Its name in requests."""
    addresses: tuple[str, ...]
    """Base URLs in one form, sorted; those of replicas."""
    movable: bool = False
    """Whether its operator says that it is the same server at every address."""


_T = TypeVar("_T", bound=EndpointSettings)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """The settings of a worker that its backends read."""

    state_dir: Path
    """Folder of the journal, shared by the workers of a machine."""
    model_roots: tuple[Path, ...] = ()
    """Folders with local models."""
    device: str = "auto"
    """Device of local models: "auto", "cpu", "cuda" or "cuda:N"."""
    hub_network: bool = False
    """Fetch models and data sets from the Hugging Face hub; otherwise only those in its cache on this machine are
    read."""
    endpoints: tuple[EndpointSettings, ...] = ()
    """Servers and services with models; each kind that `backends.builtin` lists has a setting of its own."""
    limits: WorkerLimits = WorkerLimits()
    """Bounds."""
    environment: Mapping[str, str] = dataclasses.field(default_factory=lambda: os.environ, repr=False, compare=False)
    """Variables that keys are read from. A worker hides keys from its children: after that only this field has them."""

    def endpoints_of(self, kind: type[_T]) -> tuple[_T, ...]:
        """The servers of one kind."""
        return tuple(endpoint for endpoint in self.endpoints if isinstance(endpoint, kind))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[_T]):
    """A kind of endpoints in the settings."""

    setting: str
    """Key of their table: "openai_servers"."""
    noun: str
    """Its name in errors: "OpenAI-compatible server"."""
    make: Callable[..., _T]
    """Makes an endpoint from its `name` and the values of its table."""
    readers: Mapping[str, Reader]
    """The keys that its table may have, and how each value is read."""
    article: str = "a"
    """The noun's article."""
    required: str = "base_url"
    """The key that its table must have; empty if none."""
    option: str = ""
    """Name of the option that gives one as NAME=URL: "openai_server"; empty if only a table does."""
    key_variables: tuple[str, ...] = ()
    """Environment variables with keys that no endpoint has to name."""
    key_option: str = ""
    """Name of the option that gives the variable of a key, as VARIABLE or NAME=VARIABLE: "openai_key_env"."""
    complete: Callable[[tuple[_T, ...], Sequence[str], str, Mapping[str, str]], tuple[_T, ...]] | None = None
    """Adds what the endpoints leave open: `complete(endpoints, keys, origin, environment)`, with the values of
    `key_option`, what gave them, and the variables of the service's own clients. A ValueError has no secret."""

    def where(self, name: str) -> str:
        """The name of an endpoint, for an error."""
        return f"{self.noun} {name!r}"

    def read(self, value: Any, base: Path) -> tuple[_T, ...]:
        """Read endpoints from a TOML table of tables, or from texts "NAME=URL".

        Args:
            value: a table by name, a sequence of texts, or texts separated by blanks.
            base: folder that paths are relative to.

        Raises:
            ValueError: what is wrong; it repeats no value, as one might be a key in the wrong place.
        """
        if isinstance(value, Mapping):
            return tuple(_from_table(self, name, table, base) for name, table in value.items())
        many = f"{self.noun.split()[-1]}s"
        if not self.option:
            raise ValueError(f"{self.setting} is a table of {many} by name, in the file of --config")
        texts = value.split() if isinstance(value, str) else value
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{self.setting} is no table of {many} by name, and no list of NAME=URL")
        pairs = [_pair(self, text) for text in texts]
        names = [name for name, _ in pairs]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            replicas = f": one {twice[0]}=URL,URL names several replicas" if "base_urls" in self.readers else ""
            raise ValueError(f"{self.where(twice[0])} is given twice{replicas}")
        return tuple(self.make(name=name, base_url=url) for name, url in pairs)


def check_name(name: str, where: str) -> None:
    """Refuse what is no name.

    Raises:
        ValueError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{where}: a name has letters, digits, '.', '_' and '-' alone")


def checked_url(text: str, where: str) -> SplitResult:
    """Read an address.

    Raises:
        ValueError: it is none, or holds more than an address.
    """
    try:
        url = urlsplit(text)
        _ = url.port  # refuses what is none
    except ValueError:
        raise ValueError(f"{where} is no URL") from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"{where} is no http or https URL")
    try:
        url.hostname.encode("idna")  # as name resolution does, which would fail each request
    except UnicodeError:
        message = "has a name that no address can belong to: a part of it is empty or longer than 63 characters"
        raise ValueError(f"{where} {message}") from None
    if "@" in url.netloc or url.query or url.fragment:
        raise ValueError(f"{where} holds more than an address and a path: a key belongs into key_file or key_env")
    return url


def is_loopback(host: str) -> bool:
    """Whether a name or an address can mean this machine alone.

    IPv4 addresses in the form of IPv6 (`::ffff:127.0.0.1`) do not count: Python distinguishes them only from 3.13 on.
    """
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False  # a name may come to mean another address at any time
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None


def check_way(url: SplitResult, where: str) -> None:
    """Refuse a connection on which a key could be read.

    Raises:
        ValueError: it leaves the machine without TLS.
    """
    if url.scheme == "http" and not is_loopback(url.hostname or ""):
        raise ValueError(f"{where}: its key would cross the network in the clear: https, or insecure_no_tls = true")


def read_key(key_file: Path | None, key_env: str | None, where: str, environment: Mapping[str, str]) -> str | None:
    """A key, read from its file or variable; None if neither is set.

    Raises:
        ValueError: it is not there, empty or no key, or everybody on this machine could read it.
    """
    if key_file is not None and key_env is not None:
        raise ValueError(f"{where}: key_file and key_env are one setting, and both are given")
    if key_env is not None:
        text, origin = environment.get(key_env, "").strip(), f"variable {key_env}"
    elif key_file is not None:
        text, origin = _read_file(key_file, where), f"file {key_file}"
    else:
        return None
    if not text and key_env is not None:
        raise ValueError(f"{where} has no key: set the variable {key_env}, or name a key_file in the file of --config")
    if not _KEY.fullmatch(text):
        raise ValueError(f"{where}: {origin} holds no key: one word of printable ASCII")
    return text


def withdraw(variables: Iterable[str]) -> Mapping[str, str]:
    """Remove keys from this process's environment, so that no child inherits them; return it as it was before."""
    taken = {variable: os.environ.pop(variable) for variable in variables if variable in os.environ}
    return ChainMap(os.environ, taken)


def read_one_of(*choices: str) -> Reader:
    """Makes a reader of one of some texts."""

    def read(value: Any, base: Path) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return value

    return read


def read_text(value: Any, base: Path) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def read_path(value: Any, base: Path) -> Path:
    """A path."""
    return base / Path(read_text(value, base)).expanduser()


def read_flag(value: Any, base: Path) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def read_whole(value: Any, base: Path) -> int:
    """A whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("a whole number")
    return value


def read_number(value: Any, base: Path) -> float:
    """A number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("a number")
    return float(value)


def _pair(kind: Kind[Any], text: str) -> tuple[str, str]:
    name, separator, url = text.partition("=")
    if not (name and separator and url):
        raise ValueError(f"{kind.article} {kind.noun} is given as NAME=URL")
    return name, url


def _from_table(kind: Kind[_T], name: str, table: Any, base: Path) -> _T:
    where = kind.where(name)
    if not isinstance(table, Mapping):
        raise ValueError(f"{where} is no table")
    if kind.required and kind.required not in table:
        raise ValueError(f"{where} has no {kind.required}")
    fields: dict[str, Any] = {}
    for key, value in table.items():
        reader = kind.readers.get(key)
        if reader is None:
            raise ValueError(f"{where}: there is no {key!r}; there are {', '.join(kind.readers)}")
        try:
            fields[key] = reader(value, base)
        except ValueError as error:
            raise ValueError(f"{where}: {key} is not {error}") from None
    return kind.make(name=name, **fields)


def _read_file(path: Path, where: str) -> str:
    try:
        if path.stat().st_mode & stat.S_IROTH:
            raise ValueError(f"{where}: key file {path} is readable by all users of the machine: chmod 600 {path}")
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise ValueError(f"{where}: cannot read key file {path}: {error.strerror}") from None
