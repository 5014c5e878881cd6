"""The processes in which environments of users run. Nothing of the worker imports this."""
