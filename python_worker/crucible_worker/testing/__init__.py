"""A test kit for users of the worker: a worker in the same process, models that follow a script, recorded events.

    async with run_worker({"mine": ScriptedModel(answer=lambda prompt: "42")}) as worker:
        async with record_events(worker.bridge) as recorder:
            evaluation = await worker.bridge.evaluation.evaluate(
                model="embedded:mine",
                evaluators=["accuracy"],
                dataset=[Sample(input="6*7=", targets=("42",))],
                sampling=SamplingParams(max_tokens=4),
            )
            await recorder.wait_for(lambda event: event.kind is EventKind.EVALUATION_STOP)

It uses no network beyond the machine, and leaves no files or processes.
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
