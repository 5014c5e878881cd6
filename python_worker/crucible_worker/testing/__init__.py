"""For the tests of those who use the worker: one in the same process, models that follow a script, recorded events.

    async with run_worker({"mine": ScriptedModel(answer=lambda prompt: "42")}) as worker:
        async with record_events(worker.bridge) as recorder:
            evaluation = await worker.bridge.evaluation.evaluate(
                model="embedded:mine",
                evaluators=["accuracy"],
                dataset=[Sample(input="6*7=", targets=("42",))],
                sampling=SamplingParams(max_tokens=4),
            )
            await recorder.wait_for(lambda event: event.kind is EventKind.EVALUATION_STOP)

Nothing here leaves the machine, and nothing is left behind.
"""

from crucible_worker.testing.recorder import EventRecorder, record_events
from crucible_worker.testing.scripted import STALL, Call, ScriptedBackend, ScriptedModel, Stall
from crucible_worker.testing.worker import RunningWorker, run_worker, scripted_build

__all__ = [
    "STALL",
    "Call",
    "EventRecorder",
    "RunningWorker",
    "ScriptedBackend",
    "ScriptedModel",
    "Stall",
    "record_events",
    "run_worker",
    "scripted_build",
]
