"""Several answers to one prompt at a server of replicas: the replica that has the prompt in its cache gets them."""

import contextlib

import crucible_bridge
from crucible_bridge.types import EvaluatorSpec, Limits, SamplingParams
from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from tests import needs
from tests.service.evaluation_kit import numbered
from tests.service.openai_kit import Reply, Request, ScriptedServer, answer

needs.modules("aiohttp")

PROMPTS = 60
ANSWERS = 8
"""To each prompt."""
REPLICAS = 4
PROMPT_TOKENS = 10


class PrefixCache:
    """A replica that has every prompt in its cache once it has answered it, and reports that as servers do."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, request: Request) -> Reply:
        if request.method == "GET":
            return Reply({"data": [{"id": "m"}]})
        cached = PROMPT_TOKENS if request.text in self._seen else 0
        self._seen.add(request.text)
        usage = {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        return Reply({**answer(request, request.text.upper()).body, "usage": usage})


async def test_answers_to_one_prompt_have_it_cached(tmp_path):
    """Most of them: without affinity each of four replicas would read nearly every prompt, and half would be cached."""
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(ScriptedServer(PrefixCache()).serving()) for _ in range(REPLICAS)]
        known = OpenAIServer(name="s", base_urls=tuple(server.url for server in servers))
        settings = Settings(port=0, state_dir=tmp_path, endpoints=(known,), grading_processes=0).validate()
        worker = await stack.enter_async_context(Worker(settings))
        bridge = await stack.enter_async_context(crucible_bridge.connect(worker.address))
        evaluation = await bridge.evaluation.evaluate(
            model="openai:s/m",
            evaluators=[EvaluatorSpec(kind="pass_at_k", options={"samples_per_prompt": ANSWERS})],
            dataset=numbered(PROMPTS),
            sampling=SamplingParams(max_tokens=8, temperature=1.0),
            limits=Limits(concurrency=16),
        )
        (shown,) = (await bridge.worker.get_info()).fleets
    usage = evaluation.usage
    assert usage is not None
    assert usage.cached_prompt_tokens is not None
    assert (usage.calls, usage.prompt_tokens) == (PROMPTS * ANSWERS, PROMPTS * ANSWERS * PROMPT_TOKENS)
    assert usage.cached_prompt_tokens >= 0.8 * PROMPTS * (ANSWERS - 1) * PROMPT_TOKENS
    assert all(replica.done >= ANSWERS for replica in shown.replicas)
    assert sum(replica.done for replica in shown.replicas) == PROMPTS * ANSWERS
