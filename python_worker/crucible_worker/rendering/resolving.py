"""Which renderer `auto` means for a model: at the start of an evaluation, and wherever a model answers."""

from __future__ import annotations

from crucible_worker.backends.base import Model
from crucible_worker.rendering.renderers import AUTO, CHAT_TEMPLATE, RAW

__all__ = ["resolved"]


def resolved(model: Model, renderer: str) -> str:
    """The renderer for a loaded model that is to answer.

    `auto` becomes the renderer that the evaluation recorded before, if it did; else the chat template of the model or
    its server; else plain text. It stays `auto` if an orchestrator renders.
    """
    if renderer != AUTO:
        return renderer
    if model.resolved_renderer is not None:
        return model.resolved_renderer
    if model.tokenizer is not None:
        return CHAT_TEMPLATE if model.tokenizer.has_chat_template else RAW
    return model.renderer
