"""Calls of models: retried and metered, one or in batches, for evaluations and for callers."""
