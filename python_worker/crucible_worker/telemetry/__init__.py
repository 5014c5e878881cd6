"""What the worker tells its operator."""
