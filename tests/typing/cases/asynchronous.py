"""What an editor knows of the asynchronous client: the types of results and parameters."""

from typing import reveal_type

import numpy as np

import crucible_bridge
from crucible_bridge.events import EventKind
from crucible_bridge.types import BatchLimits, CodeItem, EvaluateRequest, GradeItem, SamplingParams, Verdict

ITEMS: list[CodeItem] = []


async def results(request: EvaluateRequest) -> None:
    """Each call gives what it gives, not Any."""
    async with crucible_bridge.connect("127.0.0.1:50051", token="t", tls="ca.pem") as bridge:
        reveal_type(bridge)  # Bridge
        reveal_type(await bridge.wait_for_worker(10))  # None
        reveal_type(await bridge.evaluation.evaluate(request, step=3, timeout=5))  # Evaluation
        reveal_type(await bridge.evaluation.start_evaluation(request))  # StartedEvaluation
        reveal_type(await bridge.evaluation.get_evaluation("e"))  # Evaluation
        reveal_type(await bridge.evaluation.list_evaluations(run_id="r"))  # EvaluationPage
        reveal_type(await bridge.evaluation.get_samples("e", verdicts=[Verdict.CORRECT]))  # SamplePage
        reveal_type(bridge.evaluation.all_evaluations(from_step=1))  # AsyncIterator[Evaluation]
        reveal_type(bridge.evaluation.all_samples("e"))  # AsyncIterator[SampleResult]
        reveal_type(bridge.evaluation.watch_evaluation("e"))  # EventStream
        reveal_type(await bridge.evaluation.generate_report(["e"]))  # str
        reveal_type(await bridge.evaluation.notify_step("p", 1, "local:m"))  # tuple[StartedEvaluation, ...]
        reveal_type(await bridge.grading.grade_math([("1", "1"), GradeItem(answer="2", targets=("2",))]))  # MathGrades
        reveal_type(await bridge.grading.grade_code(ITEMS, k=[1]))  # CodeGrades
        reveal_type(await bridge.metrics.compute_mean_nll([np.zeros(3)], [[1.0, 1.0, 1.0]]))  # MeanNLL
        reveal_type(await bridge.metrics.compute_dpo_metrics([1.0], [1.0], [1.0], [1.0], beta=0.1))  # Metrics
        reveal_type(await bridge.models.sample("local:m", ["a"], SamplingParams(max_tokens=1)))  # SampleAnswer
        reveal_type(await bridge.models.compute_logprobs("local:m", [[1]], limits=BatchLimits()))  # LogprobsAnswer
        reveal_type(bridge.telemetry.subscribe(kinds=[EventKind.EVALUATION_STOP]))  # EventStream
        reveal_type(await bridge.worker.get_info())  # WorkerInfo
        reveal_type(await bridge.worker.health())  # bool


async def events(bridge: crucible_bridge.Bridge) -> None:
    """A stream gives events, and knows its position."""
    stream = bridge.telemetry.subscribe()
    reveal_type(stream.through_sequence)  # int
    reveal_type(stream.log_id)  # str
    async for event in stream:
        reveal_type(event)  # Event
    async for batch in stream.batches():
        reveal_type(batch)  # EventBatch


async def short_forms(bridge: crucible_bridge.Bridge) -> None:
    """Model, evaluators and data set may be written shortly."""
    sampling = SamplingParams(max_tokens=8)
    await bridge.evaluation.evaluate(model="local:m", evaluators="nll", dataset="builtin:arithmetic")
    await bridge.evaluation.evaluate(
        model="local:m", evaluators={"accuracy": {"grader": "f1"}}, dataset=[], sampling=sampling
    )
    await bridge.evaluation.start_evaluation(None, model="local:m", evaluators=["nll"], dataset=[])
    await bridge.evaluation.evaluate_with_orchestrator_model(evaluators="nll", dataset=[], model=object(), name="m")
    await bridge.evaluation.evaluate_with_orchestrator_model(
        evaluators="accuracy", dataset=[], model="embedded:m", graders={"g": lambda asked: asked.response == "1"}
    )


async def mistakes(bridge: crucible_bridge.Bridge) -> None:
    """What is written wrongly is found before it runs."""
    crucible_bridge.connect_to("x")  # error: "connect_to" is not a known attribute of module "crucible_bridge"
    crucible_bridge.connect("x", tokn="t")  # error: No parameter named "tokn"
    await bridge.evaluation.evaluate(modle="local:m")  # error: No parameter named "modle"
    await bridge.evaluation.evaluate(step="3")  # error: "Literal['3']" cannot be assigned to parameter "step"
    await bridge.evaluation.evaluate(model=5)  # error: "Literal[5]" cannot be assigned to parameter "model"
    await bridge.evaluation.start_evaluation(modle="local:m")  # error: No parameter named "modle"
    await bridge.evaluation.evaluate_with_orchestrator_model(model=1, modle=1)  # error: No parameter named "modle"
    await bridge.evaluation.evaluat()  # error: Cannot access attribute "evaluat" for class "EvaluationClient"
    await bridge.evaluation.get_evaluation()  # error: Argument missing for parameter "evaluation_id"
    await bridge.evaluation.list_evaluations(runid="r")  # error: No parameter named "runid"
    await bridge.evaluation.get_samples("e", verdicts=["right"])  # error: to parameter "verdicts"
    bridge.evaluation.all_evaluations(runid="r")  # error: No parameter named "runid"
    bridge.evaluation.all_samples("e", page_token="t")  # error: No parameter named "page_token"
    bridge.telemetry.subscribe(kind=[])  # error: No parameter named "kind"
    await bridge.grading.grade_math(5)  # error: "Literal[5]" cannot be assigned to parameter "items"
    await bridge.metrics.compute_dpo_metrics([1.0], [1.0], [1.0], [1.0])  # error: Argument missing for parameter "beta"
    await bridge.metrics.compute_mean_nll(logprob=[], weights=[])  # error: No parameter named "logprob"
    await bridge.metrics.compute_pass_at_k(object(), [1], [1])  # error: to parameter "samples"
    await bridge.models.sample("local:m", ["a"], 3)  # error: "Literal[3]" cannot be assigned to parameter "sampling"
    await bridge.models.forward("local:m", [3])  # error: "list[int]" cannot be assigned to parameter "data"
    _ = bridge.modls  # error: Cannot access attribute "modls" for class "Bridge"
    await bridge.wait_for_worker("10")  # error: "Literal['10']" cannot be assigned to parameter "seconds"
