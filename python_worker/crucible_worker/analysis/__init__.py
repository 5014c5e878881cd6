"""What results say when they are compared: pairs, gates, ties, clusters."""
