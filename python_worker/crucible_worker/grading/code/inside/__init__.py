"""The code that runs inside a sandbox, where only Python's standard library is available."""
