"""One file per proto service: decode, call, encode."""
