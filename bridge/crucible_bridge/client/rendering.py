"""RenderingService, typed."""

# The timeout is not measured here: it travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from crucible_bridge.client.calls import Calls
from crucible_bridge.client.given import ModelLike, as_model
from crucible_bridge.client.plain_calls import PlainRenderingCalls
from crucible_bridge.codec import generated as codec
from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types import (
    BuildGenerationPromptRequest,
    BuildGenerationPromptResponse,
    BuildSupervisedExampleRequest,
    BuildSupervisedExampleResponse,
    ChatMessage,
    Conversation,
    DetokenizeRequest,
    DetokenizeResponse,
    GetStopSequencesRequest,
    GetStopSequencesResponse,
    ModelInput,
    ParseResponseRequest,
    ParseResponseResponse,
    RawResponse,
    SampledSequence,
    TokenizeRequest,
    TokenizeResponse,
    TokenSequence,
    message_from_json,
)
from crucible_bridge.types.tools import tools_from_json
from crucible_bridge.v1 import rendering_pb2_grpc

__all__ = ["ConversationLike", "RenderingClient", "ResponseLike", "TokenIds"]

T = TypeVar("T")

TokenIds: TypeAlias = ModelInput | Sequence[int] | np.ndarray
"""Token ids."""
ConversationLike: TypeAlias = Conversation | str | Mapping[str, Any] | Iterable[ChatMessage | Mapping[str, Any]]
"""A conversation: messages, also as mappings with `role` and `content`; text is one message of the user; a mapping has
`messages`, and `tools` in the form of OpenAI."""
ResponseLike: TypeAlias = str | RawResponse | SampledSequence | TokenIds
"""What a model generated: text, token ids, or a SampledSequence, whose `stop_reason` is sent as well."""


class RenderingClient(PlainRenderingCalls):
    """Renderers and tokenizers of the worker's models; only tokenizers are loaded.

    Every call with a batch returns for each item, in order, a result or a `problem`. It raises an error only if no item
    has a result.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._stub: Any = rendering_pb2_grpc.RenderingServiceStub(calls.channel)

    async def tokenize(
        self,
        model: ModelLike,
        texts: Iterable[str],
        *,
        add_special_tokens: bool = False,
        timeout: float | None = None,
    ) -> TokenizeResponse:
        """Token ids of texts.

        Example: `(await bridge.rendering.tokenize("local:my-tokenizer", ["12+34="])).items[0].tokens`.

        Args:
            model: a reference, "embedded:NAME", "local:PATH" or "tinker:..."; PATH may have nothing else than a
                tokenizer.
            texts: at least one. The text of a special token becomes that token.
            add_special_tokens: whether the special tokens that the tokenizer puts around a text are added.
            timeout: seconds for the call.

        Raises:
            InvalidField: there is no text, or there are too many.
            NotFound: there is no such model.
            FailedPrecondition: it has no tokenizer, or it cannot be opened here.
        """
        request = TokenizeRequest(
            model=as_model(model), texts=_each(texts, "texts", _text), add_special_tokens=add_special_tokens
        )
        message = codec.tokenize_request_to_v1(request)
        return await self._calls.unary(self._stub.Tokenize, message, codec.tokenize_response_from_v1, timeout)

    async def detokenize(
        self,
        model: ModelLike,
        tokens: Iterable[TokenIds],
        *,
        skip_special_tokens: bool = False,
        timeout: float | None = None,
    ) -> DetokenizeResponse:
        """Texts of token ids.

        Args:
            model: as for `tokenize`.
            tokens: sequences of token ids, at least one.
            skip_special_tokens: whether special tokens are left out of the texts.
            timeout: seconds for the call.

        Raises:
            BridgeError: as for `tokenize`.
        """
        sequences = _each(tokens, "tokens", lambda one, field: TokenSequence(tokens=_ids(one, field)))
        request = DetokenizeRequest(model=as_model(model), sequences=sequences, skip_special_tokens=skip_special_tokens)
        message = codec.detokenize_request_to_v1(request)
        return await self._calls.unary(self._stub.Detokenize, message, codec.detokenize_response_from_v1, timeout)

    async def build_generation_prompt(
        self,
        model: ModelLike,
        conversations: Iterable[ConversationLike],
        *,
        renderer: str = "auto",
        timeout: float | None = None,
    ) -> BuildGenerationPromptResponse:
        """Prompts of conversations in token ids, and the stop sequences of their answers.

        Args:
            model: as for `tokenize`.
            conversations: at least one; text is one message of the user.
            renderer: "auto", "chat_template", "role_colon", "raw" or "tinker:NAME"; see docs/rendering.md.
            timeout: seconds for the call.

        Raises:
            BridgeError: as for `tokenize`; FailedPrecondition if the renderer cannot be used with the model.
        """
        request = BuildGenerationPromptRequest(
            model=as_model(model),
            conversations=_each(conversations, "conversations", _conversation),
            renderer=renderer,
        )
        message = codec.build_generation_prompt_request_to_v1(request)
        decode = codec.build_generation_prompt_response_from_v1
        return await self._calls.unary(self._stub.BuildGenerationPrompt, message, decode, timeout)

    async def build_supervised_example(
        self,
        model: ModelLike,
        conversations: Iterable[ConversationLike],
        *,
        train_on: str = "last_assistant",
        renderer: str = "auto",
        timeout: float | None = None,
    ) -> BuildSupervisedExampleResponse:
        """Conversations as training examples: token ids, the weight of each, and the same as a Datum.

        Args:
            model: as for `tokenize`.
            conversations: at least one, each with a message of the assistant.
            train_on: which tokens have weight, by the names of tinker-cookbook's `TrainOnWhat`; "last_assistant",
                "all_assistant" and "all" are short names.
            renderer: as for `build_generation_prompt`.
            timeout: seconds for the call.

        Raises:
            BridgeError: as for `build_generation_prompt`.
        """
        request = BuildSupervisedExampleRequest(
            model=as_model(model),
            conversations=_each(conversations, "conversations", _conversation),
            train_on=train_on,
            renderer=renderer,
        )
        message = codec.build_supervised_example_request_to_v1(request)
        decode = codec.build_supervised_example_response_from_v1
        return await self._calls.unary(self._stub.BuildSupervisedExample, message, decode, timeout)

    async def parse_response(
        self,
        model: ModelLike | None,
        texts: Iterable[ResponseLike],
        *,
        renderer: str = "auto",
        timeout: float | None = None,
    ) -> ParseResponseResponse:
        """What models generated, as messages: text, reasoning, calls of tools, and how each ended.

        Args:
            model: as for `tokenize`; may be None for the renderers "raw", "role_colon" and "tinker:role_colon".
            texts: at least one text, SampledSequence, or sequence of token ids.
            renderer: that of the prompt.
            timeout: seconds for the call.

        Raises:
            BridgeError: as for `build_generation_prompt`.
        """
        request = ParseResponseRequest(
            model=None if model is None else as_model(model),
            responses=_each(texts, "texts", _response),
            renderer=renderer,
        )
        message = codec.parse_response_request_to_v1(request)
        decode = codec.parse_response_response_from_v1
        return await self._calls.unary(self._stub.ParseResponse, message, decode, timeout)

    async def get_stop_sequences(
        self, model: ModelLike | None = None, *, renderer: str = "auto", timeout: float | None = None
    ) -> GetStopSequencesResponse:
        """What ends an answer to a renderer's prompt: texts, and token ids where one token is such a text.

        Args:
            model: as for `parse_response`.
            renderer: as for `build_generation_prompt`.
            timeout: seconds for the call.

        Raises:
            BridgeError: as for `build_generation_prompt`.
        """
        request = GetStopSequencesRequest(model=None if model is None else as_model(model), renderer=renderer)
        message = codec.get_stop_sequences_request_to_v1(request)
        decode = codec.get_stop_sequences_response_from_v1
        return await self._calls.unary(self._stub.GetStopSequences, message, decode, timeout)


def _each(items: Any, field: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
    alone = str | bytes | ModelInput | Conversation | RawResponse | SampledSequence | Mapping
    if isinstance(items, alone) or not isinstance(items, Iterable):
        raise InvalidField(field, f"is a {type(items).__name__}, not a sequence of them")
    return tuple(read(item, f"{field}[{index}]") for index, item in enumerate(items))


def _text(text: Any, field: str) -> str:
    if not isinstance(text, str):
        raise InvalidField(field, f"is a {type(text).__name__}, not text")
    return text


def _ids(tokens: Any, field: str) -> tuple[int, ...]:
    try:
        return tuple(ModelInput.of(tokens).tokens().tolist())
    except InvalidField as error:
        raise InvalidField(field, error.message) from error


def _conversation(given: Any, field: str) -> Conversation:
    if isinstance(given, Conversation):
        return given
    if isinstance(given, str):
        return Conversation((ChatMessage("user", given),))
    if isinstance(given, Mapping) and "messages" in given:
        if unknown := sorted(set(map(str, given)) - {"messages", "tools"}):
            raise InvalidField(field, f"has the key {clipped(unknown[0])}; known are messages, tools")
        made = _conversation(given["messages"], f"{field}.messages")
        return Conversation(made.messages, tools_from_json(given.get("tools"), f"{field}.tools"))
    if not isinstance(given, Iterable):
        raise InvalidField(field, "is no Conversation, text, or list of messages with role and content")
    return Conversation(tuple(_message(one, f"{field}[{index}]") for index, one in enumerate(given)))


def _message(given: Any, field: str) -> ChatMessage:
    if isinstance(given, ChatMessage):
        return given
    try:
        return message_from_json(given)
    except InvalidField as error:
        raise InvalidField(f"{field}.{error.field}" if error.field else field, error.message) from error


def _response(given: Any, field: str) -> RawResponse:
    if isinstance(given, RawResponse):
        return given
    if isinstance(given, SampledSequence):
        return RawResponse(text=given.text, tokens=tuple(given.tokens), stop_reason=given.stop_reason)
    return RawResponse(text=given) if isinstance(given, str) else RawResponse(tokens=_ids(given, field))
