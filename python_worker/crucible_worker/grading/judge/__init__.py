"""Judgement by a model: what it is shown and how that is fenced, how its answer is read, what is never asked."""
