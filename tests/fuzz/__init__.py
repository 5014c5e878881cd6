"""A worker under hostile input, for as long as one likes; `python -m tests.fuzz --help` says how."""
