"""Progress of a task: the worker is notified of every question that has ended, scored or failed."""

from __future__ import annotations

from inspect_ai.hooks import Hooks, SampleEnd, TaskStart, hooks  # pyright: ignore[reportMissingImports]

from crucible_worker.evaluators.inspect.host.line import WorkerClient

__all__ = ["count_questions"]


def count_questions(line: WorkerClient) -> None:
    """From now on, report to the worker how many questions of the task are done, counting each epoch."""

    # Inspect creates the only instance, so the line comes from this scope.
    @hooks(name="crucible_questions", description="Tells the worker how many questions are done.")
    class _Counting(Hooks):
        def __init__(self) -> None:
            self._done, self._total = 0, 0

        async def on_task_start(self, data: TaskStart) -> None:
            dataset, epochs = data.spec.dataset, data.spec.config.epochs or 1
            questions = dataset.samples or 0 if dataset.sample_ids is None else len(dataset.sample_ids)
            self._done, self._total = 0, questions * epochs
            await self._tell()

        async def on_sample_end(self, data: SampleEnd) -> None:
            self._done += 1
            await self._tell()

        async def _tell(self) -> None:
            # A task may have more questions than it announced, if it finds them while it runs.
            await line.tell({"op": "count", "done": self._done, "total": max(self._done, self._total)})
