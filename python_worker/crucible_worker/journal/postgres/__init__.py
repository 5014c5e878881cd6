"""The journal in PostgreSQL, shared by workers on several machines. Importing it imports psycopg."""

from crucible_worker.journal.postgres.store import PostgresStore, prepare

__all__ = ["PostgresStore", "prepare"]
