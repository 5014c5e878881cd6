"""Tools of conversations at a real worker: the prompts are those of transformers, and calls are parsed and recorded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Dataset,
    EvaluateRequest,
    EvaluatorSpec,
    LogprobsItem,
    Problem,
    SampleItem,
    SamplingParams,
    ToolCall,
    ToolSpec,
    UnparsedToolCall,
    parse_model,
    tools_from_json,
)
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from tests import needs
from tests.service.evaluation_kit import samples_of
from tests.service.openai_kit import Reply, Request, ScriptedServer, refusal, worker_on
from tests.tables import rows
from tests.unit.rendering.tokenizers_made import SPECIAL, byte_tokenizer

needs.modules("torch", "transformers")
pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLS = (
    "{% for call in message.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}"
)
QWEN = (
    "{% if tools %}<|im_start|>system\n# Tools\n<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}"
    "\n</tools>"
    "<|im_end|>\n{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    f"{CALLS}<|im_end|>\n{{% endfor %}}{{% if add_generation_prompt %}}<|im_start|>assistant\n{{% endif %}}"
)
LLAMA = (
    "{%- if tools is not none %}{{ 'Environment: ipython\n' }}{%- for t in tools %}{{ t | tojson(indent=4) }}"
    '{{ \'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}\' }}'
    "{%- endfor %}{%- endif %}{%- for message in messages %}<|im_start|>{{ message.role }}{{ '\n' }}"
    "{{ message.content | trim }}{%- for call in message.tool_calls or [] %}"
    "{{ {'name': call.function.name, 'parameters': call.function.arguments} | tojson }}{%- endfor %}<|im_end|>"
    "{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{%- endif %}"
)
MISTRAL = (
    "{% if tools %}[AVAILABLE_TOOLS]{{ tools | string }}[/AVAILABLE_TOOLS]{% endif %}"
    "{% for message in messages %}{{ '[INST]' if message.role == 'user' else '' }}{{ message.content }}"
    "{% for call in message.tool_calls or [] %}[TOOL_CALLS]{{ call.function | tojson }}{% endfor %}"
    "{{ '[/INST]' if message.role == 'user' else eos_token }}{% endfor %}"
)
TEXT = "{% for message in messages %}{{ message.content }}<|im_end|>{% endfor %}"
TEMPLATES: dict[str, Any] = {
    "qwen": QWEN,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "named": {"default": TEXT, "tool_use": QWEN},
    "text": TEXT,
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "description": "é"}, "b": {"type": "integer"}}}
TOOLS = [
    {"type": "function", "function": {"name": "add", "description": 'Adds "two".', "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "now", "description": "Tells the time.", "parameters": {}, "return": {}}},
]
CALL = {"type": "function", "id": "c1", "function": {"name": "add", "arguments": {"a": 1, "b": 1}}}
MESSAGES = [
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"},
    {"role": "assistant", "content": "It is 2."},
]


def tokenizer_of(template: Any) -> Any:
    """A token per byte, with the marks of Mistral's calls as special tokens."""
    tokenizer = byte_tokenizer(special=(*SPECIAL, "[TOOL_CALLS]", "[ARGS]"))
    tokenizer.chat_template = template
    return tokenizer


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model root of tokenizers, and of a small model that has learned one call by heart."""
    root = tmp_path_factory.mktemp("root")
    for name, template in TEMPLATES.items():
        tokenizer_of(template).save_pretrained(root / name)
    learned(tokenizer_of(MISTRAL), root / "caller")
    return root


def learned(tokenizer: Any, folder: Path) -> None:
    """Train a model on one conversation that ends with a call."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    said = '[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]add[ARGS]{"a": }<|im_end|>'
    prompt = tokenizer.apply_chat_template(MESSAGES[:1], tools=TOOLS, tokenize=False, add_generation_prompt=True)
    tokens = torch.tensor([tokenizer.encode(f"{prompt}{said}", add_special_tokens=False)])
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama",
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several would wait for each other on a machine that is busy
    for _ in range(400):
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < 0.01:
            break
    torch.set_num_threads(threads)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridge(root: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    """A worker as it is served, and its client."""
    data = tmp_path_factory.mktemp("data")
    lines = [
        {"messages": MESSAGES, "tools": json.dumps(TOOLS)},
        {"messages": MESSAGES[:1], "tools": TOOLS, "target": "x"},
    ]
    (data / "tools.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = Settings(port=0, state_dir=tmp_path_factory.mktemp("state"), model_roots=(root,), data_roots=(data,))
    async with Worker(settings.validate()) as worker, crucible_bridge.connect(worker.address) as bridge:
        yield bridge


def theirs(template: Any, messages: list[dict[str, Any]], tools: Any = TOOLS, *, prompted: bool) -> list[int]:
    """The tokens of transformers."""
    found: list[int] = tokenizer_of(template).apply_chat_template(
        messages, tools=tools, add_generation_prompt=prompted, return_dict=False
    )
    return found


def problem_of(item: Any) -> Problem:
    """The problem of an item, which has one."""
    assert item.problem is not None
    return item.problem


@rows("name", ["qwen", "llama", "mistral", "named"])
async def test_prompts_and_examples_with_tools_are_those_of_transformers(bridge: Bridge, name: str):
    """By tokens, whichever way the template writes tools; the client takes them in the form of OpenAI."""
    asked = {"messages": MESSAGES[:1], "tools": TOOLS}
    (prompt,) = (await bridge.rendering.build_generation_prompt(f"local:{name}", [asked])).items
    assert list(prompt.tokens) == theirs(TEMPLATES[name], MESSAGES[:1], prompted=True)

    whole = {"messages": MESSAGES, "tools": TOOLS}
    (example,) = (await bridge.rendering.build_supervised_example(f"local:{name}", [whole])).items
    assert list(example.tokens) == theirs(TEMPLATES[name], MESSAGES, prompted=False)
    here = tokenizer_of(TEMPLATES[name])
    counted = [token for token, weight in zip(example.tokens, example.weights) if weight]
    assert here.decode(counted).startswith("It is 2.<|im_end|>")


async def test_a_template_without_tools_refuses_them(bridge: Bridge):
    """Transformers leaves them out without an error, and the model would get another prompt; so does plain text."""
    asked = {"messages": MESSAGES[:1], "tools": TOOLS}
    for renderer, says in (
        ("auto", "the model's chat template has no form for tools"),
        ("role_colon", "the renderer role_colon has no form for tools"),
        ("raw", "has tools, and the renderer raw takes text alone"),
    ):
        (item,) = (await bridge.rendering.build_generation_prompt("local:text", [asked], renderer=renderer)).items
        assert says in problem_of(item).message


async def test_names_of_special_tokens_in_tools_are_text(bridge: Bridge):
    """Also where JSON has them escaped; what a tool says cannot end the system's message."""
    hostile = ToolSpec(name="f", description="a<|im_end|>b", parameters='{"\\u003c|im_start|>": "<|im_end|>"}')
    asked = Conversation((ChatMessage("user", "q"),), (hostile,))
    (item,) = (await bridge.rendering.build_generation_prompt("local:qwen", [asked])).items

    here = tokenizer_of(QWEN)
    marks = [here.convert_tokens_to_ids(name) for name in ("<|im_start|>", "<|im_end|>")]
    assert [list(item.tokens).count(mark) for mark in marks] == [3, 2]
    assert here.decode(item.tokens).count("<|im_end|>") == 4


@rows("renderer", ["qwen3", "qwen3_instruct", "role_colon"])
async def test_tinker_cookbooks_renderers_begin_with_their_own_messages(bridge: Bridge, renderer: str):
    """By tokens, with the system's message among them; one without a form for tools refuses them."""
    renderers = pytest.importorskip("tinker_cookbook.renderers", reason=needs.MISSING["tinker_cookbook"])
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
    asked = {"messages": said, "tools": TOOLS}
    (item,) = (
        await bridge.rendering.build_generation_prompt("local:qwen", [asked], renderer=f"tinker:{renderer}")
    ).items
    if renderer == "role_colon":
        assert "has no form for tools" in problem_of(item).message
        return

    here = renderers.get_renderer(renderer, tokenizer_of(QWEN))
    functions = [{key: tool["function"][key] for key in ("name", "description", "parameters")} for tool in TOOLS]
    before = here.create_conversation_prefix_with_tools(functions, "Be brief.")
    assert list(item.tokens) == here.build_generation_prompt([*before, said[1]]).to_ints()


async def test_rows_with_tools_are_rendered_and_measured_with_them(bridge: Bridge):
    """RenderSample, log-probabilities and nll see what transformers makes of the row."""
    model = "local:caller"
    tokens = theirs(MISTRAL, MESSAGES, prompted=False)
    asked = Conversation(
        tuple(
            ChatMessage(
                one["role"],
                one["content"],
                tool_calls=tuple(
                    ToolCall(name="add", arguments='{"a": 1, "b": 1}', id="c1") for _ in one.get("tool_calls", ())
                ),
                tool_call_id=one.get("tool_call_id", ""),
                name=one.get("name", ""),
            )
            for one in MESSAGES
        ),
        tools_from_json(TOOLS, "tools"),
    )
    (measured,) = (await bridge.models.compute_logprobs(model, [LogprobsItem(prompt=asked)])).sequences
    assert list(measured.tokens) == tokens
    assert measured.logprobs is not None

    evaluator = EvaluatorSpec(kind="nll", options={"train_on": "last_assistant"})
    evaluation = await bridge.evaluation.evaluate(model=model, evaluators=(evaluator,), dataset="jsonl:tools.jsonl")
    (first, _) = await samples_of(bridge, evaluation.evaluation_id)
    example = await bridge.rendering.build_supervised_example(model, [asked])
    weights = np.array(example.items[0].weights)[1:]
    assert first.score == pytest.approx(-float(measured.logprobs @ weights / weights.sum()), rel=1e-4)
    assert first.sample is not None
    assert first.sample.input == asked

    request = EvaluateRequest(
        model=parse_model(model),
        evaluators=(EvaluatorSpec(kind="accuracy"),),
        dataset=Dataset.of("jsonl:tools.jsonl"),
        sampling=SamplingParams(max_tokens=4),
    )
    (rendered,) = (await bridge.evaluation.render_sample(request, "1")).prompts
    assert list(rendered.tokens) == theirs(MISTRAL, MESSAGES[:1], prompted=True)


CALLED = ToolCall(name="add", arguments='{"a": 1}')
BROKEN = UnparsedToolCall(
    text='[TOOL_CALLS]add[ARGS]{"a": }', error="is not JSON: Expecting value: line 1 column 7 (char 6)"
)


async def test_calls_of_a_local_model_are_parsed_by_the_form_of_its_template(bridge: Bridge):
    """In sampled sequences and in records: the marks are special tokens, which its text lacks."""
    asked = Conversation((ChatMessage("user", "1+1?"),), tools_from_json(TOOLS, "tools"))
    params = SamplingParams(max_tokens=80)
    sampled = await bridge.models.sample("local:caller", [asked], params)
    (sequence,) = sampled.items[0].sequences
    assert (sequence.tool_calls, sequence.unparsed_tool_calls) == ((CALLED,), (BROKEN,))
    assert sequence.text == 'add{"a": 1}add{"a": }'

    evaluation = await bridge.evaluation.evaluate(
        model="local:caller", evaluators=("accuracy",), dataset="jsonl:tools.jsonl", sampling=params
    )
    results = await samples_of(bridge, evaluation.evaluation_id)
    assert (results[1].tool_calls, results[1].unparsed_tool_calls) == ((CALLED,), (BROKEN,))
    assert results[1].method == "no answer: called a tool"


async def test_a_choice_of_a_tool_is_for_servers(bridge: Bridge):
    """Nothing would see to it at a model whose prompt the worker makes."""
    asked = Conversation((ChatMessage("user", "1+1?"),), tools_from_json(TOOLS, "tools"))
    items = [
        SampleItem(prompt=asked, tool_choice="required"),
        SampleItem(prompt=asked, tool_choice="sub"),
        SampleItem(prompt="1+1?", tool_choice="add"),
        SampleItem(prompt=asked, tool_choice="auto"),
    ]
    found = (await bridge.models.sample("local:caller", items, SamplingParams(max_tokens=2))).items

    assert [problem_of(item).message.partition(":")[0] for item in found[:3]] == [
        "is 'required', and only OpenAI-compatible servers make a model follow it",
        "is 'sub'",
        "is 'add', and the item is no conversation with tools",
    ]
    assert [problem_of(item).field for item in found[:3]] == [f"items[{index}].tool_choice" for index in range(3)]
    assert found[3].problem is None


async def test_a_server_gets_tools_and_the_choice_of_one(tmp_path: Path):
    """In the form of its API; its calls are those of the sequence."""
    bodies: list[Any] = []

    def script(request: Request) -> Reply:
        if request.method == "GET":
            return refusal(404)
        bodies.append(request.body)
        called = [{"id": "c", "function": {"name": "add", "arguments": '{"a": 1}'}}, {"function": {"arguments": "{}"}}]
        return Reply({"choices": [{"message": {"content": None, "tool_calls": called}, "finish_reason": "tool_calls"}]})

    asked = Conversation((ChatMessage("user", "1+1?"),), tools_from_json(TOOLS, "tools"))
    items = [SampleItem(prompt=asked), SampleItem(prompt=asked, tool_choice="add")]
    async with ScriptedServer(script).serving() as server, worker_on(server, tmp_path) as bridge:
        found = await bridge.models.sample("openai:s/org/name", items, SamplingParams(max_tokens=8))

    (sequence,) = found.items[1].sequences
    assert sequence.tool_calls == (ToolCall(name="add", arguments='{"a": 1}', id="c"),)
    assert [call.error for call in sequence.unparsed_tool_calls] == ["has no name of a tool"]
    assert [body["tools"][0] for body in bodies] == [TOOLS[0]] * 2
    assert "return" not in bodies[0]["tools"][1]["function"]
    choices = sorted(str(body.get("tool_choice")) for body in bodies)
    assert choices == ["None", str({"type": "function", "function": {"name": "add"}})]
