"""RenderingService on models of the hub and of a Tinker service: only their tokenizers are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.errors import FailedPrecondition, NotFound
from crucible_bridge.types import Termination
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from tests import needs
from tests.service.test_rendering_parts import CALLED, IMAGE, VISION, chunks, shown, split, vision_tokenizer

needs.modules("transformers")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TINKER = "tinker://run/sampler_weights/final"


async def test_a_model_of_the_hub_renders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By the tokenizer in the hub's cache, without weights; one that is not there is not found."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    repository = tmp_path / "home" / "hub" / "models--acme--sees"
    here = vision_tokenizer(VISION)
    here.save_pretrained(repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)

    settings = Settings(port=0, state_dir=tmp_path / "state", grading_processes=0).validate()
    async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
        found = await bridge.rendering.build_generation_prompt("hub:acme/sees", [CALLED, shown()])
        stops = await bridge.rendering.get_stop_sequences("hub:acme/sees")
        with pytest.raises(NotFound):
            await bridge.rendering.tokenize("hub:acme/none", ["a"])

    expected = here.apply_chat_template(CALLED, add_generation_prompt=True, return_dict=False)
    assert list(found.items[0].tokens) == expected
    assert IMAGE in chunks(found.items[1].model_input)
    assert stops.stop == ("<|im_end|>",)


async def test_a_model_of_a_tinker_service_renders(tmp_path: Path):
    """By the tokenizer of its base model; nothing is sampled."""
    from tests.service.tinker_kit import ScriptedLibrary, worker_on

    here = vision_tokenizer(VISION)
    library = ScriptedLibrary()
    library.tokenizer = lambda: here
    async with worker_on(library, tmp_path) as bridge:
        found = await bridge.rendering.build_generation_prompt(TINKER, [CALLED, shown()])
        (item,) = (await bridge.rendering.build_supervised_example(TINKER, [CALLED[:2]], renderer="auto")).items
        (said,) = (await bridge.rendering.parse_response(TINKER, ["<think>a</think>b<|im_end|>"])).items

    tokens = here.apply_chat_template(CALLED, add_generation_prompt=True, return_dict=False)
    assert list(found.items[0].tokens) == tokens
    places = here.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is é?"}]}],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert chunks(found.items[1].model_input) == split(places, here.convert_tokens_to_ids("<|image_pad|>"))
    assert list(item.tokens) == here.apply_chat_template(CALLED[:2], add_generation_prompt=False, return_dict=False)
    assert (said.text, said.reasoning, said.termination) == ("b", "a", Termination.STOP)
    assert not library.of("sample")


async def test_a_tinker_model_without_a_tokenizer_is_refused(tmp_path: Path):
    """By the reason, for the whole call."""
    from tests.service.tinker_kit import ScriptedLibrary, worker_on

    library = ScriptedLibrary()

    def fail() -> None:
        raise OSError("not on this machine")

    library.tokenizer = fail
    async with worker_on(library, tmp_path) as bridge:
        with pytest.raises(FailedPrecondition) as caught:
            await bridge.rendering.tokenize(TINKER, ["a"])
    assert caught.value.reason == "NO_TOKENIZER"
