"""Prompts of data sets, from the client's call to what the model gets, and what is shown of it before."""

import asyncio
import dataclasses
import json
import time

import numpy as np
import pytest

from crucible_bridge.client.evaluation import request_of
from crucible_bridge.errors import BridgeError, Code
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Dataset,
    Datum,
    EvaluationPlan,
    EvaluationState,
    EvaluatorRendering,
    EvaluatorSpec,
    FewShot,
    InlineDataset,
    ModelInput,
    PlannedEvaluation,
    Prompt,
    Sample,
    SamplingParams,
    Verdict,
)
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.evaluation_kit import HeldModel, accuracy, asked, nll, refused, rig, samples_of
from tests.tables import rows

SAMPLES = (
    Sample(id="a", input="one", targets=("ONE",), metadata={"topic": "numbers"}),
    Sample(id="b", input="two", targets=("TWO",), metadata={"topic": "numbers"}),
)
SHOUTING = Prompt(system="say", template="{{ input | upper }}")
TRAIN = [{"input": "three", "target": "3"}, {"input": "four", "target": "4"}, {"input": "one", "target": "1"}]


@dataclasses.dataclass(kw_only=True)
class Listening(ScriptedModel):
    """Keeps what it is asked, as text."""

    seen: list[str] = dataclasses.field(default_factory=list)
    texts: list[tuple[str, ...]] = dataclasses.field(default_factory=list)

    async def encode_chat(self, messages, *, generation_prompt):
        self.texts.append(tuple(f"{message.role}:{message.content}" for message in messages))
        return await super().encode_chat(messages, generation_prompt=generation_prompt)

    async def sample(self, prompt, params, num_samples=1):
        self.seen.append("".join(map(chr, prompt.tokens().tolist())))
        return await super().sample(prompt, params, num_samples)


def prompted(prompt: Prompt, samples=SAMPLES, **fields) -> Dataset:
    """Inline samples with a prompt."""
    return Dataset(source=InlineDataset(tuple(samples)), prompt=prompt, **fields)


@pytest.fixture
def data(tmp_path):
    """A data root with examples."""
    (tmp_path / "train.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in TRAIN))
    return tmp_path


def few_shot(count=2, **fields) -> Prompt:
    """A prompt with examples of that file."""
    return Prompt(few_shot=FewShot(source="jsonl:train.jsonl", count=count), **fields)


async def test_a_prompt_is_what_the_model_gets_and_part_of_the_request(data):
    """Its parts reach the model in order, the examples without the row itself; the record has it all."""
    model = Listening(answer=lambda prompt: prompt[-3:].upper())
    prompt = dataclasses.replace(
        few_shot(),
        system="Be.",
        template="{topic}? {{ input }}".replace("{topic}", "{{ topic | default('none') }}"),
        prefix=Conversation((ChatMessage("user", "hello"), ChatMessage("assistant", "hi"))),
        suffix=Conversation((ChatMessage("user", "now"),)),
    )
    async with rig(model, data_roots=(data,)) as worker:
        evaluation = await worker.evaluation.evaluate(
            asked(dataset=prompted(prompt), sampling=SamplingParams(max_tokens=8))
        )
        kept = await worker.evaluation.get_evaluation("e")

    assert evaluation.state is EvaluationState.COMPLETED
    assert kept.request.dataset.prompt == prompt
    assert kept.rendering == (EvaluatorRendering(evaluator="accuracy", renderer="chat_template"),)
    beginning = ("system:Be.", "user:hello", "assistant:hi")
    examples = {"user:none? three": "assistant:3", "user:none? four": "assistant:4", "user:none? one": "assistant:1"}
    for text, question in zip(sorted(model.texts, key=lambda turns: turns[-2]), ("one", "two"), strict=True):
        assert (text[:3], text[-2:]) == (beginning, (f"user:numbers? {question}", "user:now"))
        shown = dict(zip(text[3:-2:2], text[4:-2:2], strict=True))
        assert len(shown) == 2
        assert shown.items() <= examples.items()


async def test_the_row_itself_is_left_out_of_its_examples(data):
    """By what it reads like: the file may have another id for it."""
    model = Listening()
    async with rig(model, data_roots=(data,)) as worker:
        await worker.evaluation.evaluate(asked(dataset=prompted(few_shot())))
    one = next(text for text in model.texts if text[-1] == "user:one")
    assert set(one[:-1]) == {"user:three", "assistant:3", "user:four", "assistant:4"}


async def test_another_prompt_is_another_specification():
    """What differs is named by its path."""
    async with rig() as worker:
        await worker.evaluation.evaluate(asked(dataset=prompted(SHOUTING)))
        other = dataclasses.replace(SHOUTING, system="other")
        again = await worker.evaluation.evaluate(asked(dataset=prompted(SHOUTING)))
        error = await refused(
            worker.evaluation.evaluate(asked(dataset=prompted(other))),
            Code.ALREADY_EXISTS,
            "OTHER_SPECIFICATION",
            "evaluation_id",
        )
        without = await refused(
            worker.evaluation.evaluate(asked(dataset=SAMPLES)),
            Code.ALREADY_EXISTS,
            "OTHER_SPECIFICATION",
            "evaluation_id",
        )
    assert again.attempt == 1
    assert error.metadata["differs"] == "dataset.prompt.system"
    assert without.metadata["differs"] == "dataset.prompt"


@pytest.mark.parametrize("changed", [False, True])
async def test_examples_that_changed_refuse_to_go_on(data, changed):
    """An attempt renders as the first one did, or not at all."""
    held = HeldModel()
    state = data / "state"
    request = asked(dataset=prompted(few_shot(1)))
    async with rig(held, data_roots=(data,), state_dir=state) as worker:
        await worker.evaluation.start_evaluation(request)
        await held.asked.wait()
        await worker.worker.bridge.worker.drain()
    if changed:
        (data / "train.jsonl").write_text('{"input": "five", "target": "5"}\n{"input": "six", "target": "6"}\n')
    async with rig(ScriptedModel(), data_roots=(data,), state_dir=state) as worker:
        going_on = worker.evaluation.evaluate(request)
        if changed:
            await refused(going_on, Code.FAILED_PRECONDITION, "DATASET_CHANGED", "dataset")
        else:
            assert (await going_on).attempt == 2


@rows(
    ("template", "told"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "time or memory"),
        ("{{ 'x' * 10 ** 10 }}", "time or memory"),
        ("{% for a in range(99999) %}{{ 'x' * 99 }}{% endfor %}", "more than 1,000,000 characters"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "cannot be filled"),
        ("{{ nothing }}", "'nothing' is undefined"),
        ("{% if %}", "is no template of Jinja2"),
    ],
)
async def test_a_hostile_template_is_refused_and_holds_up_nobody(template, told):
    """It runs where it can be killed: other calls are answered meanwhile, and nothing is started."""
    async with run_worker({"m": ScriptedModel()}) as worker:

        async def refusal() -> BridgeError:
            while True:
                with pytest.raises(BridgeError) as caught:
                    await worker.bridge.evaluation.evaluate(asked(dataset=prompted(Prompt(template=template))))
                # On a busy machine the processor time may not have come in time: the caller is told to try again.
                if caught.value.code is not Code.UNAVAILABLE:
                    return caught.value

        refusing = asyncio.create_task(refusal())
        slowest = 0.0
        while not refusing.done():
            began = time.monotonic()
            await worker.bridge.worker.get_info()
            slowest = max(slowest, time.monotonic() - began)
        error = await refusing
        assert (error.code, error.reason, error.field) == (
            Code.INVALID_ARGUMENT,
            "TEMPLATE_FAILED",
            "dataset.prompt.template",
        )
        assert (await worker.bridge.evaluation.list_evaluations()).items == ()
    assert told in error.message
    assert slowest < 5.0, "GetInfo was held up"


async def test_a_row_that_the_template_does_not_fit_is_an_error_of_its_own():
    """The first row is tried at the start; a later one costs itself alone."""
    samples = (*SAMPLES, Sample(id="c", input="three", targets=("THREE",)))
    async with rig() as worker:
        await worker.evaluation.evaluate(asked(dataset=prompted(Prompt(template="{{ topic }}"), samples)))
        results = {result.sample_id: result for result in await samples_of(worker.worker.bridge, "e")}
    assert results["a"].verdict is Verdict.INCORRECT
    assert results["c"].verdict is Verdict.ERROR
    assert results["c"].problem is not None
    assert results["c"].problem.reason == "TEMPLATE_FAILED"
    assert "'topic' is undefined" in results["c"].problem.message


@rows(
    ("field", "prompt"),
    [
        ("dataset.prompt.few_shot.source", Prompt(few_shot=FewShot(source="", count=1))),
        ("dataset.prompt.few_shot.count", Prompt(few_shot=FewShot(source="jsonl:a", count=0))),
        ("dataset.prompt.few_shot.count", Prompt(few_shot=FewShot(source="jsonl:a", count=65))),
        ("dataset.prompt.system", Prompt(system="x" * 65_537)),
    ],
)
async def test_bounds_are_told_at_their_field(field, prompt):
    """As for every other field of a request."""
    async with rig() as worker:
        await refused(
            worker.evaluation.evaluate(asked(dataset=prompted(prompt))),
            Code.INVALID_ARGUMENT,
            "INVALID_FIELD",
            field,
        )


async def test_a_plan_checks_its_prompts():
    """Whoever registers it learns at once, not at a step."""
    planned = PlannedEvaluation(evaluators=(EvaluatorSpec(kind="nll"),), dataset=prompted(Prompt(template="{% if %}")))
    plan = EvaluationPlan(plan_id="p", run_id="r", evaluations=(planned,))
    async with rig() as worker:
        await refused(
            worker.evaluation.register_plan(plan),
            Code.INVALID_ARGUMENT,
            "TEMPLATE_FAILED",
            "evaluations[0].dataset.prompt.template",
        )


EVALUATORS = (
    accuracy(),
    accuracy("colon", renderer="role_colon"),
    nll(),
    nll("sampled", client="sampling"),
    EvaluatorSpec(kind="multiple_choice", name="choice"),
    EvaluatorSpec(kind="pass_at_k", options={"ks": [1]}),
    EvaluatorSpec(kind="rollout"),
    EvaluatorSpec(kind="rl_test_set"),
    EvaluatorSpec(kind="perplexity"),
    EvaluatorSpec(kind="next_token_accuracy"),
)
CHOSEN = (Sample(id="a", input="one", targets=("ONE",), choices=("ONE", "TWO")),)


async def test_what_is_shown_is_what_is_asked():
    """For each evaluator the prompt of its first call, by the same way; nothing is asked for it."""
    model = ScriptedModel()
    request = request_of(
        model="embedded:m",
        evaluators=EVALUATORS,
        dataset=prompted(Prompt(system="say "), CHOSEN),
        sampling=SamplingParams(max_tokens=8, temperature=1.0, seed=1),
    )
    async with run_worker({"m": model}) as worker:
        shown = await worker.bridge.evaluation.render_sample(request, "a")
        assert model.calls == 0
        for prompt, spec in zip(shown.prompts, EVALUATORS, strict=True):
            texts: list[str] = []
            model.answer = lambda text, texts=texts: texts.append(text) or "ONE"
            assert prompt.problem is None
            assert prompt.text == "".join(map(chr, prompt.tokens))
            await worker.bridge.evaluation.evaluate(dataclasses.replace(request, evaluators=(spec,)))
            if texts:
                assert prompt.text == texts[0]
            else:
                assert prompt.text.startswith("say one")
        assert shown.prompts[1].stop == ("\n\nUser:",)
    assert [prompt.evaluator for prompt in shown.prompts] == [spec.label for spec in EVALUATORS]
    assert shown.prompts[0].text == "say one"
    assert shown.prompts[2].text == "say oneONE"


async def test_a_sample_that_is_not_there_cannot_be_shown():
    """The first is shown where none is named; nothing of it is kept."""
    async with rig() as worker:
        request = asked(dataset=prompted(SHOUTING))
        first = await worker.evaluation.render_sample(request)
        await refused(worker.evaluation.render_sample(request, "z"), Code.NOT_FOUND, "UNKNOWN_SAMPLE", "sample_id")
        assert (await worker.evaluation.list_evaluations()).items == ()
    assert (first.sample_id, first.prompts[0].text) == ("a", "sayONE")


async def test_each_evaluator_shows_its_prompt_or_its_problem():
    """The problem of one evaluator does not hide the others; a prompt beyond the context is shown with its problem."""
    model = ScriptedModel(context_length=2, trained=False)
    async with rig(model) as worker:
        shown = await worker.evaluation.render_sample(
            asked(evaluators=[accuracy(), nll(client="training"), nll("untargeted")], dataset=[Sample(input="abc")])
        )
    reasons = [None if prompt.problem is None else prompt.problem.reason for prompt in shown.prompts]
    assert reasons == ["PROMPT_TOO_LONG", "MISSING_CLIENT", "NO_PREFIX_TOKEN"]
    assert shown.prompts[0].text == "abc"
    assert shown.prompts[0].problem.message == (
        "the prompt has 3 tokens; the model's context has 2, and the answer needs at least 1 of them"
    )


@pytest.mark.parametrize(("context", "reason"), [(3, "PROMPT_TOO_LONG"), (4, None)])
async def test_a_prompt_leaves_room_for_one_token(context, reason):
    """A prompt of three tokens needs a context of four."""
    async with rig(ScriptedModel(context_length=context)) as worker:
        shown = await worker.evaluation.render_sample(asked(evaluators=[accuracy()], dataset=[Sample(input="abc")]))
    problem = shown.prompts[0].problem
    assert (None if problem is None else problem.reason) == reason


@dataclasses.dataclass(kw_only=True)
class Base(ScriptedModel):
    """A model without a chat template; keeps the texts that it measures and continues."""

    has_chat_template = False
    texts: list[str] = dataclasses.field(default_factory=list)
    reads: list[str] = dataclasses.field(default_factory=list)

    def with_special_tokens(self):
        """The same model, which notes that its text is read so."""
        self.reads.append("special tokens")
        return self

    async def forward(self, data):
        for datum in data:
            whole = [*datum.model_input.tokens().tolist(), int(np.asarray(datum.loss_fn_inputs["target_tokens"])[-1])]
            self.texts.append("".join(map(chr, whole)))
        return await super().forward(data)

    async def sample(self, prompt, params, num_samples=1):
        self.texts.append("".join(map(chr, prompt.tokens().tolist())))
        return await super().sample(prompt, params, num_samples)


ONE = (Sample(id="a", input="one", targets=("ONE",)),)


@rows(
    ("dataset", "measured", "continued"),
    [
        (Dataset(source=InlineDataset(ONE)), "one ONE", "one"),
        (prompted(Prompt(template="{input} "), ONE), "one ONE", "one "),
        (prompted(Prompt(target_delimiter=""), ONE), "oneONE", "one"),
        (prompted(Prompt(target_delimiter="\n"), ONE), "one\nONE", "one"),
        (prompted(few_shot(1, target_delimiter=" = "), ONE), "three = 3\n\none = ONE", "three = 3\n\none"),
        (Dataset.of("builtin:arithmetic"), "23+74=97", "23+74="),
        (
            dataclasses.replace(Dataset.of("builtin:arithmetic"), prompt=Prompt(target_delimiter=" ")),
            "23+74= 97",
            "23+74=",
        ),
    ],
)
async def test_what_is_measured_follows_the_prompt_after_the_delimiter(data, dataset, measured, continued):
    """One space if the request says nothing, none for the data set of the worker; generation sees no delimiter."""
    model = Base()
    (data / "train.jsonl").write_text(f"{json.dumps(TRAIN[0])}\n")
    request = asked(dataset=dataclasses.replace(dataset, limit=1), evaluators=[nll(), accuracy()])
    async with rig(model, data_roots=(data,)) as worker:
        evaluation = await worker.evaluation.evaluate(request)
        kept = await worker.evaluation.get_evaluation("e")
        shown = await worker.evaluation.render_sample(request)

    assert evaluation.state is EvaluationState.COMPLETED
    assert sorted(model.texts) == sorted([measured, continued])
    assert kept.request.dataset.prompt == dataset.prompt
    assert [prompt.text for prompt in shown.prompts] == [measured, continued]


@pytest.mark.parametrize("special", [True, False])
async def test_a_data_set_says_whether_special_tokens_are_read(special):
    """It is part of the specification, reaches the tokenizer of the evaluated model, and is recorded."""
    model = Base()
    dataset = Dataset(source=InlineDataset(ONE), special_tokens=special)
    async with rig(model) as worker:
        await worker.evaluation.evaluate(asked(dataset=dataset))
        kept = await worker.evaluation.get_evaluation("e")
        error = await refused(
            worker.evaluation.evaluate(asked(dataset=dataclasses.replace(dataset, special_tokens=not special))),
            Code.ALREADY_EXISTS,
            "OTHER_SPECIFICATION",
            "evaluation_id",
        )

    assert kept.request.dataset.special_tokens is special
    assert bool(model.reads) is special
    assert error.metadata["differs"] == "dataset.special_tokens"


async def test_tokens_have_no_delimiter():
    """A row of tokens has nothing to join: the option is refused by its path."""
    inputs = {"target_tokens": np.array([6]), "weights": np.ones(1, np.float32)}
    rows_of_tokens = (Sample(id="a", input=Datum(model_input=ModelInput.of([5]), loss_fn_inputs=inputs)),)
    async with rig(Base()) as worker:
        await refused(
            worker.evaluation.evaluate(
                asked(dataset=prompted(Prompt(target_delimiter="x"), rows_of_tokens), evaluators=[nll()])
            ),
            Code.INVALID_ARGUMENT,
            "INVALID_FIELD",
            "dataset.prompt.target_delimiter",
        )
