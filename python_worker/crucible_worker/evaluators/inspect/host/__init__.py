"""The process in which a task of Inspect runs. Nothing of the worker imports it."""
