"""Four replicas of a model server, as processes: one is killed, one is slow, one comes back; no sample notices."""

from __future__ import annotations

import crucible_bridge
from crucible_bridge.client.evaluation import request_of
from crucible_bridge.events import EventKind
from crucible_bridge.types import Limits, ReplicaState, SamplingParams, Verdict
from crucible_worker.backends.openai.connection import PROBE_TEXT
from tests import needs
from tests.robustness.evidence import check_events, check_interrupted_run, log_of, samples_of
from tests.robustness.harness import until
from tests.robustness.replicas_kit import WAIT_SECONDS, replicas
from tests.service.evaluation_kit import numbered
from tests.service.serving import serving

needs.modules("aiohttp")

SAMPLES = 1_200
CONCURRENCY = 48
SECONDS, SLOW_SECONDS = 0.02, 0.2
"""Of an answer, at the others and at the slow replica."""


async def test_a_killed_and_a_slow_replica_lose_and_double_nothing(tmp_path):
    """Every sample has one result and one event, and its model's answer; the replica that comes back is used again."""
    async with replicas(tmp_path, SECONDS, SECONDS, SECONDS, SLOW_SECONDS) as fleet:
        urls = [replica.url for replica in fleet]
        fields = {
            "model": "openai:s/m",
            "evaluators": ["accuracy"],
            "dataset": numbered(SAMPLES),
            "sampling": SamplingParams(max_tokens=8),
            "limits": Limits(concurrency=CONCURRENCY),
        }
        settings = f"grading_processes = 0\n[openai_servers.s]\nbase_urls = {urls}\nstall_seconds = 30\n"
        async with (
            serving(tmp_path / "worker", settings) as worker,
            crucible_bridge.connect(worker.address) as bridge,
        ):
            await bridge.evaluation.start_evaluation(request_of(evaluation_id="e", **fields))
            victim = fleet[0]
            await until(lambda: victim.answered > 20, WAIT_SECONDS)
            victim.kill()
            async with bridge.evaluation.watch_evaluation("e") as stream:
                assert [event.kind async for event in stream][-1] is EventKind.EVALUATION_STOP
            evaluation = await bridge.evaluation.get_evaluation("e")
            (shown,) = (await bridge.worker.get_info()).fleets
            log = await log_of(bridge)
            results = await samples_of(bridge, "e")
            await victim.start()
            before = victim.answered
            again = await bridge.evaluation.evaluate(request_of(evaluation_id="again", **fields))
            assert again.metrics == evaluation.metrics
            assert victim.answered > before + SAMPLES // 10
    check_events(log)
    check_interrupted_run(log, evaluation, SAMPLES)
    assert sorted(result.sample_id for result in results) == sorted(f"s{index}" for index in range(SAMPLES))
    assert {result.verdict for result in results} == {Verdict.CORRECT}
    assert evaluation.metrics.values["accuracy"] == 1.0
    # What the killed one had is asked again; nothing else is.
    prompts = [line for replica in fleet for line in replica.record.read_text().splitlines()]
    assert set(prompts) - {PROBE_TEXT} == {f"q{index}" for index in range(SAMPLES)}
    assert len(prompts) <= 2 * SAMPLES + CONCURRENCY
    assert (shown.backend, shown.name, [replica.address for replica in shown.replicas]) == ("openai", "s", urls)
    killed, *alive = shown.replicas
    assert (killed.state, {replica.state for replica in alive}) == (ReplicaState.EJECTED, {ReplicaState.SERVING})
    assert killed.last_error in ("BACKEND_CONNECTION_LOST", "BACKEND_UNREACHABLE")
    assert (sum(replica.done for replica in shown.replicas), sum(replica.outstanding for replica in alive)) == (
        SAMPLES,
        0,
    )
    slow, fast = fleet[3].answered, fleet[1].answered
    assert 0 < slow < fast
