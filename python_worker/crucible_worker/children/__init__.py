"""Child processes: started, bound to their parent's life, sent frames, killed with their group, and reaped.

`frames` is the one framing, `messages` the codec on top of it, `process` a child as its parent sees it, `lifetime` how
a child begins and what the kernel limits, `fork_server` a process that is forked for each child, `forks` its client.
"""
