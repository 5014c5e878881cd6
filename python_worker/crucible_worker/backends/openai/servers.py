"""What a worker is told of the OpenAI-compatible servers that it may ask: addresses, and where their keys lie.

Requests name a server, never an address or a key. A key is read when the server is first asked, and only ever put into
the header that carries it.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args
from urllib.parse import SplitResult, urlsplit

__all__ = ["MAX_STALL_SECONDS", "OpenAIServer", "Text", "read_servers"]

MAX_STALL_SECONDS = 3600.0
"""What `stall_seconds` may be at most."""

Text = Literal["completion", "chat"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_KEY = re.compile(r"[\x21-\x7e]+")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIServer:
    """An OpenAI-compatible server."""

    name: str
    """What requests call it: letters, digits, ".", "_" and "-"."""
    base_url: str
    """Up to and with the version, as clients take it: "http://127.0.0.1:8000/v1"."""
    key_file: Path | None = None
    """File with the key (mode 0600); without one, and without `key_env`, no key is shown."""
    key_env: str | None = None
    """Environment variable with the key, in place of a file."""
    text: Text = "completion"
    """How text of a data set is asked: "completion", as it stands, or "chat", as one message of a user.

    Conversations are always asked as a chat, tokens always as a completion.
    """
    logprobs: bool = False
    """Whether answers are asked for with the log-probabilities of their tokens; some servers refuse that."""
    max_connections: int = 64
    """Requests at once, at most; more wait."""
    stall_seconds: float = 120.0
    """How long a server may send nothing while an answer is awaited; also how long a connection may take."""
    insecure_no_tls: bool = False
    """Show the key to another machine without TLS."""
    ca_file: Path | None = None
    """Certificates that the server's must be signed by, PEM; those of the system's usual authorities if None."""
    proxy: str | None = dataclasses.field(default=None, repr=False)
    """HTTP proxy on the way, with its credentials if it wants any; those of the environment are not used."""

    def check(self) -> None:
        """Refuse what cannot work and what would not be safe; the key is read, to know that it can be.

        Raises:
            ValueError: the first thing that is wrong; no secret is in it.
        """
        where = f"OpenAI-compatible server {self.name!r}"
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{where}: a name has letters, digits, '.', '_' and '-' alone")
        url = _checked_url(self.base_url, f"{where}: base_url")
        if self.key_file is not None and self.key_env is not None:
            raise ValueError(f"{where}: key_file and key_env are one setting, and both are given")
        if self.key() is not None and url.scheme == "http" and not (_is_loopback(url) or self.insecure_no_tls):
            raise ValueError(f"{where}: its key would cross the network in the clear: https, or insecure_no_tls = true")
        if self.max_connections < 1:
            raise ValueError(f"{where}: max_connections is {self.max_connections}, must be at least 1")
        if not 0 < self.stall_seconds <= MAX_STALL_SECONDS:
            raise ValueError(
                f"{where}: stall_seconds is {self.stall_seconds}, not above 0 and at most {MAX_STALL_SECONDS:.0f}"
            )
        if self.ca_file is not None and not self.ca_file.is_file():
            raise ValueError(f"{where}: ca_file {self.ca_file} does not exist")
        if self.proxy is not None and urlsplit(self.proxy).scheme not in ("http", "https"):
            raise ValueError(f"{where}: proxy is no http or https URL")

    def key(self) -> str | None:
        """The key, read from where it lies; None where the server wants none.

        Raises:
            ValueError: it is not there, empty or no key, or everybody on this machine could read it.
        """
        where = f"OpenAI-compatible server {self.name!r}"
        if self.key_env is not None:
            text, origin = os.environ.get(self.key_env, "").strip(), f"variable {self.key_env}"
        elif self.key_file is not None:
            text, origin = _read_file(self.key_file, where), f"file {self.key_file}"
        else:
            return None
        if not _KEY.fullmatch(text):
            raise ValueError(f"{where}: {origin} holds no key: one word of printable ASCII")
        return text


def read_servers(value: Any, base: Path) -> tuple[OpenAIServer, ...]:
    """Read servers from a TOML table of tables, or from texts "NAME=URL".

    Args:
        value: a table by name, a sequence of texts, or texts separated by blanks.
        base: folder that paths are relative to.

    Raises:
        ValueError: what is wrong; no value is repeated, as one might be a key in the wrong place.
    """
    if isinstance(value, Mapping):
        return tuple(_from_table(name, table, base) for name, table in value.items())
    texts = value.split() if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise ValueError("openai_servers is no table of servers by name, and no list of NAME=URL")
    servers = tuple(_from_text(text) for text in texts)
    names = [server.name for server in servers]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"OpenAI-compatible server {twice[0]!r} is given twice")
    return servers


def _from_text(text: str) -> OpenAIServer:
    name, separator, url = text.partition("=")
    if not (name and separator and url):
        raise ValueError("an OpenAI-compatible server is given as NAME=URL")
    return OpenAIServer(name=name, base_url=url)


def _from_table(name: str, table: Any, base: Path) -> OpenAIServer:
    where = f"OpenAI-compatible server {name!r}"
    if not isinstance(table, Mapping):
        raise ValueError(f"{where} is no table")
    if "base_url" not in table:
        raise ValueError(f"{where} has no base_url")
    fields: dict[str, Any] = {}
    for key, value in table.items():
        reader = _READERS.get(key)
        if reader is None:
            raise ValueError(f"{where}: there is no {key!r}; there are {', '.join(_READERS)}")
        try:
            fields[key] = reader(value, base)
        except ValueError as error:
            raise ValueError(f"{where}: {key} is not {error}") from None
    return OpenAIServer(name=name, **fields)


def _text(value: Any, base: Path) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def _path(value: Any, base: Path) -> Path:
    return base / Path(_text(value, base)).expanduser()


def _flag(value: Any, base: Path) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _whole(value: Any, base: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("a whole number")
    return value


def _number(value: Any, base: Path) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("a number")
    return float(value)


def _kind_of_text(value: Any, base: Path) -> Text:
    if value not in get_args(Text):
        raise ValueError(f"one of {', '.join(get_args(Text))}")
    return cast("Text", value)


_READERS: Mapping[str, Callable[[Any, Path], Any]] = {
    "base_url": _text,
    "key_file": _path,
    "key_env": _text,
    "text": _kind_of_text,
    "logprobs": _flag,
    "max_connections": _whole,
    "stall_seconds": _number,
    "insecure_no_tls": _flag,
    "ca_file": _path,
    "proxy": _text,
}


def _checked_url(text: str, where: str) -> SplitResult:
    try:
        url = urlsplit(text)
        _ = url.port  # refuses what is none
    except ValueError:
        raise ValueError(f"{where} is no URL") from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"{where} is no http or https URL")
    if "@" in url.netloc or url.query or url.fragment:
        raise ValueError(f"{where} holds more than an address and a path: a key belongs into key_file or key_env")
    return url


def _is_loopback(url: SplitResult) -> bool:
    try:
        return url.hostname == "localhost" or ipaddress.ip_address(url.hostname or "").is_loopback
    except ValueError:
        return False  # a name may come to mean another address at any time


def _read_file(path: Path, where: str) -> str:
    try:
        if path.stat().st_mode & stat.S_IROTH:
            raise ValueError(f"{where}: key file {path} is readable by everybody: chmod 600 {path}")
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise ValueError(f"{where}: cannot read key file {path}: {error.strerror}") from None
