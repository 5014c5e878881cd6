"""Managed servers in a worker's settings, and references to their models."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import InstalledModel, format_model, parse_model
from crucible_worker.backends.local.checkpoint import Checkpoint, CheckpointIdentity, Fingerprints
from crucible_worker.backends.managed.arbitration import Claims
from crucible_worker.backends.managed.deployment import Deployment
from crucible_worker.backends.managed.settings import MAX_START_SECONDS, ManagedServer, servers
from crucible_worker.backends.managed.target import Target
from crucible_worker.config import SettingsError, load_settings
from crucible_worker.util.gpus import MAX_DEVICES
from crucible_worker.util.model_refs import ManagedRef, as_managed, read_managed_ref
from tests.tables import rows


def from_file(tmp_path: Path, text: str) -> tuple[ManagedServer, ...]:
    """The servers of a settings file."""
    config = tmp_path / "worker.toml"
    config.write_text(f'[managed_servers.s]\nprogram = "vllm"\n{text}')
    return load_settings({}, {}, config).endpoints_of(ManagedServer)


def test_the_file_says_everything(tmp_path: Path):
    """A table by name, with every setting of a server; devices are numbers or texts."""
    (server,) = from_file(
        tmp_path,
        'devices = [0, "1+2"]\ncommand = ["vllm", "{model}", "{port}"]\narguments = ["--max-model-len", "8192"]\n'
        'adapter_arguments = ["--enable-lora"]\nenvironment = { A = "b" }\nstart_seconds = 60\nrenderer = "raw"\n'
        "logprobs = true\nmax_connections = 8\nstall_seconds = 5\n",
    )
    assert server == ManagedServer(
        name="s",
        program="vllm",
        devices=("0", "1+2"),
        command=("vllm", "{model}", "{port}"),
        arguments=("--max-model-len", "8192"),
        adapter_arguments=("--enable-lora",),
        environment={"A": "b"},
        start_seconds=60.0,
        renderer="raw",
        logprobs=True,
        max_connections=8,
        stall_seconds=5.0,
    )


def test_each_program_has_a_server_without_a_table():
    """Which a table of the same name replaces."""
    own = ManagedServer(name="vllm", program="vllm", devices=("3",))
    assert servers(()) == {name: ManagedServer(name=name, program=name) for name in ("vllm", "sglang")}
    assert servers((own,))["vllm"] == own


async def command_of(folder: Path, **settings: Any) -> list[str]:
    """The command of a server that serves a checkpoint."""
    server = ManagedServer(name="s", **settings)
    deployment = Deployment(server, (), folder, Fingerprints(), Claims())
    (replica,) = deployment.replicas
    try:
        return deployment._command(replica, _target(folder))
    finally:
        await deployment.aclose()


def _target(folder: Path) -> Target:
    identity = CheckpointIdentity(key="k", lasting="l", fingerprint="f")
    return Target(checkpoint=Checkpoint(directory=folder), whole=identity, base=identity, form="x")


@rows(
    ("program", "option", "given", "found"),
    [
        ("vllm", "--generation-config", (), ["--generation-config=vllm"]),
        ("sglang", "--sampling-defaults", (), ["--sampling-defaults=openai"]),
        ("vllm", "--generation-config", ("--generation-config", "auto"), ["--generation-config"]),
        ("vllm", "--generation-config", ("--generation_config=/x",), ["--generation_config=/x"]),
        ("sglang", "--sampling-defaults", ("--sampling-defaults=model",), ["--sampling-defaults=model"]),
    ],
)
async def test_a_server_starts_without_sampling_parameters_of_the_model(
    tmp_path: Path, program: Any, option: str, given: tuple[str, ...], found: list[str]
):
    """Unless the settings have the option: then theirs stands alone."""
    command = await command_of(tmp_path, program=program, arguments=given)
    assert [text for text in command if text.replace("_", "-").startswith(option)] == found


async def test_a_command_of_the_settings_stays_as_it_is(tmp_path: Path):
    """It may start a program that has no such option."""
    first, *others = await command_of(tmp_path, program="vllm", command=("run", "{port}"))
    assert (first, len(others)) == ("run", 1)


@rows(
    ("text", "says"),
    [
        ('program = "ollama"', "program is not one of vllm, sglang"),
        ("devices = []", "devices is not a list of devices"),
        ("devices = [true]", "devices is not a list of devices"),
        ('devices = ["a b"]', "devices has 'a b', not the number or UUID of a GPU"),
        ('devices = ["0+1", "1"]', "devices has '1' twice: one GPU is one replica's"),
        (f"devices = {list(range(MAX_DEVICES + 1))}", f"devices has {MAX_DEVICES + 1} replicas, at most {MAX_DEVICES}"),
        ('command = ["vllm"]', "command has no {port}"),
        ('command = ["{port}", "{path}"]', "command has {path}; there are {model}, {port}, {name}, {gpus}"),
        ('environment = { "A B" = "c" }', "which is not the name of a variable"),
        ("environment = { A = 1 }", "environment is not a table of texts"),
        ("start_seconds = 0", f"start_seconds is 0, not above 0 and at most {MAX_START_SECONDS:.0f}"),
        (f"start_seconds = {MAX_START_SECONDS + 1}", "start_seconds is 7201"),
        ("stall_seconds = -1", "stall_seconds is -1"),
        ("max_connections = 0", "max_connections is 0"),
        ('renderer = "x"', "renderer is not one of"),
        ("speed = 1", "there is no 'speed'"),
    ],
)
def test_faults_are_named(text: str, says: str, tmp_path: Path):
    """The error names the server, the setting and the cure."""
    config = tmp_path / "worker.toml"
    program = "" if text.startswith("program") else 'program = "vllm"\n'
    config.write_text(f"[managed_servers.s]\n{program}{text}\n")
    with pytest.raises(SettingsError) as caught:
        load_settings({}, {}, config)
    assert str(caught.value).startswith("managed server 's'")
    assert says in str(caught.value)


def test_a_server_needs_its_program(tmp_path: Path):
    """And the table is in the file alone."""
    config = tmp_path / "worker.toml"
    config.write_text("[managed_servers.s]\n")
    with pytest.raises(SettingsError, match="managed server 's' has no program"):
        load_settings({}, {}, config)
    with pytest.raises(SettingsError, match="managed_servers is a table of servers by name, in the file of --config"):
        load_settings({}, {"CRUCIBLE_MANAGED_SERVERS": "s=vllm"})


_names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}", fullmatch=True)
_paths = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
_devices = st.lists(st.from_regex(r"[0-9]{1,3}", fullmatch=True), max_size=4, unique=True)


@given(_names, _paths, st.none() | _paths, _devices)
def test_a_reference_is_read_as_it_was_written(server: str, path: str, adapter: str | None, devices: list[str]):
    """Whatever characters the paths have, over the text that people write."""
    reference = ManagedRef(server=server, path=path, adapter=adapter, devices=tuple(devices))
    model = parse_model(format_model(reference.to_model()))
    assert isinstance(model, InstalledModel)
    assert read_managed_ref(model) == reference


def test_another_scheme_or_an_invalid_option_is_no_managed_model():
    """Of references in old records nothing is refused."""
    assert as_managed(InstalledModel("echo", "vllm/m")) is None
    assert as_managed(InstalledModel("managed", "vllm/m?x=1")) is None
    with pytest.raises(InvalidField, match="has the option 'x'"):
        read_managed_ref(InstalledModel("managed", "vllm/m?x=1"))
