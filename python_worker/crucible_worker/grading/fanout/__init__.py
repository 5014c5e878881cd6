"""Grading on a Ray cluster: chunks of answers go to its nodes, which grade them as a worker would."""
