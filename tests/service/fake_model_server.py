"""A program that speaks the endpoints of vLLM or of SGLang, as their sources have them, with weights that are a text.

The weights of a checkpoint are the text in its model.safetensors, or a digest of it, and those of an adapter likewise.
Answers are the text of the weights that gave them. Log-probabilities depend on it. The worker that is tested runs
this file.

Facts: vLLM's entrypoints/serve/lora, entrypoints/serve/dev/rpc, entrypoints/serve/dev/cache, entrypoints/openai/models;
SGLang's srt/entrypoints/http_server.py and srt/managers/io_struct.py.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

NOISE = float(os.environ.get("FAKE_NOISE", "0"))
"""Largest change of a log-probability from one request to the next, nats."""
DELAY_SECONDS = float(os.environ.get("FAKE_DELAY", "0"))
"""How long an answer takes."""


class Weights:
    """What a server has loaded."""

    def __init__(self, model: str) -> None:
        self.config = _config(model)
        self.path = model
        self.text = _text(model)
        self.adapters: dict[str, tuple[str, str]] = {}
        """By name, path and text."""

    def reload(self, path: str) -> None:
        """Load weights into the model as it is; ValueError if they do not fit."""
        if _config(path) != self.config:
            raise ValueError("There is no module or parameter named 'layers.24' in the model")
        self.text = _text(path)

    def logprob(self, text: str, place: int, token: int) -> float:
        digest = hashlib.sha256(f"{text} {place} {token}".encode()).digest()
        exact = -1.0 - 15.0 * int.from_bytes(digest[:4], "big") / 2**32
        return exact + random.uniform(-NOISE, NOISE)


def _config(model: str) -> dict[str, Any]:
    config = json.loads((Path(model) / "config.json").read_text())
    return {key: value for key, value in config.items() if key != "_name_or_path"}


def _adapter_text(path: str) -> str:
    return _text(path, "adapter_model.safetensors")


def _text(model: str, file: str = "model.safetensors") -> str:
    content = (Path(model) / file).read_bytes()
    return content.decode() if content.isascii() and b"\0" not in content else hashlib.sha256(content).hexdigest()


class Vllm:
    """vLLM: `vllm serve MODEL --port N --served-model-name NAME [--enable-lora]`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.name = options.name
        self.enable_lora = options.enable_lora
        self.weights = Weights(options.model)

    def routes(self) -> list[web.RouteDef]:
        found = [
            web.get("/health", _empty),
            web.get("/version", self.version),
            web.get("/v1/models", self.models),
            web.post("/v1/completions", self.completions),
            web.post("/v1/chat/completions", self.completions),
        ]
        if os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
            found += [web.post("/collective_rpc", self.rpc), web.post("/reset_prefix_cache", _empty)]
        if os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "").lower() in ("true", "1"):
            found += [web.post("/v1/load_lora_adapter", self.load), web.post("/v1/unload_lora_adapter", self.unload)]
        return found

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "0.11.2"})

    async def models(self, request: web.Request) -> web.Response:
        def card(name: str, root: str, parent: str | None) -> dict[str, Any]:
            return {
                "id": name,
                "object": "model",
                "created": int(time.time()),
                "owned_by": "vllm",
                "root": root,
                "parent": parent,
                "max_model_len": 4096 if parent is None else None,
                "permission": [{"id": "modelperm-1", "object": "model_permission"}],
            }

        cards = [card(self.name, self.weights.path, None)]
        cards += [card(name, path, self.name) for name, (path, _) in self.weights.adapters.items()]
        return web.json_response({"object": "list", "data": cards})

    async def rpc(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "method" not in body:
            return web.json_response({"detail": "Missing 'method' in request body"}, status=400)
        assert body["method"] == "reload_weights", body
        try:
            self.weights.reload(body["kwargs"]["weights_path"])
        except (OSError, ValueError) as error:
            return _vllm_error(500, str(error), "InternalServerError")
        return web.json_response({"results": [None]})

    async def load(self, request: web.Request) -> web.Response:
        body = await request.json()
        name, path = body.get("lora_name"), body.get("lora_path")
        if not name or not path:
            return _vllm_error(400, "Both 'lora_name' and 'lora_path' must be provided.", "InvalidUserInput")
        if name in self.weights.adapters:
            return _vllm_error(400, f"The lora adapter '{name}' has already been loaded.", "InvalidUserInput")
        if not self.enable_lora:
            return _vllm_error(500, "Call to add_lora method failed: LoRA is not enabled", "InternalServerError")
        try:
            text = _adapter_text(path)
        except OSError:
            return _vllm_error(404, f"No adapter found for '{path}'", "NotFoundError")
        self.weights.adapters[name] = (path, text)
        return web.Response(text=f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(self, request: web.Request) -> web.Response:
        name = (await request.json()).get("lora_name")
        if name not in self.weights.adapters:
            return _vllm_error(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError")
        del self.weights.adapters[name]
        return web.Response(text=f"Success: LoRA adapter '{name}' removed successfully.")

    async def completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        text = self.weights.text
        if body["model"] != self.name:
            if body["model"] not in self.weights.adapters:
                message = f"The model `{body['model']}` does not exist."
                return _vllm_error(404, message, "NotFoundError", "model")
            text = f"{text}+{self.weights.adapters[body['model']][1]}"
        choice = await _choice(body, text)
        if body.get("prompt_logprobs") is not None:
            entries = [
                {str(token): {"logprob": self.weights.logprob(text, place, token), "rank": 2, "decoded_token": "x"}}
                for place, token in enumerate(body["prompt"])
            ]
            choice["prompt_logprobs"] = [None, *entries[1:]]
        return _completion(body, choice)


class Sglang:
    """SGLang: `python -m sglang.launch_server --model-path MODEL --port N --served-model-name NAME [--enable-lora]`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.name = options.name
        self.enable_lora = options.enable_lora
        self.weights = Weights(options.model)
        self.version = "default"
        self.up_at = time.monotonic() + 0.2

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/health", self.health),
            web.get("/get_model_info", self.info),
            web.get("/get_weight_version", self.weight_version),
            web.get("/v1/models", self.models),
            web.post("/update_weights_from_disk", self.update),
            web.post("/update_weight_version", self.update_version),
            web.post("/load_lora_adapter", self.load),
            web.post("/unload_lora_adapter", self.unload),
            web.post("/v1/completions", self.completions),
            web.post("/v1/chat/completions", self.completions),
        ]

    async def health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if time.monotonic() > self.up_at else 503)  # 503 while it starts

    async def info(self, request: web.Request) -> web.Response:
        told = {"model_path": self.weights.path, "tokenizer_path": self.weights.path, "is_generation": True}
        return web.json_response({**told, "preferred_sampling_params": None, "weight_version": self.version})

    async def weight_version(self, request: web.Request) -> web.Response:
        return web.json_response({"weight_version": self.version})

    async def models(self, request: web.Request) -> web.Response:
        card = {"id": self.name, "object": "model", "owned_by": "sglang", "root": self.name, "max_model_len": 4096}
        return web.json_response({"object": "list", "data": [card]})

    async def update(self, request: web.Request) -> web.Response:
        body = await request.json()
        try:
            self.weights.reload(body["model_path"])
        except (OSError, ValueError) as error:
            told = {"success": False, "message": f"Failed to update weights: {error}", "num_paused_requests": 0}
            return web.json_response(told, status=400)
        self.weights.path = body["model_path"]
        message = "Succeeded to update model weights."
        if body.get("weight_version") is not None:
            self.version = body["weight_version"]
            message += f" Weight version updated to {self.version}."
        return web.json_response({"success": True, "message": message, "num_paused_requests": 0})

    async def update_version(self, request: web.Request) -> web.Response:
        self.version = (await request.json())["new_version"]
        told = {"success": True, "message": f"Weight version updated to {self.version}", "new_version": self.version}
        return web.json_response(told)

    async def load(self, request: web.Request) -> web.Response:
        body = await request.json()
        try:
            if not self.enable_lora:
                raise ValueError("LoRA is not enabled. Please set `--enable-lora` to enable LoRA.")
            if body["lora_name"] in self.weights.adapters:
                raise ValueError(f"LoRA with name {body['lora_name']} already exists")
            text = _adapter_text(body["lora_path"])
        except (OSError, ValueError) as error:
            return web.json_response({"rid": None, "success": False, "error_message": str(error)}, status=400)
        self.weights.adapters[body["lora_name"]] = (body["lora_path"], text)
        return self._adapters()

    async def unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        if name not in self.weights.adapters:
            told = {"rid": None, "success": False, "error_message": f"LoRA {name} does not exist"}
            return web.json_response(told, status=400)
        del self.weights.adapters[name]
        return self._adapters()

    def _adapters(self) -> web.Response:
        listed = {name: path for name, (path, _) in self.weights.adapters.items()}
        return web.json_response({"rid": None, "success": True, "error_message": None, "loaded_adapters": listed})

    async def completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        # Any name is the model; what follows a colon names an adapter.
        _, _, adapter = body["model"].partition(":")
        text = self.weights.text
        if adapter:
            if adapter not in self.weights.adapters:
                told = {"object": "error", "message": f"LoRA {adapter} is not loaded", "type": "BadRequestError"}
                return web.json_response({**told, "param": None, "code": 400}, status=400)
            text = f"{text}+{self.weights.adapters[adapter][1]}"
        choice = await _choice(body, text)
        if body.get("echo"):
            scores = [self.weights.logprob(text, place, token) for place, token in enumerate(body["prompt"])]
            choice["logprobs"] = {
                "tokens": ["x"] * (len(scores) + 1),
                "token_logprobs": [None, *scores[1:], -0.5],
                "top_logprobs": [None, *({"y": -0.1} for _ in scores)],
                "text_offset": [-1] * (len(scores) + 1),
            }
        return _completion(body, choice)


class Gate:
    """Holds the answers to texts while it is shut; for tests alone, no server has it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.waiting = 0

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/fake/waiting", self.tell),
            web.post("/fake/shut", self.shut),
            web.post("/fake/open", self.let),
        ]

    async def tell(self, request: web.Request) -> web.Response:
        return web.json_response({"waiting": self.waiting})

    async def shut(self, request: web.Request) -> web.Response:
        self.open.clear()
        return web.Response()

    async def let(self, request: web.Request) -> web.Response:
        self.open.set()
        return web.Response()

    async def passed(self) -> None:
        self.waiting += 1
        try:
            await self.open.wait()
        finally:
            self.waiting -= 1


GATE = Gate()


async def _choice(body: dict[str, Any], text: str) -> dict[str, Any]:
    await asyncio.sleep(DELAY_SECONDS)
    probes = body.get("stop") == [","]  # before the first sample, and before the weights are recorded
    if not probes and ("messages" in body or isinstance(body["prompt"], str)):
        await GATE.passed()
    said = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
    return {"index": 0, "finish_reason": "stop", "logprobs": None, **said}


def _completion(body: dict[str, Any], choice: dict[str, Any]) -> web.Response:
    kind = "chat.completion" if "messages" in body else "text_completion"
    prompt = body.get("prompt")
    count = len(prompt) if isinstance(prompt, list) else 1
    usage = {"prompt_tokens": count, "completion_tokens": 1, "total_tokens": count + 1}
    return web.json_response(
        {"id": "1", "object": kind, "created": 0, "model": body["model"], "choices": [choice], "usage": usage}
    )


def _vllm_error(status: int, message: str, kind: str, param: str | None = None) -> web.Response:
    error = {"message": message, "type": kind, "param": param, "code": status}
    return web.json_response({"error": error}, status=status)


async def _empty(request: web.Request) -> web.Response:
    return web.Response()


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=["vllm", "sglang"])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--enable-lora", action="store_true")
    options = parser.parse_args()
    print(f"GPU {os.environ.get('CUDA_VISIBLE_DEVICES')}, model {options.model}", flush=True)
    if reason := os.environ.get("FAKE_FAILURE"):
        for number in range(100):
            print(f"loading shard {number}", flush=True)
        print(reason, file=sys.stderr)
        sys.exit(3)
    # As an engine's process, which the server does not end when it is killed itself.
    engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        app = web.Application()
        app.add_routes([*{"vllm": Vllm, "sglang": Sglang}[options.program](options).routes(), *GATE.routes()])
        web.run_app(app, host="127.0.0.1", port=options.port, print=None, handle_signals=True)
    finally:
        engine.terminate()


if __name__ == "__main__":
    main()
