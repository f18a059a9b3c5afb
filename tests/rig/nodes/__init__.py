"""Fleets, machines and engines: network namespaces, a real Slurm, agents that know no trial."""
