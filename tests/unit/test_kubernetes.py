"""What deploy/kubernetes says of the worker is what the worker has: its options, ports, services and folders."""

import functools
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from crucible_bridge.addresses import parse_workers
from crucible_bridge.idempotency import service_modules
from crucible_worker.config import DEFAULT_PORT, ENVIRONMENT_PREFIX, SettingsError, load_settings
from crucible_worker.util.limits import WorkerLimits
from tests import needs
from tests.unit.test_docker_files import arguments, options, values

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=needs.MISSING["kubernetes_validate"])

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = sorted(path.parent.name for path in FOLDER.glob("*/kustomization.yaml"))
RELEASE = "1.34"
"""The release of Kubernetes whose schema is looked at. The action `sleep` of preStop needs 1.30."""
SERVICES = {
    service.full_name for module in service_modules() for service in module.DESCRIPTOR.services_by_name.values()
}

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason=needs.MISSING["kubectl"])

Document = dict[str, Any]


def made_secret() -> str:
    """What the script of the page prints."""
    return subprocess.check_output([sys.executable, FOLDER / "try" / "make_secret.py"], text=True)


SECRET = dict(line.split("=", 1) for line in made_secret().splitlines())


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Document]]:
    """The objects of every overlay, by its name; the component `tls` on top of the base."""
    folder = tmp_path_factory.mktemp("kubernetes") / "kubernetes"
    shutil.copytree(FOLDER, folder)
    (folder / "try" / "secret.env").write_text("".join(f"{name}={value}\n" for name, value in SECRET.items()))
    component = folder / "tls"
    if component.is_dir():
        (folder / "with-tls").mkdir()
        overlay = {"resources": ["../base"], "components": ["../tls"]}
        (folder / "with-tls" / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return {name: render(folder / ("with-tls" if name == "tls" else name)) for name in OVERLAYS}


def render(folder: Path) -> list[Document]:
    """What kustomize makes of a folder."""
    made = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert made.stderr == ""
    return [document for document in yaml.safe_load_all(made.stdout) if document]


def only(documents: list[Document], kind: str, name: str = "crucible-bridge") -> Document:
    """The object of a kind with a name."""
    (found,) = [each for each in documents if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def pod(documents: list[Document]) -> Document:
    """What a worker's pod is."""
    return only(documents, "Deployment")["spec"]["template"]


def worker(documents: list[Document]) -> Document:
    """The container of a worker."""
    (found,) = pod(documents)["spec"]["containers"]
    return found


def probes(documents: list[Document]) -> list[Document]:
    """How its start, readiness and life are probed."""
    return [worker(documents)[f"{name}Probe"] for name in ("startup", "readiness", "liveness")]


@functools.cache
def image_variables(target: str) -> dict[str, str]:
    """The variables of an image."""
    words = [word for each in values(target, "ENV") for word in shlex.split(each)]
    return dict(word.split("=", 1) for word in words if "=" in word)


def test_every_overlay_is_looked_at():
    """A folder that is new is rendered as well."""
    assert OVERLAYS == ["base", "gpu", "tls", "try"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_object_is_as_the_schema_says(rendered: dict[str, list[Document]], overlay: str):
    """Names that Kubernetes does not know are refused, too."""
    assert rendered[overlay]
    for document in rendered[overlay]:
        kubernetes_validate.validate(document, RELEASE, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_variables_are_settings_of_a_worker(rendered: dict[str, list[Document]], overlay: str, tmp_path: Path):
    """A worker would start with them: each name and each value is one, and its files are those that are mounted."""
    container = worker(rendered[overlay])
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    environment = {}
    for variable in container["env"]:
        name, value = variable["name"], variable.get("value")
        assert name.startswith(ENVIRONMENT_PREFIX)
        if value is None:
            value = SECRET[variable["valueFrom"]["secretKeyRef"]["key"]]
        elif value.startswith("/"):
            (mount,) = [folder for folder in mounted if Path(value).is_relative_to(folder)]
            place = tmp_path / value.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            if value == mount:
                place.mkdir()
            else:
                place.write_text("t")
                place.chmod(0o440)
            value = str(place)
        environment[name] = value

    settings = load_settings({}, environment)

    assert settings.reachable_by_others
    assert settings.tokens
    assert (settings.tls is None) == settings.insecure_no_tls == (overlay != "tls")
    assert settings.journal == SECRET["journal"]
    assert container["args"] == ["serve"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubernetes_adds_no_variables_of_the_workers_prefix(rendered: dict[str, list[Document]], overlay: str):
    """Those of a service of this name would be refused: links to services are off."""
    name = only(rendered[overlay], "Service")["metadata"]["name"].upper().replace("-", "_")
    assert name.startswith(ENVIRONMENT_PREFIX)
    with pytest.raises(SettingsError, match=f"{name}_SERVICE_HOST"):
        load_settings({}, {f"{name}_SERVICE_HOST": "10.0.0.1"})

    assert pod(rendered[overlay])["spec"]["enableServiceLinks"] is False


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ports_and_probed_services_are_the_workers(rendered: dict[str, list[Document]], overlay: str):
    """Probes speak gRPC's health protocol; with TLS, which Kubernetes' own do not know, by our command."""
    (port,) = worker(rendered[overlay])["ports"]
    (published,) = only(rendered[overlay], "Service")["spec"]["ports"]
    assert port["containerPort"] == published["port"] == DEFAULT_PORT
    assert published["targetPort"] == port["name"]
    services = []
    for probe in probes(rendered[overlay]):
        if overlay == "tls":
            name, command, *given = probe["exec"]["command"]
            named = dict(word.split("=", 1) for word in given)
            assert (name, command) == ("crucible-worker", "health")
            assert named.keys() <= options("health")
            services.append(named.get("--service", ""))
        else:
            assert probe["grpc"]["port"] == DEFAULT_PORT
            services.append(probe["grpc"].get("service", ""))
    start, ready, live = services
    # A restart brings no database back: only readiness depends on the journal.
    assert (start, live) == ("", "")
    assert ready in SERVICES


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_worker_has_time_to_drain(rendered: dict[str, list[Document]], overlay: str):
    """The grace covers what precedes SIGTERM and the worker's own limit."""
    before = worker(rendered[overlay])["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = pod(rendered[overlay])["spec"]["terminationGracePeriodSeconds"]

    assert grace >= before + 2 * WorkerLimits().drain_seconds


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_pod_has_no_more_rights_than_the_image_needs(rendered: dict[str, list[Document]], overlay: str):
    """The user is the image's; what it writes to are volumes, and nothing else can be written."""
    spec, container = pod(rendered[overlay])["spec"], worker(rendered[overlay])
    _, _, target = container["image"].rpartition(":")
    security = spec["securityContext"]
    assert security["runAsNonRoot"]
    assert str(security["runAsUser"]) == str(security["fsGroup"]) == arguments()["WORKER_UID"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    variables = image_variables(target)
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {variables["CRUCIBLE_STATE_DIR"], variables["HF_HOME"], "/tmp"}
    named = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == named


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_image_has_what_its_worker_needs(rendered: dict[str, list[Document]], overlay: str):
    """Its tag is a target of the Dockerfile: with PostgreSQL's client, and on GPUs with local models."""
    _, _, target = worker(rendered[overlay])["image"].rpartition(":")
    extras = arguments()[f"{target.upper()}_EXTRAS"].split()

    assert "postgres" in extras
    assert overlay != "gpu" or "local" in extras


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_is_about_the_workers_pods(rendered: dict[str, list[Document]], overlay: str):
    """Deployment, service, budget and policy select the same pods, and no others."""
    documents = rendered[overlay]
    labels = pod(documents)["metadata"]["labels"]

    assert len(labels) > 1
    assert only(documents, "Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert only(documents, "Service")["spec"]["selector"] == labels
    assert only(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert only(documents, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    assert only(documents, "Deployment")["spec"]["replicas"] > 1


def test_clients_balance_over_the_headless_service(rendered: dict[str, list[Document]]):
    """Its name has the workers' addresses, and the client reads it as a pool; the page has the address."""
    service = only(rendered["base"], "Service")
    address = f"dns:///{service['metadata']['name']}:{DEFAULT_PORT}"

    assert service["spec"]["clusterIP"] == "None"
    assert parse_workers(address).pool
    assert address in (ROOT / "docs" / "kubernetes.md").read_text()


def test_the_database_to_try_it_is_the_one_that_the_workers_name(rendered: dict[str, list[Document]]):
    """The service of its pod is the host of the URL, and workers alone may reach it."""
    documents = rendered["try"]
    (secret,) = [document for document in documents if document["kind"] == "Secret"]
    database = only(documents, "StatefulSet", "crucible-bridge-postgres")
    labels = database["spec"]["template"]["metadata"]["labels"]
    (policy,) = only(documents, "NetworkPolicy", "crucible-bridge-postgres")["spec"]["ingress"]
    (container,) = database["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each for each in container["env"]}

    assert only(documents, "Service", database["spec"]["serviceName"])["spec"]["selector"] == labels
    assert f"@{database['spec']['serviceName']}/" in SECRET["journal"]
    assert SECRET["journal"].startswith(f"postgresql://{variables['POSTGRES_USER']['value']}:")
    assert SECRET["journal"].endswith(f"/{variables['POSTGRES_DB']['value']}")
    assert policy["from"][0]["podSelector"]["matchLabels"] == pod(documents)["metadata"]["labels"]
    # The references have the generated name of the secret.
    assert variables["POSTGRES_PASSWORD"]["valueFrom"]["secretKeyRef"]["name"] == secret["metadata"]["name"]
    assert set(secret["data"]) == set(SECRET)
