"""The page's lines on three models: behind a server that only chats, with a chat template, and with none.

The chat model is the embedded one with a template that swaps the numbers of a sum: what it gets tells whether it was
asked through its template, and it answers right in both ways.
"""

import json
import re
import shlex
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from typer.testing import CliRunner

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import InternalError
from crucible_bridge.types import Dataset, EvaluateRequest, EvaluationState, SamplingParams, parse_model
from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.cli import app, running
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from tests import needs
from tests.service.openai_kit import Reply, Request, ScriptedServer, answer, refusal
from tests.service.test_one_line_each import JUDGE_URL, LINES, judged
from tests.tables import rows

needs.modules("torch", "transformers", "aiohttp")
pytestmark = pytest.mark.asyncio(loop_scope="module")

TEMPLATE = (
    "{% for message in messages %}{{ message['content'].rstrip('=').split('+') | reverse | join('+') }}={% endfor %}"
)
SERVED, CHAT, BASE = "openai:chat/m", "local:instruct", "embedded:arithmetic@600"
ANSWERED = ("accuracy", "pass_at_k", "rollout", "rl_test_set", "comparison", "rubric")
MEASURED = ("nll", "perplexity", "bits_per_byte", "next_token_accuracy")
SCORES = {
    "accuracy": "accuracy",
    "pass_at_k": "pass@1",
    "rollout": "score_mean",
    "rl_test_set": "env/all/reward/total",
    "comparison": "win_rate",
    "rubric": "rubric_score",
}
RELEASE_BEFORE = {
    BASE: {"perplexity": 1.0666887864592778, "nll": 0.06455925822812907, "bits_per_byte": 0.13038409473547782},
}
"""What the release before measured of the first 8 samples."""


def chatting(request: Request) -> Reply:
    """Adds what the last message asks for, and has no completions."""
    if request.method == "GET":
        return Reply({"data": []})
    if request.path != "/chat/completions":
        return refusal(404, "Not Found")
    first, second = re.findall(r"\d+", request.text)[:2]
    return answer(request, str(int(first) + int(second)))


class Three(NamedTuple):
    """A worker that has all three."""

    bridge: Bridge
    server: ScriptedServer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def three(tmp_path_factory) -> AsyncIterator[Three]:
    """One worker for all tests, so that each model is loaded once."""
    from crucible_worker.embedded import registry

    folder: Path = tmp_path_factory.mktemp("three")
    shutil.copytree(registry.path("arithmetic@600"), folder / "models" / "instruct")
    (folder / "models" / "instruct" / "chat_template.jinja").write_text(TEMPLATE)
    async with ScriptedServer(chatting).serving() as server, ScriptedServer(judged).serving() as judge:
        settings = Settings(
            port=0,
            state_dir=folder / "state",
            model_roots=(folder / "models",),
            data_roots=(folder,),
            endpoints=(
                OpenAIServer(name="chat", base_url=server.url),
                OpenAIServer(name="judge", base_url=judge.url),
            ),
            grading_processes=2,
        )
        async with Worker(settings.validate()) as worker, crucible_bridge.connect(worker.address) as bridge:
            yield Three(bridge, server)


def request_of_line(kind: str, model: str, monkeypatch: pytest.MonkeyPatch) -> EvaluateRequest:
    """What a line of the page asks for, of another model."""
    asked: list[EvaluateRequest] = []

    def run(_settings, given, _evaluators, _ended, _own, *, quiet, rerun):
        asked.extend(each.request for each in given)
        raise InternalError("it is asked elsewhere")

    monkeypatch.setattr(running, "run", run)
    line = (
        LINES[kind].replace(BASE, model).replace(JUDGE_URL, "http://127.0.0.1:1/v1").replace("judge/MODEL", "judge/j")
    )
    assert model in line
    CliRunner().invoke(app, shlex.split(line)[1:])
    (request,) = asked
    return request


@rows("model", [SERVED, CHAT, BASE])
@rows("kind", ANSWERED)
async def test_answers_score(three: Three, monkeypatch: pytest.MonkeyPatch, kind: str, model: str):
    """By the page's line as it stands: every evaluator that has a model answer asks it as it was trained."""
    evaluation = await three.bridge.evaluation.evaluate(request_of_line(kind, model, monkeypatch))

    assert evaluation.state is EvaluationState.COMPLETED, evaluation.problem
    (result,) = evaluation.results
    assert (result.problem, result.n_errors) == (None, 0)
    (rendering,) = evaluation.rendering
    assert rendering.renderer == ("raw" if model == BASE else "chat_template")
    assert evaluation.metrics.values[SCORES[kind]] > 0
    if "judge" in rendering.others:
        assert rendering.others == {"judge": "chat_template"}


async def test_a_label_that_is_generated_is_an_answer(three: Three):
    """`classification` asks for a chat where the label is what the model says."""
    three.server.requests.clear()
    evaluation = await three.bridge.evaluation.evaluate(
        model=SERVED,
        evaluators={"classification": {"labels": ["97", "110"], "by": "generation"}},
        dataset=Dataset(source=Dataset.of("builtin:arithmetic").source, limit=2),
        sampling=SamplingParams(max_tokens=8),
    )

    assert evaluation.metrics.values["accuracy"] == 1.0
    assert {request.path for request in three.server.asked} == {"/chat/completions"}


async def test_a_server_gets_one_message_of_the_user(three: Three, monkeypatch: pytest.MonkeyPatch):
    """The body of the first request, to the byte; nothing is sent to completions."""
    three.server.requests.clear()
    await three.bridge.evaluation.evaluate(request_of_line("accuracy", SERVED, monkeypatch))

    first = next(request for request in three.server.asked if "23+74=" in request.text)
    assert json.dumps(first.body) == (
        '{"model": "m", "messages": [{"role": "user", "content": "23+74="}], "max_tokens": 256, "temperature": 0.0}'
    )
    assert {request.path for request in three.server.asked} == {"/chat/completions"}


@rows(
    ("model", "text", "tokens"),
    [(CHAT, "74+23=", (10, 7, 13, 5, 6, 14)), (BASE, "23+74=", (5, 6, 13, 10, 7, 14))],
)
async def test_a_local_model_gets_its_template_or_the_text(
    three: Three, monkeypatch: pytest.MonkeyPatch, model: str, text: str, tokens: tuple[int, ...]
):
    """The tokens of the first sample, which are those of this text."""
    shown = await three.bridge.evaluation.render_sample(request_of_line("accuracy", model, monkeypatch), "23+74")

    (prompt,) = shown.prompts
    assert (prompt.text, prompt.tokens, prompt.stop) == (text, tokens, ())


@rows("kind", MEASURED)
@rows("model", [CHAT, BASE])
async def test_likelihoods_are_those_of_the_release_before(
    three: Three, monkeypatch: pytest.MonkeyPatch, kind: str, model: str
):
    """No prompt is changed that is measured: of text, `auto` is what it was."""
    request = request_of_line(kind, model, monkeypatch)
    evaluation = await three.bridge.evaluation.evaluate(request)

    (rendering,) = evaluation.rendering
    assert rendering.renderer == ("chat_template" if model == CHAT else "auto")
    if (before := RELEASE_BEFORE.get(model, {}).get(kind)) is not None:
        assert evaluation.metrics.values[kind] == pytest.approx(before, rel=1e-5)
    assert evaluation.results[0].n_errors == 0


async def test_a_chat_without_completions_names_the_cure(three: Three):
    """Where raw is asked for of a server that only chats."""
    evaluation = await three.bridge.evaluation.evaluate(
        model=SERVED,
        evaluators={"accuracy": {"renderer": "raw"}},
        dataset=Dataset(source=Dataset.of("builtin:arithmetic").source, limit=1),
        sampling=SamplingParams(max_tokens=8),
    )
    page = await three.bridge.evaluation.get_samples(evaluation.evaluation_id)
    (sample,) = page.items
    assert sample.problem is not None
    assert "leave the renderer at auto" in sample.problem.message
    assert parse_model(SERVED) == evaluation.request.model
