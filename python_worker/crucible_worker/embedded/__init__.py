"""The small models that ship with the worker, the problems they were trained on, and the script that trains them."""
