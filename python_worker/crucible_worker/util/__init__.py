"""What no package owns: options, limits, paths below roots, timeouts, errors of plug-ins, JSON of others."""
