"""The event log as its readers see it: streams, notes, what this worker writes."""
