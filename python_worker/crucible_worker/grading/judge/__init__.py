"""Judgement by a model: its prompt, the fences between texts, how its answer is parsed, and what it never gets."""
