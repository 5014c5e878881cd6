"""Models behind OpenAI-compatible servers: vLLM, SGLang, llama.cpp, `transformers serve`, OpenAI itself.

Nothing is imported here: settings need only `servers`, long before a model is used.
"""
