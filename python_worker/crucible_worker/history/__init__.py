"""What is kept of evaluations, and for how long: their states, runs, retention, removal."""
