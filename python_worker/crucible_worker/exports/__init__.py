"""Evaluations in the formats of other programs: Inspect's logs, Every Eval Ever, JSON lines and Parquet."""
