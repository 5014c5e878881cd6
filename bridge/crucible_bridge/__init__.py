"""The contract of the crucible bridge, shared by client and worker."""
