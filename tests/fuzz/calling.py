"""Calls with hostile texts in them: one coroutine for each kind of call, drawn at random."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import shutil
import traceback
from collections.abc import Awaitable, Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import BridgeError, Code
from crucible_bridge.types import (
    Assertions,
    CallTest,
    ChatMessage,
    ChoiceScorer,
    CodeItem,
    CodeLimits,
    Conversation,
    Dataset,
    EvaluatorSpec,
    ExactComparison,
    FormatScorer,
    GradeItem,
    ImageChunk,
    InlineDataset,
    InputOutputTests,
    JsonSchemaForm,
    MarksForm,
    MathPolicy,
    NumericScorer,
    OutputComparison,
    RegexScorer,
    Sample,
    SamplingParams,
    StdioTest,
    TextScorer,
    ToolCall,
    TrajectoryBatch,
    bounds,
)
from tests.fuzz.texts import Texts

__all__ = ["call_for_ever", "write_checkpoints"]

ITEMS = 4
"""At most, of a batch."""
CALL_SECONDS = 10.0
"""For one call; what takes longer is given up here, and must not harm other calls there."""
CHECKPOINTS = 12
"""With templates of all kinds, and one that is as it should be."""
_TEMPLATES = (
    "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}" + "{% endfor %}" * 3,
    "{{ 'a' * 1000000000 }}",
    "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ 'a'.center(2000000000) }}",
    "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "{{ messages | string * 100000 }}",
    "{{ raise_exception('no') }}",
    "{% for m in messages %}{{ m['content'] | replace('', 'a' * 20) | replace('', 'b' * 1000) }}{% endfor %}",
    "{{ range(1000000000) | list | length }}",
)


def write_checkpoints(root: Path, rng: random.Random) -> None:
    """Checkpoints below a model root: the small model of the worker with templates that do harm."""
    from crucible_worker.embedded import registry

    for at in range(CHECKPOINTS):
        folder = root / f"m{at}"
        shutil.copytree(registry.path("arithmetic@600"), folder)
        (folder / "chat_template.jinja").write_text(_TEMPLATES[at % len(_TEMPLATES)])
    config = root / "m1" / "config.json"
    values = json.loads(config.read_text())
    values[rng.choice(("num_hidden_layers", "vocab_size", "hidden_size"))] = 6_000_000
    config.write_text(json.dumps(values))


def call_for_ever(results: Connection, address: str, seed: int, folder: str, only: str) -> None:
    """Call until this process is ended; what is asked and what is found go into the pipe."""
    asyncio.run(_call(results, address, seed, Path(folder), only))


async def _call(results: Connection, address: str, seed: int, folder: Path, only: str) -> None:
    async with crucible_bridge.connect(address) as bridge:
        kinds = _Kinds(bridge, Texts(random.Random(seed)), folder / "data").by_name()
        names = [name for name in kinds if not only or name in only.split(",")]
        for number in range(10**9):
            rng = random.Random(f"{seed}/{number}")
            name = rng.choice(names)
            results.send(("asks", name, f"{name} of {seed}/{number}"))
            try:
                await asyncio.wait_for(_Kinds(bridge, Texts(rng), folder / "data").by_name()[name](), CALL_SECONDS)
            except TimeoutError:
                continue
            except BridgeError as error:
                if error.code is Code.INTERNAL:
                    results.send(("found", f"{name} of {seed}/{number}: {error}"))
                elif error.code is Code.UNAVAILABLE:
                    await asyncio.sleep(0.05)
            except Exception:  # a fault of the client's, or of this program: it is reported as one
                results.send(("found", f"{name} of {seed}/{number}: {traceback.format_exc()[-2000:]}"))


class _Kinds:
    """Kinds of calls."""

    def __init__(self, bridge: Bridge, texts: Texts, data: Path) -> None:
        self._bridge, self._texts, self._data = bridge, texts, data

    def by_name(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Each by its name."""
        methods = inspect.getmembers(self, inspect.iscoroutinefunction)
        return {name: method for name, method in methods if not name.startswith("_")}

    def _items(self) -> list[GradeItem]:
        texts, rng = self._texts, self._texts.rng
        items = []
        for _ in range(rng.randint(1, ITEMS)):
            said = texts.number() if rng.random() < 0.2 else texts.text()
            targets = tuple(
                texts.text(2_000) if rng.random() < 0.8 else texts.number() for _ in range(rng.randint(1, 3))
            )
            if rng.random() < 0.2:
                targets = (said[:20_000],)
            whole = rng.random() < 0.5
            items.append(GradeItem(response=said if whole else None, answer=None if whole else said, targets=targets))
        return items

    async def grade_math(self) -> object:
        """Answers and responses against targets."""
        rng = self._texts.rng
        policy = MathPolicy(rounding_digits=rng.choice((0, 3)), rename_variables=rng.random() < 0.5)
        return await self._bridge.grading.grade_math(self._items(), policy)

    async def extract(self) -> object:
        """Answers in long responses."""
        return await self._bridge.grading.extract_answers([self._texts.text(20_000_000) for _ in range(2)])

    async def extract_code(self) -> object:
        """Programs in long responses."""
        texts = self._texts
        names = [texts.text(100) for _ in range(texts.rng.randint(0, 3))]
        return await self._bridge.grading.extract_code([texts.text(20_000_000) for _ in range(2)], names)

    async def score(self) -> object:
        """Every scorer."""
        texts, rng = self._texts, self._texts.rng
        options = rng.choice(
            (
                *(TextScorer(kind="exact_match", compare=compare) for compare in ExactComparison),
                "contains",
                "f1",
                "bleu",
                "rouge",
                RegexScorer(full=rng.random() < 0.5),
                NumericScorer(relative_tolerance=0.1),
                ChoiceScorer(choices=tuple(texts.text(1000) for _ in range(4))),
                FormatScorer(form=MarksForm(marks=tuple(texts.text(100) for _ in range(5)))),
            )
        )
        return await self._bridge.grading.score(self._items(), options)

    async def schema(self) -> object:
        """JSON against schemas."""
        texts, rng = self._texts, self._texts.rng
        schema = {
            "type": "array",
            "uniqueItems": True,
            "items": rng.choice(
                ({}, {"$ref": "#"}, {"pattern": texts.text(1_000)}, {"multipleOf": 1e-300}, {"anyOf": [{}] * 50})
            ),
        }
        step = rng.choice((1, 2**61 - 1, 0.5))
        count = texts.size(200_000)
        document = rng.choice(
            (
                lambda: [number * step for number in range(count)],
                lambda: [[number] for number in range(count)],
                lambda: [{"a": number} for number in range(count)],
                lambda: json.loads("[" * (count % 900 + 1) + "]" * (count % 900 + 1)),
                lambda: texts.text(),
            )
        )()
        said = document if isinstance(document, str) else json.dumps(document)
        return await self._bridge.grading.score(
            [GradeItem(response=said)], FormatScorer(form=JsonSchemaForm(json.dumps(schema)))
        )

    async def code(self) -> object:
        """Programs and responses with tests."""
        texts, rng = self._texts, self._texts.rng
        value = rng.choice(
            (
                "Fraction(3**500000, 2**800000)",
                "[1] * 10**6",
                "'a' * 10**6",
                "{i * (2**61 - 1) for i in range(20000)}",
                "10**4000",
                "f",
            )
        )
        program = rng.choice(
            (texts.text(), f"```python\nfrom fractions import Fraction\ndef f(*a): return {value}\n```")
        )
        tests = rng.choice(
            (
                (
                    CallTest(
                        function="f",
                        arguments_json="[" * rng.choice((1, 150)) + "]" * rng.choice((1, 150)),
                        expected_json="1",
                    ),
                ),
                (Assertions(f"assert f(1) == {rng.choice((value, texts.text(1_000)))}"),),
                (StdioTest(stdin=texts.text(10_000), stdout=texts.text(10_000)),),
                (
                    StdioTest(
                        stdout=texts.text(10_000),
                        comparison=OutputComparison(by_token=rng.random() < 0.5, relative_tolerance=1e300),
                    ),
                ),
                (
                    InputOutputTests(
                        json=rng.choice((texts.text(10_000), '{"inputs": [[]], "outputs": [[1]], "fn_name": "f"}'))
                    ),
                ),
            )
        )
        item = CodeItem(response=program, prefix=rng.choice(("", texts.text(1_000))), tests=tests)
        return await self._bridge.grading.grade_code([item], limits=CodeLimits(timeout_ms=1_000))

    async def metrics(self) -> object:
        """Labels and counts."""
        texts, rng = self._texts, self._texts.rng
        if rng.random() < 0.5:
            labels = [texts.text(200) for _ in range(texts.size(20_000))]
            return await self._bridge.metrics.compute_classification_metrics(labels, labels[::-1])
        count = texts.size(100_000)
        return await self._bridge.metrics.compute_pass_at_k([10**9] * count, [3] * count, [1, 5])

    async def lines(self) -> object:
        """A file of data whose lines are hostile."""
        texts, rng = self._texts, self._texts.rng
        name = f"{rng.randrange(8)}.jsonl"
        with (self._data / name).open("wb") as file:
            for _ in range(rng.randint(1, 4)):
                made = rng.choice(
                    (
                        texts.text().encode(errors="replace"),
                        json.dumps({"input": texts.text(), "target": texts.text(1_000)}).encode(),
                        b'{"input": "a", "metadata": {"x": '
                        + b"[" * 500
                        + b"9," * texts.size(3_000_000)
                        + b"1"
                        + b"]" * 500
                        + b"}}",
                        b'{"input": "a", "metadata": {"x": [' + b"[]," * texts.size(5_000_000) + b"[]]}}",
                    )
                )
                file.write(made.replace(b"\n", b" ") + b"\n")
            if rng.random() < 0.2:
                file.truncate(file.tell() + 50 * 2**30)
        return await self._evaluate(f"jsonl:{name}")

    async def samples(self) -> object:
        """Inline samples, graded in an evaluation."""
        texts = self._texts
        samples = tuple(Sample(input=texts.text(), targets=(texts.text(10_000),)) for _ in range(2))
        return await self._evaluate(Dataset(source=InlineDataset(samples)))

    async def _evaluate(self, dataset: Dataset | str) -> object:
        rng = self._texts.rng
        grader = rng.choice(("math", "exact_match", "numeric", "f1"))
        spec = EvaluatorSpec(kind="accuracy", options={"grader": grader})
        return await self._bridge.evaluation.evaluate(
            evaluation_id=f"fuzz-{rng.randrange(2**48)}",
            model=rng.choice(("embedded:arithmetic@600", f"local:m{rng.randrange(CHECKPOINTS)}")),
            evaluators=[spec],
            dataset=dataset,
            sampling=SamplingParams(max_tokens=4),
        )

    async def chat(self) -> object:
        """Conversations through hostile chat templates."""
        texts, rng = self._texts, self._texts.rng
        turns = Conversation(tuple(ChatMessage("user", texts.text()) for _ in range(rng.randint(1, 3))))
        model = f"local:m{rng.randrange(CHECKPOINTS)}"
        return await self._bridge.models.sample(model, [turns], SamplingParams(max_tokens=4))

    def _conversation(self) -> Conversation:
        texts, rng = self._texts, self._texts.rng
        messages = []
        for _ in range(rng.randint(1, 4)):
            role = rng.choice(("system", "user", "assistant", "tool", texts.text(20) or "user"))
            parts = [texts.text(2_000), ImageChunk(data=rng.randbytes(rng.randint(0, 2_000)), format="png")]
            call = ToolCall(name=texts.text(20), arguments=rng.choice(("{}", texts.text())), id=texts.text(20))
            shape = rng.randrange(4)
            messages.append(
                ChatMessage(
                    role,
                    "" if shape == 1 else texts.text(),
                    tuple(parts) if shape == 1 else (),
                    (call,) if shape == 2 else (),
                    texts.text(20) if shape == 3 else "",
                )
            )
        return Conversation(tuple(messages))

    def _renderer(self) -> str:
        names = ("auto", "chat_template", "role_colon", "raw", "tinker:qwen3", "tinker:role_colon", "tinker:llama3")
        return self._texts.rng.choice((*names, self._texts.text(50)))

    def _tokenizer(self) -> str:
        rng = self._texts.rng
        return rng.choice(("embedded:arithmetic@600", f"local:m{rng.randrange(CHECKPOINTS)}"))

    async def render(self) -> object:
        """Conversations with images and calls of tools, as prompts or examples, by every renderer."""
        rng, calls = self._texts.rng, self._bridge.rendering
        conversations = [self._conversation() for _ in range(rng.randint(1, ITEMS))]
        if rng.random() < 0.5:
            return await calls.build_generation_prompt(self._tokenizer(), conversations, renderer=self._renderer())
        train_on = rng.choice(bounds.FORWARD_REQUEST_TRAIN_ON_ONE_OF)
        return await calls.build_supervised_example(
            self._tokenizer(), conversations, renderer=self._renderer(), train_on=train_on
        )

    async def parse(self) -> object:
        """What models did not say, as responses: text, or tokens that need not be there."""
        rng, texts = self._texts.rng, self._texts
        said = [
            texts.text(200_000)
            if rng.random() < 0.7
            else [rng.randrange(-2, 400) for _ in range(rng.randint(1, 2_000))]
            for _ in range(rng.randint(1, ITEMS))
        ]
        model = None if rng.random() < 0.3 else self._tokenizer()
        return await self._bridge.rendering.parse_response(model, said, renderer=self._renderer())

    async def tokens(self) -> object:
        """Texts to tokens and back."""
        rng, texts, calls = self._texts.rng, self._texts, self._bridge.rendering
        found = await calls.tokenize(self._tokenizer(), [texts.text(2_000_000)], add_special_tokens=rng.random() < 0.5)
        await calls.get_stop_sequences(self._tokenizer(), renderer=self._renderer())
        return await calls.detokenize(self._tokenizer(), [item.tokens for item in found.items])

    async def prompt(self) -> object:
        """Long texts through tokenizers."""
        model = f"local:m{self._texts.rng.randrange(CHECKPOINTS)}"
        return await self._bridge.models.sample(model, [self._texts.text(20_000_000)], SamplingParams(max_tokens=4))

    async def trajectories(self) -> object:
        """Groups with many tags, which each make keys of their own."""
        count = self._texts.size(60_000)
        once = np.ones(count, np.int64)
        batch = TrajectoryBatch(
            trajectories_per_group=once,
            transitions_per_trajectory=once,
            action_tokens=once,
            observation_tokens=once,
            rewards=np.zeros(count),
            final_rewards=np.zeros(count),
            tags=tuple((f"t{number}",) for number in range(count)),
        )
        return await self._bridge.metrics.compute_trajectory_metrics(batch)
