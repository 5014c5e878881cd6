"""The process that talks to Ray, in a worker's place."""
