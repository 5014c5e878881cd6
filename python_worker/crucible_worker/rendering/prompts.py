"""Prompts: the input of a sample as a model gets it, up to where the answer begins.

The renderers are described here, with the one text that a prompt is without a chat template, and images within tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
from msgspec import Meta

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Datum,
    ImageAssetChunk,
    ImageChunk,
    ModelInput,
    ModelInputChunk,
    TokensChunk,
    ToolSpec,
)
from crucible_worker.backends.base import Rendered, Tokenizer
from crucible_worker.rendering import role_colon, tinker_cookbook

__all__ = [
    "AUTO",
    "CHAT_TEMPLATE",
    "COOKBOOK",
    "MESSAGE_SEPARATOR",
    "RAW",
    "RENDERER_PATTERN",
    "ROLE_COLON",
    "ROLE_COLONS",
    "SERVED",
    "Prompted",
    "RendererName",
    "answer_of",
    "before_answer",
    "before_next",
    "check_input",
    "check_renderer",
    "encode_answered",
    "encode_conversation",
    "encode_joined",
    "encode_text",
    "images_of",
    "input_of",
    "joined",
    "measured_text",
    "messages_of",
    "plain_of",
    "plain_text",
    "render_prompt",
    "render_question",
    "require_tokenizer",
    "shifted",
    "stops_of",
    "tools_of",
    "weights_of",
    "with_tools",
]

# The conversation that a prompt makes of a row, and its form as one text for models without a chat template.
#
#     system message        Add the numbers.
#                           (an empty line between messages)
#     example               12+34=? 46
#                           (a space before an answer, or the target delimiter of the data set)
#     row                   13+29=?
#
# The text ends with the question: a model's tokenizer can put the space into the first token of the answer.

MESSAGE_SEPARATOR = "\n\n"
"""Between two messages: an empty line."""
ANSWER_SEPARATOR = " "
"""Between a prompt and its answer if no delimiter is given, unless there is white space already."""


@dataclasses.dataclass(frozen=True, slots=True)
class Prompted(Conversation):
    """A conversation that can be joined to one text, as its roles carry no meaning; those of data sets cannot."""

    question: str = dataclasses.field(kw_only=True)
    """The question of the row, without additions of the prompt: a judge reads this text."""


def plain_text(input: str | Conversation, delimiter: str | None = None) -> str | None:
    """The input as text without a chat template; None for one with tools, or of a data set, which has roles.

    A conversation of one user message becomes the text of the message.

    Args:
        input: of a sample.
        delimiter: before the answers of examples, see `before_next`.
    """
    if isinstance(input, str):
        return input
    if input.tools:
        return None
    if isinstance(input, Prompted):
        return joined(input.messages, delimiter)
    messages = input.messages
    alone = len(messages) == 1 and messages[0].role == "user" and messages[0].is_text
    return messages[0].content if alone else None


def joined(messages: Sequence[ChatMessage], delimiter: str | None = None) -> str:
    """Messages as one text, with a delimiter before each answer, see `before_next`."""
    text = ""
    for index, message in enumerate(messages):
        if index:
            answers = message.role == "assistant" and messages[index - 1].role != "assistant"
            text += before_next(text, message.content, delimiter) if answers else MESSAGE_SEPARATOR
        text += message.content
    return text


def before_next(prompt: str, answer: str, delimiter: str | None = None) -> str:
    """The text between a prompt and its answer: the one rule for examples, measured targets and choices.

    Args:
        prompt: the text before it.
        answer: the text after it.
        delimiter: this text; if None, one space, unless the prompt ends or the answer begins with white space.
    """
    if delimiter is not None:
        return delimiter
    return "" if prompt[-1:].isspace() or answer[:1].isspace() else ANSWER_SEPARATOR


def stops_of(input: str | Conversation) -> tuple[str, ...]:
    """Texts that end an answer to a joined text.

    After examples with answers, a model would continue with the next question: the empty line before it ends the
    answer, unless an earlier answer contains an empty line.
    """
    if not isinstance(input, Prompted):
        return ()
    answers = [message.content for message in input.messages[:-1] if message.role == "assistant"]
    return (MESSAGE_SEPARATOR,) if answers and not any(MESSAGE_SEPARATOR in answer for answer in answers) else ()


# The renderers, the option that chooses one, and what each of them refuses.

AUTO = "auto"
"""The chat template if the model or its server has one; else plain text."""
SERVED = "served"
"""As `auto`, but a server gets text unchanged: for ModelService, and evaluations that began so. Not an option."""
CHAT_TEMPLATE = "chat_template"
"""The model's own chat template, never plain text."""
ROLE_COLON = "role_colon"
"""A role and a colon before each message, see `role_colon.py`."""
RAW = "raw"
"""Text unchanged, and the conversation of a prompt joined to one text; no other conversations."""
COOKBOOK = "tinker:"
"""The prefix of the name of one of tinker-cookbook's renderers."""

ROLE_COLONS = (ROLE_COLON, f"{COOKBOOK}role_colon")

MAX_NAME_CHARS = 100
"""Characters of the name of one of tinker-cookbook's renderers."""

# Python's $ also matches before a final line end, that of JSON schema does not.
RENDERER_PATTERN = (
    f"^({AUTO}|{CHAT_TEMPLATE}|{ROLE_COLON}|{RAW}|{COOKBOOK}\\w[\\w./-]{{0,{MAX_NAME_CHARS - 1}}})(?!\\n)$"
)
"""What a renderer may be called."""

RendererName: TypeAlias = Annotated[
    str,
    Meta(
        pattern=RENDERER_PATTERN,
        examples=[AUTO, CHAT_TEMPLATE, ROLE_COLON, RAW, f"{COOKBOOK}qwen3"],
        description=(
            "How text and conversations become what the model gets. auto: its chat template, or its server's, else "
            "plain text. chat_template: that template, and no plain text. role_colon: 'User: ...', 'Assistant:', ended "
            "by the user's next turn. raw: text as it stands, a completion; no conversations with roles. tinker:NAME: "
            "a renderer of tinker-cookbook, where that is installed and the model's tokenizer is at hand."
        ),
    ),
]
"""The type of an evaluator's option `renderer`."""


def check_renderer(renderer: str) -> None:
    """Refuse a renderer that cannot be used in this worker with any model.

    Raises:
        FailedPrecondition: tinker-cookbook is not installed (EXTRA_NOT_INSTALLED).
    """
    if renderer.startswith(COOKBOOK):
        tinker_cookbook.check_installed()


def check_input(input: str | Conversation | Datum, renderer: str) -> None:
    """Refuse an input that a renderer cannot use with any model.

    Raises:
        InvalidField: a conversation with roles for `raw` (RAW_CONVERSATION); images or calls of tools for `role_colon`.
    """
    if renderer == RAW and isinstance(input, Conversation) and plain_text(input) is None:
        has = "tools" if input.tools else "roles"
        raise InvalidField(
            "conversation", f"has {has}, and the renderer raw takes text alone", reason=Reason.RAW_CONVERSATION
        )
    if renderer in ROLE_COLONS and tools_of(input):
        problem = f"is given, and the renderer {renderer} has no form for tools: use chat_template"
        raise InvalidField("conversation.tools", problem)
    if renderer == ROLE_COLON and isinstance(input, Conversation):
        for index, message in enumerate(input.messages):
            if not message.is_text:
                raise InvalidField(
                    f"conversation.messages[{index}]",
                    "has images, reasoning or calls of tools, for which the renderer role_colon has no form: use "
                    "chat_template",
                )


def before_answer(renderer: str) -> str:
    """The text between a prompt and an answer: the renderer writes it before the content of every message."""
    return role_colon.BEFORE if renderer in ROLE_COLONS else ""


def answer_of(output: str, renderer: str) -> str:
    """The answer in an output: the output without the text that the renderer writes around every message."""
    return role_colon.answer_of(output) if renderer in ROLE_COLONS else output


# Images in a rendered conversation: chunks of the model's input, in the place where the template has them.
#
#     <|vision_start|> -1 <|vision_end|> What is this?      tokens as a tokenizer returns them
#     tokens, image, tokens                                  chunks of the input, the image as the caller sent it

Image = ImageChunk | ImageAssetChunk

MAX_IMAGE_TOKENS = 1_000_000
"""Most tokens that the images of one input take together, for an example: targets and weights are made for each."""


def images_of(input: str | Conversation) -> tuple[Image, ...]:
    """The images of a conversation, in order."""
    messages: Iterable[ChatMessage] = input.messages if isinstance(input, Conversation) else ()
    return tuple(image for message in messages for image in message.images)


def input_of(tokens: Sequence[int] | np.ndarray, images: Sequence[Image]) -> ModelInput:
    """The input of rendered tokens, with each image in its place.

    Args:
        tokens: shape (n,); -1 is the place of the first image, -2 of the second one.
        images: all of them.
    """
    if not images:
        return ModelInput.of(tokens)
    ids = np.asarray(tokens, np.int64)
    chunks: list[ModelInputChunk] = []
    start = 0
    for place in np.flatnonzero(ids < 0).tolist():
        if place > start:
            chunks.append(TokensChunk(tokens=ids[start:place]))
        chunks.append(images[-int(ids[place]) - 1])
        start = place + 1
    if start < len(ids):
        chunks.append(TokensChunk(tokens=ids[start:]))
    return ModelInput(tuple(chunks))


def weights_of(tokens: np.ndarray, weights: np.ndarray, images: Sequence[Image]) -> np.ndarray:
    """The weights of an input with images: 0 for each token that an image takes.

    Raises:
        InvalidField: an image does not say how many tokens it takes, or all take more than `MAX_IMAGE_TOKENS`.
    """
    if not images:
        return weights
    lengths = np.ones(len(tokens), np.int64)
    weights = np.where(tokens < 0, 0, weights)
    places = np.flatnonzero(tokens < 0)
    lengths[places] = [_length(images[-place - 1]) for place in tokens[places].tolist()]
    if (taken := int(lengths[places].sum())) > MAX_IMAGE_TOKENS:
        message = f"has images that take {taken:,} tokens together, at most {MAX_IMAGE_TOKENS:,} are accepted"
        raise InvalidField("input.messages", message)
    return np.repeat(weights, lengths).astype(np.float32)


def shifted(whole: ModelInput, weights: np.ndarray) -> Datum:
    """An input and its weights as a Datum: the input without its last token, targets and weights without the first one.

    The targets of images are 0, and so are their weights, as in tinker-cookbook.

    Raises:
        InvalidField: the input ends with an image, which cannot be a target.
    """
    *earlier, last = whole.chunks
    if not isinstance(last, TokensChunk):
        raise InvalidField("input.messages", "renders to an input that ends with an image: nothing can be predicted")
    rest = [TokensChunk(tokens=last.tokens[:-1])] if len(last.tokens) > 1 or not earlier else []
    targets = np.concatenate(list(_targets(whole.chunks)))
    return Datum(
        model_input=ModelInput((*earlier, *rest)),
        loss_fn_inputs={"target_tokens": targets[1:], "weights": weights[1:]},
    )


def _targets(chunks: Iterable[ModelInputChunk]) -> Iterator[np.ndarray]:
    for chunk in chunks:
        yield chunk.tokens if isinstance(chunk, TokensChunk) else np.zeros(_length(chunk), np.int64)


def _length(image: Image) -> int:
    if (count := image.expected_tokens) is None or count < 1:
        given = "without `expected_tokens`" if count is None else f"with `expected_tokens` of {count}"
        message = f"has an image {given}: weights need the number of tokens that it takes, at least 1"
        raise InvalidField("input.messages", message)
    return count


async def render_prompt(
    tokenizer: Tokenizer | None, input: str | Conversation | Datum, renderer: str = SERVED
) -> ModelInput:
    """Render a sample's input as a prompt.

    Unless another renderer is named, text is one user message if the model has a chat template, else plain text; a
    conversation goes through the chat template, with the generation prompt; a Datum's input is not changed.

    Args:
        tokenizer: the model's, if it has one.
        input: the input of a Sample.
        renderer: see `renderers.py`.

    Raises:
        FailedPrecondition: text or a conversation for a model without a tokenizer (NO_TOKENIZER), a conversation for
            one without a chat template (NO_CHAT_TEMPLATE).
        InvalidField: the prompt is empty: it has no message, or no token.
    """
    if isinstance(input, Datum):
        return input.model_input
    return input_of((await render_question(tokenizer, input, renderer)).tokens, images_of(input))


async def render_question(tokenizer: Tokenizer | None, input: str | Conversation, renderer: str) -> Rendered:
    """Render text or a conversation as a prompt, with the stop sequences that the renderer brings.

    Text is plain for `raw`, and for `auto` if the model has no chat template; so is the conversation that a prompt
    makes of a row. For every other renderer text is one user message.

    Args:
        tokenizer: the model's, if it has one.
        input: the input of a Sample.
        renderer: see `renderers.py`.

    Raises:
        FailedPrecondition: the model has no tokenizer (NO_TOKENIZER), no chat template (NO_CHAT_TEMPLATE), or the
            renderer is one that cannot be used with it.
        InvalidField: the prompt is empty: it has no message, or no token; or the renderer accepts no conversation.
    """
    check_input(input, renderer)
    known = require_tokenizer(tokenizer)
    if renderer == ROLE_COLON:
        return await role_colon.encode_prompt(known, messages_of(input))
    if renderer.startswith(COOKBOOK):
        messages = messages_of(input)
        if not messages:
            raise InvalidField("input.messages", "is empty")
        return await known.render_cookbook(renderer.removeprefix(COOKBOOK), messages, **with_tools(tools_of(input)))
    if (text := plain_of(known, input, renderer)) is not None:
        return Rendered(tokens=await encode_text(known, text, plain=True), stop=stops_of(input), text=text)
    tools = input.tools if isinstance(input, Conversation) else ()
    return await _rendered(known, messages_of(input), generation_prompt=True, tools=tools)


def plain_of(tokenizer: Tokenizer, input: str | Conversation, renderer: str) -> str | None:
    """The text that a model gets unchanged; None if a template makes the prompt of messages."""
    if renderer == RAW or (renderer == AUTO and not tokenizer.has_chat_template):
        return plain_text(input, tokenizer.target_delimiter)
    if renderer == SERVED and isinstance(input, str) and not tokenizer.has_chat_template:
        return input
    return None


async def encode_answered(
    tokenizer: Tokenizer,
    input: str | Conversation,
    answers: Sequence[str],
    renderer: str,
    delimiter: str | None = None,
) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
    """The tokens of a prompt, and of each measured answer after it.

    Plain text is encoded together with the answer, with the delimiter between them. A template makes the whole prompt,
    and the answer follows it.

    Args:
        tokenizer: the model's.
        input: the input of a Sample.
        answers: texts, at least one.
        renderer: see `renderers.py`.
        delimiter: text before each answer; if None, the tokenizer's in plain text, and none after a template.

    Raises:
        FailedPrecondition: as of `render_question`; or the tokenizer joins the whole prompt with an answer (NO_PROMPT).
        InvalidField: as of `render_question`.
    """
    check_input(input, renderer)
    measured = [measured_text(tokenizer, input, answer, renderer, delimiter) for answer in answers]
    if (text := plain_of(tokenizer, input, renderer)) is not None:
        return await encode_joined(tokenizer, text, measured)
    prompt = (await render_question(tokenizer, input, renderer)).tokens
    return prompt, await tokenizer.encode_all(measured, continuations=True)


def measured_text(
    tokenizer: Tokenizer, input: str | Conversation, answer: str, renderer: str, delimiter: str | None = None
) -> str:
    """An answer with the text that stands between it and its prompt, and is measured with it.

    The arguments are those of `encode_answered`; plain text has nothing before an empty answer.
    """
    if (text := plain_of(tokenizer, input, renderer)) is None:
        return f"{before_answer(renderer)}{delimiter or ''}{answer}"
    known = tokenizer.target_delimiter if delimiter is None else delimiter
    return f"{before_next(text, answer, known)}{answer}" if answer else ""


async def encode_joined(
    tokenizer: Tokenizer, prompt: str, continuations: Sequence[str]
) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
    """The tokens of a text and of each continuation, encoded together as lm-evaluation-harness does.

    A tokenizer may join the last characters of the prompt with the first ones of a continuation, such as a space with
    the word after it: such a token belongs to the continuation, and the prompt is the common beginning of all these
    texts in tokens. White space that ends the prompt as a token by itself belongs to the prompt, where
    lm-evaluation-harness measures it: a template that ends with a space says that a model was trained so.

    Raises:
        FailedPrecondition: nothing is left before a continuation (NO_PROMPT).
        InvalidField: the prompt has no tokens.
    """
    asked, *wholes = await tokenizer.encode_all([prompt, *(f"{prompt}{text}" for text in continuations)])
    if not asked:
        raise InvalidField("input", "has no tokens: a model needs at least one")
    seam = min(_common(asked, whole) for whole in wholes)
    if seam == 0:
        raise FailedPrecondition(
            "the tokenizer joins the whole prompt with an answer: nothing is left before it", reason=Reason.NO_PROMPT
        )
    return asked[:seam], [whole[seam:] for whole in wholes]


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """The number of equal tokens at the start of two sequences."""
    pairs = enumerate(zip(first, second))
    return next((index for index, (one, other) in pairs if one != other), min(len(first), len(second)))


def messages_of(input: str | Conversation) -> Sequence[ChatMessage]:
    """The messages of a conversation; text is one message of the user."""
    return input.messages if isinstance(input, Conversation) else (ChatMessage("user", input),)


def tools_of(input: str | Conversation | Datum | ModelInput) -> tuple[ToolSpec, ...]:
    """The tools of a conversation; none of text and tokens."""
    return input.tools if isinstance(input, Conversation) else ()


def with_tools(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The option of a tokenizer for tools; one without tools needs not know it."""
    return {"tools": tuple(tools)} if tools else {}


def require_tokenizer(tokenizer: Tokenizer | None) -> Tokenizer:
    """The tokenizer, if there is one.

    Raises:
        FailedPrecondition: the model has none.
    """
    if tokenizer is None:
        raise FailedPrecondition(
            "the model has no tokenizer: only tokens can be sent to it; name a local model with the same tokenizer "
            "(local:PATH), or give token ids in place of text",
            reason=Reason.NO_TOKENIZER,
        )
    return tokenizer


async def encode_text(tokenizer: Tokenizer, text: str, *, plain: bool = False) -> Sequence[int]:
    """Tokens of a prompt in text, at least one; `plain` text is no message, even if the model has a chat template.

    Raises:
        InvalidField: the text has no tokens.
    """
    if tokenizer.has_chat_template and not plain:
        return await encode_conversation(tokenizer, (ChatMessage("user", text),), generation_prompt=True)
    tokens = await tokenizer.encode(text)
    if not tokens:
        raise InvalidField("input", "has no tokens: a model needs at least one")
    return tokens


async def encode_conversation(
    tokenizer: Tokenizer,
    messages: Sequence[ChatMessage],
    *,
    generation_prompt: bool,
    tools: Sequence[ToolSpec] = (),
) -> Sequence[int]:
    """Tokens of a conversation by the model's chat template.

    Raises:
        FailedPrecondition: the model has no chat template.
        InvalidField: there is no message, or the template refuses them.
    """
    return (await _rendered(tokenizer, messages, generation_prompt=generation_prompt, tools=tools)).tokens


async def _rendered(
    tokenizer: Tokenizer, messages: Sequence[ChatMessage], *, generation_prompt: bool, tools: Sequence[ToolSpec]
) -> Rendered:
    if not tokenizer.has_chat_template:
        raise FailedPrecondition(
            "the model has no chat template: a conversation cannot be rendered for it; the renderer role_colon needs "
            "none",
            reason=Reason.NO_CHAT_TEMPLATE,
        )
    if not messages:
        raise InvalidField("input.messages", "is empty")
    if tools:
        return await tokenizer.render_chat(messages, generation_prompt=generation_prompt, tools=tools)
    return await tokenizer.render_chat(messages, generation_prompt=generation_prompt)
