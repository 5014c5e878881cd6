"""Data sets of the hub, through the child process that reads them: from the cache, and from a hub on this machine."""

import dataclasses
import datetime
import decimal
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import Cancelled, FailedPrecondition, InvalidField, NotFound, Unavailable
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Dataset,
    EmbeddedModel,
    EvaluateRequest,
    EvaluationState,
    EvaluatorSpec,
    HubDataset,
    InlineDataset,
    Sample,
    SamplingParams,
)
from crucible_worker.datasets import row_process
from crucible_worker.datasets.hub.reader import rows
from crucible_worker.datasets.loading import load
from crucible_worker.testing import run_worker
from crucible_worker.testing.scripted import ScriptedModel
from tests import needs
from tests.scripted_readers import scripted_reader
from tests.service.hub_server import COMMIT, REPO_ID, hub

datasets = pytest.importorskip("datasets", reason=needs.MISSING["datasets"])

from tests.service.hub_cache import COMMIT as CACHED  # noqa: E402 (needs datasets)
from tests.service.hub_cache import fill  # noqa: E402

ROWS = [{"question": f"{n}+{n}=", "answer": str(2 * n), "level": n % 3} for n in range(200)]
COLUMNS = {"input": "question", "target": "answer"}
CARD = b"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: test\n    path: data/test.jsonl\n---\n"
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS[:5])


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache with data sets of one and of several configurations, and of awkward columns."""
    cache = tmp_path_factory.mktemp("cache")
    fill(cache, "acme/BigSums", {"test": ROWS, "train": ROWS[:3]})
    for config in ("easy", "hard"):
        fill(cache, "acme/several", {"test": [{"input": config, "target": "x"}]}, config=config)
    text = datasets.Features({"input": datasets.Value("string")})
    fill(cache, "acme/empty", {"test": [], "train": [{"input": "x"}]}, features=text)
    fill(cache, "acme/pinned", {"test": [{"input": "old"}]}, commit="a" * 40)
    fill(cache, "acme/pinned", {"test": [{"input": "new"}]}, commit="b" * 40)
    letters = datasets.ClassLabel(names=["A", "B"])
    fill(
        cache,
        "acme/choices",
        {
            "test": [
                {"ask": [{"role": "user", "content": "?"}], "options": {"text": ["x", "y"]}, "right": 1, "key": 7},
                {"ask": [{"role": "user", "content": None}], "options": {"text": ["x"]}, "right": 0, "key": 8},
            ]
        },
        features=datasets.Features(
            {
                "ask": datasets.List({"role": datasets.Value("string"), "content": datasets.Value("string")}),
                "options": {"text": datasets.List(datasets.Value("string"))},
                "right": letters,
                "key": datasets.Value("int64"),
            }
        ),
    )
    fill(
        cache,
        "acme/shaped",
        {
            "test": [
                {"question": "2+2?", "answer": "Two and two.\n#### 4", "kind": 0, "tags": ["a"], "raw": b"x"},
                {"question": "3+3?", "answer": "6", "kind": 1, "tags": [], "raw": b"y"},
            ]
        },
        features=datasets.Features(
            {
                "question": datasets.Value("string"),
                "answer": datasets.Value("string"),
                "kind": datasets.ClassLabel(names=["easy", "hard"]),
                "tags": datasets.List(datasets.Value("string")),
                "raw": datasets.Value("binary"),
            }
        ),
    )
    typed = {"input": "typed", "when": datetime.date(2026, 1, 2), "share": decimal.Decimal("0.50"), "raw": b"x"}
    kinds = {"input": "string", "when": "date32", "share": "decimal128(3, 2)", "raw": "binary"}
    features = datasets.Features({name: datasets.Value(kind) for name, kind in kinds.items()})
    fill(cache, "acme/typed", {"test": [typed]}, features=features)
    return cache


@pytest.fixture
def home(monkeypatch, tmp_path, cache):
    """Where the library looks, in children of this process."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(cache))
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def read(source: HubDataset, **options: Any) -> Any:
    """Load a data set of the hub."""
    network = options.pop("network", False)
    go_on = options.pop("go_on", lambda: None)
    dataset = Dataset(source=source, **options)
    return load(dataset, data_roots=[], builtins={}, hub_network=network, go_on=go_on)


@pytest.fixture
def offline(monkeypatch, cache):
    """The cache as the library of this very process sees it."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(cache))


def records(source):
    """What the child would write of a data set, without a child."""
    return list(rows({**dataclasses.asdict(source), "limit": None}))


def sums(**changes):
    """The sums of the cache."""
    return HubDataset("acme/BigSums", **{"split": "test", "columns": COLUMNS, **changes})


def test_a_split_of_the_cache_is_read_without_the_hub(home, monkeypatch):
    """Rows are samples in order, their ids the index; equal content has an equal fingerprint, wherever it lies."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    columns = {**COLUMNS, "metadata.level": "level"}

    loaded = read(sums(columns=columns))

    assert [(sample.id, sample.input, sample.targets) for sample in loaded.samples] == [
        (str(index), row["question"], (row["answer"],)) for index, row in enumerate(ROWS)
    ]
    assert [sample.metadata for sample in loaded.samples] == [{"level": str(row["level"])} for row in ROWS]
    assert read(sums(columns=columns, revision=CACHED)).fingerprint == loaded.fingerprint


def test_limits_and_shuffles_are_those_of_every_data_set(home):
    """A limit takes the first rows, after shuffling where that is asked for."""
    few, shuffled = read(sums(), limit=3), read(sums(), limit=3, shuffle_seed=7)

    assert [sample.id for sample in few.samples] == ["0", "1", "2"]
    assert len(shuffled.samples) == 3
    assert max(int(sample.id) for sample in shuffled.samples) > 3


def test_columns_hold_messages_choices_classes_and_numbers(home):
    """Fields within a column are named behind a dot, a class is its name, and a number is an id or a text."""
    columns = {"input": "ask", "choices": "options.text", "target": "right", "id": "key"}

    first, second = read(HubDataset("acme/choices", split="test", columns=columns), skip_malformed=True).samples

    assert first.input == Conversation((ChatMessage("user", "?"),))
    assert (first.id, first.choices, first.targets) == ("7", ("x", "y"), ("B",))
    assert second.problem.reason == "MALFORMED_LINE"
    assert second.problem.message.startswith("row 2 has an")


def test_rows_of_a_known_shape_need_no_columns(home):
    """The other columns are metadata, classes by their names; what no text can tell is left out."""
    first, second = read(HubDataset("acme/shaped", split="test")).samples

    assert (first.input, first.targets, first.choices) == ("2+2?", ("4",), ())
    assert first.metadata == {"answer": "Two and two.\n#### 4", "kind": "easy", "tags": '["a"]'}
    assert second.metadata["kind"] == "hard"


def test_columns_that_no_text_can_tell_are_refused(home):
    """Dates and decimals are text; a sample made of how Python shows an image or bytes would be one of nothing."""
    columns = {"input": "input", "target": "when", "metadata.share": "share"}

    (sample,) = read(HubDataset("acme/typed", split="test", columns=columns)).samples
    with pytest.raises(InvalidField, match="bytes") as caught:
        read(HubDataset("acme/typed", split="test", columns={"input": "raw"}), skip_malformed=True)

    assert (sample.targets, sample.metadata) == (("2026-01-02",), {"share": "0.50"})
    assert caught.value.field == "dataset.hub.columns"


@pytest.mark.parametrize(
    ("source", "kind", "field", "told"),
    [
        (sums(columns={"input": "questoin"}), InvalidField, 'dataset.hub.columns["input"]', "question, answer, level"),
        (HubDataset("acme/choices", split="test"), InvalidField, "dataset.hub.columns", "ask, options, right, key"),
        (sums(split="dev"), NotFound, "dataset.hub.split", "test, train"),
        (sums(revision="c" * 40), NotFound, "dataset.hub", "not in the worker's cache"),
        (HubDataset("acme/nothing", split="test"), NotFound, "dataset.hub", "not in the worker's cache"),
        (HubDataset("acme/several", split="test"), InvalidField, "dataset.hub.config", "easy, hard"),
        (HubDataset("acme/several", split="test", config="odd"), NotFound, "dataset.hub.config", "easy, hard"),
    ],
    ids=["column", "no input", "split", "revision", "repository", "no config", "config"],
)
def test_what_is_not_there_is_named_with_what_is(offline, source, kind, field, told):
    """The error's field is what has to be changed, and its text says to what."""
    with pytest.raises(kind, match=told) as caught:
        records(source)

    assert caught.value.field == field
    assert not caught.value.retryable


def test_a_commit_pins_the_content_and_the_last_one_is_taken_without(offline):
    """The cache may hold several commits of a data set."""
    by_commit = [records(HubDataset("acme/pinned", split="test", revision=letter * 40)) for letter in "ab"]

    assert by_commit == [[{"input": "old"}], [{"input": "new"}]]
    assert records(HubDataset("acme/pinned", split="test")) == by_commit[1]


def test_the_hub_is_asked_where_the_worker_may(home, monkeypatch, tmp_path):
    """What was fetched is in the cache from then on; a commit that is there is not asked for again."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    source = HubDataset(REPO_ID, split="test", columns=COLUMNS)
    pinned = HubDataset(REPO_ID, split="test", columns=COLUMNS, revision=COMMIT)

    with hub({"README.md": CARD, "data/test.jsonl": LINES}) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        fetched = read(source, network=True)
        with pytest.raises(NotFound, match="which the hub does not have"):
            read(HubDataset("acme/nothing", split="test"), network=True)
        with pytest.raises(NotFound, match="which the hub does not have"):
            read(HubDataset(REPO_ID, split="test", revision="d" * 40), network=True)
        with pytest.raises(NotFound, match="default") as caught:
            read(HubDataset(REPO_ID, split="test", config="odd"), network=True)

    assert [sample.input for sample in fetched.samples] == [row["question"] for row in ROWS[:5]]
    assert caught.value.field == "dataset.hub.config"
    assert read(pinned, network=True).fingerprint == fetched.fingerprint
    assert read(source).fingerprint == fetched.fingerprint
    with pytest.raises(Unavailable) as lost:
        read(source, network=True)
    assert (lost.value.reason, lost.value.retryable) == ("HUB_UNREACHABLE", True)


@pytest.mark.parametrize("columns", [{}, {"input": "question"}])
def test_a_split_without_rows_is_empty(home, columns):
    """It is there, and says so: nothing is wrong with the data set, nor with the columns that are asked for."""
    with pytest.raises(InvalidField) as caught:
        read(HubDataset("acme/empty", split="test", columns=columns))

    assert (caught.value.reason, caught.value.field) == ("EMPTY_DATASET", "dataset.hub")
    assert len(read(HubDataset("acme/empty", split="train")).samples) == 1


def test_a_hub_in_trouble_may_be_asked_again(home, monkeypatch):
    """Errors of its servers are not the request's."""
    with hub({}, status=503) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        with pytest.raises(Unavailable) as caught:
            read(HubDataset(REPO_ID, split="test"), network=True)

    assert (caught.value.reason, caught.value.retryable) == ("HUB_UNREACHABLE", True)


def test_no_request_waits_for_ever(monkeypatch):
    """The library asks for folders without any bound; two hosts that never answer would keep all others waiting."""
    from crucible_worker.datasets.hub import library
    from crucible_worker.util import hub_requests

    made = []
    monkeypatch.setattr(hub_requests, "set_client_factory", made.append)
    monkeypatch.setattr(hub_requests, "SILENT_SECONDS", 0.05)
    hub_requests.bound_silence()
    (client,) = (factory() for factory in made)

    with client, socket.create_server(("127.0.0.1", 0)) as silent:
        address = "http://127.0.0.1:{1}".format(*silent.getsockname())
        for bound in ({}, {"timeout": None}, {"timeout": 60}):
            with pytest.raises(Exception, match="timed out") as caught:
                client.get(address, **bound)
            error = caught.value.with_traceback(None)
            error.__cause__ = error.__context__ = None  # the library loses them on its way
            assert library._problem({}, error).reason == "HUB_UNREACHABLE"


def test_offline_in_the_environment_goes_before_the_setting(home, monkeypatch):
    """Whoever says HF_HUB_OFFLINE has the last word."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    with pytest.raises(NotFound) as caught:
        read(HubDataset(REPO_ID, split="test"), network=True)
    assert caught.value.reason == "NOT_CACHED"


def test_files_of_this_machine_and_code_are_not_read(home, monkeypatch, tmp_path):
    """A repository's card cannot name files elsewhere, and its script is not run."""
    secret = tmp_path / "secret.jsonl"
    secret.write_bytes(LINES)
    card = CARD.replace(b"data/test.jsonl", os.fsencode(secret))
    script = f"open({str(tmp_path / 'ran')!r}, 'w')".encode()

    for files in ({"README.md": card}, {"README.md": b"", "sums.py": script}):
        with hub(files) as address:
            monkeypatch.setenv("HF_ENDPOINT", address)
            with pytest.raises((FailedPrecondition, NotFound)):
                read(HubDataset(REPO_ID, split="test", columns=COLUMNS), network=True)

    assert not (tmp_path / "ran").exists()


def test_keys_of_the_hub_stay_outside_where_the_hub_is_not_asked(monkeypatch, tmp_path):
    """The child that reads the cache has no token, and is told to stay offline."""
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    told = tmp_path / "told"
    scripted_reader(monkeypatch, tmp_path, f"open({str(told)!r}, 'w').write(repr(dict(os.environ)))\nsay(b'.')")

    with pytest.raises(InvalidField, match="holds no sample"):
        read(sums())

    assert "hf_canary" not in told.read_text()
    assert "'HF_HUB_OFFLINE': '1'" in told.read_text()


def test_a_reader_that_dies_is_no_end(monkeypatch, tmp_path):
    """Rows without their end are not taken for all rows."""
    scripted_reader(monkeypatch, tmp_path, 'say(b\'r{"input": "a"}\')\nos.kill(os.getpid(), 9)')

    with pytest.raises(Unavailable) as caught:
        read(sums(columns={"input": "question"}))

    assert caught.value.reason == "HUB_READER_DIED"


def test_a_reader_that_nobody_waits_for_ends(monkeypatch, tmp_path):
    """A silent child, such as one amid a download, is ended as soon as its rows are not wanted any more."""
    pid = tmp_path / "pid"
    scripted_reader(
        monkeypatch,
        tmp_path,
        f"open({str(pid)!r} + '.new', 'w').write(str(os.getpid()))\nos.rename({str(pid)!r} + '.new', {str(pid)!r})\n"
        "import signal\nsignal.pause()",
    )

    def go_on():
        if pid.exists():
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        read(sums(), go_on=go_on)

    assert not Path(f"/proc/{pid.read_text()}").exists()


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    """Nothing is started."""
    monkeypatch.setattr(row_process, "_HUB_LIBRARY", "a_module_that_nobody_has")

    with pytest.raises(FailedPrecondition, match=r"crucible-bridge\[datasets\]") as caught:
        read(sums())

    assert caught.value.reason == "EXTRA_NOT_INSTALLED"


async def test_an_evaluation_takes_its_samples_from_the_hub(home):
    """The request crosses the wire, the data set is read beside the loop, and its fingerprint is the evaluation's."""
    request = EvaluateRequest(
        model=EmbeddedModel("scripted"),
        evaluators=(EvaluatorSpec(kind="accuracy"),),
        dataset=Dataset(source=sums(), limit=20),
        sampling=SamplingParams(max_tokens=4),
    )
    async with run_worker({"scripted": ScriptedModel()}) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(request)

    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.total == 20
    assert evaluation.request.dataset == request.dataset
    inline = InlineDataset(tuple(Sample(input=row["question"], targets=(row["answer"],)) for row in ROWS[:20]))
    assert evaluation.dataset_fingerprint == load(Dataset(source=inline), data_roots=[], builtins={}).fingerprint
