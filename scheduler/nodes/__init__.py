"""The nodes of a cluster: what is free on each, and where the bundles of a trial go."""
