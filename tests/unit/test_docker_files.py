"""What Dockerfile, compose.yaml and docs/docker.md promise, held without an engine that builds them."""

import glob
import re
import shlex
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main
import yaml

from crucible_bridge.v1 import evaluation_pb2
from crucible_worker.cli import app
from crucible_worker.cli.health import HEALTH_SECONDS
from crucible_worker.config import ENVIRONMENT_PREFIX, load_settings
from crucible_worker.config.settings import DEFAULT_PORT
from crucible_worker.util.limits import WorkerLimits

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "elixir_client_example"
TARGETS = ("light", "full")
TRACKERS = {"mlflow", "tensorboard", "trackio", "wandb"}
"""Extras of experiment trackers, which constraints.txt leaves out."""
NEEDS_TORCH = {"torch", "peft", "accelerate"}
SERVICE = evaluation_pb2.DESCRIPTOR.services_by_name["EvaluationService"].full_name

Stages = dict[str, list[tuple[str, str]]]
"""Instructions of every stage by its name, "" for one without; those before the first are under "before"."""


def stages(folder: Path = ROOT) -> Stages:
    """A Dockerfile, read: comments left out, lines that go on put together."""
    text = re.sub(r"^\s*#.*\n", "", (folder / "Dockerfile").read_text(), flags=re.MULTILINE)
    found: Stages = {"before": []}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line:
            continue
        name, _, rest = line.partition(" ")
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            found[stage] = [("FROM", base)]
        else:
            next(reversed(found.values())).append((name, rest))
    return found


def lineage(every: Stages, stage: str) -> list[tuple[str, str]]:
    """Instructions of a stage and of the stages that it stands on, the first first."""
    _, base = every[stage][0]
    return (lineage(every, base) if base in every else []) + every[stage]


def values(stage: str, instruction: str, folder: Path = ROOT) -> list[str]:
    """What a stage is told by one instruction."""
    return [rest for name, rest in lineage(stages(folder), stage) if name == instruction]


def arguments(folder: Path = ROOT) -> dict[str, str]:
    """The build's arguments with their defaults, "" where there are none."""
    found = [rest.partition("=") for each in stages(folder).values() for name, rest in each if name == "ARG"]
    return {name: value.strip('"') for name, _, value in sorted(found)}


def command(name: str) -> typer.core.TyperCommand:
    """A command of ours."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    found = group.commands[name]
    assert isinstance(found, typer.core.TyperCommand)
    return found


def options(name: str) -> set[str]:
    """Those of a command of ours."""
    return {option for parameter in command(name).params for option in parameter.opts}


def sources(folder: Path) -> Iterator[str]:
    """What is copied from the checkout into any stage."""
    for instructions in stages(folder).values():
        for name, rest in instructions:
            words = [word for word in rest.split() if not word.startswith("--chown")]
            if name == "COPY" and not words[0].startswith("--from"):
                yield from words[:-1]


def ignored() -> list[str]:
    """The lines of .dockerignore."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_whatever_is_copied_is_there_and_reaches_the_build():
    """Everything is ignored but what the Dockerfile copies, and each of that is there."""
    kept = {line.removeprefix("!") for line in ignored() if line.startswith("!")}

    assert ignored()[0] == "*"
    assert kept == set(sources(ROOT))
    assert [source for source in kept if not (ROOT / source).exists()] == []


def test_the_example_is_copied_with_what_it_runs():
    """Its files are there, and the script that it starts."""
    (start,) = values("", "CMD", EXAMPLE)

    assert [source for source in sources(EXAMPLE) if not glob.glob(source, root_dir=EXAMPLE)] == []
    assert (EXAMPLE / yaml.safe_load(start)[-1]).is_file()


def test_libraries_are_those_of_the_constraints():
    """An image that is built next year has the versions of this one; the package itself brings none."""
    installs = [
        rest
        for instructions in stages().values()
        for name, rest in instructions
        if name == "RUN" and re.search(r"\bpip\b.* (install|wheel)\b", rest)
    ]

    assert len(installs) == 5
    for each in installs:
        assert "--constraint constraints.txt" in each or "--no-deps" in each, each


def requirements(*extras: str) -> set[str]:
    """What docker/requirements.py prints."""
    asked = [sys.executable, "docker/requirements.py", *extras]
    return set(subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())


def test_the_libraries_of_a_target_are_those_of_its_extras():
    """`full` has every extra that constraints.txt has room for, `light` none that brings PyTorch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: set(lines) for name, lines in project["optional-dependencies"].items()}
    light, full = (arguments()[name].split() for name in ("LIGHT_EXTRAS", "FULL_EXTRAS"))

    assert set(light) < set(full) == set(extras) - {"dev", "dev-all", "inspect", *TRACKERS}
    assert requirements() == set(project["dependencies"])
    assert requirements(*full) == set(project["dependencies"]).union(*(extras[name] for name in full))
    assert not {re.split(r"[^\w-]", line)[0] for line in requirements(*light)} & NEEDS_TORCH


def test_an_extra_that_is_not_there_fails_the_build():
    """A name that was mistyped does not leave its libraries out."""
    asked = subprocess.run([sys.executable, "docker/requirements.py", "locl"], cwd=ROOT, capture_output=True, text=True)

    assert asked.returncode == 1
    assert "KeyError: 'locl'" in asked.stderr


@pytest.mark.parametrize(("folder", "target"), [*((ROOT, target) for target in TARGETS), (EXAMPLE, "")])
def test_nothing_runs_as_root(folder: Path, target: str):
    """The last user is a number, not that of root, and the same one everywhere: the token is the worker's."""
    assert values(target, "USER", folder)[-1] == "${WORKER_UID}"
    assert arguments(folder)["WORKER_UID"] == arguments()["WORKER_UID"]
    assert int(arguments()["WORKER_UID"]) > 0


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_serves_and_is_asked_by_our_own_commands(target: str):
    """Entry point, command and probe are commands that there are, with options that they have."""
    (entry,), (served,), (probe,) = (values(target, name) for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"))
    flags, _, asked = probe.partition(" CMD ")
    name, subcommand, *rest = yaml.safe_load(asked)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert yaml.safe_load(entry) == [name]
    assert name in project["scripts"]
    assert yaml.safe_load(served) == ["serve"]
    assert subcommand == "health"
    assert {word for word in rest if word.startswith("--")} <= options("health")
    assert rest[rest.index("--service") + 1] == SERVICE
    # The worker's own time to answer, and that of Python to start on a busy machine.
    (given,) = re.findall(r"--timeout=(\d+)s", flags)
    assert int(given) > HEALTH_SECONDS
    assert values(target, "EXPOSE") == [str(DEFAULT_PORT)]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_has_a_worker_keep_its_state_where_it_may_write(target: str):
    """The variables are settings of a worker, and its folders were made for its user alone."""
    words = [word for each in values(target, "ENV") for word in shlex.split(each)]
    environment = dict(word.split("=", maxsplit=1) for word in words)
    settings = load_settings({}, environment)
    made = " ".join(values(target, "RUN"))

    assert settings.state_dir == Path(values(target, "WORKDIR")[-1])
    for folder in (str(settings.state_dir), environment["HF_HOME"], "/run/crucible"):
        assert re.search(rf"install --directory --owner=worker --group=worker --mode=0700 [^&]*{folder}\b", made)


def test_no_secret_is_kept_by_an_image():
    """Keys come as mounts: no argument or variable of the build is one."""
    every = " ".join(rest for each in stages().values() for name, rest in each if name in ("ARG", "ENV"))

    assert not re.search(r"token|password|secret|key", every, re.IGNORECASE)


@pytest.fixture(scope="module")
def compose() -> Any:
    """compose.yaml, read."""
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def test_compose_file_is_one_by_the_specification():
    """The schema of the Compose specification takes it."""
    asked = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"]
    checked = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_compose_builds_targets_that_there_are(compose: Any):
    """Each image is built from here, by a target and with arguments that the Dockerfile has."""
    users: set[str] = set()
    for service in compose["services"].values():
        build, folder = service["build"], ROOT / service["build"]["context"]
        assert build.get("target", "") in stages(folder)
        assert set(build["args"]) <= set(arguments(folder))
        users.add(build["args"]["WORKER_UID"])

    assert users == {f"${{WORKER_UID:-{arguments()['WORKER_UID']}}}"}


def test_compose_volumes_and_dependencies_are_there(compose: Any):
    """What a service mounts is declared, and what it waits for is a service."""
    for service in compose["services"].values():
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= set(compose["volumes"])
        assert set(service.get("depends_on", {})) <= set(compose["services"])


def test_compose_gives_every_folder_that_the_worker_writes_a_place(compose: Any):
    """The container is read-only: the state directory and the cache of the hub are volumes, temporary files a tmpfs."""
    worker = compose["services"]["worker"]
    (environment,) = [rest for rest in values("full", "ENV") if "HF_HOME" in rest]
    written = re.findall(r"(?:CRUCIBLE_STATE_DIR|HF_HOME)=(\S+)", environment)

    mounted = {volume.split(":")[1] for volume in worker["volumes"] if not volume.endswith(":ro")}
    assert worker["read_only"] is True
    assert len(written) == 2
    assert mounted == set(written)
    assert worker["tmpfs"] == ["/tmp"]


def test_compose_gives_no_service_more_than_it_needs(compose: Any):
    """No capability, none to be gained, nothing published beyond this machine; workers cannot write to their image."""
    for name, service in compose["services"].items():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert service.get("read_only") or name == "example"
        assert "privileged" not in service


def test_compose_worker_would_start(compose: Any, tmp_path: Path):
    """A worker takes its variables: without the token it would refuse them, as other containers can reach it."""
    worker = compose["services"]["worker"]
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("s3cret\n")
    settings = load_settings({}, {**worker["environment"], f"{ENVIRONMENT_PREFIX}TOKEN_FILE": str(token)})

    assert settings.reachable_by_others
    assert settings.tokens == ("s3cret",)
    assert [port.rpartition(":")[2] for port in worker["ports"]] == [str(settings.port)]
    # Docker kills 10 s after SIGTERM, unless told otherwise.
    assert "stop_grace_period" not in worker
    assert WorkerLimits().drain_seconds < 10


def test_compose_gives_worker_and_example_the_token_as_a_file(compose: Any):
    """It is in no variable, and neither can change it."""
    for name, variable in (("worker", f"{ENVIRONMENT_PREFIX}TOKEN_FILE"), ("example", "WORKER_TOKEN_FILE")):
        service = compose["services"][name]
        assert service["environment"][variable] == "/run/crucible/token"
        assert "token:/run/crucible:ro" in service["volumes"]


def test_compose_makes_a_token_once(compose: Any, tmp_path: Path):
    """The first start makes one that the worker takes and only its user can read; later ones leave it as it is."""
    service = compose["services"]["token"]
    (script,) = service["command"]
    script = script.replace("/run/crucible", str(tmp_path)).replace("python ", f"{shlex.quote(sys.executable)} ")
    path = tmp_path / "token"

    made = []
    for _ in range(2):
        done = subprocess.run([*service["entrypoint"], script], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        made.append(path.read_text())

    assert made[0] == made[1]
    assert load_settings({"token_file": path}, {}).tokens == (made[0].strip(),)
    assert len(made[0].strip()) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_page_names_what_there_is():
    """Targets, services, build arguments, variables and options in docs/docker.md are those of the files."""
    page = (ROOT / "docs" / "docker.md").read_text()
    variables = set(re.findall(rf"\b({ENVIRONMENT_PREFIX}[A-Z_]+)\b", page))
    known = {option.replace("--", ENVIRONMENT_PREFIX).replace("-", "_").upper() for option in options("serve")}
    services = re.findall(r"docker compose (?:up|run|exec|logs)(?: --?[\w-]+)* (\w+)", page)

    assert set(re.findall(r"--target (\w+)", page)) == {*TARGETS}
    assert set(re.findall(r"--build-arg (\w+)=", page)) <= set(arguments())
    assert set(services) == {"worker", "example"}
    assert variables
    assert variables <= known
