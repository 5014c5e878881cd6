"""OpenAI-compatible servers in a worker's settings: where they come from, what is refused, and that no key is told."""

from pathlib import Path

import pytest

from crucible_worker.backends.openai.servers import MAX_STALL_SECONDS, OpenAIServer
from crucible_worker.config import SettingsError, load_settings
from tests.tables import rows

URL = "http://127.0.0.1:8000/v1"
KEY = "canary-0123456789"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A key that its owner alone can read."""
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    return path


def from_file(tmp_path: Path, text: str) -> tuple[OpenAIServer, ...]:
    """The servers of a settings file."""
    config = tmp_path / "worker.toml"
    config.write_text(text)
    return load_settings({}, {}, config).endpoints_of(OpenAIServer)


def test_the_file_says_everything(tmp_path: Path, secret: Path):
    """A table by name, with every setting of a server; paths are relative to the file."""
    ca = tmp_path / "ca.pem"
    ca.touch()
    (server,) = from_file(
        tmp_path,
        f'[openai_servers.vllm]\nbase_url = "{URL}"\nkey_file = "key"\ntext = "chat"\nlogprobs = true\n'
        'program = "sglang"\nrequire_served_name = true\n'
        'max_connections = 8\nstall_seconds = 5\ninsecure_no_tls = true\nca_file = "ca.pem"\nproxy = "http://u:p@x:1"\n',
    )
    assert server == OpenAIServer(
        name="vllm",
        base_url=URL,
        key_file=secret,
        renderer="chat_template",
        logprobs=True,
        program="sglang",
        require_served_name=True,
        max_connections=8,
        stall_seconds=5.0,
        insecure_no_tls=True,
        ca_file=ca,
        proxy="http://u:p@x:1",
    )
    assert server.key() == KEY


@pytest.mark.parametrize(
    ("line", "renderer"),
    [
        ("", "auto"),
        ('renderer = "auto"', "auto"),
        ('renderer = "raw"', "raw"),
        ('renderer = "chat_template"', "chat_template"),
        ('text = "completion"', "raw"),
        ('text = "chat"', "chat_template"),
    ],
)
def test_how_text_is_asked_has_one_setting(tmp_path: Path, line: str, renderer: str):
    """`text`, as files of releases before have it, is another spelling of `renderer`."""
    (server,) = from_file(tmp_path, f'[openai_servers.a]\nbase_url = "{URL}"\n{line}\n')
    assert server.renderer == renderer


def test_flags_and_variables_name_servers_without_keys():
    """NAME=URL, several by several flags or separated by blanks in the variable."""
    flags = load_settings({"openai_servers": ["a=http://localhost:1/v1", "b=https://h/v1"]}, {}).endpoints_of(
        OpenAIServer
    )
    variable = load_settings({}, {"CRUCIBLE_OPENAI_SERVER": "a=http://localhost:1/v1  b=https://h/v1"}).endpoints_of(
        OpenAIServer
    )
    assert flags == variable
    assert [(server.name, server.base_url) for server in flags] == [
        ("a", "http://localhost:1/v1"),
        ("b", "https://h/v1"),
    ]


def of_client(environment: dict[str, str], **flags: list[str]) -> tuple[OpenAIServer, ...]:
    """The servers of a command that reads the variables of OpenAI's clients."""
    return load_settings(flags, environment, client_variables=True).endpoints_of(OpenAIServer)


def test_an_option_names_the_variable_of_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, secret: Path):
    """One server needs no name; of several each has its own, also in place of the key that a file says."""
    monkeypatch.setenv("MINE", KEY)
    one = {"openai_servers": [f"a={URL}"]}
    several = {"openai_servers": [f"a={URL}", "b=https://h/v1"]}
    assert load_settings(one | {"openai_key_env": ["MINE"]}, {}).endpoints_of(OpenAIServer)[0].key() == KEY
    a, b = load_settings(several | {"openai_key_env": ["b=MINE"]}, {}).endpoints_of(OpenAIServer)
    assert (a.key_env, b.key_env) == (None, "MINE")
    config = tmp_path / "worker.toml"
    config.write_text(f'[openai_servers.vllm]\nbase_url = "{URL}"\nkey_file = "key"\n')
    (server,) = load_settings({"openai_key_env": ["MINE"]}, {}, config).endpoints_of(OpenAIServer)
    assert (server.key_file, server.key_env) == (None, "MINE")


@rows(
    "servers, keys, message",
    [
        (
            [f"a={URL}", f"b={URL}2"],
            ["MINE"],
            "--openai-key-env MINE: there are 2 servers, a, b: give it as NAME=VARIABLE",
        ),
        ([], ["MINE"], "--openai-key-env MINE: there is no server: give --openai-server too"),
        ([f"a={URL}"], ["c=MINE"], "there is no server 'c'; add --openai-server c=URL"),
        ([f"a={URL}"], ["a=MINE", "MINE"], "gives the server 'a' two variables"),
        ([f"a={URL}"], ["NOT_SET"], "has no key: set the variable NOT_SET"),
        ([f"a={URL}"], ["sk-canary"], "takes the name of a variable"),
        ([f"a={URL}"], ["a=sk-canary"], "takes the name of a variable"),
        (["a=http://far.example/v1"], ["MINE"], "its key would cross the network in the clear"),
    ],
)
def test_a_variable_that_no_server_can_take_is_refused(
    monkeypatch: pytest.MonkeyPatch, servers: list[str], keys: list[str], message: str
):
    """The error names the option and the cure, and repeats nothing that might be a key."""
    monkeypatch.setenv("MINE", KEY)
    with pytest.raises(SettingsError) as raised:
        load_settings({"openai_servers": servers, "openai_key_env": keys}, {})
    assert message in str(raised.value)
    assert "canary" not in str(raised.value)


def test_commands_read_the_variables_of_openai_clients(monkeypatch: pytest.MonkeyPatch):
    """OPENAI_BASE_URL is the server `openai` where none is given, and OPENAI_API_KEY is for api.openai.com alone."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    official, other = "https://api.openai.com/v1", "https://proxy.example/v1"
    key = {"OPENAI_API_KEY": KEY}
    assert of_client(key | {"OPENAI_BASE_URL": official}) == (
        OpenAIServer(name="openai", base_url=official, key_env="OPENAI_API_KEY"),
    )
    assert of_client(key | {"OPENAI_BASE_URL": other}) == (OpenAIServer(name="openai", base_url=other),)
    (withheld,) = of_client(key | {"OPENAI_BASE_URL": other})
    assert "(OPENAI_API_KEY is set, and is sent to https://api.openai.com alone)" in withheld.unauthenticated
    (unset,) = of_client({"OPENAI_BASE_URL": other})
    assert "OPENAI_API_KEY" not in unset.unauthenticated
    given = of_client(key | {"OPENAI_BASE_URL": other}, openai_servers=[f"lab={official}", f"own={URL}"])
    assert [(server.name, server.key_env) for server in given] == [("lab", "OPENAI_API_KEY"), ("own", None)]
    (keyed,) = of_client({"OPENAI_BASE_URL": other}, openai_key_env=["OPENAI_API_KEY"])
    assert keyed.key() == KEY
    with pytest.raises(SettingsError, match="OPENAI_BASE_URL is no http or https URL"):
        of_client({"OPENAI_BASE_URL": "api.openai.com/v1"})


def test_a_worker_reads_no_variables_of_openai_clients():
    """What a worker can reach is what its operator configured."""
    environment = {"OPENAI_BASE_URL": URL, "OPENAI_API_KEY": KEY}
    assert load_settings({}, environment).endpoints == ()


def test_a_server_may_be_several_replicas(tmp_path: Path):
    """A list in the file, or NAME=URL,URL of an option; each replica has the other settings."""
    urls = ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8001/v1")
    (server,) = from_file(tmp_path, f"[openai_servers.a]\nbase_urls = {list(urls)}\nmax_connections = 8\n")
    assert server == OpenAIServer(name="a", base_urls=urls, max_connections=8)
    assert (server.is_fleet, server.urls) == (True, urls)
    (flag,) = load_settings({"openai_servers": [f"a={','.join(urls)}"]}, {}).endpoints_of(OpenAIServer)
    assert flag == OpenAIServer(name="a", base_urls=urls)
    (single,) = load_settings({"openai_servers": ["a=http://127.0.0.1/of,two/v1"]}, {}).endpoints_of(OpenAIServer)
    assert (single.is_fleet, single.urls) == (False, ("http://127.0.0.1/of,two/v1",))


def test_a_key_from_a_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The environment holds the key under the name that the settings say."""
    text = f'[openai_servers.a]\nbase_url = "{URL}"\nkey_env = "MY_KEY"\n'
    monkeypatch.setenv("MY_KEY", KEY)
    assert from_file(tmp_path, text)[0].key() == KEY
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(SettingsError, match="has no key: set the variable MY_KEY"):
        from_file(tmp_path, text)


@rows(
    ("text", "why"),
    [
        (f'["openai_servers"."a b"]\nbase_url = "{URL}"', "letters, digits"),
        ("[openai_servers.a]\n", "has no base_url"),
        ("[openai_servers.a]\nbase_urls = []", "base_urls is not a list of texts"),
        ('[openai_servers.a]\nbase_urls = "http://x/v1"', "base_urls is not a list of texts"),
        ('[openai_servers.a]\nbase_urls = ["http://x/v1", ""]', "base_urls is not a list of texts"),
        ('[openai_servers.a]\nbase_url = ["http://x/v1"]', "base_url is not a text: base_urls has a list of them"),
        ('[openai_servers.a]\nbase_urls = ["http://x/v1", "ftp://x/v1"]', r"base_urls\[1\] is no http or https URL"),
        ('[openai_servers.a]\nbase_urls = ["http://u:canary@x/v1"]', r"base_urls\[0\] holds more than an address"),
        ('[openai_servers.a]\nbase_urls = ["http://x/v1", "http://x/v1/"]', r"base_urls\[1\] is base_urls\[0\] again"),
        (
            '[openai_servers.a]\nbase_urls = ["http://x:80/v1", "HTTP://X/v1"]',
            r"base_urls\[1\] is base_urls\[0\] again",
        ),
        ('[openai_servers.a]\nbase_url = "http://x/v1,y:8000/v1"', "has a comma that no URL follows"),
        ('[openai_servers.a]\nbase_url = "http://x/v1,"', "has a comma that no URL follows"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nbase_urls = ["{URL}"]', "are one setting, and both are given"),
        (
            '[openai_servers.a]\nbase_urls = ["http://127.0.0.1/v1", "http://far.example/v1"]\nkey_file = "key"',
            "in the clear",
        ),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nall_addresses = true\nproxy = "http://p"', "exclude each other"),
        ('[openai_servers]\na = "http://x/v1"', "is no table"),
        ("openai_servers = 3", "no table of servers"),
        ('[openai_servers.a]\nbase_url = "ftp://x/v1"', "no http or https URL"),
        ('[openai_servers.a]\nbase_url = "http://x:port/v1"', "is no URL"),
        ('[openai_servers.a]\nbase_url = "http://a..b/v1"', "has a name that no address can belong to"),
        (f'[openai_servers.a]\nbase_url = "http://{"a" * 64}.example/v1"', "has a name that no address can belong to"),
        ('[openai_servers.a]\nbase_url = "http://u:canary@x/v1"', "a key belongs into key_file"),
        ('[openai_servers.a]\nbase_url = "http://x/v1?key=canary"', "a key belongs into key_file"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nkey = "canary"', "there is no 'key'"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\ntext = "words"', "one of completion, chat"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nprogram = "vLLM"', "program is not one of auto, vllm, sglang"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nrenderer = "words"', "one of auto, chat_template, raw"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nrenderer = "raw"\ntext = "chat"', "text is its former name"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nlogprobs = 1', "true or false"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nmax_connections = 0', "at least 1"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nmax_connections = 1.5', "a whole number"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nstall_seconds = 0', "not above 0"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nstall_seconds = {MAX_STALL_SECONDS + 1}', "not above 0"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nstall_seconds = "long"', "a number"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nca_file = "absent"', "does not exist"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nproxy = "canary"', "proxy is no http"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nkey_file = "absent"', "cannot read key file"),
        (f'[openai_servers.a]\nbase_url = "{URL}"\nkey_file = "key"\nkey_env = "K"', "are one setting"),
        ('[openai_servers.a]\nbase_url = "http://far.example/v1"\nkey_file = "key"', "in the clear"),
        ('[openai_servers.a]\nbase_url = "http://[::ffff:127.0.0.1]/v1"\nkey_file = "key"', "in the clear"),
    ],
)
def test_what_cannot_be_is_refused_without_its_value(tmp_path: Path, secret: Path, text: str, why: str):
    """The start fails with the reason, and repeats nothing that might be a key in the wrong place."""
    with pytest.raises(SettingsError, match=why) as caught:
        from_file(tmp_path, text)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("stall_seconds", [0.001, MAX_STALL_SECONDS])
def test_the_bounds_themselves_are_taken(stall_seconds: float):
    """One connection, and the shortest and longest stall."""
    OpenAIServer(name="a", base_url=URL, max_connections=1, stall_seconds=stall_seconds).check()


@pytest.mark.parametrize("content", ["", "two words", "ké"])
def test_a_file_without_a_key_is_refused(tmp_path: Path, secret: Path, content: str):
    """A key is one word of printable ASCII."""
    secret.write_text(content)
    with pytest.raises(SettingsError, match="holds no key"):
        from_file(tmp_path, f'[openai_servers.a]\nbase_url = "{URL}"\nkey_file = "key"')


def test_a_key_that_everybody_can_read_is_refused(tmp_path: Path, secret: Path):
    """As the worker's own token."""
    secret.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        from_file(tmp_path, f'[openai_servers.a]\nbase_url = "{URL}"\nkey_file = "key"')


def test_a_server_that_is_given_twice_is_refused():
    """Flags may not say two things of one name."""
    with pytest.raises(SettingsError, match="'a' is given twice: one a=URL,URL names several replicas"):
        load_settings({"openai_servers": [f"a={URL}", f"a={URL}"]}, {})


@pytest.mark.parametrize("text", ["a", "=http://x", "a="])
def test_text_that_names_no_server_is_refused(text: str):
    """NAME=URL, both of them."""
    with pytest.raises(SettingsError, match="NAME=URL"):
        load_settings({"openai_servers": [text]}, {})


def test_a_proxys_password_is_not_shown():
    """Settings may be printed; what a proxy wants is not."""
    assert "secret" not in repr(OpenAIServer(name="a", base_url=URL, proxy="http://u:secret@p:1"))
