"""What a run that trains has evaluated: plans, followed folders, early stopping."""
