"""The processes in which environments of users run. No other module of the worker imports this."""
