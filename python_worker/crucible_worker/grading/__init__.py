"""Graders: they decide whether answers are right."""
