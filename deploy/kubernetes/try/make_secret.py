"""Prints secret.env: a password for the database, the journal's URL with it, and a token."""

import secrets

password = secrets.token_hex(24)
print(f"password={password}")
print(f"journal=postgresql://crucible:{password}@crucible-bridge-postgres/crucible")
print(f"token={secrets.token_urlsafe(32)}")
