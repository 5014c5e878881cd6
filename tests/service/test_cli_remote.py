"""Commands that call a worker at an address: its token and its certificate."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from crucible_bridge import connect
from crucible_bridge.client import Tls
from crucible_bridge.types import BuiltinDataset, Dataset
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from tests import commands
from tests.service.server_kit import token_file

TOKEN = "t0ken-of-a-worker"
PROMPT = ["prompt", "--model", "embedded:arithmetic@600", "--data", "builtin:arithmetic", "--evaluator", "accuracy"]
SAMPLES = ["samples", "guarded"]


@pytest_asyncio.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[list[str]]:
    """What is typed to reach a worker with a token and TLS that has an evaluation."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    settings = Settings(
        port=0,
        state_dir=tmp_path / "state",
        token_file=token_file(tmp_path, TOKEN),
        tls_cert=tmp_path / "both.pem",
        tls_key=tmp_path / "both.pem",
    ).validate()
    async with Worker(settings) as worker:
        async with connect(worker.address, token=TOKEN, tls=Tls(ca=tmp_path / "ca.pem")) as bridge:
            await bridge.evaluation.evaluate(
                evaluation_id="guarded",
                model="embedded:arithmetic@600",
                evaluators=["nll"],
                dataset=Dataset(source=BuiltinDataset("arithmetic"), limit=1),
            )
        yield [
            "--address",
            worker.address,
            "--token-file",
            str(tmp_path / "token"),
            "--tls-ca",
            str(tmp_path / "ca.pem"),
        ]


async def typed(*arguments: str) -> tuple[int | None, str, str]:
    """Exit code and output of a command; in a process of its own, as the worker is in this one."""
    done = await asyncio.to_thread(commands.run, *arguments, "--json")
    return done.returncode, done.stdout, done.stderr


async def test_a_worker_with_a_token_and_tls_is_reached(guarded: list[str]):
    """Both commands take the worker's token and the certificate that it is trusted by."""
    code, output, _ = await typed(*PROMPT, *guarded)
    assert (code, json.loads(output)[0]["prompts"][0]["evaluator"]) == (0, "accuracy")
    code, output, _ = await typed(*SAMPLES, *guarded)
    assert (code, len(json.loads(output))) == (0, 1)


@pytest.mark.parametrize("command", [PROMPT, SAMPLES], ids=["prompt", "samples"])
async def test_what_does_not_reach_it_is_said(guarded: list[str], command: list[str], tmp_path: Path):
    """Without the token the worker refuses the call; a token file that is not there is named by its option."""
    address, (token, path), trust = guarded[:2], guarded[2:4], guarded[4:]
    code, output, errors = await typed(*command, *address, *trust)
    assert code != 0
    assert "authorization: Bearer" in output + errors
    code, output, errors = await typed(*command, *address, token, f"{path}.gone", *trust)
    assert code != 0
    assert "--token-file" in output + errors


@pytest.mark.parametrize("command", [PROMPT, SAMPLES], ids=["prompt", "samples"])
async def test_several_addresses_are_trusted_by_the_name_in_their_certificate(guarded: list[str], command: list[str]):
    """Which --tls-name gives; without it the option is named, and another name than the certificate's is refused."""
    address, token, trust = guarded[1], guarded[2:4], guarded[4:]
    pool = ["--address", f"{address},{address}", *token, *trust]
    code, output, errors = await typed(*command, *pool, "--tls-name", "127.0.0.1")
    assert (code, len(json.loads(output)), errors) == (0, 1, "")
    code, output, errors = await typed(*command, *pool)
    assert code != 0
    assert "--tls-name is needed with several addresses" in output + errors
    code, output, errors = await typed(*command, "--address", address, *token, *trust, "--tls-name", "elsewhere")
    assert code != 0
    assert "Peer name elsewhere is not in peer certificate" in output + errors
    assert "--tls-name NAME" in output + errors
