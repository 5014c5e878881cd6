"""Evaluators: how a model is queried about samples, and how its answers are judged."""
