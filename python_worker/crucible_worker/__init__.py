"""The worker: evaluates models, and says so."""
