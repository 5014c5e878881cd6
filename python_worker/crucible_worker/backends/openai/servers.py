"""Settings of the OpenAI-compatible servers that a worker may use: addresses, and where their keys are.

Requests name a server, never an address or a key. A key is read when the server is first used, and is only put into its
header.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import SplitResult, urlsplit

from crucible_worker.backends.endpoints import (
    EndpointSettings,
    Kind,
    ServerPlace,
    check_name,
    check_way,
    checked_url,
    read_flag,
    read_key,
    read_number,
    read_one_of,
    read_path,
    read_text,
    read_whole,
)

__all__ = ["AUTO", "CHAT_TEMPLATE", "KIND", "MAX_STALL_SECONDS", "RAW", "OpenAIServer", "Program", "Renderer"]

MAX_STALL_SECONDS = 3600.0
"""The largest `stall_seconds`."""

Renderer = Literal["auto", "chat_template", "raw"]
CHAT_TEMPLATE: Renderer = "chat_template"
RAW: Renderer = "raw"
_TEXT: Mapping[str, Renderer] = {"completion": RAW, "chat": CHAT_TEMPLATE}
"""Values of the former setting `text`, each with the renderer that it means."""

Program = Literal["auto", "vllm", "sglang", "llama.cpp", "transformers", "openai", "other"]
AUTO: Program = "auto"

URL_VARIABLE, KEY_VARIABLE = "OPENAI_BASE_URL", "OPENAI_API_KEY"
"""Variables that commands read, as OpenAI's clients do; a worker that serves does not."""
DEFAULT = "openai"
"""Name of the server that `URL_VARIABLE` gives."""
_OPENAI = "api.openai.com"
"""The only host that gets the key of `KEY_VARIABLE` without an option that says so."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_BETWEEN_URLS = re.compile(r"\s*,\s*(?=https?://)", re.IGNORECASE)
"""Between two URLs in one text; any other comma belongs to a path."""
_NO_URL = re.compile(r",\s*($|[^/,]*:\d)")
"""A comma before nothing, or before what would be a URL with http:// in front."""
_PORTS = {"http": 80, "https": 443}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIServer(EndpointSettings):
    """An OpenAI-compatible server."""

    base_url: str = ""
    """Base URL with the version, as clients take it: "http://127.0.0.1:8000/v1"."""
    base_urls: tuple[str, ...] = ()
    """Base URLs of replicas, in place of `base_url`: servers of the same model that share the requests."""
    any_address: bool = False
    """Whether its name alone identifies it: its operator says that it has the same models at every address."""
    all_addresses: bool = False
    """Whether each address of a base URL's name is a replica, as those of a headless Service of Kubernetes are."""
    key_file: Path | None = None
    """File with the key (mode 0600); without it, and without `key_env`, no key is sent."""
    key_env: str | None = None
    """Environment variable with the key, in place of a file."""
    withheld: bool = dataclasses.field(default=False, compare=False)
    """Whether OPENAI_API_KEY is set, and is not sent, as the server is not OpenAI's."""
    renderer: Renderer = "auto"
    """How text is sent if a request does not say it: "chat_template", as one message of a user, or "raw", unchanged, as
    a completion. "auto" sends a chat for the answers of evaluators, and completes text of ModelService.

    Conversations are sent as a chat, unless a request's renderer is raw; tokens always as a completion.
    """
    logprobs: bool = False
    """Whether answers are requested with the log-probabilities of their tokens; some servers refuse that."""
    probe: bool = False
    """Whether the log-probabilities of a fixed prompt are compared at the start and the end of each evaluation, so that
    other weights under the same name are found; the server must return those of a prompt."""
    program: Program = AUTO
    """Which program it is, for the sampling parameters that requests need: see `bodies.NEUTRAL`. "auto" is what the
    server's list of models shows; "other" is none of these."""
    require_served_name: bool = False
    """Whether a model is refused if the server answers in the name of another one, or lists others only."""
    max_connections: int = 64
    """Most concurrent requests, to each replica if there are several; further ones wait."""
    stall_seconds: float = 120.0
    """How long a server may send nothing while an answer is awaited; also how long a connection may take."""
    insecure_no_tls: bool = False
    """Send the key to another machine without TLS."""
    ca_file: Path | None = None
    """Certificates of the authorities that may sign the server's, PEM; those of the system if None."""
    proxy: str | None = dataclasses.field(default=None, repr=False)
    """HTTP proxy, with its credentials if it needs any; proxies of the environment are not used."""

    def check(self) -> None:
        """Refuse settings that cannot work or are not safe; reads the key as a test."""
        where = KIND.where(self.name)
        check_name(self.name, where)
        urls = self._checked_urls(where)
        if self.key() is not None and not self.insecure_no_tls:
            for url in urls:
                check_way(url, where)
        if self.all_addresses and self.proxy is not None:
            raise ValueError(f"{where}: all_addresses and proxy exclude each other: a proxy chooses the address itself")
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

    @property
    def is_fleet(self) -> bool:
        """Whether it may be several replicas, which share the requests."""
        return self.all_addresses or len(self.base_urls) > 1

    @property
    def urls(self) -> tuple[str, ...]:
        """The base URL of each replica; one if there are no others."""
        return self.base_urls or (self.base_url,)

    @property
    def place(self) -> ServerPlace:
        """Where it is, for the identity of evaluations."""
        addresses = tuple(sorted({_normalised(url) for url in self.urls}))
        return ServerPlace(name=self.name, addresses=addresses, movable=self.any_address)

    @property
    def unauthenticated(self) -> str:
        """What status 401 of it means, for an error."""
        how = f"--openai-key-env {self.name}=VARIABLE, or key_file or key_env in the file of --config"
        if self.key_file is None and self.key_env is None:
            seen = f" ({KEY_VARIABLE} is set, and is sent to https://{_OPENAI} alone)" if self.withheld else ""
            return f"does not answer without a key, and none was sent{seen}: set one by {how}"
        origin = f"file {self.key_file}" if self.key_file is not None else f"variable {self.key_env}"
        return f"does not accept the key that was sent, of {origin}: put another there, or set it by {how}"

    def _checked_urls(self, where: str) -> list[SplitResult]:
        """The base URLs.

        Raises:
            ValueError: there is none, there are two settings of them, one is invalid, or one is given twice.
        """
        if bool(self.base_url) == bool(self.base_urls):
            both = "base_url and base_urls are one setting, and both are given"
            raise ValueError(f"{where}: {both}" if self.base_url else f"{where} has no base_url")
        if not self.base_urls:
            return [checked_url(self.base_url, f"{where}: base_url")]
        urls = [checked_url(url, f"{where}: base_urls[{index}]") for index, url in enumerate(self.base_urls)]
        # A replica that is named twice would get twice the requests.
        seen: dict[tuple[str, str | None, int, str], int] = {}
        for index, url in enumerate(urls):
            place = url.scheme, url.hostname, url.port or _PORTS[url.scheme], url.path.rstrip("/")
            if (first := seen.setdefault(place, index)) != index:
                raise ValueError(f"{where}: base_urls[{index}] is base_urls[{first}] again")
        return urls

    def key(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """The key, read from its file or variable; None if the server needs none.

        Raises:
            ValueError: it does not exist, is empty or no key, or every user of this machine could read it.
        """
        return read_key(self.key_file, self.key_env, KIND.where(self.name), environment)


def _normalised(text: str) -> str:
    """A base URL in one form, so that equal addresses are equal texts."""
    url = urlsplit(text)
    host = "127.0.0.1" if url.hostname == "localhost" else url.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = "" if url.port in (None, _PORTS.get(url.scheme)) else f":{url.port}"
    return f"{url.scheme}://{host}{port}{url.path.rstrip('/')}"


def _server(**fields: Any) -> OpenAIServer:
    if (text := fields.pop("text", None)) is not None:
        if "renderer" in fields:
            raise ValueError(
                f"{KIND.where(fields['name'])}: renderer says how text is sent, and text is its former name"
            )
        fields["renderer"] = text
    # As an option has them: NAME=URL,URL.
    urls = _BETWEEN_URLS.split(fields.get("base_url", ""))
    if any(_NO_URL.search(url) for url in urls):
        raise ValueError(
            f"{KIND.where(fields['name'])}: base_url has a comma that no URL follows; write several as "
            "http://HOST:PORT/v1,http://HOST:PORT/v1"
        )
    if len(urls) > 1 and "base_urls" not in fields:
        del fields["base_url"]
        fields["base_urls"] = tuple(urls)
    return OpenAIServer(**fields)


def _url(value: Any, base: Path) -> str:
    if isinstance(value, list):
        raise ValueError("a text: base_urls has a list of them")
    return read_text(value, base)


def _texts(value: Any, base: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
        raise ValueError("a list of texts")
    return tuple(value)


def _text(value: Any, base: Path) -> Renderer:
    if value not in _TEXT:
        raise ValueError(f"one of {', '.join(_TEXT)}; renderer says the same, as one of {', '.join(_TEXT.values())}")
    return _TEXT[value]


def _completed(
    servers: tuple[OpenAIServer, ...], keys: Sequence[str], origin: str, environment: Mapping[str, str]
) -> tuple[OpenAIServer, ...]:
    """The servers with the variables of their keys, by `--openai-key-env` and as clients of OpenAI read them.

    Args:
        servers: as they are configured.
        keys: each VARIABLE or NAME=VARIABLE.
        origin: what gave them: "--openai-key-env".
        environment: in which OPENAI_BASE_URL and OPENAI_API_KEY count; empty for a worker, which reads neither.
    """
    if not servers and (url := environment.get(URL_VARIABLE)):
        try:
            checked_url(url, URL_VARIABLE)
            servers = (_server(name=DEFAULT, base_url=url),)
        except ValueError as error:
            raise ValueError(f"{error}; {URL_VARIABLE} is read, as no --openai-server is given") from None
    variables: dict[str, str] = {}
    for text in keys:
        name, named, variable = text.partition("=")
        if not named:
            name, variable = "", text
        if not _VARIABLE.fullmatch(variable):
            # What is no name of a variable may be a key: it is not repeated.
            raise ValueError(f"{origin} takes the name of a variable, as VARIABLE or NAME=VARIABLE, not a key")
        if not named:
            if len(servers) != 1:
                names = ", ".join(server.name for server in servers)
                there_are = f"there are {len(servers)} servers, {names}: give" if servers else "there is no server:"
                cure = "it as NAME=VARIABLE" if servers else "give --openai-server too"
                raise ValueError(f"{origin} {text}: {there_are} {cure}")
            name = servers[0].name
        if all(server.name != name for server in servers):
            raise ValueError(f"{origin} {text}: there is no server {name!r}; add --openai-server {name}=URL")
        if name in variables:
            raise ValueError(f"{origin} gives the server {name!r} two variables; only one can count")
        variables[name] = variable
    completed: list[OpenAIServer] = []
    for server in servers:
        if server.name in variables:
            server = dataclasses.replace(server, key_file=None, key_env=variables[server.name])
        elif server.key_file is None and server.key_env is None and environment.get(KEY_VARIABLE):
            hosts = {urlsplit(url).hostname for url in server.urls}
            official = hosts == {_OPENAI}
            server = dataclasses.replace(server, **({"key_env": KEY_VARIABLE} if official else {"withheld": True}))
        completed.append(server)
    return tuple(completed)


KIND = Kind(
    setting="openai_servers",
    noun="OpenAI-compatible server",
    article="an",
    option="openai_server",
    key_option="openai_key_env",
    complete=_completed,
    make=_server,
    required="",  # base_url or base_urls, see `check`
    readers={
        "base_url": _url,
        "base_urls": _texts,
        "any_address": read_flag,
        "all_addresses": read_flag,
        "key_file": read_path,
        "key_env": read_text,
        "renderer": read_one_of(*get_args(Renderer)),
        "text": _text,
        "logprobs": read_flag,
        "probe": read_flag,
        "program": read_one_of(*get_args(Program)),
        "require_served_name": read_flag,
        "max_connections": read_whole,
        "stall_seconds": read_number,
        "insecure_no_tls": read_flag,
        "ca_file": read_path,
        "proxy": read_text,
    },
)
