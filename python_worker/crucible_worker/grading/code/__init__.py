"""Programs that models wrote, run in a sandbox and judged outside of it."""
