"""Evaluations and plans of every kind of part, by a name: `fingerprints.json` records their fingerprints."""

from __future__ import annotations

import numpy as np

from crucible_bridge.types import (
    BuiltinDataset,
    ChatMessage,
    Conversation,
    Dataset,
    Datum,
    Dtype,
    EmbeddedModel,
    EvaluateRequest,
    EvaluationPlan,
    EvaluatorSpec,
    FileDataset,
    FileFormat,
    HubDataset,
    HubModel,
    ImageAssetChunk,
    ImageChunk,
    InlineDataset,
    InstalledModel,
    JsonlDataset,
    Limits,
    LocalModel,
    ModelInput,
    ModelRef,
    OpenAIModel,
    OrchestratorModel,
    PlannedEvaluation,
    Sample,
    SamplingParams,
    Tensor,
    TinkerModel,
    TokensChunk,
)

__all__ = ["MODELS", "PLANS", "REQUESTS"]

MODELS: dict[str, ModelRef] = {
    "embedded": EmbeddedModel("arithmetic@320"),
    "local": LocalModel("models/a"),
    "adapter": LocalModel("models/a", adapter_path="adapters/b", device="cuda:1", dtype="bfloat16"),
    "openai": OpenAIModel("vllm", "Qwen/Qwen3-8B"),
    "tinker": TinkerModel(base_model="Qwen/Qwen3-8B"),
    "tinker_paths": TinkerModel(model_path="tinker://r/s/1", state_path="tinker://r/w/1", service="other"),
    "orchestrator": OrchestratorModel("policy-7"),
    "hub": HubModel("acme/m", revision="main", dtype="float32"),
    "installed": InstalledModel("sums", "exact"),
}
_SPECS = (EvaluatorSpec(kind="accuracy", options={"grader": "math", "n": [1, 2.5, None, {"a": True}]}),)
_CHUNKS = (
    TokensChunk(tokens=np.array([1, 2, 3], np.int32)),
    ImageChunk(data=b"\x89PNG", format="png", expected_tokens=4),
    ImageAssetChunk(location="asset://1", format="jpeg"),
)
_DATA = (
    Datum(model_input=ModelInput.of([1, 2]), loss_fn_inputs={"target_tokens": np.array([2, 3]), "weights": [0.5, 1.0]}),
    Datum(
        model_input=ModelInput(_CHUNKS),
        loss_fn_inputs={"logprobs": Tensor(dtype=Dtype.BF16, shape=(2,), data=b"\x80\x3f\x00\x40")},
    ),
)
_SAMPLES = (
    Sample(input="2 + 2 = ?", targets=("4", "four")),
    Sample(id="é", input=Conversation((ChatMessage("system", "Be brief."), ChatMessage("user", "?"))), choices=("a",)),
    Sample(id="datum", input=_DATA[0], metadata={"b": "2", "a": "1"}),
    Sample(id="images", input=_DATA[1]),
)
_DATASETS = {
    "builtin": Dataset(source=BuiltinDataset("arithmetic"), limit=7, shuffle_seed=3),
    "jsonl": Dataset(source=JsonlDataset("a/b.jsonl"), skip_malformed=True),
    "hub": Dataset(source=HubDataset("openai/gsm8k", split="test", config="main", columns={"input": "question"})),
    "inline": Dataset(source=InlineDataset(_SAMPLES), limit=2),
    "file": Dataset(source=FileDataset("a/b.csv", format=FileFormat.CSV, columns={"input": "question"})),
    "where": Dataset(source=JsonlDataset("a/b.jsonl"), where={"level": "hard", "kind": "a"}),
}
_SAMPLING = {
    "greedy": SamplingParams(max_tokens=16),
    "all": SamplingParams(max_tokens=64, temperature=0.7, top_p=0.9, top_k=40, seed=5, stop=("\n", "END")),
}


def _request(**fields: object) -> EvaluateRequest:
    plain = {"model": MODELS["embedded"], "evaluators": _SPECS, "dataset": _DATASETS["builtin"]}
    return EvaluateRequest(**(plain | fields))  # type: ignore[arg-type]


REQUESTS: dict[str, EvaluateRequest] = {
    "plain": _request(),
    "other_identity": _request(
        evaluation_id="e", labels={"a": "b"}, correlation_id="c", limits=Limits(concurrency=2, deadline_ms=1_000)
    ),
    "run": _request(run_id="run", step=0, metric_prefix="test/"),
    "two": _request(evaluators=(*_SPECS, EvaluatorSpec(kind="nll", name="n"))),
    **{f"model_{name}": _request(model=model) for name, model in MODELS.items()},
    **{f"dataset_{name}": _request(dataset=dataset) for name, dataset in _DATASETS.items()},
    **{f"sampling_{name}": _request(sampling=sampling) for name, sampling in _SAMPLING.items()},
}
PLANS: dict[str, EvaluationPlan] = {
    "plain": EvaluationPlan(
        plan_id="p",
        run_id="r",
        eval_every=10,
        evaluations=(PlannedEvaluation(evaluators=_SPECS, dataset=_DATASETS["hub"]),),
    ),
    "both": EvaluationPlan(
        plan_id="p",
        run_id="r",
        evaluations=(),
        infrequent_eval_every=100,
        infrequent_evaluations=(
            PlannedEvaluation(
                evaluators=_SPECS,
                dataset=_DATASETS["inline"],
                sampling=_SAMPLING["all"],
                limits=Limits(max_unscored_share=0.5, max_unscored=3),
                metric_prefix="long/",
                labels={"kind": "long"},
            ),
        ),
        correlation_id="c",
    ),
}
