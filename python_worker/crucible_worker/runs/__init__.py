"""The life of evaluations: engine, journal, owners, admission."""
