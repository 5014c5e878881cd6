"""The endpoint of OpenAI's API with a local model that has a chat template."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from crucible_worker.embedded import registry
from crucible_worker.server import Worker
from crucible_worker.server.parts import build
from tests import needs
from tests.service.openai_endpoint_kit import CHAT, COMPLETIONS, ask, settings


@needs.installed("torch", "transformers")
async def test_a_chat_template_is_for_messages_alone(tmp_path: Path):
    """A message is rendered by the template of a local model; a prompt is not."""
    shutil.copytree(registry.path("arithmetic@320"), tmp_path / "models" / "chat")
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}={% endif %}"
    (tmp_path / "models" / "chat" / "chat_template.jinja").write_text(template)
    messages = [{"role": "system", "content": "12+"}, {"role": "user", "content": "34"}]
    given = settings(tmp_path, model_roots=(tmp_path / "models",), device="cpu")
    async with Worker(given, build=build) as worker:
        body = {"model": "local:chat", "temperature": 0, "max_tokens": 8}
        said = json.loads((await ask(worker.openai_address, CHAT, {**body, "messages": messages})).body)
        prompts = ["12+34=", "12+34"]
        texts = json.loads((await ask(worker.openai_address, COMPLETIONS, {**body, "prompt": prompts})).body)

    assert said["usage"]["prompt_tokens"] == len("12+34=")
    assert texts["usage"]["prompt_tokens"] == len("12+34=") + len("12+34")
    assert texts["choices"][0]["text"] == said["choices"][0]["message"]["content"]
