"""Following a folder of checkpoints that a trainer writes: which are whole, and holding them while they are read."""
