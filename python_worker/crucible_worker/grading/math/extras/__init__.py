"""Rare notations of answers: chemistry, dates, dots, numbers too large to compute, spellings of other countries."""
