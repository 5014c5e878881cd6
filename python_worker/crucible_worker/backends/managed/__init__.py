"""Servers of models that the worker starts, loads and stops itself: vLLM and SGLang.

Nothing is imported here: settings need only `settings`, and a server's guard only itself.
"""
