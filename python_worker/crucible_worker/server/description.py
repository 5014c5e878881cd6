"""The constant part of a worker's description: collected once, as it reads the disk."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
from collections.abc import Mapping

from crucible_bridge.codec.elements import MAX_ELEMENTS
from crucible_bridge.types import MAX_GROUP_BYTES, MAX_MAP_ENTRIES, WorkerInfo, bounds
from crucible_worker.config import Settings
from crucible_worker.grading import choice, direct, format, patterns, pool
from crucible_worker.grading.math import grader
from crucible_worker.server.parts import Parts

__all__ = ["describe", "fixed_limits"]

_LIBRARIES = ("grpcio", "protobuf", "numpy", "sympy", "torch", "transformers", "aiohttp", "tinker")


def describe(info: WorkerInfo, parts: Parts, settings: Settings) -> WorkerInfo:
    """Add to `info` what does not change while the worker runs; blocks some milliseconds, imports nothing heavy."""
    return dataclasses.replace(
        info,
        version=importlib.metadata.version("crucible-bridge"),
        versions=_versions(),
        backends=tuple(parts.backend_infos()),
        evaluators=tuple(parts.evaluator_kinds()),
        datasets=tuple(parts.datasets),
        prices=settings.prices,
        code_images=() if parts.code is None else tuple(parts.code.images),
        limits={
            name: float(value) for name, value in {**dataclasses.asdict(settings.limits), **fixed_limits()}.items()
        },
    )


def fixed_limits() -> Mapping[str, float]:
    """Limits that no setting changes."""
    # Imported here: it takes some 20 ms, which the start need not spend.
    from crucible_worker.engine.specification import MAX_OPTIONS_BYTES
    from crucible_worker.evaluators.environments.group import MAX_GROUP_SIZE
    from crucible_worker.evaluators.environments.options import MAX_TURNS_OF_A_ROLLOUT
    from crucible_worker.evaluators.inspect.logs import MAX_LOG_BYTES, MAX_LOGS_BYTES
    from crucible_worker.grading.code.grader import MAX_TESTS
    from crucible_worker.grading.json_schema import MAX_SCHEMA_BYTES
    from crucible_worker.grading.judge.asking import MAX_JUDGED_CHARS
    from crucible_worker.grading.judge.rubric import MAX_CRITERIA
    from crucible_worker.grading.math.lexer import MAX_CHARS
    from crucible_worker.grading.math.numerals import MAX_DIGITS
    from crucible_worker.metrics.classification import MAX_LABEL_CHARS, MAX_LABELS
    from crucible_worker.metrics.trajectory_checks import MAX_KEYS, MAX_NAME_CHARS
    from crucible_worker.rendering.templates import MAX_PROMPT_CHARS

    return {
        "max_answer_bytes": direct.MAX_TEXT_BYTES,
        "max_math_chars": MAX_CHARS,
        "max_math_digits": MAX_DIGITS,
        "max_math_targets": grader.MAX_TARGETS,
        "max_math_cpu_seconds": pool.SLOW_SECONDS,
        "max_math_clock_seconds": pool.CLOCK_FACTOR * pool.SLOW_SECONDS,
        "max_score_targets": direct.MAX_TARGETS,
        "max_choices": choice.MAX_CHOICES,
        "max_marks": format.MAX_MARKS,
        "max_schema_bytes": MAX_SCHEMA_BYTES,
        "max_pattern_chars": patterns.MAX_PATTERN_CHARS,
        "max_code_tests": MAX_TESTS,
        "max_group_bytes": MAX_GROUP_BYTES,
        "max_group_size": MAX_GROUP_SIZE,
        "max_inspect_log_bytes": MAX_LOG_BYTES,
        "max_inspect_logs_bytes": MAX_LOGS_BYTES,
        "max_rollout_turns": MAX_TURNS_OF_A_ROLLOUT,
        "max_judged_chars": MAX_JUDGED_CHARS,
        "max_rubric_criteria": MAX_CRITERIA,
        "max_options_bytes": MAX_OPTIONS_BYTES,
        "max_prompt_chars": MAX_PROMPT_CHARS,
        "max_few_shot": bounds.FEW_SHOT_COUNT_MOST,
        "max_map_entries": MAX_MAP_ENTRIES,
        "max_request_elements": MAX_ELEMENTS,
        "max_trajectory_keys": MAX_KEYS,
        "max_metric_name_chars": MAX_NAME_CHARS,
        "max_labels": MAX_LABELS,
        "max_label_chars": MAX_LABEL_CHARS,
    }


def _versions() -> Mapping[str, str]:
    """Versions of Python and of important libraries, if they are installed; none of them is imported."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
