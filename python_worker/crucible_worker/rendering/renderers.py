"""The renderers, the option that chooses one, and what each of them refuses."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Conversation, Datum
from crucible_worker.rendering import role_colon, tinker_cookbook
from crucible_worker.rendering.prompted import plain_text

__all__ = [
    "AUTO",
    "CHAT_TEMPLATE",
    "COOKBOOK",
    "RAW",
    "RENDERER_PATTERN",
    "ROLE_COLON",
    "ROLE_COLONS",
    "SERVED",
    "RendererName",
    "answer_of",
    "before_answer",
    "check_input",
    "check_renderer",
]

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
        raise InvalidField(
            "conversation", "has roles, and the renderer raw takes text alone", reason=Reason.RAW_CONVERSATION
        )
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
