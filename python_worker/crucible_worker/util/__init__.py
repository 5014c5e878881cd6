"""What no package owns: limits, paths below roots, timeouts, errors of plug-ins, JSON of others."""
