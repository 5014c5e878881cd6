"""The child process that has the embedded models on a CPU; started as `python -m` with this name.

It answers the same requests as `backends.local.host`. The embedded models have 0.9 million parameters: numpy computes
their answers in milliseconds, and needs a hundredth of PyTorch's disk space.
"""
