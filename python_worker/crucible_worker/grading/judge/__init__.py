"""Judgement by a model: what it is shown, how texts are fenced, how its answer is read, what never goes to it."""
