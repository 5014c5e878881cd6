"""Settings: where they come from, which source wins, and what is refused."""

import os
import re
from pathlib import Path

import pytest

from crucible_bridge.codec import evaluator_info_to_v1
from crucible_bridge.v1 import evaluation_pb2
from crucible_worker.config import Settings, SettingsError, load_settings
from crucible_worker.evaluators.registry import EVALUATORS
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.util.limits import KEEP_FOREVER, MIN_MESSAGE_BYTES, WorkerLimits
from tests.tables import rows


def _file(path: Path, content: str, mode: int = 0o600) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    """A token file as it should be."""
    return _file(tmp_path / "token", "secret\n")


@pytest.fixture
def tls(tmp_path: Path) -> dict[str, Path]:
    """TLS files that exist; what is in them is the server's affair."""
    return {"tls_cert": _file(tmp_path / "cert.pem", "cert"), "tls_key": _file(tmp_path / "key.pem", "key")}


def test_defaults_are_safe():
    """With nothing given, a worker listens to its own machine alone."""
    settings = load_settings({}, {})

    assert (settings.host, settings.port, settings.unix_socket) == ("127.0.0.1", 50051, None)
    assert not settings.reachable_by_others
    assert settings.tokens == ()
    assert settings.tls is None
    assert settings.limits == WorkerLimits()


def test_flags_win_over_environment_over_file(tmp_path: Path):
    """Each field comes from the first source that has it."""
    config = _file(tmp_path / "worker.toml", 'port = 1\ndevice = "cpu"\nlog_level = "error"')
    environment = {"CRUCIBLE_PORT": "2", "CRUCIBLE_DEVICE": "cuda:1"}

    settings = load_settings({"port": 3, "device": None}, environment, config)

    assert (settings.port, settings.device, settings.log_level) == (3, "cuda:1", "error")


def test_limits_come_from_all_three_sources(tmp_path: Path):
    """A limit is set by its name, wherever settings are."""
    config = _file(tmp_path / "worker.toml", "[limits]\nmax_streams = 1\nmax_concurrency = 40\nmax_grading_items = 9")
    environment = {"CRUCIBLE_MAX_STREAMS": "2", "CRUCIBLE_MAX_CONCURRENCY": "50"}

    limits = load_settings({"limits": ["max_streams=3"]}, environment, config).limits

    assert (limits.max_streams, limits.max_concurrency, limits.max_grading_items) == (3, 50, 9)


def test_paths_of_a_file_are_relative_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file means the same wherever the worker is started; flags are relative to where they are typed."""
    (tmp_path / "models").mkdir()
    (tmp_path / "here").mkdir()
    config = _file(tmp_path / "worker.toml", 'model_roots = ["models"]\nstate_dir = "state"')
    monkeypatch.chdir(tmp_path / "here")

    settings = load_settings({"ready_file": "ready"}, {}, config)

    assert settings.model_roots == (tmp_path / "models",)
    assert settings.state_dir == tmp_path / "state"
    assert settings.ready_file == tmp_path / "here" / "ready"


def test_folders_in_the_environment_are_separated_as_in_path(tmp_path: Path):
    """One variable names several roots."""
    roots = (tmp_path / "a", tmp_path / "b")
    for root in roots:
        root.mkdir()

    settings = load_settings({}, {"CRUCIBLE_DATA_ROOTS": os.pathsep.join(map(str, roots))})

    assert settings.data_roots == roots


@pytest.mark.parametrize(
    ("xdg", "expected"), [("/var/xdg", "/var/xdg/crucible-bridge"), ("relative", "{home}"), ("", "{home}")]
)
def test_the_journal_lies_in_the_state_home(xdg: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """XDG_STATE_HOME counts where it is absolute; otherwise it is ~/.local/state."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", xdg)

    settings = load_settings({}, {})

    assert str(settings.state_dir) == expected.format(home=tmp_path / ".local/state/crucible-bridge")


@rows("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"])
def test_loopback_needs_neither_token_nor_tls(host: str):
    """What only this machine can reach is served as it is."""
    assert not load_settings({"host": host}, {}).reachable_by_others


def test_a_unix_socket_needs_neither_token_nor_tls(tmp_path: Path):
    """A socket file is guarded by its mode, whatever host is set beside it."""
    settings = load_settings({"host": "0.0.0.0", "unix_socket": tmp_path / "socket"}, {})

    assert not settings.reachable_by_others


REACHABLE = ["0.0.0.0", "::", "192.168.1.5", "::ffff:127.0.0.1", "worker.example", "localhost.example"]


@rows("host", REACHABLE)
def test_other_addresses_need_a_token(host: str, tls: dict[str, Path]):
    """TLS alone does not say who may call."""
    with pytest.raises(SettingsError, match=r"--token-file is needed"):
        load_settings({"host": host, "insecure_no_tls": True, **tls}, {})


@rows("host", REACHABLE)
def test_other_addresses_need_tls(host: str, token_file: Path):
    """A token alone could be read on the way."""
    with pytest.raises(SettingsError, match=r"--tls-cert and --tls-key are needed"):
        load_settings({"host": host, "token_file": token_file}, {})


def test_other_addresses_are_served_with_token_and_tls(token_file: Path, tls: dict[str, Path]):
    """Both together let other machines in."""
    settings = load_settings({"host": "0.0.0.0", "token_file": token_file, **tls}, {})

    assert settings.reachable_by_others
    assert settings.tokens == ("secret",)
    assert settings.tls == (tls["tls_cert"], tls["tls_key"])


def test_tls_can_be_left_to_others_beside_a_token(token_file: Path):
    """Behind something that encrypts, the worker can be told so; the token stays."""
    settings = load_settings({"host": "0.0.0.0", "token_file": token_file, "insecure_no_tls": True}, {})

    assert settings.tokens == ("secret",)
    assert settings.tls is None


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o666])
def test_a_token_that_everybody_can_read_is_refused(mode: int, tmp_path: Path):
    """A secret is no secret then; the error says what to do."""
    path = _file(tmp_path / "token", "secret", mode)

    with pytest.raises(SettingsError, match="chmod 600"):
        load_settings({"token_file": path}, {})


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640])
def test_a_token_may_be_readable_by_its_group(mode: int, tmp_path: Path):
    """Secrets are often handed over by group."""
    assert load_settings({"token_file": _file(tmp_path / "token", "secret", mode)}, {}).tokens == ("secret",)


@rows(("content", "why"), [("", "is empty"), (" \n", "is empty"), ("two words", "one word"), ("schlüssel", "one word")])
def test_a_token_is_one_word_of_ascii(content: str, why: str, tmp_path: Path):
    """What cannot travel in a header, or is nothing, is refused at the start."""
    path = _file(tmp_path / "token", content)

    with pytest.raises(SettingsError, match=why):
        load_settings({"token_file": path}, {})


def test_a_token_file_must_exist(tmp_path: Path):
    """A missing file never means that no token is needed."""
    with pytest.raises(SettingsError, match="No such file"):
        load_settings({"token_file": tmp_path / "absent"}, {})


@pytest.mark.parametrize("given", ["tls_cert", "tls_key"])
def test_tls_needs_both_files(given: str, tls: dict[str, Path]):
    """Half a pair is a mistake, on loopback too."""
    with pytest.raises(SettingsError, match="both"):
        load_settings({given: tls[given]}, {})


def test_tls_files_must_exist(tls: dict[str, Path], tmp_path: Path):
    """The file that is missing is named."""
    with pytest.raises(SettingsError, match=r"absent\.pem does not exist"):
        load_settings({**tls, "tls_key": tmp_path / "absent.pem"}, {})


@pytest.mark.parametrize("field", ["model_roots", "data_roots", "inspect_roots"])
def test_roots_must_be_folders(field: str, token_file: Path):
    """A root that is none would only be noticed by the first evaluation."""
    with pytest.raises(SettingsError, match="is not a folder"):
        load_settings({field: [token_file]}, {})


@pytest.mark.parametrize("given", ["inspect_evals,own-evals", ["inspect_evals", "own-evals"]])
def test_packages_are_a_list_or_parted_by_commas(given: str | list[str]):
    """A variable names several."""
    assert load_settings({"inspect_packages": given}, {}).inspect_packages == ("inspect_evals", "own-evals")


@rows("given", ["a/b", "../a", " ", ["a b"], [""], 1, [1]])
def test_what_is_no_package_is_refused(given: object):
    """Before anybody asks for a task of it."""
    with pytest.raises(SettingsError):
        load_settings({"inspect_packages": given}, {})


@rows("given", ["a=b", "1a", " ", ["a b"], [""], 1])
def test_what_is_no_variable_is_refused(given: object):
    """Nor repeated, as it may hold the value."""
    with pytest.raises(SettingsError) as caught:
        load_settings({"environment_variables": given}, {})
    assert "a=b" not in str(caught.value)


@pytest.mark.parametrize("port", [-1, 65536])
def test_ports_have_a_range(port: int):
    """One below and one above are refused."""
    with pytest.raises(SettingsError, match="0 to 65535"):
        load_settings({"port": port}, {})


@pytest.mark.parametrize("port", [0, 65535])
def test_ports_at_the_ends_of_the_range_are_taken(port: int):
    """0 and 65535 are ports."""
    assert load_settings({"port": port}, {}).port == port


BAD_VALUES = [
    ("PORT", "many", "a whole number"),
    ("PORT", "1.5", "a whole number"),
    ("INSECURE_NO_TLS", "perhaps", "true or false"),
    ("DEVICE", "tpu", "auto, cpu, cuda or cuda:N"),
    ("DEVICE", "cuda:", "auto, cpu, cuda or cuda:N"),
    ("LOG_FORMAT", "xml", "one of json, console"),
    ("LOG_LEVEL", "loud", "one of debug, info, warning, error"),
    ("MAX_STREAMS", "2.5", "a whole number"),
    ("EVALUATION_RETENTION_SECONDS", "long", "a number"),
]


@rows(("variable", "value", "expected"), BAD_VALUES)
def test_a_value_of_the_wrong_kind_names_its_variable(variable: str, value: str, expected: str):
    """The error says where the value stands, what it is and what it should be."""
    with pytest.raises(SettingsError, match=f"CRUCIBLE_{variable} is '{value}', not {expected}"):
        load_settings({}, {f"CRUCIBLE_{variable}": value})


BAD_FILES = [
    ("colour = 1", "there is no 'colour'"),
    ("[limits]\nmax_colour = 1", "there is no 'max_colour'"),
    ("limits = 3", "limits is not a table"),
    ("port = ", "is not TOML"),
    ("port = " + "[" * 50_000, "nested too deeply"),
    ("port = " + "{a=" * 5_000, "nested too deeply"),
    ("port = true", "port is True, not a whole number"),
    ("host = 5", "host is 5, not a text"),
    ('host = ""', "not a text"),
    ("state_dir = 5", "not a path"),
    ("model_roots = 5", "not a list of paths"),
]


@rows(("content", "why"), BAD_FILES)
def test_a_file_that_makes_no_sense_is_refused(content: str, why: str, tmp_path: Path):
    """Nothing in a file is passed over in silence."""
    config = _file(tmp_path / "worker.toml", content)

    with pytest.raises(SettingsError, match=why):
        load_settings({}, {}, config)


def test_a_file_that_is_missing_is_refused(tmp_path: Path):
    """Whoever names a file means it."""
    with pytest.raises(SettingsError, match="No such file"):
        load_settings({}, {}, tmp_path / "absent.toml")


@rows("name", [*KEEP_FOREVER, "retention_grace_seconds"])
def test_a_limit_of_retention_may_be_0(name: str):
    """0 keeps everything, or waits for nothing."""
    settings = load_settings({"limits": [f"{name}=0"]}, {})
    assert getattr(settings.limits, name) == 0


@rows(
    ("limit", "why"),
    [
        ("max_streams", "not NAME=VALUE"),
        ("streams=3", "there is no 'streams'"),
        ("max_streams=0", "--limit max_streams is 0, not a finite number above zero"),
        ("max_streams=-1", "not a finite number above zero"),
        ("evaluation_retention_seconds=-1", "is -1, not zero or a finite number above zero"),
        ("evaluation_retention_seconds=nan", "is nan, not zero or a finite number above zero"),
        ("evaluation_retention_seconds=inf", "is inf, not zero or a finite number above zero"),
        ("default_concurrency=1025", "above limits.max_concurrency, which is 1024"),
        (f"max_message_bytes={MIN_MESSAGE_BYTES - 1}", f"is {MIN_MESSAGE_BYTES - 1}, below {MIN_MESSAGE_BYTES}"),
    ],
)
def test_a_limit_that_is_none_is_refused(limit: str, why: str):
    """A limit has a known name and bounds something."""
    with pytest.raises(SettingsError, match=why):
        load_settings({"limits": [limit]}, {})


def test_a_limit_may_be_one():
    """The smallest bound is one."""
    assert load_settings({"limits": ["max_streams=1"]}, {}).limits.max_streams == 1


def test_the_smallest_message_holds_what_a_worker_tells_of_itself():
    """The least that is accepted is enough for the calls that every client begins with."""
    limits = load_settings({"limits": [f"max_message_bytes={MIN_MESSAGE_BYTES}"]}, {}).limits
    told = evaluation_pb2.ListEvaluatorsResponse(
        evaluators=[evaluator_info_to_v1(evaluator.info) for evaluator in EVALUATORS.values()]
    )

    assert told.ByteSize() < limits.max_message_bytes


def test_a_list_has_the_name_of_its_option_too(tmp_path: Path):
    """Whoever knows --model-root finds CRUCIBLE_MODEL_ROOT, and model_root in the file."""
    config = _file(tmp_path / "worker.toml", 'data_root = ["."]')

    settings = load_settings({}, {"CRUCIBLE_MODEL_ROOT": str(tmp_path)}, config)

    assert (settings.model_roots, settings.data_roots) == ((tmp_path,), (tmp_path,))


def test_both_names_of_a_list_in_one_source_are_refused(tmp_path: Path):
    """One of them would be passed over otherwise."""
    roots = {"CRUCIBLE_MODEL_ROOT": str(tmp_path), "CRUCIBLE_MODEL_ROOTS": str(tmp_path)}
    config = _file(tmp_path / "worker.toml", 'data_root = "."\ndata_roots = ["."]')

    with pytest.raises(SettingsError, match="CRUCIBLE_MODEL_ROOTS: model_root and model_roots are one setting"):
        load_settings({}, roots)
    with pytest.raises(SettingsError, match="data_roots: data_root and data_roots are one setting"):
        load_settings({}, {}, config)


def test_the_environment_may_name_the_file(tmp_path: Path):
    """CRUCIBLE_CONFIG is --config; the flag wins, and a missing file is refused as it is there."""
    first, second = _file(tmp_path / "1.toml", "port = 1"), _file(tmp_path / "2.toml", "port = 2")
    environment = {"CRUCIBLE_CONFIG": str(first)}

    assert load_settings({}, environment).port == 1
    assert load_settings({}, environment, second).port == 2
    with pytest.raises(SettingsError, match="No such file"):
        load_settings({}, {"CRUCIBLE_CONFIG": str(tmp_path / "absent.toml")})


@rows("variable", ["CRUCIBLE_COLOUR", "CRUCIBLE_LIMITS", "CRUCIBLE_", "CRUCIBLE_port"])
def test_a_variable_that_is_unknown_is_refused(variable: str):
    """A misspelt variable is not passed over, even an empty one; the error lists those that there are."""
    with pytest.raises(SettingsError, match=f"there is no variable {variable}; there are .*CRUCIBLE_PORT"):
        load_settings({}, {variable: ""})


def test_variables_of_others_are_none_of_ours():
    """The prefix makes a variable ours; an empty one says nothing."""
    settings = load_settings({}, {"CRUCIBLES_PORT": "1", "PORT": "2", "CRUCIBLE_PORT": "", "CRUCIBLE_CONFIG": ""})

    assert settings.port == 50051


@pytest.mark.parametrize(("terminal", "expected"), [(True, "console"), (False, "json")])
def test_the_log_is_for_people_on_a_terminal(terminal: bool, expected: str, monkeypatch: pytest.MonkeyPatch):
    """Without --log-format, whoever reads stderr decides; with it, nobody else does."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)

    assert load_settings({}, {}).log_format == expected
    assert load_settings({"log_format": "json"}, {}).log_format == "json"
    assert load_settings({}, {"CRUCIBLE_LOG_FORMAT": "console"}).log_format == "console"


def test_every_field_can_be_set_by_every_source():
    """The readers cover all of Settings and all limits: none is forgotten. The environment is a source."""
    from crucible_worker.backends.builtin import ENDPOINTS
    from crucible_worker.config import sources

    servers = {kind.setting for kind in ENDPOINTS} | {kind.key_option for kind in ENDPOINTS if kind.key_option}
    assert set(sources._FIELDS) - servers == set(Settings.__dataclass_fields__) - {"limits", "environment", "endpoints"}
    assert servers == {"openai_servers", "openai_key_env", "tinker_services", "managed_servers"}
    assert set(sources._LIMITS) == set(WorkerLimits.__dataclass_fields__)


@pytest.mark.parametrize("count", [0, 2, 64])
def test_the_number_of_grading_processes_is_taken(count: int):
    """None grades no math; one could be held up by one answer."""
    assert load_settings({}, {"CRUCIBLE_GRADING_PROCESSES": str(count)}).grading_processes == count
    assert load_settings({}, {}).grading_processes is None


@pytest.mark.parametrize("count", [-1, 1, 65])
def test_other_numbers_of_grading_processes_are_refused(count: int):
    """The bounds are told."""
    with pytest.raises(SettingsError, match=rf"--grading-processes is {count}, neither 0 nor 2 to 64"):
        load_settings({"grading_processes": count}, {})


@pytest.mark.parametrize("count", [0, 1, 64])
def test_the_number_of_code_sandboxes_is_taken(count: int):
    """With 0 no program is run; unsaid, it depends on the machine."""
    assert load_settings({}, {"CRUCIBLE_CODE_SANDBOXES": str(count)}).code_sandboxes == count
    assert load_settings({}, {}).code_sandboxes is None


@pytest.mark.parametrize("count", [-1, 65])
def test_other_numbers_of_code_sandboxes_are_refused(count: int):
    """The bounds are told."""
    with pytest.raises(SettingsError, match=rf"--code-sandboxes is {count}, not 0 to 64"):
        load_settings({"code_sandboxes": count}, {})


def test_images_are_a_list_or_a_table(tmp_path: Path):
    """By flag, variable and file; folders of the file are relative to it."""
    both = (CodeImage(name="a", directory=tmp_path / "a"), CodeImage(name="b", directory=tmp_path / "b"))
    for image in both:
        image.directory.mkdir()
    listed = [f"a={tmp_path / 'a'}", f"b={tmp_path / 'b'}"]
    assert load_settings({"code_images": listed}, {}).code_images == both
    assert load_settings({}, {"CRUCIBLE_CODE_IMAGES": ":".join(listed)}).code_images == both
    for content in ('code_images = ["a=a", "b=b"]', '[code_images]\na = "a"\nb = "b"'):
        assert load_settings({}, {}, _file(tmp_path / "worker.toml", content)).code_images == both
    with pytest.raises(SettingsError, match=r"code_images is .* not NAME=DIR"):
        load_settings({}, {}, _file(tmp_path / "worker.toml", "[code_images]\na = 1"))


def test_a_limit_is_given_once():
    """The last of two would count without a word."""
    with pytest.raises(SettingsError, match="--limit max_streams is given twice"):
        load_settings({"limits": ["max_streams=1", "max_streams=2"]}, {})


OUT_OF_RANGE = [
    ("port", "70000", "--port", " is 70000, not 0 to 65535"),
    ("grading_processes", "1", "--grading-processes", " is 1, neither 0 nor 2 to 64"),
    ("code_sandboxes", "1000", "--code-sandboxes", " is 1000, not 0 to 64"),
    ("model_roots", "/nonexistent", "--model-root", " /nonexistent is not a folder"),
    ("data_roots", "/nonexistent", "--data-root", " /nonexistent is not a folder"),
    ("inspect_roots", "/nonexistent", "--inspect-root", " /nonexistent is not a folder"),
    ("code_images", "sci=/nonexistent", "--code-image", " sci: /nonexistent is not a folder"),
    ("code_images", "a b=/", "--code-image", " the name 'a b' has something other than letters, digits"),
    ("code_images", "/nonexistent", "--code-image", " is '/nonexistent', not NAME=DIR"),
    ("code_images", "=/", "--code-image", " is '=/', not NAME=DIR"),
    ("code_images", "a=/:a=/tmp", "--code-image", " is 'a=/:a=/tmp', not one folder for each name: a is given twice"),
    ("inspect_packages", "a b", "--inspect-package", " 'a b' is not the name of a package"),
    ("environment_variables", "a=b", "--environment-variable", " has an entry that is not a variable"),
    ("token_file", "/nonexistent", "--token-file", " /nonexistent cannot be read: No such file"),
    ("limits", "max_streams=0", "--limit max_streams", " is 0, not a finite number above zero"),
    ("limits", "plan_retention_seconds=-1", "--limit plan_retention_seconds", " is -1, not zero or a finite number"),
    ("limits", "drain_seconds=inf", "--limit drain_seconds", " is inf, not a finite number above zero"),
    ("limits", "max_message_bytes=1", "--limit max_message_bytes", f" is 1, below {MIN_MESSAGE_BYTES}"),
    ("limits", "max_concurrency=9", "", "default_concurrency is 32, above {}, which is 9"),
]
"""Field, a text of the right kind that is refused, its flag, and what follows that; with {}, what stands around it."""


@rows(("field", "given", "flag", "why"), OUT_OF_RANGE)
@rows("source", ["flag", "variable", "file"])
def test_a_value_that_is_refused_is_called_as_it_was_given(
    source: str, field: str, given: str, flag: str, why: str, tmp_path: Path
):
    """By the flag, the variable or the key of the file that counts: an operator looks for what was typed."""
    name, value = given.split("=") if field == "limits" else (field, given)
    flag = flag or f"--limit {name}"
    config = tmp_path / "worker.toml"
    flags: dict[str, object] = {}
    environment: dict[str, str] = {}
    if source == "flag":
        flags[field], named = [given] if field == "limits" else given, flag
    elif source == "variable":
        variable = f"CRUCIBLE_{name}" if field == "limits" else "CRUCIBLE_" + flag.strip("-").replace("-", "_")
        environment[variable.upper()], named = value, variable.upper()
    else:
        number = field == "limits" or value.isdigit()
        content = f"{name} = {value if number else repr(value)}"
        named = f"{config}: limits.{name}" if field == "limits" else f"{config}: {name}"
        _file(config, f"[limits]\n{content}" if field == "limits" else content)

    with pytest.raises(SettingsError) as caught:
        load_settings(flags, environment, config if source == "file" else None)
    assert (why.format(named) if "{}" in why else f"{named}{why}") in str(caught.value)


def test_the_source_that_counts_is_named(tmp_path: Path):
    """A flag wins over a variable, and that over a file; what none gave has the setting's own name."""
    config = _file(tmp_path / "worker.toml", "port = 70001\n[limits]\nmax_streams = 0\nmax_concurrency = 5")
    with pytest.raises(SettingsError, match=r"^--port is 70000"):
        load_settings({"port": 70000}, {"CRUCIBLE_PORT": "1"}, config)
    with pytest.raises(SettingsError, match=r"^CRUCIBLE_PORT is 70002"):
        load_settings({}, {"CRUCIBLE_PORT": "70002"}, config)
    with pytest.raises(SettingsError, match=r"^CRUCIBLE_MAX_STREAMS is -1"):
        load_settings({"port": 1}, {"CRUCIBLE_MAX_STREAMS": "-1"}, config)
    with pytest.raises(SettingsError, match=r"^limits.default_concurrency is 32, above .*worker.toml: limits.max_conc"):
        load_settings({"port": 1, "limits": ["max_streams=1"]}, {}, config)


@pytest.mark.parametrize("content", [None, "port = "])
def test_a_file_that_cannot_be_read_is_called_as_it_was_named(content: str | None, tmp_path: Path):
    """By the flag, or by the variable."""
    path = tmp_path / "worker.toml"
    if content is not None:
        _file(path, content)
    why = f"{path} {'cannot be read: No such file' if content is None else 'is not TOML'}"
    with pytest.raises(SettingsError, match=re.escape(f"--config {why}")):
        load_settings({}, {}, path)
    with pytest.raises(SettingsError, match=re.escape(f"CRUCIBLE_CONFIG {why}")):
        load_settings({}, {"CRUCIBLE_CONFIG": str(path)})
