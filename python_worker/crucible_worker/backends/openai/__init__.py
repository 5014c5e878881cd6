"""Models behind OpenAI-compatible servers: vLLM, SGLang, llama.cpp, `transformers serve`, OpenAI itself.

Nothing is imported here: settings need `servers` alone, long before a model is asked for.
"""
