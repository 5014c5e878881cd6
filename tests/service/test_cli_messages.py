"""What a user reads who typed something wrong: it names what was typed, and the cure."""

import contextlib
import dataclasses
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from crucible_bridge.errors import FailedPrecondition
from crucible_worker.backends.local.backend import refuse_absent_cuda
from tests import commands, needs

MODEL = "--model embedded:arithmetic@600"
DATA = "--data builtin:arithmetic"
NLL = "--evaluator nll"
NEEDED = {
    "models": ("torch", "transformers"),
    "tinker": ("tinker",),
    "datasets": ("datasets", "torch"),
}
"""What an extra needs to be seen to refuse."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A command line, and what is said to it."""

    typed: str
    told: str
    """All that standard error ends with; {cwd} is the current folder, {port} one that is taken."""
    exit_code: int = 2
    without: str = ""
    """A variable that is not set."""
    needs: str = ""
    """A key of NEEDED."""
    logged: bool = False
    """It is the reason in a line of the log, in place of a line of its own."""


def _evaluate(arguments: str, told: str, **fields: object) -> Case:
    return Case(typed=f"evaluate {arguments}", told=f"crucible-worker: {told}\n", **fields)  # pyright: ignore[reportArgumentType]


CASES = {
    "hub without split": _evaluate(
        f"{MODEL} --data hub:openai/gsm8k {NLL}",
        "--data is 'hub:openai/gsm8k', which names no split: write hub:openai/gsm8k?split=test",
    ),
    "hub without split, with columns": _evaluate(
        f"{MODEL} --data hub:openai/gsm8k?config=main&input=question {NLL}",
        "--data is 'hub:openai/gsm8k?config=main&input=question', which names no split: "
        "write hub:openai/gsm8k?split=test&config=main&input=question",
    ),
    "equal keys": _evaluate(
        f"{MODEL} {DATA} {NLL} {NLL}",
        "--evaluator nll and --evaluator nll both yield the key 'nll': give one a name, as in --evaluator second=nll",
    ),
    "equal keys of a named one": _evaluate(
        f"{MODEL} {DATA} --evaluator a=accuracy --evaluator a=accuracy",
        "--evaluator a=accuracy and --evaluator a=accuracy both yield the key 'a/accuracy': "
        "give one a name, as in --evaluator second=accuracy",
    ),
    "model outside of the roots": _evaluate(
        f"--model local:/elsewhere/model {DATA} {NLL}",
        "--model local:/elsewhere/model: the model path '/elsewhere/model' is outside of the model roots: "
        "name a folder above it by --model-root; model roots: {cwd}",
        needs="models",
    ),
    "model of the hub": _evaluate(
        f"--model gpt2 {DATA} {NLL}",
        "--model is 'gpt2', not embedded:NAME, local:PATH, hub:OWNER/NAME, openai:SERVER/MODEL, tinker:MODEL or "
        "orchestrator:NAME; to fetch it from the Hugging Face hub: hf download gpt2 --local-dir gpt2, then local:gpt2",
    ),
    "model of the hub with its owner": _evaluate(
        f"--model acme/sums {DATA} {NLL}",
        "--model is 'acme/sums', not embedded:NAME, local:PATH, hub:OWNER/NAME, openai:SERVER/MODEL, tinker:MODEL or "
        "orchestrator:NAME; a model of the Hugging Face hub, or of its cache here, is hub:acme/sums",
    ),
    "model of the hub that is not cached": _evaluate(
        f"--model hub:acme/sums {DATA} {NLL}",
        "--model is 'acme/sums', which is not in the worker's cache; the worker does not ask the hub; "
        "with --hub-network it does",
        needs="models",
    ),
    "model of a backend that is not installed": _evaluate(
        f"--model embeded:arithmetic@320 {DATA} {NLL}",
        "--model has the scheme 'embeded', for which this worker has no backend; there are embedded, local, hub, "
        "openai, tinker, orchestrator: write embedded:, or install a package that announces 'embeded' in the "
        "entry-point group 'crucible_worker.backends' in the worker's environment",
        needs="models",
    ),
    "filter without a value": _evaluate(
        f"{MODEL} {DATA} {NLL} --where level", "--where is 'level', not KEY=VALUE, for instance level=easy"
    ),
    "filter of two values": _evaluate(
        f"{MODEL} {DATA} {NLL} --where level=easy --where level=hard",
        "--where has two values for 'level'; a sample has one",
    ),
    "filter that leaves nothing": _evaluate(
        f"{MODEL} {DATA} {NLL} --where level=hard",
        "--where matches no sample with level = hard: no sample has level in its metadata",
        needs="models",
    ),
    "too many samples at once": _evaluate(
        f"{MODEL} {DATA} {NLL} --concurrency 100000",
        "--concurrency is 100000, the limit of max_concurrency is 1024",
        needs="models",
    ),
    "model folder without scheme": _evaluate(
        f"--model ./empty {DATA} {NLL}",
        "--model is './empty', not embedded:NAME, local:PATH, hub:OWNER/NAME, openai:SERVER/MODEL, tinker:MODEL or "
        "orchestrator:NAME; did you mean --model local:empty?",
    ),
    "model folder elsewhere without scheme": _evaluate(
        f"--model {sys.prefix} {DATA} {NLL}",
        f"--model is {sys.prefix!r}, not embedded:NAME, local:PATH, hub:OWNER/NAME, openai:SERVER/MODEL, "
        f"tinker:MODEL or orchestrator:NAME; did you mean --model-root {Path(sys.prefix).parent} "
        f"--model local:{Path(sys.prefix).name}?",
    ),
    "data file without scheme": _evaluate(
        f"{MODEL} --data sums.jsonl {NLL}",
        "--data is 'sums.jsonl', not builtin:NAME, jsonl:PATH, csv:PATH, parquet:PATH or hub:OWNER/NAME?split=SPLIT; "
        "did you mean --data jsonl:sums.jsonl?",
    ),
    "compressed data file without scheme": _evaluate(
        f"{MODEL} --data sums.csv.gz {NLL}",
        "--data is 'sums.csv.gz', not builtin:NAME, jsonl:PATH, csv:PATH, parquet:PATH or hub:OWNER/NAME?split=SPLIT; "
        "did you mean --data csv:sums.csv.gz?",
    ),
    "built-in data without scheme": _evaluate(
        f"{MODEL} --data arithmetic {NLL}",
        "--data is 'arithmetic', not builtin:NAME, jsonl:PATH, csv:PATH, parquet:PATH or hub:OWNER/NAME?split=SPLIT; "
        "did you mean builtin:arithmetic?",
    ),
    "unknown server": _evaluate(
        f"--model openai:lab/llama {DATA} {NLL}",
        "--model names the server 'lab', which is not known here; there is none: add --openai-server lab=URL",
    ),
    "unknown server of a judge": _evaluate(
        f"{MODEL} {DATA} --evaluator comparison --option comparison.judge=openai:lab/llama",
        "--option comparison.judge names the server 'lab', which is not known here; there is none: "
        "add --openai-server lab=URL",
        needs="models",
    ),
    "unknown service": _evaluate(
        f"--model tinker:base?service=lab {DATA} {NLL}",
        "--model names the Tinker service 'lab', which is not known here; there are default: "
        "add --tinker-service lab=URL",
    ),
    "no key": _evaluate(
        f"--model tinker:meta-llama/Llama-3.2-1B {DATA} {NLL}",
        "--model tinker:meta-llama/Llama-3.2-1B: Tinker service 'default' has no key: "
        "set the variable TINKER_API_KEY, or name a key_file in the file of --config",
        without="TINKER_API_KEY",
        needs="tinker",
    ),
    "one process": Case(
        typed="grade --processes 1 --input pairs.jsonl --output graded.jsonl",
        told="crucible-worker: --processes is 1, not 2 to 64\n",
    ),
    "same id, other settings": _evaluate(
        f"{MODEL} {DATA} {NLL} --samples 2 --max-tokens 9 --state-dir state --id x",
        "--id 'x' is that of an evaluation with other settings, in --samples, --max-tokens: "
        "take another id for these, or the settings that it was started with",
        needs="models",
    ),
    "no choices": _evaluate(
        f"{MODEL} --data jsonl:sums.jsonl --evaluator multiple_choice",
        "multiple_choice scored none of 1 samples; "
        "the first: choices are missing: each sample needs 2 to 256, among them its target: a column choices with a "
        'list, in a cell of CSV as JSON (["Rome", "Oslo"]), or ?choices=COLUMN',
        exit_code=1,
        needs="models",
    ),
    "type of weights": _evaluate(
        f"--model local:empty?dtype=fp16 {DATA} {NLL}",
        "--model has the dtype 'fp16'; there are float32, bfloat16, float16; did you mean dtype=float16?",
    ),
    "no safetensors": _evaluate(
        f"--model local:empty {DATA} {NLL}",
        "--model local:empty: 'empty' has no *.safetensors: save the model there with save_pretrained()",
        needs="models",
    ),
    "safetensors one level below": _evaluate(
        f"--model local:run {DATA} {NLL}",
        "--model local:run: 'run' has no *.safetensors; its folder 'checkpoint-500' has some",
        needs="models",
    ),
    "no such host": Case(
        typed="serve --host 203.0.113.7 --port 0 --token-file token --insecure-no-tls --state-dir state",
        told="cannot listen on 203.0.113.7:0: Cannot assign requested address: it is no address of this machine; "
        "--host 0.0.0.0 listens on all addresses",
        exit_code=1,
        logged=True,
    ),
    "no CUDA for a model": _evaluate(
        f"--model local:empty?device=cuda {DATA} {NLL}",
        "--model local:empty?device=cuda: {cuda}",
        needs="no CUDA",
    ),
    "no CUDA for all models": _evaluate(
        f"{MODEL} --device cuda:0 {DATA} {NLL}",
        "--model embedded:arithmetic@600: {cuda}",
        needs="no CUDA",
    ),
    "option of no evaluator": _evaluate(
        f"{MODEL} {DATA} {NLL} --evaluator mine=accuracy --option accuracy.grader=numeric",
        "--option accuracy.grader is of no --evaluator; there are nll, mine",
    ),
    "empty option of a grader": _evaluate(
        f"{MODEL} {DATA} --evaluator accuracy --option accuracy.grader=exact_match"
        " --option accuracy.grader_options.compare=",
        "--option accuracy.grader_options[\"compare\"] is '', not one of: text, number, list, json",
    ),
    "id without a journal": _evaluate(
        f"{MODEL} {DATA} {NLL} --id y --no-keep",
        "--id and --no-keep exclude each other: what is not kept cannot be resumed",
    ),
    "value of a limit": Case(
        typed="serve --limit max_streams=many",
        told="crucible-worker: --limit max_streams is 'many', not a whole number\n",
    ),
    "value of a rule": Case(
        typed="grade --input pairs.jsonl --output graded.jsonl --policy rounding_digits=true",
        told="crucible-worker: --policy rounding_digits is true, must be a whole number\n",
    ),
    "value of a rule that is true or false": Case(
        typed="grade --input pairs.jsonl --output graded.jsonl --policy degrees=flase",
        told="crucible-worker: --policy degrees is 'flase', must be true or false\n",
    ),
    "rule without a value": Case(
        typed="grade --input pairs.jsonl --output graded.jsonl --policy degrees",
        told="crucible-worker: --policy is 'degrees', not NAME=VALUE, for instance degrees=false\n",
    ),
    "bound of programs without --code": Case(
        typed="grade --input pairs.jsonl --output graded.jsonl --policy timeout_ms=500",
        told="crucible-worker: --policy timeout_ms is a bound of programs; add --code to grade programs\n",
    ),
    "rule of math with --code": Case(
        typed="grade --input pairs.jsonl --output graded.jsonl --code --policy degrees=false",
        told="crucible-worker: --policy degrees is a rule of math, which --code does not read; leave out one of them\n",
    ),
    "misspelt rule": Case(
        typed="grade --input pairs.jsonl --output graded.jsonl --code --policy timeout=500",
        told="crucible-worker: --policy timeout is unknown; did you mean timeout_ms? "
        "known are: timeout_ms, memory_mb, output_bytes\n",
    ),
    "hub is away": _evaluate(
        f"{MODEL} --data hub:acme/absent?split=test {NLL} --hub-network",
        "--data names a data set of the Hugging Face hub, which cannot be reached",
        exit_code=1,
        needs="datasets",
    ),
    "nothing listens": Case(
        typed="health --port {free}",
        told="crucible-worker: 127.0.0.1:{free}: nothing listens there; crucible-worker serve starts a worker\n",
        exit_code=1,
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the user is."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "run" / "checkpoint-500").mkdir(parents=True)
    (tmp_path / "run" / "checkpoint-500" / "model.safetensors").write_bytes(b"")
    (tmp_path / "sums.jsonl").write_text('{"input": "12+34=", "target": "46"}\n')
    (tmp_path / "pairs.jsonl").write_text('{"gold": "1", "pred": "1"}\n')
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    return tmp_path


def _typed(words: Sequence[str], folder: Path, without: str = "") -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CRUCIBLE_")}
    environment.pop(without, None)
    # The hub is never queried: nothing listens there.
    environment["HF_ENDPOINT"] = "http://127.0.0.1:9"
    return commands.run(*words, cwd=folder, env=environment)


def _absent_cuda(device: str) -> str:
    try:
        refuse_absent_cuda(device)
    except FailedPrecondition as error:
        return error.message
    return ""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_message_names_what_was_typed_and_the_cure(case: Case, folder: Path):
    """One line, the whole of it compared; the exit code tells a refusal from a failure."""
    cuda = _absent_cuda("cuda:0" if "cuda:0" in case.typed else "cuda")
    if case.needs == "no CUDA" and not cuda:
        pytest.skip(needs.NO_CUDA if importlib.util.find_spec("torch") else needs.MISSING["torch"])
    if absent := [name for name in NEEDED.get(case.needs, ()) if importlib.util.find_spec(name) is None]:
        pytest.skip(needs.MISSING[absent[0]])
    if "--id x" in case.typed:
        first = _typed(f"evaluate {MODEL} {DATA} {NLL} --samples 1 --state-dir state --id x".split(), folder)
        assert first.returncode == 0, first.stderr
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        free = taken.getsockname()[1]
    done = _typed(case.typed.format(free=free).split(), folder, case.without)

    told = case.told.format(cwd=folder, free=free, cuda=cuda)
    said = told if case.logged and told in done.stderr else done.stderr[-len(told) :]
    assert (said, done.returncode) == (told, case.exit_code), done.stderr
    assert "Traceback" not in done.stderr
