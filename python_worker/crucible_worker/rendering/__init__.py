"""From text and conversations to tokens: prompts for a model, and tokens to train on."""

from crucible_worker.rendering.asking import Answered, ask, sample_answers
from crucible_worker.rendering.prompts import render_prompt
from crucible_worker.rendering.renderers import (
    RENDERER_PATTERN,
    SERVED,
    RendererName,
    answer_of,
    check_input,
    check_renderer,
)
from crucible_worker.rendering.supervised import render_supervised
from crucible_worker.rendering.thinking import part_thinking, reasoning_spans, without_thinking
from crucible_worker.rendering.train_on import TrainOn, check_weights

__all__ = [
    "RENDERER_PATTERN",
    "SERVED",
    "Answered",
    "RendererName",
    "TrainOn",
    "answer_of",
    "ask",
    "check_input",
    "check_renderer",
    "check_weights",
    "part_thinking",
    "reasoning_spans",
    "render_prompt",
    "render_supervised",
    "sample_answers",
    "without_thinking",
]
