"""`crucible-worker health`: what a supervisor is told of a worker."""

import asyncio
import datetime
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner, Result

import crucible_bridge
from crucible_worker.cli import app
from crucible_worker.cli.checks import run_checks
from crucible_worker.config import Settings
from tests import commands, needs
from tests.service.server_kit import Rig, serving, settings_for, token_file
from tests.service.serving import SECONDS
from tests.service.serving import serving as serving_process

EVALUATION = "crucible_bridge.v1.EvaluationService"


async def ask(*arguments: str, environment: Mapping[str, str] = MappingProxyType({})) -> Result:
    """Type it, while this event loop serves."""
    return await asyncio.to_thread(CliRunner().invoke, app, ["health", *arguments], env=dict(environment))


def said(result: Result) -> str:
    """Its last line: before it, the worker in this process may have logged to the same stream."""
    return result.stdout.splitlines()[-1]


def port_of(rig: Rig) -> str:
    """Where it listens."""
    return rig.worker.address.rpartition(":")[2]


@pytest.mark.parametrize("service", ["", EVALUATION])
async def test_a_ready_worker_is_said_to_be_ready(service: str, tmp_path: Path):
    """The exit code is 0, for the worker as a whole and for each of its services."""
    async with serving(settings_for(tmp_path)) as rig:
        await ready(rig)

        result = await ask("--port", port_of(rig), "--service", service)

    assert (result.exit_code, result.stderr) == (0, "")
    assert said(result) == f"{rig.worker.address}{service and ' ' + service}: ready"


async def ready(rig: Rig) -> None:
    """Wait until the service that evaluates is warm."""
    async with asyncio.timeout(SECONDS):
        while (await ask("--port", port_of(rig), "--service", EVALUATION)).exit_code != 0:
            pass


async def test_a_service_that_cannot_serve_is_not_ready(tmp_path: Path):
    """While the journal cannot be written the worker as a whole is well, and the service that needs it is not."""
    async with serving(settings_for(tmp_path)) as rig:
        await ready(rig)
        rig.evaluations.writable = False
        rig.evaluations.on_writable_change(False)

        whole, one = await ask("--port", port_of(rig)), await ask("--port", port_of(rig), "--service", EVALUATION)

    assert (whole.exit_code, one.exit_code) == (0, 1)
    assert one.stdout.endswith(f"{EVALUATION}: not ready\n")


async def test_a_service_that_is_not_there_is_a_failure(tmp_path: Path):
    """A name that was mistyped is never healthy."""
    async with serving(settings_for(tmp_path)) as rig:
        result = await ask("--port", port_of(rig), "--service", "nothing")

    assert result.exit_code == 1
    assert result.stderr.startswith(f"crucible-worker: {rig.worker.address} nothing: ")


async def test_nobody_there_is_a_failure_in_one_line(tmp_path: Path):
    """No traceback, and where it was looked for."""
    result = await ask("--unix-socket", str(tmp_path / "none"))

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"crucible-worker: unix:{tmp_path / 'none'}: ")
    assert len(result.stderr.splitlines()) == 1


async def test_a_unix_socket_is_asked_without_tls(tmp_path: Path):
    """As the worker serves it, whatever certificate it has for an address."""
    cert, key = certificate(tmp_path, "worker.example")
    settings = settings_for(tmp_path, unix_socket=tmp_path / "socket", tls_cert=cert, tls_key=key)
    environment = {"CRUCIBLE_TLS_CERT": str(cert), "CRUCIBLE_TLS_KEY": str(key)}

    async with serving(settings):
        result = await ask("--unix-socket", str(tmp_path / "socket"), environment=environment)

    assert result.exit_code == 0, result.stderr


def certificate(folder: Path, *names: str) -> tuple[Path, Path]:
    """Files of a chain for some names, by an authority that only its callers know, and of its key."""
    issued = trustme.CA().create_child_ca().issue_cert(*names)
    chain, key = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    return chain, key


@pytest.mark.parametrize("name", ["worker.example", "*.workers.example", "localhost", "127.0.0.1", "192.0.2.7"])
async def test_variables_of_a_worker_with_token_and_tls_are_enough(name: str, tmp_path: Path):
    """The same environment serves and asks: whatever name the certificate is for, as the address is this machine's."""
    cert, key = certificate(tmp_path, name)
    token = token_file(tmp_path, "s3cret")
    settings = settings_for(tmp_path, host="0.0.0.0", token_file=token, tls_cert=cert, tls_key=key)

    async with serving(settings) as rig:
        environment = {
            "CRUCIBLE_HOST": "0.0.0.0",
            "CRUCIBLE_PORT": port_of(rig),
            "CRUCIBLE_TOKEN_FILE": str(token),
            "CRUCIBLE_TLS_CERT": str(cert),
            "CRUCIBLE_TLS_KEY": str(key),
        }
        result = await ask(environment=environment)

    assert (result.exit_code, said(result)) == (0, f"127.0.0.1:{port_of(rig)}: ready")


async def test_the_operators_page_makes_a_certificate_that_its_commands_trust(tmp_path: Path):
    """A worker serves by the files that the page's commands make; --tls-ca and the worker's own variables trust it."""
    needs.program("openssl")
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    section = page.partition("### A token and a certificate\n")[2]
    commands = next(block for block in section.split("\n\n") if block.startswith("    (umask"))
    subprocess.run(["sh", "-e", "-c", textwrap.dedent(commands)], cwd=tmp_path, check=True, capture_output=True)
    token, cert, key, ca = (tmp_path / name for name in ("token", "cert.pem", "key.pem", "ca.pem"))

    async with serving(settings_for(tmp_path, token_file=token, tls_cert=cert, tls_key=key)) as rig:
        own = {"CRUCIBLE_PORT": port_of(rig), "CRUCIBLE_TLS_CERT": str(cert), "CRUCIBLE_TLS_KEY": str(key)}
        itself = await ask(environment=own)
        probed = await ask("--port", port_of(rig), "--tls-ca", str(ca))
        tls = crucible_bridge.Tls(ca=ca, server_name="crucible")
        async with crucible_bridge.connect(rig.worker.address, token=token.read_text().strip(), tls=tls) as bridge:
            info = await bridge.worker.get_info()

    assert (itself.exit_code, probed.exit_code) == (0, 0), itself.stderr + probed.stderr
    assert info.version


async def test_a_probe_needs_the_certificate_of_the_authority_alone(tmp_path: Path):
    """By --tls-ca: neither the worker's certificate nor its key is needed; another authority is refused."""
    authority = trustme.CA()
    issued = authority.issue_cert("worker.example")
    cert, key, ca, other = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem", "other.pem"))
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(ca)
    trustme.CA().cert_pem.write_to_path(other)

    async with serving(settings_for(tmp_path, tls_cert=cert, tls_key=key)) as rig:
        trusted = await ask("--port", port_of(rig), "--tls-ca", str(ca))
        itself = await ask("--port", port_of(rig), "--tls-ca", str(cert))
        distrusted = await ask("--port", port_of(rig), "--tls-ca", str(other))
        variable = await ask("--port", port_of(rig), environment={"CRUCIBLE_TLS_CERT": str(cert)})
        plain = await ask("--port", port_of(rig))

    assert [each.exit_code for each in (trusted, itself, variable)] == [0, 0, 0], trusted.stderr + variable.stderr
    assert [each.exit_code for each in (distrusted, plain)] == [1, 1]
    assert "no TLS connection to" in distrusted.stderr
    assert plain.stderr.endswith("; if the worker serves with TLS: --tls-ca FILE\n")


async def test_a_certificate_with_a_common_name_alone_is_enough(tmp_path: Path):
    """It is what `openssl req -x509 -subj /CN=worker` makes."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "worker")])
    now = datetime.datetime.now(datetime.UTC)
    issued = (
        x509.CertificateBuilder(name, name, private.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    cert.write_bytes(issued.public_bytes(Encoding.PEM))
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    async with serving(settings_for(tmp_path, tls_cert=cert, tls_key=key)) as rig:
        result = await ask("--port", port_of(rig), "--tls-ca", str(cert))

    assert result.exit_code == 0, result.stderr
    assert f"; the certificate expires {now + datetime.timedelta(days=1):%Y-%m-%d %H:%M} UTC: " in said(result)


async def test_a_certificate_that_is_not_there_is_named(tmp_path: Path):
    """In one line, with the file."""
    result = await ask("--port", "1", "--tls-ca", str(tmp_path / "none.pem"))

    assert result.exit_code == 1
    assert result.stderr == (
        f"crucible-worker: 127.0.0.1:1: cannot read {tmp_path / 'none.pem'}: No such file or directory\n"
    )


async def test_a_service_name_that_nothing_can_have_is_refused(tmp_path: Path):
    """The request that is written here has room for 127 bytes; names of services are shorter."""
    async with serving(settings_for(tmp_path)) as rig:
        most, more = [await ask("--port", port_of(rig), "--service", "x" * length) for length in (127, 128)]

    assert (most.exit_code, more.exit_code) == (1, 1)
    assert most.stderr.endswith("the worker has no such service\n")
    assert more.stderr.endswith("no service has a name of 128 bytes\n")


async def test_a_probe_imports_grpc_alone(tmp_path: Path):
    """A supervisor asks every few seconds: neither numpy, protobuf, our client nor rich is loaded for it."""
    code = (
        "import sys\n"
        "from crucible_worker.cli import app\n"
        "app(sys.argv[1:], standalone_mode=False)\n"
        "print(*sorted(sys.modules))\n"
    )
    async with serving(settings_for(tmp_path)) as rig:
        command = [sys.executable, "-c", code, "health", "--port", port_of(rig)]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)

    ready, modules = done.stdout.splitlines()
    assert ready.endswith(": ready"), done.stderr
    loaded = set(modules.split())
    assert "grpc" in loaded
    heavy = {"numpy", "google.protobuf", "grpc_health.v1", "rich", "structlog", "sqlite3", "crucible_bridge"}
    assert loaded & heavy == set()
    assert not [
        name
        for name in loaded
        if name.startswith(("crucible_worker.engine", "crucible_worker.journal", "crucible_worker.server"))
    ]


async def test_another_worker_under_another_certificate_is_no_answer(tmp_path: Path):
    """Who answers there must hold the key of the certificate that the settings name."""
    (tmp_path / "other").mkdir()
    cert, key = certificate(tmp_path, "worker.example")
    other_cert, other_key = certificate(tmp_path / "other", "worker.example")

    async with serving(settings_for(tmp_path, tls_cert=other_cert, tls_key=other_key)) as rig:
        result = await ask(
            "--port", port_of(rig), environment={"CRUCIBLE_TLS_CERT": str(cert), "CRUCIBLE_TLS_KEY": str(key)}
        )

    assert result.exit_code == 1
    assert f"no TLS connection to {rig.worker.address}: " in result.stderr


async def test_doctor_knows_a_worker_by_a_certificate_for_another_name(tmp_path: Path):
    """A worker that serves under its public name is healthy when it is asked at the address of this machine."""
    cert, key = certificate(tmp_path, "worker.example")
    async with serving(settings_for(tmp_path, tls_cert=cert, tls_key=key)) as rig:
        served = Settings(port=int(port_of(rig)), tls_cert=cert, tls_key=key, state_dir=tmp_path)
        async with asyncio.timeout(SECONDS):
            while "healthy" not in (address := await asyncio.to_thread(address_check, served)):
                assert "in use" in address

    assert address == f"{rig.worker.address}: a healthy worker serves there already"


def address_check(settings: Settings) -> str:
    """What doctor finds at the address."""
    return next(check.detail for check in run_checks(settings) if check.name == "address")


async def test_a_worker_that_stands_still_is_not_healthy(tmp_path: Path):
    """A process that is there but answers nobody fails within the time that was given; once it goes on it is ready."""
    async with serving_process(tmp_path, "") as worker:
        port = worker.address.rpartition(":")[2]
        worker.process.send_signal(signal.SIGSTOP)
        stopped = await asyncio.to_thread(typed, "--port", port, "--timeout", "0.3")
        worker.process.send_signal(signal.SIGCONT)
        resumed = await asyncio.to_thread(typed, "--port", port)
        await worker.drained()
        gone = await asyncio.to_thread(typed, "--port", port)

    assert (stopped.returncode, resumed.returncode, gone.returncode) == (1, 0, 1)
    assert len(stopped.stderr.splitlines()) == len(gone.stderr.splitlines()) == 1, stopped.stderr + gone.stderr


def typed(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a supervisor runs it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CRUCIBLE_")}
    return commands.run("health", *arguments, env=environment, seconds=60)
