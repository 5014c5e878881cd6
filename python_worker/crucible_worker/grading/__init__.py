"""Graders: what is right, and how that is known."""
