"""Workers on the nodes of a Ray cluster, each the child of an actor."""
