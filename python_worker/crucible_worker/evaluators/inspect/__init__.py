"""The evaluator `inspect`: tasks of Inspect AI, each in a separate process, on any model of the worker."""

from crucible_worker.evaluators.inspect.evaluator import Inspect

__all__ = ["Inspect"]
