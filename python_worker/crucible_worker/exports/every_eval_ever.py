"""Every Eval Ever: a description of an evaluation with its metrics, and JSON lines with its samples.

    OUTPUT/data/arithmetic/crucible-bridge/arithmetic@600/<uuid>.json
    OUTPUT/data/arithmetic/crucible-bridge/arithmetic@600/<uuid>_samples.jsonl

The folders are those of the public collection: data set, developer, model. Its samples are right or wrong, and have
a score. So those without a score, and measurements such as a likelihood, are not among them; the description has the
counts of each evaluator.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import IO, Any

from crucible_bridge.types import (
    BuiltinDataset,
    EmbeddedModel,
    Evaluation,
    EvaluatorResult,
    FileDataset,
    Goal,
    HubDataset,
    HubModel,
    JsonlDataset,
    LocalModel,
    ModelRef,
    OpenAIModel,
    SampleResult,
    TinkerModel,
    Verdict,
    format_model,
)
from crucible_worker.exports.record_data import dataset_name, record_data, utc
from crucible_worker.reports.as_json import asked_text, record_as_data, said_as_data
from crucible_worker.reports.facts import adjustments_text, another_model, format_dataset, problem_text
from crucible_worker.reports.metric_keys import EvaluatorKeys, Infos, keys_of
from crucible_worker.util.model_refs import original_model

__all__ = ["SamplesFile", "description_of", "folder_of", "identity_of"]

SCHEMA_VERSION = "0.3.0"
"""Of the format."""
UNKNOWN = "unknown"

_RIGHT_OR_WRONG = (Verdict.CORRECT, Verdict.INCORRECT, Verdict.PARTIAL)
_NOT_IN_NAMES = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f-\x9f\ud800-\udfff]+')
_NAME_CHARS = 100
_RESERVED = frozenset(
    {"CON", "PRN", "AUX", "NUL", *(f"{name}{digit}" for name in ("COM", "LPT") for digit in range(1, 10))}
)
# What the scores of metrics with these keys are at least and at most.
_SHARES = ("accuracy", "precision", "recall", "f1", "exact_match", "pass@")


def identity_of(evaluation: Evaluation) -> str:
    """The name of its files: the same for the same evaluation."""
    digest = hashlib.sha256(f"{evaluation.evaluation_id}\0{evaluation.created_unix_ns}".encode("utf-8", "replace"))
    return str(uuid.UUID(bytes=digest.digest()[:16], version=4))


def folder_of(evaluation: Evaluation) -> str:
    """The folder of its files, from "data/" on."""
    developer, _, name = _model_id(evaluation.request.model).partition("/")
    return f"data/{_path_name(dataset_name(evaluation.request.dataset))}/{developer}/{name}"


class SamplesFile:
    """The samples of an evaluation, as JSON lines; samples that are neither right nor wrong are left out."""

    def __init__(self, file: IO[bytes], evaluation: Evaluation, infos: Infos) -> None:
        """Write to this file."""
        self._file, self._evaluation = file, evaluation
        self._main = {keys.label: _main_key(keys) for keys in keys_of(evaluation, infos)}
        self._digest = hashlib.sha256()
        self.rows = 0
        """Lines so far."""

    def add(self, evaluation: Evaluation, results: Sequence[SampleResult]) -> None:
        """Write results."""
        for result in results:
            if result.score is not None and result.verdict in _RIGHT_OR_WRONG:
                row = _sample(self._evaluation, result, self._main.get(result.evaluator))
                line = (json.dumps(row, allow_nan=False) + "\n").encode()
                self._file.write(line)
                self._digest.update(line)
                self.rows += 1

    @property
    def checksum(self) -> str:
        """SHA-256 of the lines."""
        return self._digest.hexdigest()


def description_of(
    evaluation: Evaluation, infos: Infos, *, version: str, organization: str, samples: SamplesFile
) -> bytes:
    """The description, as JSON.

    Args:
        evaluation: which one.
        infos: what its evaluators declare, by kind.
        version: of crucible-bridge.
        organization: who evaluated.
        samples: its samples, once all are written.
    """
    request = evaluation.request
    keys = {each.label: each for each in keys_of(evaluation, infos)}
    described: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": _evaluation_id(evaluation),
        "evaluation_timestamp": utc(evaluation.created_unix_ns).isoformat(),
        # That of the end: exporting it again changes nothing.
        "retrieved_timestamp": str((evaluation.ended_unix_ns or evaluation.created_unix_ns) / 1e9),
        "source_metadata": {
            "source_name": "crucible-bridge",
            "source_type": "evaluation_run",
            "source_organization_name": organization,
            "evaluator_relationship": "other",
            "additional_details": _texts(
                {
                    "evaluation_id": evaluation.evaluation_id,
                    "run_id": request.run_id,
                    "step": request.step,
                    "state": evaluation.state,
                    "dataset_fingerprint": evaluation.dataset_fingerprint,
                    "labels": dict(request.labels),
                }
            ),
        },
        "model_info": _model_info(evaluation),
        "eval_library": {"name": "crucible-bridge", "version": version},
        "evaluation_results": [
            row for result in evaluation.results for row in _metrics(evaluation, result, keys[result.evaluator.label])
        ],
    }
    if samples.rows:
        described["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": f"{folder_of(evaluation)}/{identity_of(evaluation)}_samples.jsonl",
            "hash_algorithm": "sha256",
            "checksum": samples.checksum,
            "total_rows": samples.rows,
        }
    return (json.dumps(described, allow_nan=False, indent=2) + "\n").encode()


def _sample(evaluation: Evaluation, result: SampleResult, main_key: str | None) -> dict[str, Any]:
    record = record_data(record_as_data(result))
    raw = record_data(asked_text(result)) or _text(record["input"])
    references = record["targets"] or []
    turns = [turn for turn in result.turns if not turn.rollout and not turn.model]
    row: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": _evaluation_id(evaluation),
        "model_id": _model_id(evaluation.request.model),
        "evaluation_name": record_data(result.evaluator),
        "sample_id": record_data(result.sample_id),
        "sample_hash": hashlib.sha256(f"{raw}{''.join(references)}".encode()).hexdigest(),
        "interaction_type": "multi_turn" if turns else "single_turn",
        "input": {
            "raw": raw,
            "formatted": None if record["prompt"] is None else _text(record["prompt"]),
            "reference": references,
            "choices": record["choices"] or None,
        },
        "output": None if turns else {"raw": [record_data(result.output)]},
        "messages": None,
        "answer_attribution": [
            {
                "turn_idx": max(len(turns) - 1, 0),
                "source": "messages[turn_idx].content" if turns else "output.raw",
                "extracted_value": record_data(result.extracted),
                "extraction_method": result.method or UNKNOWN,
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": result.score, "is_correct": result.verdict is Verdict.CORRECT},
        "performance": {"latency_ms": max(result.duration_ns, 0) / 1e6},
        "error": problem_text(result.problem) or None,
        "metadata": {
            **(record["metadata"] or {}),
            **_texts({f"crucible_{name}": value for name, value in said_as_data(result).items()}),
            "crucible_repeat": str(result.repeat),
        },
    }
    if turns:
        row["messages"] = [
            {"turn_idx": index, "role": turn.role, "content": record_data(turn.text)}
            for index, turn in enumerate(turns)
        ]
        row["evaluation"]["num_turns"] = len(turns)
    if main_key is not None:
        row["evaluation_result_id"] = _result_id(evaluation, main_key)
    usage = result.usage
    if usage is not None and usage.prompt_tokens is not None and usage.output_tokens is not None:
        row["token_usage"] = {
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.prompt_tokens + usage.output_tokens,
            "input_tokens_cache_read": usage.cached_prompt_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        }
    return row


def _metrics(evaluation: Evaluation, result: EvaluatorResult, keys: EvaluatorKeys) -> list[dict[str, Any]]:
    values = result.metrics.values
    details = _texts({"n": result.n, "n_scored": result.n_scored, "n_unscored": result.n_unscored})
    rows = []
    for key in sorted(keys.values):
        bare = key.rpartition("/")[2]
        share = bare.startswith(_SHARES)
        score: dict[str, Any] = {"score": values[key], "details": details}
        uncertainty: dict[str, Any] = {"num_samples": result.n_scored}
        if (error := values.get(f"{key}_stderr")) is not None:
            uncertainty["standard_error"] = {"value": error, "method": "analytic"}
        if key in keys.intervals:
            low, high = keys.intervals[key]
            uncertainty["confidence_interval"] = {"lower": low, "upper": high, "confidence_level": 0.95}
        if len(uncertainty) > 1:
            score["uncertainty"] = uncertainty
        rows.append(
            {
                "evaluation_result_id": _result_id(evaluation, key),
                "evaluation_name": record_data(result.evaluator.label),
                "source_data": _source(evaluation),
                "evaluation_timestamp": utc(evaluation.created_unix_ns).isoformat(),
                "metric_config": {
                    "metric_id": record_data(bare),
                    "metric_name": record_data(key),
                    "metric_kind": result.evaluator.kind,
                    "metric_unit": keys.units.get(key, UNKNOWN),
                    "lower_is_better": keys.goals.get(key) is Goal.LOWER,
                    "score_type": "continuous",
                    "min_score": 0.0 if share else "-Infinity",
                    "max_score": 1.0 if share else "Infinity",
                    "additional_details": _texts(
                        {"goal": keys.goals.get(key, UNKNOWN), "options": dict(result.evaluator.options)}
                    ),
                },
                "score_details": score,
                "generation_config": _generation(evaluation),
            }
        )
    return rows


def _generation(evaluation: Evaluation) -> dict[str, Any]:
    params = evaluation.request.sampling
    if params is None:
        return {"additional_details": {"generation": "none"}}
    given: dict[str, Any] = {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "max_tokens": params.max_tokens,
    }
    refused = () if evaluation.engine is None else evaluation.engine.not_applied
    further = {"seed": params.seed, "stop": list(params.stop)}
    applied = {key: value for key, value in further.items() if key not in refused}
    return {
        "generation_args": {key: value for key, value in given.items() if value is not None and key not in refused},
        "additional_details": _texts({**applied, "sampling_refused": adjustments_text(evaluation.engine)}),
    }


def _main_key(keys: EvaluatorKeys) -> str | None:
    """The metric that summarises the scores of samples; one without a value has no row to refer to."""
    return min((key for key in keys.headline if key in keys.values), default=None)


def _evaluation_id(evaluation: Evaluation) -> str:
    name, model = dataset_name(evaluation.request.dataset), _model_id(evaluation.request.model)
    return record_data(f"{name}/{model}/{evaluation.evaluation_id}")


def _result_id(evaluation: Evaluation, key: str) -> str:
    return f"{identity_of(evaluation)}:{record_data(key)}"


def _source(evaluation: Evaluation) -> dict[str, Any]:
    dataset = evaluation.request.dataset
    described = {"dataset_name": record_data(dataset_name(dataset))}
    details = _texts({"dataset": format_dataset(dataset), "fingerprint": evaluation.dataset_fingerprint})
    match dataset.source:
        case HubDataset() as source:
            hub = {"source_type": "hf_dataset", "hf_repo": source.repo_id, "hf_split": source.split}
            return {**described, **hub, "additional_details": details}
        case BuiltinDataset() | FileDataset() | JsonlDataset() | _:
            return {**described, "source_type": "other", "additional_details": details}


def _model_info(evaluation: Evaluation) -> dict[str, Any]:
    model = original_model(evaluation.request.model)
    here = isinstance(model, EmbeddedModel | LocalModel | HubModel)
    info: dict[str, Any] = {
        "name": record_data(format_model(model)),
        "id": _model_id(model),
        "additional_details": {
            "deployment_type": "self_deployed" if here else UNKNOWN,
            "model_availability": "open_weights" if isinstance(model, EmbeddedModel | HubModel) else UNKNOWN,
            **_texts(
                {
                    "model_fingerprint": evaluation.model_fingerprint,
                    "another_model": another_model(evaluation.engine),
                    "sampling_defaults": "" if evaluation.engine is None else evaluation.engine.sampling_defaults,
                }
            ),
        },
    }
    if (engine := evaluation.engine) is not None and engine.name:
        info["inference_engine"] = {"name": record_data(engine.name), "version": record_data(engine.version)}
    return info


def _model_id(model: ModelRef) -> str:
    """The model as DEVELOPER/NAME, which are two folders as well."""
    match model:
        case HubModel(repo_id):
            name = repo_id
        case EmbeddedModel(name):
            name = f"crucible-bridge/{name}"
        case OpenAIModel() if "/" in model.model:
            name = model.model
        case TinkerModel() if getattr(model, "base_model", None):
            name = str(model.base_model)
        case _:
            scheme, _, rest = format_model(model).partition(":")
            name = f"{scheme}/{rest.partition('?')[0].strip('/')}"
    developer, _, rest = name.partition("/")
    return f"{_path_name(developer)}/{_path_name(rest)}"


def _path_name(text: str) -> str:
    """A text as the name of a folder on every system."""
    name = _NOT_IN_NAMES.sub("-", text)[:_NAME_CHARS].strip(" .") or UNKNOWN
    return f"{name}-" if name.partition(".")[0].upper() in _RESERVED or name == "data" else name


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """What is given, as texts."""
    return {key: _text(record_data(value)) for key, value in values.items() if value not in (None, "", {}, [])}
