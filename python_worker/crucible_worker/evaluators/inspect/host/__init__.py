"""The process in which a task of Inspect runs. No other module of the worker imports it."""
