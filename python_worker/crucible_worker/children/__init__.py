"""Child processes: started, bound to their parent's life, sent frames, killed with their group, and reaped.

`frames` is the one framing, `messages` the codec on top of it, `process` a child as its parent sees it, `entry` how a
child begins, `channel` a socket in an event loop, and `bounds` what the kernel limits.
"""
