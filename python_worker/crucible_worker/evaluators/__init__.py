"""Evaluators: how samples are asked and judged."""
