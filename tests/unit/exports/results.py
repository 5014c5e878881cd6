"""Results of samples as workers have them, records included."""

from __future__ import annotations

from hypothesis import strategies as st

from crucible_bridge.types import (
    BuiltinDataset,
    ChatMessage,
    Conversation,
    Dataset,
    EmbeddedModel,
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    EvaluatorResult,
    EvaluatorSpec,
    Metrics,
    Sample,
    SampleResult,
    Turn,
    Usage,
    Verdict,
)
from tests.unit.bridge import strategies

# Half a surrogate pair as well: data sets and models have it.
text = st.text(max_size=12)
messages = st.lists(st.builds(ChatMessage, text, text), min_size=1, max_size=3).map(tuple)
texts = st.lists(text, max_size=3).map(tuple)
samples = st.builds(
    Sample,
    id=text,
    input=text | st.builds(Conversation, messages),
    targets=texts,
    choices=texts,
    metadata=st.dictionaries(text, text, max_size=3),
)
turns = st.builds(
    Turn,
    role=text,
    text=text,
    reward=st.none() | strategies.finite,
    rollout=st.integers(0, 2),
    model=st.sampled_from(["", "judge"]),
)
counts = st.none() | st.integers(0, 9)
usages = st.builds(Usage, prompt_tokens=counts, output_tokens=counts)


@st.composite
def results(draw: st.DrawFn) -> SampleResult:
    """One result: a score belongs to a verdict that counts."""
    verdict = draw(st.sampled_from(Verdict))
    return SampleResult(
        evaluator="accuracy",
        sample_id=draw(text),
        repeat=draw(st.integers(0, 3)),
        verdict=verdict,
        score=draw(strategies.finite) if verdict.scored else None,
        output=draw(text),
        extracted=draw(text),
        method=draw(text),
        stop_reason=draw(st.sampled_from(["", "stop", "length"])),
        problem=draw(st.none() | strategies.problems),
        measurements=draw(st.dictionaries(text, strategies.finite, max_size=3)),
        sample=draw(st.none() | samples),
        prompt=draw(st.none() | text),
        turns=draw(st.lists(turns, max_size=2).map(tuple)),
        usage=draw(st.none() | usages),
    )


def evaluation_of(results: list[SampleResult], evaluation_id: str = "e") -> Evaluation:
    """An evaluation that has ended with these results of one evaluator."""
    spec = EvaluatorSpec(kind="accuracy", options={"grader": "numeric"})
    scored = [result for result in results if result.verdict.scored]
    metrics = Metrics({"accuracy": 0.5, "accuracy_stderr": 0.1}, {"accuracy_strict": "no sample"})
    return Evaluation(
        evaluation_id=evaluation_id,
        state=EvaluationState.COMPLETED,
        request=EvaluateRequest(
            evaluation_id=evaluation_id,
            model=EmbeddedModel("arithmetic@600"),
            evaluators=(spec,),
            dataset=Dataset(source=BuiltinDataset("arithmetic")),
        ),
        metrics=metrics,
        results=(
            EvaluatorResult(
                evaluator=spec,
                metrics=metrics,
                n=len(results),
                n_scored=len(scored),
                n_unscored=len(results) - len(scored),
            ),
        ),
        done=len(results),
        total=len(results),
        created_unix_ns=1_700_000_000_000_000_000,
        ended_unix_ns=1_700_000_060_000_000_000,
        attempt=1,
    )
