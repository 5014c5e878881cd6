"""The evaluator `inspect`: tasks of Inspect AI, each in a process of its own, on any model of the worker."""

from crucible_worker.evaluators.inspect.evaluator import Inspect

__all__ = ["Inspect"]
