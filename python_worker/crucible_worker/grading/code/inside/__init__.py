"""What runs inside a sandbox: Python's standard library is all that there is."""
