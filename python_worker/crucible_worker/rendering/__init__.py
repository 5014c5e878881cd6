"""From text and conversations to tokens: prompts for a model, and tokens to train on."""

from crucible_worker.rendering.answers import Answered, Finished, ask, finished, opening_of_tokens, sample_answers
from crucible_worker.rendering.prompts import (
    RENDERER_PATTERN,
    SERVED,
    RendererName,
    answer_of,
    check_input,
    check_renderer,
    render_prompt,
)
from crucible_worker.rendering.supervised import render_supervised
from crucible_worker.rendering.train_on import TrainOn, check_weights

__all__ = [
    "RENDERER_PATTERN",
    "SERVED",
    "Answered",
    "Finished",
    "RendererName",
    "TrainOn",
    "answer_of",
    "ask",
    "check_input",
    "check_renderer",
    "check_weights",
    "finished",
    "opening_of_tokens",
    "render_prompt",
    "render_supervised",
    "sample_answers",
]
