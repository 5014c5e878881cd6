"""From text and conversations to tokens: what a model is asked, and what it is trained on."""

from crucible_worker.rendering.asking import sample_answers
from crucible_worker.rendering.prompts import render_prompt
from crucible_worker.rendering.supervised import TrainOn, render_supervised

__all__ = ["TrainOn", "render_prompt", "render_supervised", "sample_answers"]
