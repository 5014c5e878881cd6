"""Tokens of evaluations: what the results say is what the server counted, to the token."""

import random

import pytest

from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, Limits, SamplingParams, Usage
from tests.service.evaluation_kit import numbered, samples_of
from tests.service.openai_kit import Fault, Reply, Request, ScriptedServer, answer, refusal, worker_on

pytest.importorskip("aiohttp", reason="aiohttp is not installed: its backend is not tested")

PARAMS = SamplingParams(max_tokens=8)
MODEL = "openai:s/m"
COUNTS = ("prompt_tokens", "cached_prompt_tokens", "reasoning_tokens", "output_tokens", "calls", "unreported_calls")


class Counting:
    """Answers with a usage of its own making, and adds up what it has reported in whole answers, by model."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.counted: dict[str, dict[str, int]] = {}

    def answer(self, request: Request, text: str, **choice: object) -> Reply:
        """An answer, counted."""
        rng = self._rng
        prompt, output = rng.randrange(1, 5000), rng.randrange(1, 5000)
        cached, reasoning = rng.randrange(prompt + 1), rng.randrange(output + 1)
        counted = self.counted.setdefault(request.body["model"], dict.fromkeys(COUNTS, 0))
        for name, number in zip(COUNTS, (prompt, cached, reasoning, output, 1, 0), strict=True):
            counted[name] += number
        document = answer(request, text, **choice).body
        document["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        return Reply(document)

    def unreliable(self, request: Request) -> Reply | Fault:
        """Fails one call in four: refuses, says nonsense, hangs up in the middle, or answers and charges in vain."""
        if request.method == "GET":
            return Reply({"data": []})
        match self._rng.randrange(20):
            case 0 | 1:
                return refusal(500)
            case 2:
                return Reply(b"<html>oops</html>")
            case 3:
                return Fault.CUT
            case 4:
                return self.answer(request, "x", finish_reason=None)  # charged, and no answer that can be read
            case _:
                return self.answer(request, request.text.upper())

    def usage(self, model: str, **fields: object) -> Usage:
        """What was counted of a model."""
        return Usage(**self.counted[model], **fields)


def summed(usages):
    """The sums of the numbers, each of which is known."""
    return {name: sum(getattr(usage, name) for usage in usages) for name in COUNTS}


async def test_sums_equal_the_servers_own_count_over_a_thousand_calls_with_retries(tmp_path):
    """Every answer counts once, be it of use or not: in samples, the evaluator, the evaluation and its events."""
    server = Counting(seed=7)
    async with ScriptedServer(server.unreliable).serving() as fake, worker_on(fake, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            evaluation_id="e",
            model=MODEL,
            evaluators=["accuracy"],
            dataset=numbered(1000),
            sampling=PARAMS,
            limits=Limits(concurrency=32),
        )
        results = await samples_of(bridge, "e")
        async with bridge.evaluation.watch_evaluation("e", without_samples=True) as stream:
            events = [event async for event in stream]
    assert evaluation.state is EvaluationState.COMPLETED
    assert len(fake.asked) > 1100
    assert server.counted["m"]["calls"] > 1000
    assert evaluation.usage == evaluation.results[0].usage == server.usage("m")
    assert summed([result.usage for result in results if result.usage is not None]) == server.counted["m"]
    told = {f"usage.{name}": float(number) for name, number in server.counted["m"].items()}
    for kind in (EventKind.EVALUATOR_COMPLETE, EventKind.EVALUATION_COMPLETE):
        (event,) = [event for event in events if event.kind is kind]
        assert {key: value for key, value in event.measurements.items() if key.startswith("usage.")} == told
