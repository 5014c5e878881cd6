"""Stands before a skyrl-tx server of an older Tinker API, and speaks what the tinker library of today speaks.

It asks that server in JSON, and answers the library's protobuf: configuration, samplers, training states loaded into
models of their own, samples and forward passes. Nothing is computed here.
"""

from __future__ import annotations

import http.server
import json
import math
import threading
import urllib.error
import urllib.request
from typing import Any

import numpy as np
from tinker.proto import tinker_public_pb2 as wire

__all__ = ["Proxy"]

ANSWER_SECONDS = 300.0
"""For the server to answer: it compiles what it computes for the first time."""

RANK = 4
"""Of the adapters that training states are loaded into."""

_STOP_REASONS = {"stop": wire.STOP_REASON_STOP, "length": wire.STOP_REASON_LENGTH}


class Refused(Exception):
    """What the server answered, where that is no success."""

    def __init__(self, status: int, content: bytes) -> None:
        super().__init__(f"{status}: {content[:500]!r}")
        self.status = status
        self.content = content


class Proxy:
    """A server on a free port of this machine, from `start` to `close`."""

    def __init__(self, upstream: str, base_model: str) -> None:
        self._upstream = upstream
        self._base_model = base_model
        self._models: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self.keys: set[str | None] = set()
        """Keys that the library showed."""
        self.paths: list[str] = []
        """What the library asked for, in order."""
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy.answer(self, b"")

            def do_POST(self) -> None:
                proxy.answer(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        """Begin to serve, in a thread."""
        threading.Thread(target=self._server.serve_forever, name="tinker-proxy", daemon=True).start()

    def close(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()

    def ask(self, path: str, body: Any = None) -> Any:
        """Ask the server below in JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._upstream}/api/v1/{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read()) from None

    def outcome(self, promise: dict[str, Any]) -> Any:
        """What a promise of the server below comes to."""
        return self.ask("retrieve_future", {"request_id": promise["request_id"]})

    def answer(self, handler: http.server.BaseHTTPRequestHandler, content: bytes) -> None:
        """Answer one request of the library."""
        path = handler.path.removeprefix("/api/v1/")
        self.keys.add(handler.headers.get("X-API-Key"))
        self.paths.append(path)
        answer: Any
        try:
            status, answer = 200, self._answer(path, content)
        except Refused as refused:
            status, answer = refused.status, refused.content
        kind = "application/json"
        if isinstance(answer, wire.SampleResponse | wire.ForwardBackwardOutput):
            kind, body = "application/x-protobuf", answer.SerializeToString()
        else:
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _answer(self, path: str, content: bytes) -> Any:
        if path == "client/config":
            return {}
        if path == "client/dynamic_config":
            raise Refused(404, b"{}")
        if path.startswith("samplers/"):
            return {"sampler_id": path.removeprefix("samplers/"), "base_model": self._base_model}
        if path.startswith("sessions/"):
            return {}
        if path == "forward_backward":
            return self._forward(wire.ForwardBackwardRequest.FromString(content))
        body = json.loads(content)
        if path == "load_weights":
            return self._load(body)
        if path == "retrieve_future":
            return self._retrieve(body["request_id"])
        if path == "get_info":
            return self.ask(path, {"model_id": self._models[body["model_id"]]})
        if path == "asample":
            promise = self._promise(path, {**body, "sampling_params": _without_none(body["sampling_params"])})
            return {**promise, "sample_sequence_ids": [str(index) for index in range(body["num_samples"])]}
        return self.ask(path, body)

    def _promise(self, path: str, body: Any) -> dict[str, str]:
        promise = self.ask(path, body)
        request_id = promise.get("request_id") or promise["future_id"]
        self._kinds[request_id] = path
        return {"request_id": request_id}

    def _load(self, body: dict[str, Any]) -> dict[str, str]:
        model = self.ask(
            "create_model",
            {"session_id": body["session_id"], "base_model": self._base_model, "lora_config": {"rank": RANK}},
        )
        self.outcome(model)
        self._models[f"{body['session_id']}:train:{body['model_seq_id']}"] = model["model_id"]
        return self._promise("load_weights", {"model_id": model["model_id"], "path": body["path"]})

    def _forward(self, request: wire.ForwardBackwardRequest) -> dict[str, str]:
        assert request.forward_only, "a backward pass would change the gradients of whoever trains"
        data = [
            {
                "model_input": {
                    "chunks": [
                        {"tokens": np.frombuffer(chunk.encoded_text.tokens, np.int32).tolist()}
                        for chunk in datum.model_input
                    ]
                },
                "loss_fn_inputs": {name: {"data": _numbers(value)} for name, value in datum.loss_fn_inputs.items()},
            }
            for datum in request.data
        ]
        model_id = self._models[request.model_id]
        return self._promise(
            "forward", {"model_id": model_id, "forward_input": {"data": data, "loss_fn": request.loss_fn}}
        )

    def _retrieve(self, request_id: str) -> Any:
        try:
            result = self.outcome({"request_id": request_id})
        except Refused as refused:
            if refused.status != 400:
                raise
            return {"error": json.loads(refused.content)["detail"], "category": "user"}
        kind = self._kinds.get(request_id)
        return _samples(result) if kind == "asample" else _forwarded(result) if kind == "forward" else result


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _numbers(tensor: wire.Tensor) -> list[float]:
    return np.frombuffer(tensor.dense, np.int64 if tensor.dtype == wire.DTYPE_INT64 else np.float32).tolist()


def _samples(result: dict[str, Any]) -> wire.SampleResponse:
    sequences = [
        wire.SampledSequence(
            stop_reason=_STOP_REASONS[sequence["stop_reason"]],
            tokens=np.array(sequence["tokens"], np.int32).tobytes(),
            logprobs=np.array(sequence["logprobs"], np.float32).tobytes(),
        )
        for sequence in result["sequences"]
    ]
    response = wire.SampleResponse(sequences=sequences)
    if (prompt := result.get("prompt_logprobs")) is not None:
        # That server leaves out the first, of which there is nothing to say.
        response.prompt_logprobs = np.array([math.nan, *prompt], np.float32).tobytes()
    return response


def _forwarded(result: dict[str, Any]) -> wire.ForwardBackwardOutput:
    arrays = [np.array(output["logprobs"]["data"], np.float32) for output in result["loss_fn_outputs"]]
    offsets = np.cumsum([0, *(array.nbytes for array in arrays)]).astype(np.int64)
    batch = wire.BatchedTensor(
        data=b"".join(array.tobytes() for array in arrays), offsets=offsets.tobytes(), dtype=wire.DTYPE_FLOAT32
    )
    record = wire.ArrayRecord(type_tag="ArrayRecord", fields={"logprobs": batch}, num_datums=len(arrays))
    return wire.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", loss_fn_outputs=[record])
